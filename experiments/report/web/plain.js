// plain.js - a page without choices: its address says which part is shown, and how its plots are zoomed.
'use strict';

const state = {at: ''};

function hashOf() {
  const chosen = [...hashOfZooms().map((zoom) => ['zoom', zoom]), ...(state.at ? [['at', state.at]] : [])];
  return new URLSearchParams(chosen).toString();
}

function restore() {
  const hash = new URLSearchParams(location.hash.slice(1));
  readZooms(hash.getAll('zoom'));
  state.at = placeIn(hash);
  drawPlots();
  goToPlace();
}

// Once its parts are there; drawPlots() of the page draws.
function showPage() {
  fillContents();
  makeLink();
  followMedia(drawPlots);
  followAddress(restore);
  restore();
}
