// plots.js - the plots: what each shows of the chosen group.
'use strict';

function notes(cell, text) {
  const doubts = doubtsOf(cell.doubts);
  return `n = ${cell.n}, ${text}${doubts.length ? `; doubts: ${doubts.join(', ')}` : ''}`;
}

// Errors of rounding lie on the lower edge, so that the others have room.
function edgeOf(cells) {
  return cells.map((cell) => number(cell.error[0])).filter((error) => error >= rounding).reduce((a, b) => Math.min(a, b), 1) / 2;
}

// A quantity of every visible line against n.
function againstN(id, title, quantity, text, label, lines, extra = []) {
  const sizes = [...new Set(group().lines.flatMap((line) => line.cells.map((cell) => cell.n)))].sort((a, b) => a - b);
  const edge = quantity === 'error' ? edgeOf(lines.flatMap((line) => line.cells)) : 0;
  const sets = lines.map((line) => series(line.line, line.cells.map((cell) => {
    const [y, lo, hi] = cell[quantity].map(number), note = notes(cell, asInterval(cell[quantity], text));
    return {x: cell.n, y: Math.max(y, edge), lo: y < edge ? NaN : lo, hi: y < edge ? NaN : hi, doubts: cell.doubts, note};
  })));
  plot(id, title, [...sets, ...extra], axis('n (length of the sequence)', String, sizes), axis(label, text));
}

// Cells at the chosen n that were measured, with their lines.
function cellsAtN(lines) {
  return lines.flatMap((line) => line.cells.filter((cell) => cell.n === state.n && cell.ok).map((cell) => ({line, cell})));
}

// ---- curves: the settings of a method at the chosen n, joined in their order -------------------------------

// Whether as many keys could never keep more of exact attention's mass.
function isOracle(found) {
  return found.every(({cell}) => Math.abs(number(cell.regret)) < rounding) &&
    found.some(({cell}) => number(cell.left_out) > rounding);
}

// A curve for each method. x and y: of a cell; note: what its points say.
function curves(lines, x, y, note) {
  const of = new Map();
  for (const one of cellsAtN(lines)) {
    const {method} = data.lines[one.line.line];
    of.set(method, [...(of.get(method) || []), one]);
  }
  return [...of].map(([method, found]) => {
    const oracle = isOracle(found), place = methods.indexOf(method);
    const points = found.map(({line, cell}) => ({
      x: x(cell), y: y(cell), beyond: cell.beyond_zeros, doubts: cell.doubts,
      note: `${data.lines[line.line].label}: ${note(cell)}${cell.beyond_zeros ? '; zeros are as near' : ''}`,
    }));
    return series(found[0].line.line, points, {label: `${method}${oracle ? ' (oracle: no keys keep more)' : ''}`, group: method,
      pointStyle: marks[place % marks.length], borderWidth: oracle ? 4 : 1.5, borderDash: []});
  });
}

// Error against x. front: which of a cell's fronts is joined, if any.
function errorCurves(id, title, x, text, label, lines, front) {
  const found = cellsAtN(lines), edge = edgeOf(found.map(({cell}) => cell)), y = (cell) => Math.max(number(cell.error[0]), edge);
  const sets = curves(lines, x, y, (cell) => `error ${asInterval(cell.error, asError)}, ${text(x(cell))}`);
  const best = found.filter(({cell}) => cell.front[front]).map(({cell}) => ({x: x(cell), y: y(cell)})).sort((a, b) => a.x - b.x);
  const places = limits(sets.flatMap((set) => set.data.map((point) => point.x)));
  const zeros = greyLine('zeros', places.min ? [{x: places.min, y: 1}, {x: places.max, y: 1}] : [], {borderDash: [2, 3]});
  plot(id, title, [...sets, ...(best.length ? [greyLine('front', best, {stepped: true})] : []), zeros], axis(label, text),
    axis('relative error', asError));
}

const keysOf = (cell) => number(cell.keys), asKeys = (keys) => `${significant(keys, 3)} keys`;

