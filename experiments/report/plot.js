// plot.js - how a plot looks: colours and marks of methods, axes, bars, crosses, the legend.
'use strict';

const hues = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#b88600', '#56b4e9', '#8a63d2', '#a0522d', '#332288', '#882255',
  '#7f7f00', '#3a7d44'];
const paleHues = ['#4aa8e8', '#ff8f4d', '#2fc79a', '#e39cc6', '#e6b93c', '#8fd0f5', '#b79cf0', '#d9906a', '#9d97f5', '#e0709a',
  '#c2c23d', '#8fce98'];
const marks = ['circle', 'rect', 'triangle', 'rectRot', 'star', 'cross'];
const dashes = [[], [6, 3], [2, 3], [8, 3, 2, 3]];
const rounding = 1e-5; // a relative error below it is one of rounding
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
    ...dataset, data: dataset.data.filter((point) => Number.isFinite(point.x) && Number.isFinite(point.y) && (point.y > 0 || y.type === 'linear')),
  })).map((dataset) => ({...dataset, pointBackgroundColor: dataset.data.map((point) =>
    (point.doubts ? 'transparent' : dataset.pointBorderColor))})).filter((dataset) => dataset.data.length);
  const count = shown.reduce((sum, dataset) => sum + dataset.data.length, 0);
  const points = shown.flatMap((dataset) => dataset.data);
  if (y.type === 'logarithmic') Object.assign(y, limits(points.flatMap((point) => [point.y, point.lo, point.hi])));
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

// A grey line, without marks.
function greyLine(label, points, options = {}) {
  return {label, group: label, data: points.map((point) => ({...point, note: label})), showLine: true, pointRadius: 0, borderColor: '#888',
    borderWidth: 1.5, pointStyle: 'line', pointBorderColor: '#888', ...options};
}
