// scale.js - the axes of a plot: their range, where their ticks are, and from values to pixels.
'use strict';

const plotFont = 'Inter, "Helvetica Neue", "Segoe UI", Roboto, "Nimbus Sans", Arial, sans-serif';
const ruler = document.createElement('canvas').getContext('2d');

function widthOf(text, size = 12, weight = 400) {
  ruler.font = `${weight} ${size}px ${plotFont}`;
  return ruler.measureText(text).width;
}

// The text, or its beginning where it is wider.
function shorten(text, width, size, weight) {
  let kept = text;
  while (kept.length > 1 && widthOf(kept, size, weight) > width) kept = `${kept.slice(0, -2)}…`;
  return kept;
}

// Lines of words that are at most so wide.
function wrap(text, width, size, weight) {
  const lines = [''];
  for (const word of text.split(' ')) {
    const last = lines[lines.length - 1], longer = last ? `${last} ${word}` : word;
    if (!last || widthOf(longer, size, weight) <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines.map((line) => shorten(line, width, size, weight));
}

// text: of a value; values: ticks that are given; linear: from min to max, else logarithmic; edge: where values of rounding
// are drawn, below a break.
function axis(title, text, options = {}) {
  return {title, text, ...options};
}

const shares = (title, text = (value) => significant(value, 2)) => axis(title, text, {linear: true, min: 0, max: 1});

// The range of a logarithmic axis, wide enough for whole marks at its ends.
function limits(values) {
  const ends = values.filter((value) => value > 0 && Number.isFinite(value));
  if (!ends.length) return {min: 0.1, max: 1};
  const min = ends.reduce((a, b) => Math.min(a, b)), max = ends.reduce((a, b) => Math.max(a, b));
  const room = Math.max(1.2, (max / min) ** 0.05);
  return {min: min / room, max: max * room};
}

// from, to: pixels.
function setScale(scale, values, from, to) {
  if (scale.min === undefined) Object.assign(scale, limits([...values, ...(scale.values || [])]));
  const of = scale.linear ? (value) => value : Math.log;
  const low = of(scale.min), high = of(scale.max);
  scale.at = (value) => Math.round((from + ((of(value) - low) / (high - low)) * (to - from)) * 10) / 10;
  scale.of = (at) => {
    const value = low + ((at - from) / (to - from)) * (high - low);
    return scale.linear ? value : Math.exp(value);
  };
  scale.has = (value) => value >= scale.min && value <= scale.max;
  scale.inside = (value) => scale.at(Math.min(Math.max(value, scale.min), scale.max));
}

// Powers of ten, with 2 and 5 between where there is room; powers of two, for bytes; tenths, for shares. At most `most`.
function ticksOf(scale, most) {
  if (scale.values) return scale.values.filter(scale.has);
  if (scale.linear) {
    const step = [0.05, 0.1, 0.2, 0.25, 0.5, ...[1, 10, 100, 1e3, 1e4, 1e5].flatMap((ten) => [ten, 2 * ten, 5 * ten])].find((one) => (scale.max - scale.min) / one <= most) || scale.max - scale.min;
    const first = Math.ceil(scale.min / step);
    return Array.from({length: Math.floor(scale.max / step) - first + 1}, (_, i) => (first + i) * step);
  }
  const base = scale.text === asBytes ? 2 : 10;
  const low = Math.ceil(Math.log(scale.min) / Math.log(base) - 1e-9), high = Math.floor(Math.log(scale.max) / Math.log(base) + 1e-9);
  for (const digits of base === 10 ? [[1, 1.5, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]] : [[1]]) {
    const found = [];
    for (let power = low - 1; power <= high; power++) found.push(...digits.map((digit) => digit * base ** power));
    const within = found.filter((value) => value >= scale.min && value <= scale.max);
    if (within.length <= most && within.length > 1) return within;
  }
  const step = Math.max(1, Math.ceil((high - low + 1) / most));
  return Array.from({length: Math.max(0, Math.floor((high - low) / step) + 1)}, (_, i) => base ** (low + i * step));
}

// Ticks whose texts do not touch each other along a line.
function apart(scale, values) {
  let end = -Infinity;
  return values.filter((value) => {
    const half = widthOf(scale.text(value)) / 2 + 4, at = scale.at(value);
    if (at - half < end) return false;
    end = at + half;
    return true;
  });
}
