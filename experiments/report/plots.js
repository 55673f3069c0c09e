// plots.js - the plots: what each shows of the chosen group, and how a plot looks.
'use strict';

const hues = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#b88600', '#56b4e9', '#8a63d2', '#a0522d', '#332288', '#882255',
  '#7f7f00', '#3a7d44'];
const paleHues = ['#4aa8e8', '#ff8f4d', '#2fc79a', '#e39cc6', '#e6b93c', '#8fd0f5', '#b79cf0', '#d9906a', '#9d97f5', '#e0709a',
  '#c2c23d', '#8fce98'];
const marks = ['circle', 'rect', 'triangle', 'rectRot', 'star', 'cross'];
const dashes = [[], [6, 3], [2, 3], [8, 3, 2, 3]];
const charts = new Map();
let printing = false;

function isDark() {
  return !printing && matchMedia('(prefers-color-scheme: dark)').matches;
}

// A variant has a colour; its settings differ in mark and dash. Baselines that approximate nothing are grey.
function lookOf(line) {
  const variant = data.lines[line].variant;
  const variants = [...new Set(data.lines.map((other) => other.variant))].filter((name) => !name.startsWith('null_'));
  const place = data.lines.slice(0, line).filter((other) => other.variant === variant).length;
  const hue = variants.indexOf(variant);
  const color = hue < 0 ? (isDark() ? '#a0a0a0' : '#707070') : (isDark() ? paleHues : hues)[hue % hues.length];
  return {color, mark: marks[place % marks.length], dash: dashes[(hue < 0 ? 2 : place) % dashes.length]};
}

const methods = [...new Set(data.lines.map((line) => line.method))];

// One line of a plot. Points: {x, y, lo, hi, doubts, note}.
function series(line, points, options = {}) {
  const look = lookOf(line);
  return {
    label: data.lines[line].label, group: data.lines[line].method, data: points, borderColor: look.color, borderDash: look.dash, borderWidth: 1.5,
    pointStyle: look.mark, pointRadius: 5, pointBorderColor: look.color, showLine: true, spanGaps: true,
    pointBackgroundColor: points.map((point) => (point.doubts ? 'transparent' : look.color)), ...options,
  };
}

// Vertical bars from lo to hi of every point that has them.
const bars = {
  id: 'bars',
  beforeDatasetsDraw(chart) {
    const pen = chart.ctx, scale = chart.scales.y;
    pen.save();
    chart.data.datasets.forEach((dataset, i) => {
      const points = chart.getDatasetMeta(i).data;
      pen.strokeStyle = dataset.borderColor;
      pen.lineWidth = 1.5;
      dataset.data.forEach((point, k) => {
        if (!(point.lo > 0) || !Number.isFinite(point.hi) || !points[k]) return;
        pen.beginPath();
        pen.moveTo(points[k].x, scale.getPixelForValue(Math.max(point.lo, scale.min)));
        pen.lineTo(points[k].x, scale.getPixelForValue(Math.min(point.hi, scale.max)));
        pen.stroke();
      });
    });
    pen.restore();
  },
};

// A cross over what is no nearer than zeros, whatever else it shows.
const crosses = {
  id: 'crosses',
  afterDatasetsDraw(chart) {
    const pen = chart.ctx, size = 6;
    pen.save();
    pen.strokeStyle = chart.options.scales.y.ticks.color;
    pen.lineWidth = 1.5;
    pen.beginPath();
    chart.data.datasets.forEach((dataset, i) => chart.getDatasetMeta(i).data.forEach(({x, y}, k) => {
      if (!dataset.data[k].beyond) return;
      pen.moveTo(x - size, y - size);
      pen.lineTo(x + size, y + size);
      pen.moveTo(x - size, y + size);
      pen.lineTo(x + size, y - size);
    }));
    pen.stroke();
    pen.restore();
  },
};

// Powers of ten, with 2 and 5 between where there is room.
function decades(axis) {
  const wide = Math.log10(axis.max / axis.min) > 4;
  axis.ticks = axis.ticks.filter((tick) => {
    const first = tick.value / 10 ** Math.floor(Math.log10(tick.value) + 1e-9);
    return (wide ? [1] : [1, 2, 5]).some((digit) => Math.abs(first - digit) < 1e-6);
  });
}

