// tables.js - the tables: of each plot, of the choice of a variant, and what the page begins with.
'use strict';

const label = (line) => data.lines[line.line].label;
const doubtText = (bits) => doubtsOf(bits).join(', ');

// One row for each line and n; a combination that could not run says why.
function cellTable(caption, lines, quantity, text) {
  const rows = lines.flatMap((line) => line.cells.map((cell) => [
    label(line), cell.n, cell.ok ? asInterval(cell[quantity], text) : cell.status, cell.ok,
    cell.ok ? [cell.beyond_zeros && 'zeros are as near', doubtText(cell.doubts)].filter(Boolean).join(', ') : cell.message]));
  return table(caption, ['variant', 'n', quantity, 'seeds', 'why'], rows);
}

function exponent(fit) {
  if (fit[3] < 2) return 'one length alone';
  const text = (value) => number(value).toFixed(2);
  return `n^${text(fit[0])} [${text(fit[1])}, ${text(fit[2])}]`;
}

function timeTable(lines) {
  const fits = table('Growth, value ~ n^exponent, by weighted least squares on logarithms with 95 % intervals. Of two lengths, ' +
    'the interval is that of the noise alone.', ['variant', 'time', 'memory', 'lengths'],
  lines.filter((line) => line.time[3]).map((line) => [label(line), exponent(line.time), exponent(line.memory), line.time[3]]));
  showTable('time-table', cellTable('Median time of one execution', lines, 'time', asTime));
  byId('time-table').prepend(fits);
}

function crossing(line) {
  const {kind, n} = line.crossing;
  const at = (value) => {
    value = number(value);
    if (value === Infinity) return 'beyond the lengths run';
    if (value === -Infinity) return 'below the lengths run';
    return String(Math.round(value));
  };
  const interval = Number.isNaN(number(n[1])) ? ' (no interval: one sample)' : ` [${at(n[1])}, ${at(n[2])}]`;
  switch (kind) {
    case 'faster': return 'none in range: faster at every length';
    case 'slower': return 'none in range: slower at every length';
    case 'to faster': return `faster from n = ${at(n[0])}${interval}`;
    case 'to slower': return `slower from n = ${at(n[0])}${interval}`;
    default: return 'not known: fewer than two lengths were timed for both';
  }
}

function speedupTable(lines) {
  const exact = group().exact;
  byId('speedup-note').textContent = exact === null ? 'No exact variant was timed here, so there is nothing to compare with.' :
    `Over ${data.lines[exact].label}: time ratios of the same rounds, medians with 95 % bootstrap intervals over rounds. ` +
    'The crossover is the first n where the ratio passes 1, interpolated.';
  const others = lines.filter((line) => line.line !== exact && line.cells.some((cell) => !Number.isNaN(number(cell.time[0]))));
  const crossings = table('Crossover with exact attention, 95 % intervals', ['variant', 'crossover'],
    exact === null ? [] : others.map((line) => [label(line), crossing(line)]), 2);
  showTable('speedup-table', cellTable('Speed-up over exact attention', others, 'speedup', asRatio));
  byId('speedup-table').prepend(crossings);
}

// ---- which variant? ---------------------------------------------------------------------------------------

const usable = ({cell}) => cell.judged && !cell.violated && !cell.beyond_zeros && !Number.isNaN(number(cell.time[0]));
const errorOf = ({line, cell}) => (data.lines[line.line].exact ? 0 : number(cell.error[0]));
const timeOf = ({cell}) => number(cell.time[0]);
const memoryOf = ({cell}) => number(cell.memory[0]);
const least = (found, measure) => found.reduce((best, one) => (!best || measure(one) < measure(best) ? one : best), null);

const chosenRow = (budget, goal, one) => (one ?
  [budget, goal, label(one.line), asError(one.cell.error[0]), asTime(timeOf(one)), asBytes(memoryOf(one)), doubtText(one.cell.doubts)] :
  [budget, goal, 'none', '-', '-', '-', '']);

