// report.js - the choices of the reader, and drawing all that follows from them.
'use strict';

// What a group is of where all groups are alike, in one line.
function drawAlike(alike) {
  return element('p', {class: 'note'}, alike.map((one) => described(one, group())).filter(Boolean).join(', '));
}

// Made anew at each choice, since what can be chosen depends on it; the focus stays where it was.
function drawFilters() {
  const focused = document.activeElement;
  const [name, value] = [focused?.name, focused?.value];
  const differs = ([dimension]) => choicesOf(dimension).length > 1;
  const sets = dimensions.filter(differs).map(([dimension, title]) =>
    choices(dimension, title, choicesOf(dimension), group()[dimension], (chosen) => {
      chooseGroup(dimension, chosen);
      refresh();
    }));
  settle();
  if (sources.size > 1) {
    sets.unshift(choices('file', 'File', ['all files', ...sources], state.file || 'all files', (chosen) => {
      state.file = sources.has(chosen) ? chosen : '';
      refresh();
    }));
  }
  sets.push(choices('n', 'n', sizesOf(group()), state.n, (chosen) => {
    state.n = Number(chosen);
    refresh();
  }));
  byId('choices').replaceChildren(...sets, drawAlike(dimensions.filter((one) => !differs(one))));
  const shown = methodsOf(group()).filter((method) => !state.hidden.has(method));
  byId('methods').firstElementChild.textContent = `Variants: ${shown.length} of ${methodsOf(group()).length}`;
  byId('method-boxes').replaceChildren(...methodsOf(group()).map((method) => {
    const box = element('input', {type: 'checkbox', name: 'method', value: method});
    const swatch = element('span', {class: 'swatch', 'aria-hidden': 'true'});
    swatch.style.background = lookOf(data.lines.findIndex((line) => line.method === method)).color;
    box.checked = !state.hidden.has(method);
    box.addEventListener('change', () => {
      if (box.checked) state.hidden.delete(method);
      else state.hidden.add(method);
      refresh();
    });
    return element('label', {}, box, ' ', swatch, method);
  }));
  if (name) [...document.getElementsByName(name)].find((other) => other.value === value)?.focus();
}

function refresh() {
  drawFilters();
  writeHash();
  drawAnswer();
  drawPlots();
  drawTables();
  runView.page = 0;
  drawRuns();
  showRun();
}

// What the address says, everywhere.
function restore() {
  readHash();
  showLimits();
  showRunView();
  refresh();
  goToPlace();
}

function start() {
  fillContents();
  makeLink();
  drawHeadline();
  drawDoubts();
  drawEstimates();
  followAddress(restore);
  if (!data.groups.length) {
    byId('filters').replaceChildren(element('p', {}, 'This results file has no runs.'));
    return;
  }
  makeLimits();
  makeRuns();
  makePanel();
  byId('filters').addEventListener('submit', (event) => event.preventDefault());
  byId('all-methods').addEventListener('click', () => {
    state.hidden.clear();
    refresh();
  });
  byId('no-methods').addEventListener('click', () => {
    methodsOf(group()).forEach((method) => state.hidden.add(method));
    refresh();
  });
  followMedia(refresh, drawPlots);
  restore();
}

start();
if (!waiting.size) drawNearest(); // a file without runs has no plots to wait for
