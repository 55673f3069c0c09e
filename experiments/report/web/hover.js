// hover.js - what the pointer, or the arrow keys, find in a plot; and the buttons that save it.
'use strict';

// Shows what a mark says, and pales all other groups; null: nothing.
function showMark(place, mark) {
  const {marks, groups, sets} = plots.get(place.id), tip = place.querySelector('.tip');
  groups.forEach((group, i) => group.setAttribute('opacity', !mark || sets[i].group === mark.set.group || !sets[i].shape ? 1 : 0.2));
  tip.hidden = !mark;
  place.dataset.at = mark ? marks.indexOf(mark) : -1;
  if (!mark) return;
  const same = marks.filter((other) => Math.hypot(other.px - mark.px, other.py - mark.py) < 3).slice(0, 5);
  tip.replaceChildren(...same.map(({set, point}) => element('div', {}, element('b', {}, point.label || set.label), ` ${point.note}`)));
  const scale = place.clientWidth / plots.get(place.id).picture.viewBox.baseVal.width;
  tip.style.left = `${Math.max(0, Math.min(mark.px * scale + 12, place.clientWidth - tip.offsetWidth - 4))}px`;
  tip.style.top = `${mark.py * scale + 12}px`;
}

function nearest(place, event) {
  const box = place.firstChild.getBoundingClientRect(), {marks, picture} = plots.get(place.id);
  const scale = picture.viewBox.baseVal.width / box.width;
  const away = ({px, py}) => Math.hypot(px - (event.clientX - box.left) * scale, py - (event.clientY - box.top) * scale);
  const best = marks.reduce((found, mark) => (!found || away(mark) < away(found) ? mark : found), null);
  return best && away(best) < 30 ? best : null;
}

// What the marks of a report lead to: the run behind them.
const openMark = (mark) => mark?.point.open?.();

// From mark to mark, from left to right.
function step(place, by) {
  const {marks} = plots.get(place.id), order = [...marks].sort((a, b) => a.px - b.px || a.py - b.py);
  if (!order.length) return;
  const at = order.indexOf(marks[place.dataset.at]);
  showMark(place, order[at < 0 ? (by > 0 ? 0 : order.length - 1) : (at + by + order.length) % order.length]);
}

// picture: makes the SVG that is saved.
function saveButtons(id, picture) {
  const button = (text, act) => {
    const made = element('button', {type: 'button', 'aria-label': `Save ${id} as ${text}`}, text);
    made.addEventListener('click', () => act(id, picture()));
    return made;
  };
  return element('div', {class: 'tools'}, button('SVG', saveSvg), button('PNG', savePng));
}

// A picture, a place for what is found, and buttons. Made once.
function makeFrame(place) {
  const tools = saveButtons(place.id, () => plots.get(place.id).picture);
  tools.append(...zoomButtons(place));
  place.append(element('span'), element('div', {class: 'tip', role: 'status'}), tools);
  followDrag(place, (event) => openMark(nearest(place, event)));
  place.addEventListener('pointermove', (event) => showMark(place, nearest(place, event)));
  place.addEventListener('pointerleave', () => showMark(place, null));
  place.addEventListener('focusout', () => showMark(place, null));
  place.addEventListener('keydown', (event) => {
    if (event.target !== place.firstChild) return;
    const by = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (by || event.key === 'Enter') event.preventDefault();
    if (by) step(place, by);
    else if (event.key === 'Escape') showMark(place, null);
    else if (event.key === 'Enter') openMark(plots.get(place.id).marks[place.dataset.at]);
    else zoomKey(place, event.key);
  });
}
