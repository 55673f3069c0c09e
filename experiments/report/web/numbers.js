// numbers.js - the data of the page, numbers as text, and elements. All text enters as text, never as markup.
'use strict';

const data = JSON.parse(document.getElementById('data').textContent);

// Numbers come as null (unknown), "inf" or "-inf".
function number(value) {
  return typeof value === 'number' ? value : value === 'inf' ? Infinity : value === '-inf' ? -Infinity : NaN;
}

function significant(value, digits) {
  value = number(value);
  if (Number.isNaN(value)) return '-';
  if (!Number.isFinite(value)) return value > 0 ? '∞' : '-∞';
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.99e-3 || size >= 1e6)) return value.toExponential(digits - 1);
  return String(Number(value.toPrecision(digits)));
}

function scaled(value, units, base) {
  value = number(value);
  if (!Number.isFinite(value)) return significant(value, 3);
  let unit = 0;
  while (unit + 1 < units.length && value >= base) {
    value /= base;
    unit++;
  }
  return `${Number(value.toPrecision(3))} ${units[unit]}`;
}

const asError = (value) => significant(value, 2);
const asTime = (seconds) => scaled(number(seconds) * 1e9, ['ns', 'µs', 'ms', 's'], 1000);
const asBytes = (bytes) => scaled(bytes, ['B', 'KiB', 'MiB', 'GiB', 'TiB'], 1024);
const asRatio = (value) => significant(value, 3);
const asShare = (value) => (Number.isNaN(number(value)) ? '-' : `${significant(100 * number(value), 3)} %`);

// "1.2 [1.1, 1.3]"; without an interval, or with one that is a point, the number alone.
function asInterval(interval, text) {
  const [mid, lo, hi] = interval.map(number);
  if (Number.isNaN(mid)) return '-';
  return Number.isNaN(lo) || Number.isNaN(hi) || lo === hi ? text(mid) : `${text(mid)} [${text(lo)}, ${text(hi)}]`;
}

const bytesOf = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));

// Errors by position: the upper halves of 32-bit floating-point numbers.
function profileOf(cell) {
  const halves = new DataView(bytesOf(cell.profile).buffer), whole = new DataView(new ArrayBuffer(4));
  return Array.from({length: halves.byteLength / 2}, (_, i) => {
    whole.setUint16(2, halves.getUint16(2 * i, true), true);
    return whole.getFloat32(0, true);
  });
}

// element('a', {href: '#x', class: 'y'}, 'text', other elements...)
function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function byId(id) {
  return document.getElementById(id);
}
