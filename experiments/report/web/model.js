// model.js - the page of an evaluation: what the reader chose, and the tables.
'use strict';

// Where attention was replaced, in words.
function whereOf(run) {
  const parts = [run.layers !== 'all' && `layers ${run.layers}`, run.heads !== 'all' && `heads ${run.heads}`, run.phase !== 'both' && run.phase,
    run.mix !== 1 && `mix ${significant(run.mix, 3)}`];
  return parts.filter(Boolean).join(', ') || 'everywhere';
}

const isSingle = (run) => /^\d+$/.test(run.layers) && run.heads === 'all' && run.phase === 'both' && run.mix === 1;
// Of which windows a task is asked; a generated one has no text.
const askedOf = (run) => [run.data && `${run.data} (${run.data_sha256.slice(0, 8)})`, `${run.windows} windows`, `seed ${run.seed}`,
  run.bos >= 0 && `bos ${run.bos}`].filter(Boolean).join(', ');

const menus = [['model', 'model', (run) => run.model], ['task', 'task', (run) => run.task], ['asked', 'asked of', askedOf],
  ['n', 'n', (run) => String(run.n)], ['where', 'replaced', whereOf]];
const state = {at: ''};

// Runs alike in all menus up to this one.
function runsUpTo(menu) {
  return data.runs.filter((run) => menus.slice(0, menu).every(([name, , value]) => value(run) === state[name]));
}

// What can be chosen depends on what was chosen before; where that is not there, the value that most runs have.
function settle() {
  menus.forEach(([name, , value], i) => {
    const counts = new Map();
    for (const run of runsUpTo(i)) counts.set(value(run), (counts.get(value(run)) || 0) + 1);
    if (!counts.has(state[name])) state[name] = [...counts].reduce((best, one) => (one[1] > best[1] ? one : best))[0];
  });
}

function hashOf() {
  const chosen = [...menus.map(([name]) => [name, state[name]]), ...hashOfZooms().map((zoom) => ['zoom', zoom]), ...(state.at ? [['at', state.at]] : [])];
  return data.runs.length ? new URLSearchParams(chosen).toString() : '';
}

function readHash() {
  const hash = new URLSearchParams(location.hash.slice(1));
  for (const [name] of menus) state[name] = hash.get(name);
  readZooms(hash.getAll('zoom'));
  state.at = placeIn(hash);
}

function drawFilters() {
  const focused = document.activeElement, [name, value] = [focused?.name, focused?.value];
  byId('choices').replaceChildren(...menus.map(([menu, title, valueOf], i) =>
    choices(menu, title, [...new Set(runsUpTo(i).map(valueOf))], state[menu], (chosen) => {
      state[menu] = chosen;
      refresh();
    })));
  if (name) [...document.getElementsByName(name)].find((other) => other.value === value)?.focus();
}

const interval = (run, name, text) => asInterval([run[name], run[`${name}_lo`], run[`${name}_hi`]], text);
const signed = (value) => (number(value) > 0 ? `+${significant(value, 3)}` : significant(value, 3));

function qualityTable(runs) {
  const header = ['variant', 'read', 'left out', 'bits', 'KL', 'KL median', '99 %', 'dNLL', 'perplexity x', 'same top', 'certified', 'change of p, RMS', 'right', 'all', 'lost', 'won',
    'McNemar p (Holm)', 'error of attention', 'time', 'no worse?'];
  const rows = runs.map((run) => [labelOf(run), asShare(run.density), asShare(run.mass_left), asRatio(run.kv_bits), interval(run, 'kl', asError), asError(run.kl_median), asError(run.kl_p99),
    interval(run, 'dnll', signed), asRatio(run.ppl_ratio), interval(run, 'top1', asShare), asShare(run.top1_certified), asError(run.dp_rms),
    asShare(run.right), interval(run, 'score', asShare), asRatio(run.lost), asRatio(run.won),
    Number.isNaN(number(run.score_p)) ? '-' : `${asError(run.score_p)} (${asError(run.score_p_holm)})`, asError(run.attention_error), asTime(run.attention_time), run.word.replace('_', ' ')]);
  const first = runs[0];
  const exact = first ? `${first.windows} windows of ${first.n} positions. The exact model: ${significant(first.nll_exact, 4)} nats a token (token ` +
    `frequencies alone ${significant(first.nll_unigram, 4)}, uniform ${significant(first.nll_uniform, 4)}), ${asShare(first.right_exact)} of tokens ` +
    `right, all in ${interval(first, 'score_exact', asShare)} of the windows.` : 'No run of this choice ended well.';
  byId('quality-table').replaceChildren(element('p', {}, exact), table('Of each run', header, rows));
}

