// zoom.js - a part of a plot: by a rectangle drawn with the pointer, by its buttons, or by the keys +, - and 0.
'use strict';

const zooms = new Map(); // of a plot that shows a part: {x: {min, max}, y: {min, max}, about}

// Gives the axes the part that was chosen, which is one of what the plot is about.
function zoomInto(id, about, x, y) {
  const zoom = zooms.get(id);
  if (!zoom || (zoom.about ?? about) !== about) {
    if (zooms.delete(id)) writeHash();
    return false;
  }
  zoom.about = about;
  Object.assign(x, zoom.x);
  Object.assign(y, zoom.y);
  return true;
}

function redraw(place, zoom) {
  const focused = place.contains(document.activeElement) && document.activeElement === place.firstChild;
  if (zoom) zooms.set(place.id, zoom);
  else zooms.delete(place.id);
  plots.get(place.id).again();
  writeHash();
  if (focused) place.firstChild.focus({preventScroll: true});
}

const rangeOf = (scale, from, to) => {
  const ends = [scale.of(from), scale.of(to)];
  return {min: Math.min(...ends), max: Math.max(...ends)};
};

// Shows what is between these pixels.
function zoomTo(place, left, right, top, bottom) {
  const {x, y, about} = plots.get(place.id);
  redraw(place, {x: rangeOf(x, left, right), y: rangeOf(y, bottom, top), about});
}

// By a factor, about the mark that is shown, or the middle.
function zoomBy(place, factor) {
  const {frame, marks} = plots.get(place.id), mark = marks[place.dataset.at];
  const px = mark?.px ?? (frame.left + frame.right) / 2, py = mark?.py ?? (frame.top + frame.bottom) / 2;
  zoomTo(place, px + (frame.left - px) / factor, px + (frame.right - px) / factor, py + (frame.top - py) / factor,
    py + (frame.bottom - py) / factor);
}

function zoomButtons(place) {
  const button = (text, label, act) => {
    const made = element('button', {type: 'button', 'aria-label': `${label}: ${place.id}`, title: label}, text);
    made.addEventListener('click', act);
    return made;
  };
  const whole = button('all', 'Show all', () => redraw(place, null));
  whole.className = 'whole';
  return [button('+', 'Zoom in', () => zoomBy(place, 1.5)), button('\u2212', 'Zoom out', () => zoomBy(place, 1 / 1.5)), whole];
}

function zoomKey(place, key) {
  if (key === '0') redraw(place, null);
  else if (key === '+' || key === '-') zoomBy(place, key === '+' ? 1.5 : 1 / 1.5);
}

// Where the pointer is, in pixels of the picture, within its frame.
function within(place, event) {
  const box = place.firstChild.getBoundingClientRect(), {picture, frame} = plots.get(place.id);
  const scale = picture.viewBox.baseVal.width / box.width, clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  return [clamp((event.clientX - box.left) * scale, frame.left, frame.right), clamp((event.clientY - box.top) * scale, frame.top, frame.bottom)];
}

// A rectangle drawn with the mouse or a pen; a finger scrolls. What moved no further than a click is one.
function followDrag(place, click) {
  let start = null, drawn = null;
  place.addEventListener('pointerdown', (event) => {
    if (event.button || event.pointerType === 'touch' || !place.firstChild.contains(event.target)) return;
    event.preventDefault();
    place.firstChild.focus({preventScroll: true});
    start = within(place, event);
  });
  addEventListener('pointermove', (event) => {
    if (!start) return;
    const [x, y] = within(place, event), [left, top] = [Math.min(x, start[0]), Math.min(y, start[1])];
    drawn ??= shape('rect', {fill: ink('link'), 'fill-opacity': 0.12, stroke: ink('link')});
    for (const [name, value] of Object.entries({x: left, y: top, width: Math.abs(x - start[0]), height: Math.abs(y - start[1])}))
      drawn.setAttribute(name, value);
    place.firstChild.append(drawn);
  });
  addEventListener('pointerup', (event) => {
    if (!start) return;
    const [x, y] = within(place, event), [left, top] = start;
    drawn?.remove();
    start = drawn = null;
    if (Math.abs(x - left) > 8 && Math.abs(y - top) > 8) zoomTo(place, Math.min(x, left), Math.max(x, left), Math.min(y, top), Math.max(y, top));
    else if (Math.hypot(x - left, y - top) < 4) click(event);
  });
}

// ---- in the address ---------------------------------------------------------------------------------------

const hashOfZooms = () => [...zooms].map(([id, {x, y}]) => [id, ...[x.min, x.max, y.min, y.max].map((end) => end.toPrecision(4))].join(' '));

function readZooms(texts) {
  zooms.clear();
  for (const text of texts) {
    const [id, ...ends] = text.split(' '), [left, right, bottom, top] = ends.map(Number);
    if (left < right && bottom < top && Number.isFinite(right - left + top - bottom))
      zooms.set(id, {x: {min: left, max: right}, y: {min: bottom, max: top}});
  }
}
