// tables.js - the tables beside the plots of the chosen group.
'use strict';

const label = (line) => data.lines[line.line].label;
// As tables have it: of keys that no variant knows beforehand.
const named = (line) => `${label(line)}${data.lines[line.line].oracle ? ' (oracle)' : ''}`;

// A row for each line, a column for each n; what could not run says so, and links to why.
function cellTable(caption, lines, quantity, text, kinds) {
  const sizes = sizesOf(group());
  const shown = (cell) => {
    if (!cell) return '';
    if (!cell.ok) return element('a', {href: '#failed'}, cell.status);
    const blind = quantity === 'error' && cell.no_better ? [element('span', {class: 'mark'}, asNear(cell))] : [];
    return opening(asInterval(cell[quantity], text), openerOf(cell), [...blind, ...doubtMarks(cell.doubts, kinds)]);
  };
  return table(caption, ['setting', ...sizes.map((n) => `n = ${n}`)],
    lines.map((line) => [named(line), ...sizes.map((n) => shown(line.cells.find((cell) => cell.n === n)))]));
}

// As `attnlab check' has it (report/summary.c): an interval wider than 0.5 does not tell n from n log n or n sqrt(n).
function exponent(fit) {
  if (fit[3] < 2) return 'only one length';
  const [mid, low, high] = fit.map(number), text = (value) => value.toFixed(2);
  return high - low <= 0.5 ? `n^${text(mid)} [${text(low)}, ${text(high)}]` : '-';
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
    case 'faster': return 'at every length';
    case 'slower': return 'at no length';
    case 'to faster': return `from n = ${at(n[0])}${interval}`;
    case 'to slower': return `up to n = ${at(n[0])}${interval}`;
    default: return 'not known';
  }
}

function growthTable(lines) {
  const timed = lines.filter((line) => line.time[3]);
  const header = ['setting', 'time', 'memory', 'faster than exact'];
  byId('growth-table').replaceChildren(table('Growth', header, timed.map((line) => [named(line), exponent(line.time), exponent(line.memory),
    line.line === line.exact ? 'is compared with' : line.exact === null ? '-' : crossing(line)])));
}

function speedupTable(lines) {
  const exact = [...new Set(lines.map((line) => line.exact))].filter((one) => one !== null);
  byId('speedup-note').textContent = !exact.length ? 'No exact variant was timed here, so there is nothing to compare with.' :
    `Over ${exact.map((one) => data.lines[one].label).join(', ')}: time ratios of the same rounds, medians with 95 % bootstrap intervals over rounds.`;
  const others = lines.filter((line) => line.line !== line.exact && line.cells.some((cell) => !Number.isNaN(number(cell.time[0]))));
  showTable('speedup-table', cellTable('Times as fast as exact attention', others, 'speedup', asRatio, ['time']));
}

// What nothing as accurate beats, the fastest first, and times of others.
function frontTable(lines) {
  const found = cellsAtN(lines).filter(({cell}) => cell.front.some(Boolean)).sort((a, b) => timeOf(a) - timeOf(b));
  const others = otherTimes(lines).map((one) => [opening(`${named(one.line)} (${one.device})`, openerOf(one.cell)), asError(one.cell.error[0]),
    asTime(one.time), '', '', asRatio(one.cell.keys), '']);
  byId('front-table').replaceChildren(table('The fronts', ['setting', 'error', 'time', 'times as fast', 'memory', 'keys', 'front in'],
    [...found.map((one) => [opening(named(one.line), openerOf(one.cell)), asError(one.cell.error[0]), {text: asTime(timeOf(one)), marks: doubtMarks(one.cell.doubts, ['time'])},
      asRatio(one.cell.speedup[0]), asBytes(memoryOf(one)), asRatio(one.cell.keys),
      ['time', 'memory', 'keys'].filter((_, i) => one.cell.front[i]).join(', ')]), ...others]));
}

function massTable(lines) {
  showTable('mass-table', table(`Keys and the mass that they miss, n = ${state.n}. Regret: how much less as many keys could miss`,
    ['setting', 'keys', 'error', 'left out', 'regret'],
    cellsAtN(lines).filter(({cell}) => !Number.isNaN(number(cell.keys))).map(({line, cell}) => [opening(named(line), openerOf(cell)), asRatio(cell.keys),
      asInterval(cell.error, asError), asError(cell.left_out), asError(cell.regret)])));
}

function positionTable(lines) {
  const found = cellsAtN(lines).filter(({cell}) => cell.profile.length);
  const at = [0, 1, 3, 7, 15, 31, 47, 63];
  showTable('position-table', table(`Relative error at parts of the sequence, n = ${state.n}`,
    ['setting', ...at.map((bin) => `${(((bin + 0.5) * 100) / 64).toFixed(1)} %`)],
    found.map(({line, cell}) => [opening(named(line), openerOf(cell)), ...at.map((bin) => asError(profileOf(cell)[bin]))])));
}

// Of each bound, how often it was judged how, and where it was nearest to failing.
function boundsTable(lines) {
  const names = ['pass', 'consistent', 'violated', 'uncertifiable', 'error'], of = new Map();
  for (const line of lines)
    for (const cell of line.cells)
      for (const bound of boundsOf(cell)) of.set(bound[0], [...(of.get(bound[0]) || []), {line, cell, bound}]);
  const margin = ({bound}) => number(bound[5]);
  const rows = [...of].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, found]) => {
    const tight = found.filter((one) => !Number.isNaN(margin(one))).reduce((most, one) => (!most || margin(one) > margin(most) ? one : most), null);
    return [found[0].bound[1], name, ...names.map((verdict) => found.filter(({bound}) => bound[2] === verdict).length || ''),
      tight ? asRatio(tight.bound[5]) : '-', tight ? opening(`${named(tight.line)}, n = ${tight.cell.n}`, () => openRun(tight.bound[7])) : ''];
  }).filter((row) => row.slice(2, 7).some((count) => count));
  rows.sort((a, b) => Object.keys(boundKinds).indexOf(a[0]) - Object.keys(boundKinds).indexOf(b[0]));
  showTable('bounds-table', table('Checks of this group: settings and lengths by verdict, and the largest margin, measured over bound',
    ['kind', 'check', ...names, 'largest margin', 'of'], rows, 2), 'Verdicts by check');
}

function drawTables() {
  const lines = visibleLines();
  frontTable(lines);
  showTable('error-table', cellTable('Relative Frobenius error', lines, 'error', asError, ['error', 'bound']));
  massTable(lines);
  positionTable(lines);
  showTable('time-table', cellTable('Median time of one execution', lines, 'time', asTime, ['time']));
  speedupTable(lines);
  growthTable(lines);
  boundsTable(lines);
}
