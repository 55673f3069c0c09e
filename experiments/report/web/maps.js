// maps.js - attention maps: exact, approximate and difference of every variant shown, in colours of the page.
'use strict';

// Colours of 0, 1e-3, ..., 1 of either sign.
const ramps = {
  light: {more: ['#ffffff', '#c6dbef', '#6baed6', '#2171b5', '#08306b'], less: ['#ffffff', '#fdd0a2', '#fd8d3c', '#d94801', '#7f2704']},
  dark: {more: ['#16181a', '#17375e', '#2a6db0', '#6bb0f0', '#e3f2ff'], less: ['#16181a', '#5a2a0a', '#b3560f', '#f09a4a', '#ffe9d0']},
};

function mix(ramp, share) {
  const place = share * (ramp.length - 1), first = Math.min(Math.floor(place), ramp.length - 2);
  const part = (color, i) => parseInt(color.slice(2 * i + 1, 2 * i + 3), 16);
  return [0, 1, 2].map((i) => part(ramp[first], i) + (place - first) * (part(ramp[first + 1], i) - part(ramp[first], i)));
}

// The colour of each byte of a picture, where 128 is 0, as a pixel.
function palette() {
  const {more, less} = ramps[isDark() ? 'dark' : 'light'];
  const bytes = Uint8ClampedArray.from({length: 1024}, () => 255);
  for (let byte = 0; byte < 256; byte++) bytes.set(mix(byte < 128 ? less : more, Math.min(1, Math.abs(byte - 128) / 127)), 4 * byte);
  return new Uint32Array(bytes.buffer);
}

// Paints bytes, row by row; says how many are not 0.
function paint(canvas, bytes, columns, colors) {
  const image = new ImageData(columns, bytes.length / columns);
  const pixels = new Uint32Array(image.data.buffer);
  let marks = 0;
  for (let i = 0; i < bytes.length; i++) {
    pixels[i] = colors[bytes[i]];
    if (bytes[i] !== 128) marks++;
  }
  canvas.width = image.width;
  canvas.height = image.height;
  canvas.getContext('2d').putImageData(image, 0, 0);
  canvas.dataset.marks = marks;
}

for (const [g, l, c, exact, approx, difference, moved, most] of data.maps.of)
  data.groups[g].lines[l].cells[c].map = {exact, approx, difference, moved, most};

// The length nearest to the chosen one at which there are maps, if there is any.
function lengthOfMaps(lines) {
  const lengths = lines.flatMap((line) => line.cells.filter((cell) => cell.map).map((cell) => cell.n));
  return lengths.sort((a, b) => Math.abs(Math.log(a / state.n)) - Math.abs(Math.log(b / state.n)) || a - b)[0];
}

function mapPanel(id, index, title, about, colors) {
  const canvas = element('canvas', {id, role: 'img', class: 'map', 'aria-label': `${title}: ${about}; the table below has the numbers`});
  const picture = data.maps.pictures[index];
  paint(canvas, bytesOf(picture.cells), picture.columns, colors);
  const blank = canvas.dataset.marks === '0' ? ', all below 0.0001' : '';
  return element('div', {}, canvas, element('span', {class: 'note'}, title + blank));
}

// The three pictures with their names, to be saved.
function mapPicture(line, moved) {
  const parts = [['exact', 'exact'], ['approx', 'variant'], ['difference', 'variant - exact']], size = {width: 260, height: 260};
  return shape('svg', {xmlns: 'http://www.w3.org/2000/svg', width: 828, height: 330, viewBox: '0 0 828 330', 'font-family': plotFont},
    shape('rect', {width: 828, height: 330, fill: ink('page')}), words(`${label(line)}: ${moved}`, 12, 24, {size: 15, weight: 600}),
    ...parts.flatMap(([part, title], i) => [words(title, 12 + 272 * i, 322), shape('image', {...size, x: 12 + 272 * i, y: 42,
      href: byId(`map-${line.line}-${part}`).toDataURL(), 'image-rendering': 'pixelated', preserveAspectRatio: 'none'}),
    shape('rect', {...size, x: 12 + 272 * i, y: 42, fill: 'none', stroke: ink('line')})]));
}

function mapFigure(line, map, colors) {
  const about = (index) => `${asShare(data.maps.pictures[index].numbers[1])} of the weight near the diagonal`;
  const moved = `${map.moved < 1e-4 ? 'less than 0.01 %' : asShare(map.moved)} of the weight moved`;
  return element('figure', {class: 'maps'}, saveButtons(`map-${line.line}`, () => mapPicture(line, moved)),
    element('figcaption', {}, element('strong', {}, label(line)), ` ${moved}`),
    element('div', {class: 'trio'},
      mapPanel(`map-${line.line}-exact`, map.exact, 'exact', about(map.exact), colors),
      mapPanel(`map-${line.line}-approx`, map.approx, 'variant', about(map.approx), colors),
      mapPanel(`map-${line.line}-difference`, map.difference, 'variant - exact', moved, colors)));
}

function mapLegend(colors) {
  const canvas = element('canvas', {id: 'map-legend', role: 'img', class: 'map', 'aria-label': 'Colours: logarithmic, orange below 0, blue above'});
  paint(canvas, Uint8Array.from({length: 255}, (_, i) => i + 1), 255, colors);
  return element('div', {class: 'legend'}, canvas,
    element('div', {class: 'ticks', 'aria-hidden': 'true'}, ...['-1', '-0.01', '0', '0.01', '1'].map((tick) => element('span', {}, tick))));
}

function mapTable(n, found) {
  const row = (name, numbers, moved) => [name, ...numbers.map(asShare), ...moved.map(asShare)];
  const exacts = [...new Set(found.map(({cell}) => cell.map.exact))];
  return table(`Weights at n = ${n}, means over queries: their sum, what lies within n/16 of the query's position, on the first n/16 ` +
    'keys, and below 0; what lies on other keys than in exact attention, and the largest such share of a row of cells.',
  ['setting', 'sum', 'near', 'first', 'below 0', 'moved', 'moved at most'],
  [...exacts.map((exact) => row('exact attention', data.maps.pictures[exact].numbers, [0, 0])),
    ...found.map(({line, cell}) => row(named(line), data.maps.pictures[cell.map.approx].numbers, [cell.map.moved, cell.map.most]))]);
}

function drawMaps() {
  const lines = visibleLines(), n = lengthOfMaps(lines);
  byId('no-maps').hidden = n !== undefined;
  byId('some-maps').hidden = n === undefined;
  if (n === undefined) {
    byId('maps-figures').replaceChildren();
    return;
  }
  const colors = palette();
  const found = lines.flatMap((line) => line.cells.filter((cell) => cell.n === n && cell.map).map((cell) => ({line, cell})));
  const without = lines.filter((line) => !found.some((one) => one.line === line)).map(label);
  byId('maps-which').textContent = (n === state.n ? `n = ${n}.` : `n = ${n}, the nearest to ${state.n} with maps.`) +
    (without.length ? ` None for ${without.join('; ')}.` : '');
  byId('maps-legend').replaceChildren(mapLegend(colors));
  byId('maps-figures').replaceChildren(...found.map(({line, cell}) => mapFigure(line, cell.map, colors)));
  showTable('maps-table', mapTable(n, found));
}