// Powers of two, for bytes.
function doublings(axis) {
  const first = Math.floor(Math.log2(axis.min)), last = Math.ceil(Math.log2(axis.max)), step = Math.ceil((last - first) / 8);
  axis.ticks = [];
  for (let power = first; power <= last; power += step)
    if (2 ** power >= axis.min && 2 ** power <= axis.max) axis.ticks.push({value: 2 ** power});
}

function axis(title, text, values) {
  const style = getComputedStyle(document.documentElement);
  const color = printing ? '#000' : style.getPropertyValue('--text').trim();
  const grid = printing ? '#bbb' : style.getPropertyValue('--line').trim();
  return {
    type: 'logarithmic', title: {display: true, text: title, color}, grid: {color: grid, borderColor: grid},
    ticks: {color, callback: (value) => text(value), maxRotation: 0, autoSkipPadding: 12},
    afterBuildTicks: values ? (scale) => { scale.ticks = values.map((value) => ({value})); } : text === asBytes ? doublings : decades,
    ...(values ? {min: values[0] * 0.9, max: values[values.length - 1] * 1.1} : {}),
  };
}

// The range of a logarithmic axis, wide enough for whole marks at its ends.
function limits(values) {
  const ends = values.filter((value) => value > 0 && Number.isFinite(value));
  if (!ends.length) return {};
  const min = ends.reduce((a, b) => Math.min(a, b)), max = ends.reduce((a, b) => Math.max(a, b));
  const room = Math.max(1.2, (max / min) ** 0.04);
  return {min: min / room, max: max * room};
}

// One entry for the settings of a method.
function legendOf(chart, shown) {
  const of = (group) => shown.filter((other) => other.group === group);
  return Chart.defaults.plugins.legend.labels.generateLabels(chart).filter(({datasetIndex: i}) => of(shown[i].group)[0] === shown[i])
    .map((entry) => (of(shown[entry.datasetIndex].group).length > 1 ? {...entry, text: shown[entry.datasetIndex].group} : entry));
}

// Draws a plot and says on its canvas how many marks it has, for readers that see no pictures, and for tests.
function plot(id, title, datasets, x, y) {
  const canvas = byId(id);
  const shown = datasets.map((dataset) => ({
    ...dataset, data: dataset.data.filter((point) => Number.isFinite(point.x) && Number.isFinite(point.y) && point.y > 0),
  })).map((dataset) => ({...dataset, pointBackgroundColor: dataset.data.map((point) =>
    (point.doubts ? 'transparent' : dataset.pointBorderColor))})).filter((dataset) => dataset.data.length);
  const count = shown.reduce((sum, dataset) => sum + dataset.data.length, 0);
  const points = shown.flatMap((dataset) => dataset.data);
  Object.assign(y, limits(points.flatMap((point) => [point.y, point.lo, point.hi])));
  if (x.min === undefined) Object.assign(x, limits(points.map((point) => point.x)));
  charts.get(id)?.destroy();
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', `${title}: ${count} marks; the table below has the numbers`);
  canvas.dataset.marks = count;
  canvas.dataset.crosses = points.filter((point) => point.beyond).length;
  charts.set(id, new Chart(canvas, {
    type: 'scatter', data: {datasets: shown}, plugins: [bars, crosses],
    options: {
      animation: false, responsive: true, maintainAspectRatio: false, scales: {x, y},
      plugins: {
        title: {display: true, text: count ? title : `${title}: nothing to show for this choice`, color: y.ticks.color},
        legend: {position: 'bottom', onClick: null,
          labels: {color: y.ticks.color, usePointStyle: true, boxHeight: 6, font: {size: 11},
            generateLabels: (chart) => legendOf(chart, shown)}},
        tooltip: {callbacks: {label: (item) => `${item.dataset.label}: ${item.raw.note}`}},
      },
    },
  }));
}

function notes(cell, text) {
  const doubts = doubtsOf(cell.doubts);
  return `n = ${cell.n}, ${text}${doubts.length ? `; doubts: ${doubts.join(', ')}` : ''}`;
}

// Below it an error is rounding. Such points lie on the lower edge, so that the others have room.
const rounding = 1e-5;
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

// A grey line, without marks.
function greyLine(label, points, options = {}) {
  return {label, group: label, data: points.map((point) => ({...point, note: label})), showLine: true, pointRadius: 0, borderColor: '#888',
    borderWidth: 1.5, pointStyle: 'line', pointBorderColor: '#888', ...options};
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
