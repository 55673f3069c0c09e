// fits.js - "Which variant fits?": the cheapest setting within the reader's limits, as a sentence, and the next ones.
'use strict';

const timeOf = ({cell}) => number(cell.time[0]);
const memoryOf = ({cell}) => number(cell.memory[0]);
const isExact = ({line}) => data.lines[line.line].exact;
// Errors of exact variants are rounding: they keep every limit.
const errorOf = (one) => (isExact(one) ? 0 : number(one.cell.error[0]));
const asPart = (value) => (number(value) < 1e-4 ? asError(value) : `${significant(100 * number(value), 2)} %`);

const limitFields = [['error', 'Error at most', '%', 0.01, errorOf, asPart], ['time', 'Time at most', 'ms', 1e-3, timeOf, asTime],
  ['memory', 'Memory at most', 'MiB', 1048576, memoryOf, asBytes]];

// Limits that are set: [name, value, measure, text]. Numbers of the page have five digits: what equals a limit keeps it.
function limitsSet() {
  return limitFields.filter(([name]) => state[name] !== '' && Number(state[name]) >= 0)
    .map(([name, , , unit, measure, text]) => [name, Number(state[name]) * unit * (1 + 1e-4), measure, text]);
}

// What was checked, holds its bounds at every seed and beats zeros and the mean of V, at the chosen n.
const offered = () => cellsAtN(visibleLines()).filter(({cell}) => cell.offered);

// The cheapest first.
function ranked(found) {
  const [first, second] = state.order === 'memory' ? [memoryOf, timeOf] : [timeOf, memoryOf];
  return found.sort((a, b) => first(a) - first(b) || second(a) - second(b));
}

function fitting() {
  const limits = limitsSet();
  return ranked(offered().filter((one) => limits.every(([, limit, measure]) => measure(one) <= limit)));
}

// How sure it is that the error is within the limit, in a word and in words.
function surety({line, cell}) {
  const limit = limitsSet().find(([name]) => name === 'error')?.[1] ?? Infinity, ceiling = number(cell.ceiling);
  if (data.lines[line.line].exact) return ['certain', 'it is exact apart from rounding'];
  if (line.drawn) return ['estimated', `it may depend on random draws, of which ${cell.runs === 1 ? 'one was' : `${cell.runs} were`} made`];
  if (ceiling <= limit && ceiling === number(cell.error[2])) return ['certain', 'every row was compared, and nothing in it is drawn at random'];
  if (ceiling <= limit) return ['certified', `rows were sampled; with 95 % confidence, in each run, it is at most ${asPart(ceiling)}`];
  return ['estimated', `rows were sampled, ` +
    `${ceiling < 1 ? `and no more than ${asPart(ceiling)} is certified` : 'and nothing is certified of the others'}`];
}

// What a setting is compared with: exact attention of the same file.
const exactCell = (of) => cellsAtN(group().lines).find(({line}) => line.line === of?.exact);
// What belongs together stays on one line.
const tight = (text) => text.replaceAll(' ', '\u00a0');
const asLimits = (limits) => limits.map(([name, limit, , text]) => `${name} at most ${tight(text(limit))}`).join(', ');

function sentence(best, limits) {
  const exact = exactCell(best.line), [word, why] = surety(best), {cell} = best, said = element('p', {class: 'sentence'});
  const goal = state.order === 'memory' ? 'the smallest' : 'the fastest';
  said.append(element('code', {}, label(best.line)), `${data.lines[best.line.line].oracle ? ' (oracle)' : ''} is ${goal} ${limits.length ? `with ${asLimits(limits)}` : 'of all'}`,
    ` at ${tight(`n = ${state.n}`)}: error ${isExact(best) ? `of rounding (${asError(cell.error[0])})` : tight(asInterval(cell.error, asPart))}, `,
    `${tight(asInterval(cell.time, asTime))}, ${tight(asBytes(memoryOf(best)))}`);
  if (exact && best.line !== exact.line) said.append(`, ${asRatio(cell.speedup[0])} times as fast as exact attention (${label(exact.line)}, `,
    `${tight(asTime(timeOf(exact)))}, ${tight(asBytes(memoryOf(exact)))})`);
  said.append('. ');
  if (isExact(best)) said.append('No approximation that was run is both within these limits and cheaper. ');
  said.append('The error is ', element('span', {class: `sure ${word}`}, word), `: ${why}.`);
  return said;
}

// What repeats the answer: on the run's own tensors, where a command can have them.
function command(one) {
  const apply = commandOf(runs.apply, one.cell.first), text = apply || commandOf(runs.run, one.cell.first);
  const said = /YOUR_QKV\.h5/.test(apply) ? 'YOUR_QKV.h5 stands for tensors of your own: these were generated. ' :
    apply && `All positions of the file; the run had n = ${state.n}. `;
  const more = element('button', {type: 'button'}, 'This run in full');
  more.addEventListener('click', openerOf(one.cell));
  return [...(text ? [element('pre', {}, text)] : []), element('p', {class: 'note'}, said, more)];
}

