// plots.js - the plots: what each shows of the chosen group.
'use strict';

// What the group is of, for the head of a plot.
function aboutGroup(length) {
  const said = dimensions.map((one) => described(one, group()));
  return [...(length ? [`n = ${state.n}`] : []), state.file, ...said].filter((text) => text !== '').join(', ');
}

// Whether a doubt concerns these kinds of numbers.
const doubted = (cell, kinds) => doubtsOf(cell.doubts, kinds).length > 0;

function notes(cell, text, kinds) {
  const found = doubtsOf(cell.doubts, kinds).map(([name]) => name);
  return `n = ${cell.n}, ${text}${found.length ? `; doubts: ${found.join(', ')}` : ''}`;
}

// Errors of rounding lie on the lower edge, so that the others have room; 0: there are no errors.
function edgeOf(cells) {
  const errors = cells.map((cell) => number(cell.error[0])).filter((error) => error >= 0);
  return errors.length && errors.filter((error) => error >= rounding).reduce((a, b) => Math.min(a, b), 1) / 2;
}

// A quantity of every visible line against n, pale where it is on no front. kinds: of doubts that concern it.
function againstN(id, title, quantity, text, name, lines, kinds, extra = []) {
  const sizes = [...new Set(group().lines.flatMap((line) => line.cells.map((cell) => cell.n)))].sort((a, b) => a - b);
  const edge = quantity === 'error' ? edgeOf(lines.flatMap((line) => line.cells)) : 0;
  const best = (line) => line.cells.some((cell) => cell.front.some(Boolean)), any = lines.some(best);
  const sets = lines.map((line) => series(line.line, line.cells.map((cell) => {
    const [y, lo, hi] = cell[quantity].map(number), note = notes(cell, asInterval(cell[quantity], text), kinds);
    return {x: cell.n, y: Math.max(y, edge), lo: y < edge ? NaN : lo, hi: y < edge ? NaN : hi, hollow: doubted(cell, kinds), note,
      open: openerOf(cell)};
  }), {pale: any && !best(line)}));
  plot(id, title, [...sets, ...extra], axis('n (length of the sequence)', String, {values: sizes}), axis(name, text, {edge}), aboutGroup(false));
}

// Of a cell that errs as much as a baseline that looks at no key.
const asNear = (cell) => `no better than ${cell.no_better}`;

// Cells at the chosen n that were measured, with their lines.
function cellsAtN(lines) {
  return lines.flatMap((line) => line.cells.filter((cell) => cell.n === state.n && cell.ok).map((cell) => ({line, cell})));
}

// ---- curves: the settings of a variant at the chosen n, joined in their order -------------------------------

// A curve for each method. x and y: of a cell; note: what its points say; front: the place of the front whose points are named.
function curves(lines, x, y, note, front) {
  const of = new Map();
  for (const one of cellsAtN(lines)) of.set(methodOf(one.line), [...(of.get(methodOf(one.line)) || []), one]);
  return [...of].map(([method, found]) => {
    const oracle = found.every(({line}) => data.lines[line.line].oracle);
    const points = found.map(({line, cell}) => ({
      x: x(cell), y: y(cell), beyond: cell.no_better, hollow: doubted(cell, ['time', 'error', 'bound']), label: label(line),
      name: cell.front[front] ? label(line) : '', note: note(cell) + (cell.no_better ? `; ${asNear(cell)}` : ''), open: openerOf(cell),
    }));
    return curve(found[0].line.line, points, {label: `${method}${oracle ? ' (oracle: no keys keep more)' : ''}`, group: method,
      width: oracle ? 4 : 1.5});
  });
}

// Error against x: [place of the front, id, title, x of a cell, its text, name of the axis, its limit].
const fronts = [
  [0, 'front-time-plot', 'Error against time', (cell) => number(cell.time[0]), asTime, 'time of one execution', 'time'],
  [1, 'front-memory-plot', 'Error against memory', (cell) => number(cell.memory[0]), asBytes, 'memory of plan and work', 'memory'],
  [2, 'front-keys-plot', 'Error against keys', (cell) => number(cell.keys), asRatio, 'keys that a query reads, mean', ''],
];

