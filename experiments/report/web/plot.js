// plot.js - a plot as SVG, in colours and fonts of its own, so that it can be saved as it is.
'use strict';

const plots = new Map(); // what was drawn in each place: {title, sets, x, y, frame, marks: [{px, py, set, point}], again}

function shape(name, attributes, ...children) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function words(text, x, y, options = {}) {
  const {size = 12, color = ink('text'), anchor = 'start', weight = 400, ...rest} = options;
  return shape('text', {x, y, 'font-size': size, fill: color, 'text-anchor': anchor, 'font-weight': weight, ...rest}, text);
}

const corners = {
  square: [[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]], triangle: [[0, -1.2], [1.1, 0.8], [-1.1, 0.8]],
  diamond: [[0, -1.25], [1.25, 0], [0, 1.25], [-1.25, 0]], down: [[0, 1.2], [1.1, -0.8], [-1.1, -0.8]],
  plus: [[-0.4, -1.1], [0.4, -1.1], [0.4, -0.4], [1.1, -0.4], [1.1, 0.4], [0.4, 0.4], [0.4, 1.1], [-0.4, 1.1], [-0.4, 0.4], [-1.1, 0.4],
    [-1.1, -0.4], [-0.4, -0.4]],
  left: [[-1.1, 0], [0.8, -1], [0.8, 1]],
  hexagon: [[-1.1, 0], [-0.55, -0.95], [0.55, -0.95], [1.1, 0], [0.55, 0.95], [-0.55, 0.95]],
};

