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
  fillContents();
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
  followMedia(refresh, drawPlots);
  refresh();
}

start();
if (!waiting.size) drawNearest(); // a file without runs has no plots to wait for
