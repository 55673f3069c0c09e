// queue.js - parts of the page that take long to draw: one at a time, those nearest to what the reader sees first, so that
// the page answers in between.
'use strict';

const waiting = new Map();
let timer = 0;

// Draws the part with this id later; only the last of several such requests.
function drawLater(id, draw) {
  waiting.set(id, draw);
  if (!timer) timer = setTimeout(drawNearest);
}

function drawWaiting(id) {
  const draw = waiting.get(id);
  waiting.delete(id);
  draw();
}

// How far the part is from the window, in pixels.
function distance(id) {
  const {top, bottom} = byId(id).getBoundingClientRect();
  return Math.max(0, top - innerHeight, -bottom);
}

function drawNearest() {
  timer = 0;
  if (waiting.size) drawWaiting([...waiting.keys()].reduce((best, id) => (distance(id) < distance(best) ? id : best)));
  if (waiting.size) timer = setTimeout(drawNearest);
  else document.documentElement.dataset.ready = 'yes';
}

// Before the page is printed, everything at once.
function drawAll() {
  [...waiting.keys()].forEach(drawWaiting);
}