// The outline of a mark as a part of a path.
function outline(name, x, y, r) {
  if (name === 'circle') return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`;
  return `M${corners[name].map(([dx, dy]) => `${(x + dx * r).toFixed(1)} ${(y + dy * r).toFixed(1)}`).join('L')}z`;
}

// A line with its bars and marks, as four paths.
function drawSeries(set, marks, y) {
  const full = set.pale ? 0.35 : 1;
  const parts = shape('g', {fill: 'none', stroke: set.color, 'stroke-width': set.width, 'stroke-opacity': full, 'fill-opacity': full});
  const path = (d, attributes = {}) => d && parts.append(shape('path', {d, ...attributes}));
  if (set.joined) path(marks.map(({px, py}, i) => (!i ? `M${px} ${py}` : set.stepped ? `H${px}V${py}` : `L${px} ${py}`)).join(''),
    {'stroke-dasharray': set.dash || 'none', 'stroke-opacity': set.shape ? 0.75 * full : full});
  path(marks.filter(({point}) => point.hi > point.lo && Number.isFinite(point.hi))
    .map(({px, point}) => `M${px} ${y.inside(point.lo)}V${y.inside(point.hi)}`).join(''));
  if (!set.shape) return parts;
  const outlines = (hollow) => marks.filter(({point}) => !point.hollow === !hollow).map(({px, py}) => outline(set.shape, px, py, set.size)).join('');
  path(outlines(false), {fill: set.color});
  path(outlines(true), {fill: set.ring ? 'none' : ink('page'), 'fill-opacity': 1});
  path(marks.filter(({point}) => point.beyond).map(({px, py}) => `M${px - 6} ${py - 6}l12 12M${px - 6} ${py + 6}l12 -12`).join(''),
    {stroke: ink('text')});
  return parts;
}

// Names beside marks, where they cover neither marks nor each other.
function drawNames(marks, frame) {
  const taken = marks.map(({px, py}) => [px - 5, py - 5, px + 5, py + 5]), parts = shape('g', {});
  for (const {px, py, point} of marks) {
    if (!point.name) continue;
    const name = shorten(point.name, 180, 11), width = widthOf(name, 11), right = px + 8, left = px - 8 - width, middle = px - width / 2;
    const places = [[right, py - 5], [right, py + 13], [left, py - 5], [left, py + 13], [middle, py - 10], [middle, py + 20]];
    const found = places.map(([x, y]) => [x, y - 9, x + width, y + 2]).find((box) =>
      box[0] > frame.left && box[2] < frame.right && box[1] > frame.top && box[3] < frame.bottom &&
      taken.every((other) => box[2] < other[0] || box[0] > other[2] || box[3] < other[1] || box[1] > other[3]));
    if (!found) continue;
    taken.push(found);
    parts.append(words(name, found[0].toFixed(1), (found[1] + 9).toFixed(1), {size: 11}));
  }
  return parts;
}

const tickText = (y, value) => (value === y.edge ? 'rounding' : y.text(value));

// Where lines of the grid lie: beside the edge there is a break, and no other tick near it.
function rowsOf(y, points, height) {
  const rows = ticksOf(y, height / 30);
  if (!(y.edge && y.has(y.edge) && points.some((point) => point.y === y.edge))) return rows;
  return [y.edge, ...rows.filter((value) => y.at(value) < y.at(y.edge) - 24)];
}

function drawAxes(x, y, frame, rows) {
  const grid = shape('g', {stroke: ink('line'), 'stroke-width': 1}), texts = shape('g', {});
  for (const value of apart(x, ticksOf(x, (frame.right - frame.left) / 45))) {
    grid.append(shape('path', {d: `M${x.at(value)} ${frame.top}V${frame.bottom}`}));
    texts.append(words(x.text(value), x.at(value), frame.bottom + 17, {anchor: 'middle'}));
  }
  for (const value of rows) {
    grid.append(shape('path', {d: `M${frame.left} ${y.at(value)}H${frame.right}`}));
    texts.append(words(tickText(y, value), frame.left - 7, y.at(value) + 4, {anchor: 'end'}));
  }
  if (rows.includes(y.edge)) grid.append(shape('path', {d: `M${frame.left - 5} ${y.at(y.edge) - 11}l10 -5m-10 10l10 -5`, stroke: ink('dim')}));
  texts.append(words(x.title, (frame.left + frame.right) / 2, frame.bottom + 37, {anchor: 'middle', color: ink('dim')}));
  const middle = (frame.top + frame.bottom) / 2;
  texts.append(words(y.title, 13, middle, {anchor: 'middle', color: ink('dim'), transform: `rotate(-90 13 ${middle})`}));
  return [grid, texts];
}

// One entry for each group, as many in a row as there is room for. Returns the elements and their height.
function drawLegend(sets, width, top) {
  const parts = shape('g', {});
  let x = 8, y = top;
  for (const group of new Set(sets.map((set) => set.group))) {
    const of = sets.filter((set) => set.group === group), [set] = of;
    const text = shorten(of.length > 1 ? group : set.label, width - 50), needs = widthOf(text) + 46;
    if (x > 8 && x + needs > width) [x, y] = [8, y + 20];
    const entry = shape('g', {stroke: set.color, 'stroke-width': set.width, fill: set.ring ? 'none' : set.color});
    if (set.joined) entry.append(shape('path', {d: `M${x} ${y}h24`, 'stroke-dasharray': set.dash || 'none'}));
    if (set.shape) entry.append(shape('path', {d: outline(set.shape, x + 12, y, Math.min(set.size, 6)), ...(set.hollow ? {fill: ink('page')} : {})}));
    parts.append(entry, words(text, x + 30, y + 4));
    x += needs;
  }
  return [parts, y - top + 16];
}

// heads: a title and what it is of; clip: a name for what cuts the lines of a zoomed plot off, or ''. Returns the picture and where
// its marks are.
function draw(width, heads, sets, x, y, clip) {
  const titles = wrap(heads[0], width - 8, 15, 600), about = wrap(heads[1], width - 8, 12);
  const top = 14 + 20 * titles.length + 16 * about.length, height = Math.round(Math.min(Math.max(0.5 * width, 250), 440));
  const frame = {top, bottom: top + height, right: width - 14};
  const points = sets.flatMap((set) => set.points);
  setScale(y, points.flatMap((point) => [point.y, point.lo, point.hi]), frame.bottom, frame.top);
  const rows = rowsOf(y, points, height);
  frame.left = 28 + rows.reduce((wide, value) => Math.max(wide, widthOf(tickText(y, value))), 0);
  setScale(x, points.map((point) => point.x), frame.left, frame.right);
  const [legend, depth] = drawLegend(sets, width, frame.bottom + 62);
  const drawn = sets.map((set) => set.points.map((point) => ({px: x.at(point.x), py: y.at(point.y), set, point})));
  const marks = drawn.flat().filter(({set, point}) => set.shape && x.has(point.x) && y.has(point.y)), whole = frame.bottom + 56 + depth;
  const picture = shape('svg', {xmlns: 'http://www.w3.org/2000/svg', width, height: whole, viewBox: `0 0 ${width} ${whole}`,
    'font-family': plotFont, role: 'img', tabindex: 0});
  const dim = ink('dim'), groups = sets.map((set, i) => drawSeries(set, drawn[i], y));
  if (clip) {
    const {left, right, bottom} = frame;
    picture.append(shape('clipPath', {id: clip}, shape('rect', {x: left, y: top, width: right - left, height: bottom - top})));
    groups.forEach((one) => one.setAttribute('clip-path', `url(#${clip})`));
  }
  picture.append(shape('rect', {width, height: whole, fill: ink('page')}),
    ...titles.map((line, i) => words(line, 4, 18 + 20 * i, {size: 15, weight: 600})),
    ...about.map((line, i) => words(line, 4, 18 + 20 * titles.length + 16 * i, {color: dim})),
    ...drawAxes(x, y, frame, rows), ...groups, drawNames(marks, frame), legend);
  return {picture, marks, groups, frame};
}

// Draws a plot and says on its place how many marks it has, for readers that see no pictures, and for tests.
function plot(id, title, sets, x, y, about = '') {
  const place = byId(id), again = plot.bind(null, id, title, sets, {...x}, {...y}, about), zoomed = zoomInto(id, about, x, y);
  const seen = (point) => Number.isFinite(point.x) && Number.isFinite(point.y) && (y.linear || point.y > 0) && (x.linear || point.x > 0);
  const shown = sets.map((set) => ({...set, points: set.points.filter(seen)})).filter((set) => set.points.length);
  const count = shown.reduce((sum, set) => sum + (set.shape ? set.points.length : 0), 0);
  const width = printing ? 700 : place.clientWidth || 700;
  const {picture, marks, groups, frame} = draw(width, [count ? title : `${title}: nothing to show for this choice`, about], shown, x, y,
    zoomed ? `${id}-clip` : '');
  picture.setAttribute('aria-label', `${title}: ${count} marks; arrow keys go from mark to mark, + and - zoom, 0 shows all; the table below has the numbers`);
  place.dataset.marks = marks.length;
  place.dataset.crosses = marks.filter(({point}) => point.beyond).length;
  plots.set(id, {title, about, sets: shown, x, y, frame, marks, groups, picture, again});
  if (!place.firstChild) makeFrame(place);
  place.firstChild.replaceWith(picture);
  place.querySelector('.whole').hidden = !zoomed;
  showMark(place, null);
}
