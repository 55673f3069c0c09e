// plots.js - the plots: what each shows of the chosen group, and how a plot looks.
'use strict';

const hues = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#b88600', '#56b4e9', '#8a63d2', '#a0522d'];
const paleHues = ['#4aa8e8', '#ff8f4d', '#2fc79a', '#e39cc6', '#e6b93c', '#8fd0f5', '#b79cf0', '#d9906a'];
const marks = ['circle', 'rect', 'triangle', 'rectRot', 'star', 'crossRot'];
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

// One line of a plot. Points: {x, y, lo, hi, doubts, note}.
function series(line, points, options = {}) {
  const look = lookOf(line);
  return {
    label: data.lines[line].label, data: points, borderColor: look.color, borderDash: look.dash, borderWidth: 1.5,
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
  charts.set(id, new Chart(canvas, {
    type: 'scatter', data: {datasets: shown}, plugins: [bars],
    options: {
      animation: false, responsive: true, maintainAspectRatio: false, scales: {x, y},
      plugins: {
        title: {display: true, text: count ? title : `${title}: nothing to show for this choice`, color: y.ticks.color},
        legend: {position: 'bottom', onClick: null,
          labels: {color: y.ticks.color, usePointStyle: true, boxHeight: 6, font: {size: 11}}},
        tooltip: {callbacks: {label: (item) => `${item.dataset.label}: ${item.raw.note}`}},
      },
    },
  }));
}

function notes(cell, text) {
  const doubts = doubtsOf(cell.doubts);
  return `n = ${cell.n}, ${text}${doubts.length ? `; doubts: ${doubts.join(', ')}` : ''}`;
}

// A quantity of every visible line against n.
function againstN(id, title, quantity, text, label, lines, extra = []) {
  const sizes = [...new Set(group().lines.flatMap((line) => line.cells.map((cell) => cell.n)))].sort((a, b) => a - b);
  const sets = lines.map((line) => series(line.line, line.cells.map((cell) => {
    const [y, lo, hi] = cell[quantity].map(number);
    return {x: cell.n, y, lo, hi, doubts: cell.doubts, note: notes(cell, asInterval(cell[quantity], text))};
  })));
  plot(id, title, [...sets, ...extra], axis('n (length of the sequence)', String, sizes), axis(label, text));
}

// Cells at the chosen n that were measured, with their lines.
function cellsAtN(lines) {
  return lines.flatMap((line) => line.cells.filter((cell) => cell.n === state.n && cell.ok).map((cell) => ({line, cell})));
}

function pareto(id, title, quantity, text, label, front, lines) {
  const found = cellsAtN(lines);
  const point = ({cell}) => ({
    x: number(cell[quantity][0]), y: number(cell.error[0]), lo: number(cell.error[1]), hi: number(cell.error[2]),
    doubts: cell.doubts, note: `error ${asInterval(cell.error, asError)}, ${asInterval(cell[quantity], text)}`,
  });
  const best = found.filter(({cell}) => cell.front[front]).map(point).sort((a, b) => a.x - b.x);
  const joined = {label: 'front', data: best, showLine: true, pointRadius: 0, pointBorderColor: '#888', stepped: true,
    borderColor: '#888', borderWidth: 1, pointStyle: 'line'};
  joined.data = best.map((p) => ({...p, lo: NaN}));
  plot(id, title, [...found.map((one) => series(one.line.line, [point(one)], {showLine: false})), joined],
    axis(label, text), axis('relative error', asError));
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
      borderColor: red, label: `violated: ${data.lines[line.line].label}`}] : [own];
  });
  const equal = {label: 'y = x', showLine: true, pointRadius: 0, borderColor: '#888', borderWidth: 1.5, pointStyle: 'line',
    pointBorderColor: '#888', data: ends.map((v) => ({x: v, y: v, note: 'y = x'}))};
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
  const even = {label: 'as fast as exact', showLine: true, pointRadius: 0, borderColor: '#888', borderWidth: 1.5,
    pointStyle: 'line', pointBorderColor: '#888',
    data: sizes.length ? [Math.min(...sizes), Math.max(...sizes)].map((x) => ({x, y: 1, note: 'as fast as exact'})) : []};
  againstN('speedup-plot', 'Speed-up over exact attention', 'speedup', asRatio, 'times as fast', lines, [even]);
}

function drawPlots() {
  const lines = visibleLines();
  drawLater('time-plot', () => againstN('time-plot', 'Median time of one execution', 'time', asTime, 'time', lines));
  drawLater('error-plot', () => againstN('error-plot', 'Relative error', 'error', asError, 'relative error', lines));
  drawLater('pareto-time-plot', () =>
    pareto('pareto-time-plot', `Error against time, n = ${state.n}`, 'time', asTime, 'time', 0, lines));
  drawLater('pareto-memory-plot', () =>
    pareto('pareto-memory-plot', `Error against memory, n = ${state.n}`, 'memory', asBytes, 'memory of plan and work', 1, lines));
  drawLater('bounds-plot', () => boundsPlot(lines));
  drawLater('position-plot', () => positionPlot(lines));
  drawLater('speedup-plot', () => speedupPlot(lines));
  drawLater('maps', drawMaps);
}