function massCurves(id, lines) {
  const left = (cell) => number(cell.left_out);
  const sets = curves(lines, keysOf, (cell) => (left(cell) > rounding ? left(cell) : NaN),
    (cell) => `${asError(left(cell))} of the mass left out, ${asKeys(keysOf(cell))}`);
  plot(id, `Mass left out against keys, n = ${state.n}`, sets, axis('keys of a row, mean', asRatio), axis('exact mass left out (1 - kept)', asError));
}

// Every bound with a value; violated ones are red, whatever variant. What is far below every bound lies on the lower edge.
function boundsPlot(lines) {
  const red = isDark() ? '#ff5a4d' : '#c8102e';
  const valued = (bound) => number(bound[3]) > 0 && Number.isFinite(number(bound[3]) + number(bound[4]));
  const values = lines.flatMap((line) => line.cells.flatMap((cell) => cell.bounds.filter(valued).map((bound) => bound[3])));
  const ends = values.length ? [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))] : [];
  const edge = ends[0] * 1e-3;
  const sets = lines.flatMap((line) => {
    const points = line.cells.flatMap((cell) => cell.bounds.filter(valued).map((bound) => ({
      x: bound[3], y: Math.max(bound[4], edge), violated: bound[2] === 'violated', doubts: bound[2] === 'uncertifiable',
      note: `${bound[0]} at n = ${cell.n}: bound ${asRatio(bound[3])}, measured ${asRatio(bound[4])}, ${bound[2]}`,
    })));
    const bad = points.filter((point) => point.violated);
    const own = series(line.line, points.filter((point) => !point.violated), {showLine: false, pointRadius: 4});
    return bad.length ? [own, {...series(line.line, bad, {showLine: false, pointRadius: 7}), pointBorderColor: red,
      borderColor: red, label: `violated: ${data.lines[line.line].label}`, group: `violated: ${line.line}`}] : [own];
  });
  const equal = greyLine('y = x', ends.map((v) => ({x: v, y: v})));
  plot('bounds-plot', 'Measured against bound', [...sets, equal], axis('bound', asError), axis('measured', asError));
}

function positionPlot(lines) {
  const sets = cellsAtN(lines).map(({line, cell}) => series(line.line, profileOf(cell).map((value, bin, all) => ({
    x: (bin + 0.5) / all.length, y: value, note: `at ${Math.round(((bin + 0.5) * 100) / all.length)} %: ${asError(value)}`,
  })), {pointRadius: 2}));
  plot('position-plot', `Error against position, n = ${state.n}`, sets,
    {...axis('position, as a fraction of n', (value) => significant(value, 2)), type: 'linear', min: 0, max: 1,
      afterBuildTicks: undefined}, axis('relative error of rows', asError));
}

function speedupPlot(lines) {
  const sizes = lines.flatMap((line) => line.cells.map((cell) => cell.n));
  const even = greyLine('as fast as exact', sizes.length ? [Math.min(...sizes), Math.max(...sizes)].map((x) => ({x, y: 1})) : []);
  againstN('speedup-plot', 'Speed-up over exact attention', 'speedup', asRatio, 'times as fast', lines, [even]);
}

function drawPlots() {
  const lines = visibleLines();
  drawLater('time-plot', () => againstN('time-plot', 'Median time of one execution', 'time', asTime, 'time', lines));
  drawLater('error-plot', () => againstN('error-plot', 'Relative error', 'error', asError, 'relative error', lines));
  drawLater('keys-plot', () => errorCurves('keys-plot', `Error against keys, n = ${state.n}`, keysOf, asRatio, 'keys of a row, mean', lines));
  drawLater('mass-plot', () => massCurves('mass-plot', lines));
  drawLater('pareto-time-plot', () => errorCurves('pareto-time-plot', `Error against time, n = ${state.n}`, (cell) => number(cell.time[0]), asTime,
    'time of one execution', lines, 0));
  drawLater('pareto-memory-plot', () => errorCurves('pareto-memory-plot', `Error against memory, n = ${state.n}`,
    (cell) => number(cell.memory[0]), asBytes, 'memory of plan and work', lines, 1));
  drawLater('bounds-plot', () => boundsPlot(lines));
  drawLater('position-plot', () => positionPlot(lines));
  drawLater('speedup-plot', () => speedupPlot(lines));
  drawLater('maps', drawMaps);
}