// Times of others for what is shown at the chosen n, the shortest first.
function otherTimes(lines) {
  return data.times.filter(([run]) => runs.group[run] === state.group && runs.n[run] === state.n)
    .map(([run, device, time, source]) => ({device, time: number(time), source, cell: cellOf(run), line: lines.find((line) => line.line === runs.line[run])}))
    .filter(({line}) => line).sort((a, b) => a.time - b.time);
}

// Of each device the errors at its times, and their front, which other devices do not enter.
function otherFronts(lines, y) {
  const times = otherTimes(lines), best = ({device, cell}, i) => cell.offered && times.slice(0, i).every((one) => one.device !== device || y(one.cell) > y(cell));
  const sets = times.map((one, i) => series(one.line.line, [{x: one.time, y: y(one.cell), label: label(one.line), open: openerOf(one.cell), hollow: true,
    beyond: one.cell.no_better, name: best(one, i) ? `${label(one.line)} (${one.device})` : '',
    note: `${asTime(one.time)} on ${one.device}${one.source && `, ${one.source}`}; error ${asInterval(one.cell.error, asError)} here`}], {group: one.device, label: one.device}));
  return [...new Set(times.map(({device}) => device))].map((device) => greyLine(device, sets.filter(({group}) => group === device)
    .flatMap(({points}) => points).filter(({name}) => name), {stepped: true, dash: '2 3'})).concat(sets);
}

function frontPlot([front, id, title, x, text, name, limited], lines) {
  const found = cellsAtN(lines), edge = edgeOf(found.map(({cell}) => cell)), y = (cell) => Math.max(number(cell.error[0]), edge);
  const sets = curves(lines, x, y, (cell) => `error ${asInterval(cell.error, asError)}, ${text(x(cell))}`, front);
  const at = (one) => ({x: x(one.cell), y: y(one.cell), note: label(one.line), open: openerOf(one.cell)});
  if (front === 0) sets.push(...otherFronts(lines, y));
  const joined = found.filter(({cell}) => cell.front[front]).map(at).sort((a, b) => a.x - b.x);
  const seen = sets.flatMap((set) => set.points).filter((point) => point.x > 0 && point.y > 0);
  const across = limits(seen.map((point) => point.x)), up = limits([...seen.map((point) => point.y), 1]), extra = [];
  if (joined.length) extra.push(greyLine('front', joined, {stepped: true}));
  extra.push(greyLine('zeros', [{x: across.min, y: 1}, {x: across.max, y: 1}], {dash: '2 3'}));
  const kept = new Map(limitsSet().map(([limit, value]) => [limit, value]));
  const line = (from, to) => extra.push(greyLine('your limits', [from, to], {color: ink('link'), dash: '6 4', width: 1}));
  const error = kept.get('error'), most = kept.get(limited);
  if (error > up.min && error < up.max) line({x: across.min, y: error}, {x: across.max, y: error});
  if (most > across.min && most < across.max) line({x: most, y: up.min}, {x: most, y: up.max});
  const [best] = fitting();
  const ring = {color: ink('link'), shape: 'circle', size: 9, width: 2.5, joined: false, ring: true};
  if (best) extra.push({...greyLine('the answer', [{...at(best), hollow: true}]), ...ring});
  plot(id, title, seen.length ? [...sets, ...extra] : [], axis(name, text, across), axis('relative error', asError, {edge}), aboutGroup(true));
}

function massPlot(lines) {
  const left = (cell) => number(cell.left_out), keys = (cell) => number(cell.keys);
  const sets = curves(lines, keys, (cell) => (left(cell) > rounding ? left(cell) : NaN),
    (cell) => `${asError(left(cell))} of the mass left out, ${asRatio(keys(cell))} keys`);
  plot('mass-plot', 'Exact mass left out against keys', sets, axis('keys that a query reads, mean', asRatio),
    axis('mass left out (1 - kept)', asError), aboutGroup(true));
}

// ---- bounds ------------------------------------------------------------------------------------------------

