// report.js - what the reader chose, and drawing all that follows from it.
'use strict';

const dimensions = data.menus;
const state = {group: 0, n: 0, hidden: new Set()};

function group() {
  return data.groups[state.group];
}

function visibleLines() {
  return group().lines.filter((line) => !state.hidden.has(line.line));
}

function sizesOf(chosen) {
  return [...new Set(chosen.lines.flatMap((line) => line.cells.map((cell) => cell.n)))].sort((a, b) => a - b);
}

// The group that has this value and otherwise most in common with the present one: there always is something to show.
function chooseGroup(dimension, value) {
  const alike = (other) => dimensions.filter(([name]) => String(other[name]) === String(group()[name])).length;
  let best = -1;
  data.groups.forEach((other, i) => {
    if (String(other[dimension]) === value && (best < 0 || alike(other) > alike(data.groups[best]))) best = i;
  });
  state.group = best;
}

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

// Made anew at each choice, since what can be chosen depends on it; the focus stays where it was.
function drawFilters() {
  const focused = document.activeElement;
  const [name, value] = [focused?.name, focused?.value];
  const sets = dimensions.map(([dimension, title]) => choices(dimension, title,
    [...new Set(data.groups.map((one) => one[dimension]))], group()[dimension], (chosen) => {
      chooseGroup(dimension, chosen);
      refresh();
    }));
  const sizes = sizesOf(group());
  if (!sizes.includes(state.n)) state.n = sizes[sizes.length - 1];
  sets.push(choices('n', 'n, where one', sizes, state.n, (chosen) => {
    state.n = Number(chosen);
    refresh();
  }));
  byId('choices').replaceChildren(...sets);
  byId('variant-boxes').replaceChildren(...group().lines.map(({line}) => {
    const box = element('input', {type: 'checkbox', name: 'variant', value: String(line)});
    const swatch = element('span', {class: 'swatch', 'aria-hidden': 'true'});
    swatch.style.background = lookOf(line).color;
    box.checked = !state.hidden.has(line);
    box.addEventListener('change', () => {
      if (box.checked) state.hidden.delete(line);
      else state.hidden.add(line);
      refresh();
    });
    return element('label', {}, box, ' ', swatch, data.lines[line].label);
  }));
  if (name) [...document.getElementsByName(name)].find((other) => other.value === value)?.focus();
}

function refresh() {
  drawFilters();
  drawPlots();
  drawTables();
  runView.page = 0;
  drawRuns();
}

function start() {
  byId('contents').append(...[...document.querySelectorAll('main section')].map((section) =>
    element('li', {}, element('a', {href: `#${section.id}`}, section.querySelector('h2').textContent))));
  drawSummary();
  drawProvenance();
  if (!data.groups.length) {
    byId('filters').replaceChildren(element('p', {}, 'This results file has no runs.'));
    return;
  }
  makeChooser();
  makeRuns();
  byId('filters').addEventListener('submit', (event) => event.preventDefault());
  byId('all-variants').addEventListener('click', () => {
    state.hidden.clear();
    refresh();
  });
  byId('no-variants').addEventListener('click', () => {
    group().lines.forEach(({line}) => state.hidden.add(line));
    refresh();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', refresh);
  let opened = [];
  addEventListener('beforeprint', () => {
    printing = true;
    drawPlots();
    drawAll();
    opened = [...document.querySelectorAll('details:not([open])')];
    opened.forEach((details) => { details.open = true; });
  });
  addEventListener('afterprint', () => {
    printing = false;
    opened.forEach((details) => { details.open = false; });
    drawPlots();
  });
  refresh();
}

start();
if (!waiting.size) drawNearest(); // a file without runs has no plots to wait for