function nextTable(found) {
  return table('The cheapest that fit', ['setting', 'error', 'time', 'times as fast', 'memory', 'keys', 'the error is'],
    found.map((one) => [opening(named(one.line), openerOf(one.cell)), {text: asInterval(one.cell.error, asPart), marks: doubtMarks(one.cell.doubts, ['error'])},
      {text: asInterval(one.cell.time, asTime), marks: doubtMarks(one.cell.doubts, ['time'])}, asRatio(one.cell.speedup[0]),
      asBytes(memoryOf(one)), asRatio(one.cell.keys),
      {text: surety(one)[0], marks: doubtMarks(one.cell.doubts, ['bound'])}]));
}

// The cheapest whose whole interval of the error is within the limit, where that is another.
function safer(found, limits) {
  const limit = limits.find(([name]) => name === 'error')?.[1], within = (one) => isExact(one) || !(number(one.cell.error[2]) > limit);
  if (limit === undefined || within(found[0])) return [];
  const safe = found.find(within);
  return [element('p', {}, 'Its interval reaches beyond the limit. ', ...(safe ? ['The cheapest whose whole interval is within: ',
    element('code', {}, label(safe.line)), `, ${tight(asTime(timeOf(safe)))}, ${tight(asBytes(memoryOf(safe)))}.`] : ['So do all others.']))];
}

// By how much the limits are missed: of the worst, measured over limit.
function nearestMiss(found, limits) {
  const miss = (one) => Math.max(...limits.map(([, limit, measure]) => measure(one) / limit));
  const best = found.reduce((least, one) => (!least || miss(one) < miss(least) ? one : least), null);
  if (!best) return 'No setting here passes its checks and beats zeros and the mean of V.';
  const missed = limits.filter(([, limit, measure]) => measure(best) > limit).map(([name, , measure, text]) => `${name} ${text(measure(best))}`);
  return `The nearest is ${label(best.line)}: ${missed.join(', ')}.`;
}

// Why there is no answer.
function noAnswer(limits) {
  const said = element('p', {class: 'sentence'}), lines = visibleLines();
  if (!lines.length) said.append('No variant is chosen.');
  else if (cellsAtN(lines).length) said.append(`Nothing that was run at n = ${state.n} fits ${asLimits(limits)}. ${nearestMiss(offered(), limits)}`);
  else said.append(`No run at n = ${state.n} has a result: `, element('a', {href: '#failed'}, 'why'), '.');
  return said;
}

function drawAnswer() {
  const limits = limitsSet(), found = fitting(), exact = exactCell(found[0]?.line || group().lines[0]);
  byId('limit-time').placeholder = exact ? `any; exact ${significant(1e3 * timeOf(exact), 2)}` : 'any';
  byId('limit-memory').placeholder = exact ? `any; exact ${significant(memoryOf(exact) / 1048576, 2)}` : 'any';
  byId('answer').replaceChildren(...(found.length ?
    [sentence(found[0], limits), ...safer(found, limits), ...command(found[0]), nextTable(found.slice(0, 5))] : [noAnswer(limits)]));
  const left = cellsAtN(visibleLines()).filter(({cell}) => !cell.offered).map(({line}) => label(line));
  byId('not-offered').textContent = [
    left.length && `Not offered, since unchecked, violated, without a result at some seed, a baseline, or no better than one: ${left.join('; ')}.`,
    state.hidden.size && `Not considered, since not chosen: ${[...state.hidden].join('; ')}.`].filter(Boolean).join(' ');
}

// The fields are made once; the answer follows them.
function makeLimits() {
  const changed = () => {
    writeHash();
    drawAnswer();
    drawFronts();
  };
  byId('limits').append(...limitFields.map(([name, text, unit]) => {
    const field = element('input', {type: 'number', id: `limit-${name}`, min: '0', step: 'any', inputmode: 'decimal', placeholder: 'any'});
    field.addEventListener('input', () => {
      state[name] = field.value;
      changed();
    });
    return element('label', {}, element('span', {}, `${text}, ${unit}`), field);
  }));
  const order = element('select', {id: 'limit-order'}, element('option', {value: 'time'}, 'time'), element('option', {value: 'memory'}, 'memory'));
  order.addEventListener('change', () => {
    state.order = order.value;
    changed();
  });
  byId('limits').append(element('label', {}, element('span', {}, 'Cheapest in'), order));
}

function showLimits() {
  for (const [name] of limitFields) byId(`limit-${name}`).value = state[name];
  byId('limit-order').value = state.order;
}
