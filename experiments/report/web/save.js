// save.js - plots and tables as files: SVG, PNG and CSV, made here, without a server.
'use strict';

function save(name, type, ...parts) {
  const url = URL.createObjectURL(new Blob(parts, {type}));
  element('a', {href: url, download: `${data.title.replace(/\.[a-z0-9]+$/, '')}-${name}`.replace(/[^\w.+-]+/g, '_')}).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// The picture as it is without a pointer.
function textOfSvg(picture) {
  const copy = picture.cloneNode(true);
  copy.removeAttribute('tabindex');
  copy.querySelectorAll('[opacity]').forEach((part) => part.removeAttribute('opacity'));
  return new XMLSerializer().serializeToString(copy);
}

function saveSvg(id, picture) {
  save(`${id}.svg`, 'image/svg+xml', textOfSvg(picture));
}

// Twice as many pixels as on the screen.
function savePng(id, picture) {
  const {width, height} = picture.viewBox.baseVal, canvas = element('canvas', {width: 2 * width, height: 2 * height});
  const image = new Image();
  image.addEventListener('load', () => {
    canvas.getContext('2d').drawImage(image, 0, 0, 2 * width, 2 * height);
    canvas.toBlob((blob) => save(`${id}.png`, 'image/png', blob));
  });
  image.src = `data:image/svg+xml,${encodeURIComponent(textOfSvg(picture))}`;
}

// RFC 4180.
function csvOf(rows) {
  const field = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  return rows.map((row) => `${row.map(field).join(',')}\r\n`).join('');
}

// What a table shows, row by row.
function textOf(made) {
  return [...made.rows].map((row) => [...row.cells].map((cell) => cell.textContent));
}
