// table.js - tables: they scroll in a box of their own, show no text twice in a row, and are saved as CSV.
'use strict';

const wideColumns = ['message', 'command', 'statement', 'meaning'], textColumns = ['the error is', 'front in', 'of', 'no worse?'];

// A text that may be broken behind a colon, a comma or an equals sign, as a spec is.
const breakable = (text) => String(text).split(/(?<=[:,=])(?=\S)/).flatMap((part, i) => (i ? [element('wbr'), part] : [part]));

// A text of a table that opens something; as a text it is itself.
const opening = (text, open, marks = []) => ({text, open, marks, toString: () => text});

// What a cell holds: a text, a text with links to what is said of it, {text, marks: [element]}, which may open something, or an element.
function fillCell(cell, content) {
  if (content instanceof Node) cell.append(content);
  else if (content && content.marks) {
    const texts = breakable(content.text), button = content.open && element('button', {type: 'button', class: 'open', title: 'Show this run'}, ...texts);
    button?.addEventListener('click', content.open);
    cell.append(...(button ? [button] : texts), ...content.marks.flatMap((mark) => [' ', mark]));
  }
  else cell.append(...breakable(content));
  return cell;
}

// The rows of a table. In the first `left` columns a text that stands above, to the right of others that do, is there but not seen.
function bodyRows(rows, kinds, left) {
  let above = [];
  return rows.map((row) => {
    const made = element('tr'), start = row.findIndex((content, i) => i >= left || String(content) !== above[i]);
    row.forEach((content, i) => made.append(fillCell(element(i === 0 ? 'th' : 'td',
      {class: i < start ? `${kinds[i]} same` : kinds[i], ...(i === 0 ? {scope: 'row'} : {})}), content)));
    above = row.map(String);
    return made;
  });
}

const nameOf = (caption) => caption.split(/[.,:]/)[0].trim().replace(/[^\w]+/g, '-').toLowerCase();

function csvButton(caption, rowsOf) {
  const button = element('button', {type: 'button', class: 'csv', 'aria-label': `Save as CSV: ${caption}`}, 'CSV');
  button.addEventListener('click', () => save(`${nameOf(caption)}.csv`, 'text/csv', csvOf(rowsOf())));
  return button;
}

// The first `left` columns are text; so are those that are called so by name.
function table(caption, header, rows, left = 1) {
  const kinds = header.map((name, i) => (wideColumns.includes(name) ? 'wide' : i < left || textColumns.includes(name) ? 'text' : 'number'));
  const head = element('tr', {}, ...header.map((name, i) => element('th', {scope: 'col', class: kinds[i]}, name)));
  const made = element('table', {'aria-label': caption}, element('thead', {}, head), element('tbody', {}, ...bodyRows(rows, kinds, left)));
  return element('div', {class: 'tabled'}, element('p', {class: 'caption'}, caption), csvButton(caption, () => textOf(made)),
    element('div', {class: 'scroll', tabindex: '0', role: 'group', 'aria-label': caption}, made));
}

// Puts a table under a closed triangle, which stays as the reader left it.
function showTable(id, made, summary = 'The numbers as a table') {
  const place = byId(id);
  const open = place.querySelector('details')?.open || false;
  const details = element('details', {}, element('summary', {}, summary), made);
  details.open = open;
  place.replaceChildren(details);
}
