// runs.js - the table of runs: sorted by a click on a column's name, a page at a time.
'use strict';

const pageSize = 100;
const runColumns = [
  ...(sources.size > 1 ? [['file', (i) => data.lines[runs.line[i]].source]] : []),
  ...(datasets.size > 1 ? [['dataset', (i) => data.groups[runs.group[i]].dataset]] : []), ['mask', (i) => data.groups[runs.group[i]].causal],
  ['setting', (i) => named({line: runs.line[i]})], ['n', (i) => runs.n[i]], ['seed', (i) => runs.seed[i]],
  ['status', (i) => runs.status[i]], ['error', (i) => number(runs.err_rel_fro[i]), asError], ['time', (i) => number(runs.time_median[i]), asTime],
  ['time from', (i) => number(runs.time_ci_lo[i]), asTime], ['to', (i) => number(runs.time_ci_hi[i]), asTime],
  ['samples', (i) => runs.n_samples[i]], ['outliers', (i) => runs.n_outliers[i]], ['drift', (i) => number(runs.drift_ratio[i]), asRatio],
  ['GFLOP/s', (i) => number(runs.gflops[i]), asRatio], ['memory', (i) => number(runs.peak_alloc[i]), asBytes],
  ['max error', (i) => number(runs.err_max_abs[i]), asError], ['rows compared', (i) => runs.rows_sampled[i]],
  ['cache', (i) => data.groups[runs.group[i]].cache],
  ['verdict', (i) => runs.verdict[i].replace('_', ' ')], ['of models', (i) => runs.model_verdict[i].replace('_', ' ')],
  ['doubts', (i) => doubtsOf(runs.doubts[i]).map(([name]) => name).join(' ')],
  ['message', (i) => runs.message[i]]];
const columnOf = (wanted) => runColumns.findIndex(([name]) => name === wanted);
const searched = ['file', 'setting', 'dataset', 'mask', 'status', 'cache', 'verdict', 'doubts', 'message'];
const runView = {column: columnOf('setting'), down: false, page: 0};

// The view is in the address: "-time" sorts by that column, downwards.
function showRunView() {
  const down = state.sort.startsWith('-'), column = columnOf(state.sort.replace('-', ''));
  Object.assign(runView, {column: column < 0 ? columnOf('setting') : column, down, page: 0});
  byId('run-search').value = state.words;
  byId('run-all').checked = state.all === 'yes';
}

// Unknown numbers come last, either way.
function compareRuns(a, b) {
  const value = runColumns[runView.column][1], x = value(a), y = value(b);
  if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
  const order = x < y ? -1 : x > y ? 1 : 0;
  return (runView.down ? -order : order) || a - b;
}

function chosenRuns() {
  const words = byId('run-search').value.toLowerCase().split(' ').filter((word) => word);
  const visible = new Set(visibleLines().map((line) => line.line));
  const found = [];
  for (let i = 0; i < runs.line.length; i++) {
    if (state.all !== 'yes' && (runs.group[i] !== state.group || !visible.has(runs.line[i]))) continue;
    if (words.length) {
      const text = runColumns.filter(([name]) => searched.includes(name)).map(([, value]) => value(i)).join(' ').toLowerCase();
      if (!words.every((word) => text.includes(word))) continue;
    }
    found.push(i);
  }
  return found.sort(compareRuns);
}

function drawRuns() {
  const found = chosenRuns(), pages = Math.max(1, Math.ceil(found.length / pageSize));
  runView.page = Math.min(runView.page, pages - 1);
  const first = runView.page * pageSize, page = found.slice(first, first + pageSize);
  byId('run-count').textContent = found.length ? `Runs ${first + 1} to ${first + page.length} of ${found.length}` : 'No runs';
  byId('run-back').disabled = runView.page === 0;
  byId('run-on').disabled = runView.page === pages - 1;
  byId('run-head').querySelectorAll('th').forEach((head, i) =>
    head.setAttribute('aria-sort', i !== runView.column ? 'none' : runView.down ? 'descending' : 'ascending'));
  byId('run-rows').replaceChildren(...bodyRows(page.map((i) => runColumns.map(([name, value, text]) => (name === 'doubts' ?
    element('span', {}, ...doubtMarks(runs.doubts[i]).flatMap((mark) => [mark, ' '])) : name === 'setting' ?
      opening(value(i), () => openRun(i)) : shownOf(value(i), text)))),
  runColumns.map(([name, value]) => (name === 'message' ? 'wide' : typeof value(0) === 'number' ? 'number' : 'text')),
  runView.column <= columnOf('setting') ? columnOf('n') : 0));
  if (datasets.size > 1) page.forEach((i, row) => { byId('run-rows').rows[row].cells[columnOf('dataset')].title = data.groups[runs.group[i]].spec; });
}

const shownOf = (value, text) => (text ? text(value) : String(value));
const runRows = () => [runColumns.map(([name]) => name), ...chosenRuns().map((i) => runColumns.map(([, value, text]) => shownOf(value(i), text)))];

function turn(change) {
  const {column, down} = Object.assign(runView, change);
  state.sort = (down ? '-' : '') + runColumns[column][0];
  Object.assign(state, {words: byId('run-search').value, all: byId('run-all').checked ? 'yes' : ''});
  writeHash();
  drawRuns();
}

function makeRuns() {
  const all = element('input', {type: 'checkbox', id: 'run-all'});
  const search = element('input', {type: 'search', id: 'run-search'});
  const back = element('button', {type: 'button', id: 'run-back'}, 'previous');
  const on = element('button', {type: 'button', id: 'run-on'}, 'next');
  all.addEventListener('change', () => turn({page: 0}));
  search.addEventListener('input', () => turn({page: 0}));
  back.addEventListener('click', () => turn({page: runView.page - 1}));
  on.addEventListener('click', () => turn({page: runView.page + 1}));
  const kind = (value) => runs.line.length && typeof value(0) === 'number' ? 'number' : 'text';
  const head = element('tr', {id: 'run-head'}, ...runColumns.map(([name, value], column) => {
    const button = element('button', {type: 'button'}, name);
    button.addEventListener('click', () => turn({down: runView.column === column && !runView.down, column, page: 0}));
    return element('th', {scope: 'col', class: kind(value)}, button);
  }));
  byId('runs-body').append(
    element('p', {class: 'controls'}, element('label', {}, 'Words ', search),
      element('label', {}, all, ' all runs, whatever the choices'), back, ' ', on, ' ',
      csvButton('Runs', runRows), ' ', element('span', {id: 'run-count', 'aria-live': 'polite'})),
    element('div', {class: 'tabled'}, element('div', {class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'Runs'},
      element('table', {}, element('thead', {}, head), element('tbody', {id: 'run-rows'})))));
  byId('run-rows').addEventListener('click', (event) => {
    if (!event.target.closest('a, button') && !String(getSelection())) event.target.closest('tr')?.querySelector('.open').click();
  });
}
