// state.js - what the reader chose, and its place in the address of the page, so that it can be kept and sent.
'use strict';

const sources = new Set(data.lines.map((line) => line.source));
const dimensions = data.menus;
const defaults = {file: '', error: '10', time: '', memory: '', order: 'time', sort: 'setting', words: '', all: '', run: '', ...data.limits};
const state = {at: '', group: 0, n: 0, hidden: new Set(), ...defaults};

const group = () => data.groups[state.group];
const methodOf = (line) => data.lines[line.line].method;
const fileOf = (line) => data.lines[line.line].source;
const visibleLines = () => group().lines.filter((line) => !state.hidden.has(methodOf(line)) && (!state.file || fileOf(line) === state.file));
const methodsOf = (chosen) => [...new Set(chosen.lines.map(methodOf))];

function sizesOf(chosen) {
  return [...new Set(chosen.lines.flatMap((line) => line.cells.map((cell) => cell.n)))].sort((a, b) => a - b);
}

// Keeps n where the group has it.
function settle() {
  const sizes = data.groups.length ? sizesOf(group()) : [];
  if (!sizes.includes(state.n)) state.n = sizes[sizes.length - 1];
}

// The group that has this value and otherwise most in common with the present one: there always is something to show.
function chooseGroup(dimension, value) {
  const alike = (other) => dimensions.filter(([name]) => String(other[name]) === String(group()[name])).length;
  let best = -1;
  data.groups.forEach((other, i) => {
    if (String(other[dimension]) === value && (best < 0 || alike(other) > alike(data.groups[best]))) best = i;
  });
  if (best >= 0) state.group = best;
}

// As text: a number with what it is.
const described = ([name, title], of) => (/^\d+$/.test(of[name]) ? `${title.toLowerCase()} = ${of[name]}` : of[name]);
const choicesOf = (dimension) => [...new Set(data.groups.map((one) => String(one[dimension])))];

function hashOf() {
  const hash = new URLSearchParams();
  if (!data.groups.length) return '';
  for (const [name] of dimensions) if (choicesOf(name).length > 1) hash.set(name, group()[name]);
  hash.set('n', state.n);
  for (const method of state.hidden) hash.append('hide', method);
  for (const name of Object.keys(defaults)) if (state[name] !== defaults[name]) hash.set(name, state[name]);
  for (const zoom of hashOfZooms()) hash.append('zoom', zoom);
  if (state.at) hash.set('at', state.at);
  return hash.toString();
}

// What the address does not say, or says of something that is not there, is as it was at first.
function readHash() {
  const hash = new URLSearchParams(location.hash.slice(1)), wanted = dimensions.filter(([name]) => hash.has(name));
  const alike = (one) => wanted.filter(([name]) => String(one[name]) === hash.get(name)).length;
  state.group = data.groups.reduce((best, one, i) => (alike(one) > alike(data.groups[best]) ? i : best), 0);
  state.n = Number(hash.get('n'));
  state.hidden = new Set(hash.getAll('hide').filter((method) => methods.includes(method)));
  for (const [name, value] of Object.entries(defaults)) state[name] = hash.get(name) ?? value;
  if (!sources.has(state.file)) state.file = '';
  readZooms(hash.getAll('zoom'));
  state.at = placeIn(hash);
  settle();
}
