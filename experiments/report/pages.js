// pages.js - what every page has: contents, choices, and a form for paper.
'use strict';

// A list that opens, of many values, the numbers in them in their order.
function list(name, values, chosen, onChange) {
  const sorted = values.map(String).sort(new Intl.Collator('en', {numeric: true}).compare);
  const box = element('select', {name: `choice-${name}`}, ...sorted.map((value) => element('option', {value}, value)));
  box.value = String(chosen);
  box.addEventListener('change', () => onChange(box.value));
  return box;
}

function choices(name, title, values, chosen, onChange) {
  const set = element('fieldset', {id: `choice-${name}`}, element('legend', {}, title));
  if (values.length > 8) {
    set.append(list(name, values, chosen, onChange));
    set.lastChild.setAttribute('aria-label', title);
    return set;
  }
  for (const value of values) {
    const box = element('input', {type: 'radio', name: `choice-${name}`, value: String(value)});
    box.checked = String(value) === String(chosen);
    box.addEventListener('change', () => onChange(String(value)));
    set.append(values.length > 1 ? element('label', {}, box, ` ${value}`) : element('span', {}, String(value)));
  }
  return set;
}

function fillContents() {
  byId('contents').append(...[...document.querySelectorAll('main section')].map((section) =>
    element('li', {}, element('a', {href: `#${section.id}`}, section.querySelector('h2').textContent))));
}

// Redraws in the colours of the screen, and of paper, where all tables but the columns of every run are open.
function followMedia(draw, drawForPaper = draw) {
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  let opened = [];
  addEventListener('beforeprint', () => {
    printing = true;
    drawForPaper();
    drawAll();
    opened = [...document.querySelectorAll('details:not([open], .every-column)')];
    opened.forEach((details) => { details.open = true; });
  });
  addEventListener('afterprint', () => {
    printing = false;
    opened.forEach((details) => { details.open = false; });
    drawForPaper();
  });
}