function equalTable(found) {
  const rows = [];
  for (const level of [1, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-5]) {
    const within = found.filter((one) => errorOf(one) <= level);
    rows.push(chosenRow(`error at most ${asError(level)}`, 'fastest', least(within, timeOf)));
    rows.push(chosenRow(`error at most ${asError(level)}`, 'least memory', least(within, memoryOf)));
  }
  const exact = found.filter(({line}) => data.lines[line.line].exact);
  for (const [measure, name, text] of [[timeOf, 'time', asTime], [memoryOf, 'memory', asBytes]]) {
    const whole = exact.length ? Math.min(...exact.map(measure)) : Math.max(...found.map(measure));
    for (const part of [1, 2, 4, 8, 16]) {
      const best = least(found.filter((one) => measure(one) <= whole / part), errorOf);
      rows.push(chosenRow(`${name} at most ${text(whole / part)}${exact.length ? ` (exact / ${part})` : ''}`, 'most accurate', best));
    }
  }
  return table(`At equal error, time and memory, n = ${state.n}. Variants with a violated bound, and those to which zeros are as near, are not offered.`,
    ['budget', 'goal', 'variant', 'error', 'time', 'memory', 'doubts'], rows, 3);
}

const budgets = [['error', 'error at most', 1], ['time', 'time at most, ms', 1e-3], ['memory', 'memory at most, MiB', 1048576]];

// The form is made once; its answer follows the filters.
function makeChooser() {
  const fields = budgets.map(([name, text]) => element('label', {}, `${text} `,
    element('input', {type: 'number', id: `budget-${name}`, min: '0', step: 'any'})));
  byId('chooser').append(element('h3', {}, 'Which variant fits?'), ...fields, element('div', {id: 'answer', 'aria-live': 'polite'}));
  byId('chooser').addEventListener('input', () => answer(visibleLines()));
}

function answer(lines) {
  const limit = Object.fromEntries(budgets.map(([name, , unit]) => {
    const text = byId(`budget-${name}`).value;
    return [name, text === '' ? Infinity : Number(text) * unit];
  }));
  const found = cellsAtN(lines).filter(usable).filter((one) =>
    number(one.cell.error[0]) <= limit.error && timeOf(one) <= limit.time && memoryOf(one) <= limit.memory)
    .sort((a, b) => timeOf(a) - timeOf(b));
  byId('answer').replaceChildren(found.length ?
    table(`What fits at n = ${state.n}, the fastest first`, ['variant', 'error', 'time', 'memory', 'on a front', 'doubts'],
      found.map((one) => [label(one.line), asInterval(one.cell.error, asError), asInterval(one.cell.time, asTime), asBytes(memoryOf(one)),
        ['time', 'memory'].filter((_, i) => one.cell.front[i]).join(', '), doubtText(one.cell.doubts)])) :
    element('p', {}, `Nothing that was run at n = ${state.n} fits.`));
}

// ---- curves -----------------------------------------------------------------------------------------------

function curvesTable(lines) {
  showTable('curves-table', table(`Keys and the mass that they miss, n = ${state.n}. Regret: how much less as many keys could miss`,
    ['variant', 'keys', 'error', 'left out', 'regret', 'why'],
    cellsAtN(lines).filter(({cell}) => !Number.isNaN(number(cell.keys))).map(({line, cell}) => [label(line), asRatio(cell.keys),
      asInterval(cell.error, asError), asError(cell.left_out), asError(cell.regret), cell.beyond_zeros ? 'zeros are as near' : ''])));
}

// ---- bounds, positions ------------------------------------------------------------------------------------

function boundsTable(lines) {
  const rows = lines.flatMap((line) => line.cells.flatMap((cell) => cell.bounds.map((bound) => [bound[0], label(line), bound[1],
    bound[2], cell.n, asRatio(bound[3]), asRatio(bound[4]), asRatio(bound[5]), bound[6]])));
  rows.sort((a, b) => a[0].localeCompare(b[0]));
  showTable('bounds-table', table('Of each bound, variant and n the result with the largest margin (measured over bound)',
    ['bound', 'variant', 'kind', 'verdict', 'n', 'value', 'measured', 'margin', 'violated runs'], rows, 4));
}

function positionTable(lines) {
  const found = cellsAtN(lines).filter(({cell}) => cell.profile.length);
  const at = [0, 1, 3, 7, 15, 31, 47, 63];
  showTable('position-table', table(`Relative error at parts of the sequence, n = ${state.n}`,
    ['variant', ...at.map((bin) => `${(((bin + 0.5) * 100) / 64).toFixed(1)} %`)],
    found.map(({line, cell}) => [label(line), ...at.map((bin) => asError(profileOf(cell)[bin]))])));
}