// Kinds of bounds: [shape, hollow, name]. Those that cannot fail are hollow.
const boundKinds = {hard: ['circle', false, 'hard'], property: ['square', false, 'property'], prob: ['triangle', false, 'probabilistic'],
  model: ['diamond', true, 'model (cannot fail)'], report: ['hexagon', true, 'report (cannot fail)']};

// Every bound with a value; red is violated, and nothing else is. What is tiny, far below every bound or not finite lies on an edge.
function boundsPlot(lines) {
  const valued = (bound) => (bound[2] === 'violated' ? number(bound[3]) < Infinity :
    number(bound[3]) > 0 && Number.isFinite(number(bound[3]) + number(bound[4])));
  const least = 1e-18, at = (value) => Math.max(value, least);
  const all = lines.flatMap((line) => line.cells.flatMap((cell) => boundsOf(cell).filter(valued).map((bound) => ({line, cell, bound}))));
  const values = all.map(({bound}) => at(bound[3]));
  const ends = all.length ? [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))] : [];
  const bad = ({bound}) => bound[2] === 'violated' && !boundKinds[bound[1]][1];
  const set = (name, [form, hollow], color, found, options) => ({label: name, group: name, color, shape: form, hollow, width: 1.5, size: 4,
    joined: false, dash: '', ...options, points: found.map(({line, cell, bound}) => ({
      x: at(bound[3]), y: Number.isFinite(number(bound[4])) ? Math.max(bound[4], ends[0] * 1e-3) : ends[1] * 1e3, hollow: hollow || bound[2] === 'uncertifiable', label: `${bound[0]}, ${label(line)}`,
      note: `n = ${cell.n}: bound ${asRatio(bound[3])}, measured ${asRatio(bound[4])}, ${bound[2].replace('_', ' ')}`, open: () => openRun(bound[7])}))});
  const sets = Object.entries(boundKinds).map(([kind, look], i) =>
    set(look[2], look, hues[isDark() ? 'dark' : 'light'][[0, 11, 2, 4, 1][i]], all.filter((one) => one.bound[1] === kind && !bad(one))));
  const equal = greyLine('y = x', ends.map((v) => ({x: v, y: v})));
  plot('bounds-plot', 'Measured against bound', [...sets, equal, set('violated', ['square', false], alarm(), all.filter(bad), {size: 7})],
    axis('bound', asError), axis('measured', asError), aboutGroup(false));
}

// ---- others ------------------------------------------------------------------------------------------------

function positionPlot(lines) {
  const all = cellsAtN(lines), best = all.filter(({cell}) => cell.front.some(Boolean));
  const sets = (best.length ? best : all).map(({line, cell}) => series(line.line, profileOf(cell).map((value, bin, all) => ({
    x: (bin + 0.5) / all.length, y: value, note: `at ${Math.round(((bin + 0.5) * 100) / all.length)} %: ${asError(value)}`,
  })), {size: 2}));
  plot('position-plot', 'Error against position', sets, shares('position, as a fraction of n'), axis('relative error of rows', asError),
    aboutGroup(true));
}

function speedupPlot(lines) {
  const sizes = lines.flatMap((line) => line.cells.map((cell) => cell.n));
  const even = greyLine('as fast as exact', sizes.length ? [Math.min(...sizes), Math.max(...sizes)].map((x) => ({x, y: 1})) : []);
  againstN('speedup-plot', 'Speed-up over exact attention', 'speedup', asRatio, 'times as fast', lines, ['time'], [even]);
}

function drawFronts() {
  for (const front of fronts) drawLater(front[1], () => frontPlot(front, visibleLines()));
}

function drawPlots() {
  const lines = visibleLines();
  drawFronts();
  drawLater('error-plot', () => againstN('error-plot', 'Error against n', 'error', asError, 'relative error', lines, ['error']));
  drawLater('mass-plot', () => massPlot(lines));
  drawLater('position-plot', () => positionPlot(lines));
  drawLater('time-plot', () => againstN('time-plot', 'Time against n', 'time', asTime, 'median time of one execution', lines, ['time']));
  drawLater('speedup-plot', () => speedupPlot(lines));
  drawLater('bounds-plot', () => boundsPlot(lines));
  drawLater('maps', drawMaps);
}