function positionTable(runs) {
  const bins = runs.length ? runs[0].by_position.nll.map((value, bin) => bin).filter((bin) => !Number.isNaN(number(runs[0].by_position.nll[bin]))) : [];
  const end = (bin) => String(Math.round(binEnd(runs[0].n, bin, runs[0].by_position.nll.length)));
  showTable('position-table', table('Change of the negative log-likelihood, nats, up to each position', ['variant', ...bins.map(end)],
    runs.map((run) => [labelOf(run), ...bins.map((bin) => signed(run.by_position.dnll[bin]))])));
}

const depthOf = (run) => Number(/[:,]depth=([\d.]+)/.exec(run.task)?.[1]);
const besideDepth = (run) => run.task.replace(/[:,]depth=[^,]*/, '');

// A cell for each depth and length, the darker the more windows are answered.
function depthMap(caption, runs, value) {
  const lengths = [...new Set(runs.map((run) => run.n))].sort((a, b) => a - b);
  const depths = [...new Set(runs.map(depthOf))].sort((a, b) => a - b);
  const of = (depth, n) => runs.find((run) => run.n === n && depthOf(run) === depth);
  const made = table(caption, ['depth', ...lengths.map((n) => `n = ${n}`)],
    depths.map((depth) => [asShare(depth), ...lengths.map((n) => asShare(of(depth, n)?.[value]))]));
  made.querySelectorAll('tbody td').forEach((cell, i) => {
    const share = number(of(depths[Math.floor(i / lengths.length)], lengths[i % lengths.length])?.[value]);
    if (!Number.isNaN(share)) cell.style.background = `color-mix(in srgb, var(--link) ${Math.round(50 * share)}%, var(--page))`;
  });
  return made;
}

// Of the chosen question; of another one, if that has no depths.
function depthMaps(runs) {
  const deep = runs.filter((run) => depthOf(run) >= 0), asked = deep.find((run) => run.task === state.task) || deep[0];
  const found = asked ? deep.filter((run) => besideDepth(run) === besideDepth(asked)) : [];
  const maps = new Set(found.map(depthOf)).size < 2 ? [element('p', {class: 'note'}, 'No question was asked at several depths.')] :
    [depthMap(`Exact model: ${besideDepth(asked)}`, found, 'score_exact'),
      ...[...new Set(found.map((run) => run.line))].map((line) => depthMap(data.lines[line].label, found.filter((run) => run.line === line), 'score'))];
  byId('depth-maps').replaceChildren(...maps);
}

function lengthTable(runs) {
  showTable('length-table', table('Divergence, nats a token', ['variant', 'n', 'KL', 'dNLL', 'same top'],
    runs.map((run) => [labelOf(run), run.n, interval(run, 'kl', asError), interval(run, 'dnll', signed), asShare(run.top1)])));
}

function layersTable(single, everywhere) {
  showTable('layers-table', table('One layer replaced: divergence, the error of its attention, KL / error^2, and the error that each layer may ' +
    'have if all together may cost the budget',
  ['variant', 'layer', 'KL', 'error', 'sensitivity', 'error allowed', 'budget'],
  single.map((run) => [labelOf(run), run.layers, interval(run, 'kl', asError), asError(run.attention_error), asRatio(run.sensitivity),
    asError(run.error_allowed), asError(run.kl_budget)])));
  const sums = everywhere.filter((run) => !Number.isNaN(number(run.additivity)));
  if (sums.length)
    byId('layers-table').append(table('Additivity: the sum of the layers\' divergences over that of all replaced; near 1 where errors are small',
      ['variant', 'additivity'], sums.map((run) => [labelOf(run), asRatio(run.additivity)])));
}

