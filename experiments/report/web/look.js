// look.js - how methods look in every plot: a colour for a variant, a mark for each of its settings. Red is kept for
// violated bounds.
'use strict';

const hues = {
  light: ['#0072b2', '#b97700', '#008f6b', '#b8609a', '#7a4fd0', '#2f97d3', '#6f7300', '#332288', '#3a7d44', '#8c5a2b', '#00838f', '#55606e'],
  dark: ['#4aa8e8', '#e6b03c', '#2fc79a', '#e39cc6', '#b79cf0', '#8fd0f5', '#c2c23d', '#9d97f5', '#8fce98', '#d9a06a', '#4fc4ce', '#aab4c0'],
};
const shapes = ['circle', 'square', 'triangle', 'diamond', 'down', 'hexagon', 'plus', 'left'];
const dashes = ['', '6 3', '2 3', '8 3 2 3'];
const rounding = 1e-5; // a relative error below it is one of rounding
// Of several files, what more than one has names its file.
for (const name of ['label', 'method']) {
  const shared = data.lines.map((one) => data.lines.some((other) => other.source !== one.source && other[name] === one[name]));
  shared.forEach((twice, i) => { if (twice) data.lines[i][name] += ` (${data.lines[i].source})`; });
}
const methods = [...new Set(data.lines.map((line) => line.method))];
let printing = false;

function isDark() {
  return !printing && matchMedia('(prefers-color-scheme: dark)').matches;
}

const alarm = () => (isDark() ? '#ff5a4d' : '#c8102e');

// Colours of axes and text: of paper, or of the style sheet.
function ink(name) {
  return printing ? {text: '#000', dim: '#444', line: '#ccc', page: '#fff', link: '#0b57a4'}[name] :
    getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// Baselines that approximate nothing are grey.
const variants = [...new Set(data.lines.map((line) => line.variant))].filter((name) => !name.startsWith('null_'));
const places = data.lines.map((line, i) => data.lines.slice(0, i).filter((other) => other.variant === line.variant).length);

function lookOf(line) {
  const hue = variants.indexOf(data.lines[line].variant), scheme = isDark() ? 'dark' : 'light';
  const color = hue < 0 ? (isDark() ? '#a0a0a0' : '#707070') : hues[scheme][hue % hues[scheme].length];
  return {color, shape: shapes[places[line] % shapes.length], dash: dashes[(hue < 0 ? 2 : places[line]) % dashes.length]};
}

// One line of a plot. Points: {x, y, lo, hi, hollow, beyond, name, note}; lo and hi: ends of a bar; beyond: crossed out;
// name: written beside the mark where there is room; note: what the pointer finds; open: what a click does. group: one entry of the legend.
function series(line, points, options = {}) {
  const {label, method} = data.lines[line];
  return {label, group: method, ...lookOf(line), width: 1.5, size: 4.5, joined: true, points, ...options};
}

// A curve for each method: its settings are joined; of those of its variant, which have its colour, it has another mark than they.
function curve(line, points, options = {}) {
  const {method, variant} = data.lines[line];
  const place = [...new Set(data.lines.filter((other) => other.variant === variant).map((other) => other.method))].indexOf(method);
  const dash = dashes[Math.floor(place / shapes.length) % dashes.length];
  return series(line, points, {label: method, shape: shapes[place % shapes.length], dash, ...options});
}

// A grey line, without marks.
function greyLine(label, points, options = {}) {
  return {label, group: label, color: '#888', shape: null, dash: '', width: 1.5, size: 0, joined: true, points, ...options};
}