function drawTables() {
  const lines = visibleLines(), found = cellsAtN(lines).filter(usable);
  timeTable(lines);
  showTable('error-table', cellTable('Relative Frobenius error', lines, 'error', asError));
  answer(lines);
  byId('pareto-table').replaceChildren(found.length ? equalTable(found) : '');
  curvesTable(lines);
  boundsTable(lines);
  positionTable(lines);
  speedupTable(lines);
}

// ---- the beginning ----------------------------------------------------------------------------------------

const counts = (object) => Object.entries(object).filter(([, count]) => count).map(([name, count]) => `${count} ${name.replace('_', ' ')}`).join(', ');

function drawSummary() {
  const totals = data.totals, place = byId('summary-body');
  const bad = totals.violations.length;
  byId('headline').textContent = `${totals.runs} runs: ${counts(totals.statuses)}. Bound checks: ${counts(totals.verdicts) || 'none'}.`;
  place.append(element('p', bad ? {class: 'bad'} : {}, bad ? `${bad} bound checks are violated.` : 'No bound is violated.'));
  if (bad) place.append(table('Violated bounds', ['bound', 'kind', 'measured', 'bound value', 'statement', 'command'],
    totals.violations.slice(0, 100).map((one) => [one.check, one.kind, asRatio(one.measured), asRatio(one.value), one.statement, one.rerun]), 2));
  if (totals.unchecked.length) place.append(element('p', {class: 'bad'},
    `Unchecked: ${totals.unchecked.join(', ')}. No check of their kind of variant applied: they take no part in the comparison.`));
  if (totals.errors.length) place.append(table('Checks that could not be evaluated', ['bound', 'message'],
    totals.errors.slice(0, 100).map((one) => [one.check, one.message]), 2));
  const reasons = new Map();
  data.runs.status.forEach((status, i) => {
    if (status === 'ok') return;
    const what = JSON.stringify([status, data.lines[data.runs.line[i]].variant, data.runs.message[i].replace(/[0-9.]+/g, '#')]);
    const known = reasons.get(what);
    reasons.set(what, [(known ? known[0] : 0) + 1, known ? known[1] : data.runs.message[i]]);
  });
  if (reasons.size) place.append(table('Runs without a result', ['status', 'variant', 'runs', 'message'],
    [...reasons].map(([what, [count, message]]) => [...JSON.parse(what).slice(0, 2), count, message]), 2));
}

function drawEstimates(place) {
  if (!data.estimates.length) return;
  const ratios = ([runs, median, worst, n]) => [asRatio(median), runs ? `${asRatio(worst)} (n = ${n})` : '-'];
  place.append(element('h3', {}, 'Estimate against actual'),
    table('What a run took over what was estimated before it: 1 is a perfect estimate. Time: of one execution; run: with verification and ' +
      'all samples; memory: of tensors, plan and work. Medians over runs, and the ratio farthest from 1',
    ['variant', 'runs', ...['time', 'run', 'memory'].flatMap((name) => [name, 'worst'])],
    data.estimates.map((one) => [label(one), one.run[0], ...ratios(one.time), ...ratios(one.run), ...ratios(one.memory)])));
}

function drawProvenance() {
  const place = byId('provenance-body');
  place.append(element('h3', {}, 'Which numbers not to trust, and why'), data.warnings.length ?
    element('ul', {}, ...data.warnings.map((text) => element('li', {}, text))) : element('p', {}, 'Nothing was found to warn of.'));
  drawEstimates(place);
  data.sessions.forEach((session, i) => {
    const rows = Object.entries(session).filter(([, value]) => value !== '' && value !== null).map(([name, value]) =>
      [name, name.endsWith('_time') ? new Date(value * 1000).toISOString() : String(value)]);
    const made = table(`Session ${i}`, ['what', 'message'], rows, 2);
    place.append(element('details', {}, element('summary', {}, `Session ${i}: ${session.cpu_model || 'machine unknown'}, ${session.compiler || ''}`), made));
  });
}