function refresh() {
  settle();
  drawFilters();
  writeHash();
  const chosen = runsUpTo(menus.length).filter(good), ofModel = runsUpTo(1).filter(good);
  const ofWindows = ofModel.filter((run) => askedOf(run) === state.asked && whereOf(run) === state.where);
  const anyLength = ofWindows.filter((run) => run.task === state.task);
  const single = runsUpTo(4).filter((run) => good(run) && isSingle(run));
  qualityTable(chosen);
  positionTable(chosen);
  lengthTable(anyLength);
  depthMaps(ofWindows);
  layersTable(single, chosen);
  drawLater('reads-plot', () => readsPlots(chosen));
  drawLater('cache-plot', () => cachePlot(chosen));
  drawLater('answers-plot', () => answersPlot(chosen));
  drawLater('position-plot', () => positionPlot(chosen));
  drawLater('length-plot', () => lengthPlot(anyLength));
  drawLater('relation-plot', () => relationPlot(ofModel));
  drawLater('layers-plot', () => layersPlots(chosen, single));
}

const placeOf = (run) => [...menus.map(([, , value]) => value(run)), labelOf(run)];
const placeHeader = [...menus.map(([, title]) => title), 'variant'];

// One row for each reason.
function failedTable(failed) {
  const reasons = new Map();
  for (const run of failed) {
    const what = JSON.stringify([labelOf(run), run.status, run.message]);
    reasons.set(what, (reasons.get(what) || 0) + 1);
  }
  return table('Runs that did not end well', ['variant', 'status', 'runs', 'message'],
    [...reasons].map(([what, count]) => {
      const [variant, status, message] = JSON.parse(what);
      return [variant, status, count, message];
    }), 2);
}

// On a model that cannot copy, windows look harmless.
function copying(model) {
  const asked = data.runs.filter((run) => good(run) && run.model === model && run.task.startsWith('copy:'));
  if (!asked.length)
    return `${model} was not asked to copy (--task copy): whether it has induction heads, which a window takes away, is not seen here.`;
  const right = number(asked[0].right_exact);
  return `${model} copies ${asShare(right)} of the tokens with exact attention (${asked[0].task}, n = ${asked[0].n})` +
    `${right < 0.2 ? ': it looks little at what is far, so that windows look harmless on it.' : '.'}`;
}

function drawSummary() {
  const failed = data.runs.filter((run) => !good(run)), better = data.runs.filter((run) => good(run) && run.doubt), place = byId('summary-body');
  const of = (name) => [...new Set(data.runs.map((run) => run[name]))].length;
  byId('headline').textContent = `${data.runs.length} runs, ${failed.length} of them not ended well; models: ${of('model')}, tasks: ${of('task')}, ` +
    `lengths: ${of('n')}.`;
  place.append(...[...new Set(data.runs.map((run) => run.model))].map((model) => element('p', {}, copying(model))));
  const found = data.runs.flatMap((run) => run.checks.filter((check) => ['violated', 'error'].includes(check.verdict)).map((check) => ({run, check})));
  const judged = data.runs.flatMap((run) => run.checks).filter((check) => ['pass', 'consistent'].includes(check.verdict));
  place.append(element('p', found.length ? {class: 'bad'} : {}, `${judged.length} checks hold, ${found.length} are violated or could not be evaluated.`));
  if (found.length)
    place.append(table('Checks that do not hold', [...placeHeader, 'check', 'verdict', 'measured', 'bound', 'message'], found.map(({run, check}) =>
      [...placeOf(run), check.name, check.verdict, asRatio(check.measured), asRatio(check.value), check.message || '']), 8));
  if (better.length)
    place.append(table('Perplexity says better, KL says different: the interval of dNLL lies below 0, that of KL above the margin',
      [...placeHeader, 'dNLL', 'KL'], better.map((run) => [...placeOf(run), interval(run, 'dnll', signed), interval(run, 'kl', asError)]), 6));
  if (failed.length) place.append(failedTable(failed));
}

function drawRuns() {
  const names = Object.keys(data.columns).filter((name) => data.runs.some((run) => run[name] !== null && run[name] !== ''));
  const rows = data.runs.map((run) => names.map((name) => (typeof run[name] === 'number' ? significant(run[name], 4) : run[name])));
  byId('runs-body').append(element('details', {class: 'every-column'}, element('summary', {}, 'Every column of every run'),
    table('Runs', names, rows, names.length)));
}

function start() {
  fillContents();
  makeLink();
  drawSummary();
  if (!data.runs.length) {
    byId('filters').replaceChildren(element('p', {}, 'This file has no runs.'));
    return;
  }
  byId('filters').addEventListener('submit', (event) => event.preventDefault());
  followMedia(refresh);
  followAddress(restore);
  drawRuns();
  restore();
}

function restore() {
  readHash();
  refresh();
  goToPlace();
}

start();
if (!waiting.size) drawNearest(); // a file without runs has no plots to wait for
