// one.js - one run in full: what it was, what it erred, every bound, what to doubt, and the commands that repeat it.
'use strict';

const runs = data.runs;
const datasets = new Set(data.groups.map((one) => one.dataset));

// ---- what the runs of a cell say of bounds -----------------------------------------------------------------

// Of a run: [name, kind, verdict, value, measured, margin, p, message, statement] of each bound.
const boundsOfRun = (i) => [...runs.bounds[i], ...runs.properties[runs.property[i]]].map(([check, verdict, value, measured, margin, p, message]) => {
  const [name, kind, statement] = runs.checks[check];
  return [name, kind, runs.verdicts[verdict], value, measured, margin, p, runs.messages[message], statement];
});

// Of several results on the same bound a violation is shown, else a failure, else the largest margin.
function weightOf([, , verdict, , , margin]) {
  const size = number(margin);
  return verdict === 'violated' ? Infinity : verdict === 'error' ? 1e300 : Number.isNaN(size) ? -1 : size;
}

// Of a cell: [name, kind, verdict, value, measured, margin, how many are violated, the run], found when they are first asked for.
function boundsOf(cell) {
  if (cell.bounds) return cell.bounds;
  const found = new Map();
  for (let i = cell.first; i < cell.first + cell.runs; i++)
    for (const bound of boundsOfRun(i)) {
      const old = found.get(bound[0]), violated = (old?.[6] || 0) + (bound[2] === 'violated');
      found.set(bound[0], !old || weightOf(bound) > weightOf(old) ? [...bound.slice(0, 6), violated, i] : [...old.slice(0, 6), violated, old[7]]);
    }
  cell.bounds = [...found.values()];
  return cell.bounds;
}

// ---- commands ----------------------------------------------------------------------------------------------

// Of a run, put together from what is common to its group and what is its own; '': there is none.
function commandOf({ends, middle}, i) {
  const [head, tail] = ends[runs.group[i]];
  return middle[i] === null ? '' : head + middle[i] + tail;
}

function commandBlock(title, text) {
  const button = element('button', {type: 'button'}, 'Copy'), said = element('span', {role: 'status'});
  button.addEventListener('click', () => navigator.clipboard.writeText(text).then(() => { said.textContent = ' Copied.'; },
    () => { said.textContent = ' Select it, and copy it by the keyboard.'; }));
  return [element('p', {}, `${title} `, button, said), element('pre', {}, text)];
}

function commandsOf(i) {
  const apply = commandOf(runs.apply, i), run = commandOf(runs.run, i);
  if (!run) return [element('p', {}, 'A baseline: it runs beside the variants of a sweep, unless its configuration has nulls: no.')];
  return [...commandBlock('This run again:', run),
    ...(apply ? commandBlock(/YOUR_QKV\.h5/.test(apply) ? 'The same attention of tensors of your own, here YOUR_QKV.h5:' :
      'The same attention of the whole of these tensors:', apply) : [])];
}

// ---- the panel ---------------------------------------------------------------------------------------------

const texts = {s: asTime, byte: asBytes};
// Quantities of the panel: those that are known, [name, value, meaning].
function quantitiesOf(i) {
  return runs.columns.filter(([name]) => !['n', 'seed'].includes(name) && runs[name][i] !== null)
    .map(([name, unit, meaning]) => [name, (texts[unit] || asRatio)(runs[name][i]), meaning]);
}

function boundsTableOf(i) {
  const order = ['violated', 'error', 'uncertifiable', 'consistent', 'pass', 'not_applicable'];
  const found = boundsOfRun(i).sort((a, b) => order.indexOf(a[2]) - order.indexOf(b[2]) || weightOf(b) - weightOf(a));
  if (!found.length) return element('p', {}, 'Nothing was checked.');
  return table('Checks: the margin is measured over bound, and at most 1 where it holds', ['kind', 'check', 'verdict', 'measured', 'bound', 'margin', 'p', 'statement', 'message'],
    found.map(([name, kind, verdict, value, measured, margin, p, message, statement]) => [kind, name,
      verdict === 'violated' ? element('span', {class: 'bad'}, verdict) : verdict.replace('_', ' '), asRatio(measured), asRatio(value),
      asRatio(margin), asRatio(p), statement, message]), 3);
}

// The typical and the worst row, and where in the sequence errors are largest.
function rowsText(i, cell) {
  const profile = cell ? profileOf(cell).map(number) : [], most = profile.reduce((best, value, bin) => (value > (profile[best] ?? -1) ? bin : best), -1);
  const said = [`Rows compared: ${runs.rows_sampled[i]}.`, `Relative error of a row: ${asError(runs.err_rel_l2_mean[i])} in the mean, ${
    asError(runs.err_rel_l2_max[i])} the worst; largest error of an element: ${asError(runs.err_max_abs[i])}.`];
  if (most >= 0) said.push(`By position, over seeds: largest from ${asShare(most / profile.length)} to ${asShare((most + 1) / profile.length)} of the ` +
    `sequence (${asError(profile[most])}), ${asError(profile.slice().sort((a, b) => a - b)[profile.length >> 1])} in the middle one of ${profile.length} parts.`);
  return element('p', {}, said.join(' '));
}

function cellOf(i) {
  const line = data.groups[runs.group[i]].lines.find((one) => one.line === runs.line[i]);
  return line?.cells.find((cell) => i >= cell.first && i < cell.first + cell.runs);
}

function seedLinks(i, cell) {
  if (!cell || cell.runs < 2) return [];
  return [element('p', {}, 'Seeds: ', ...Array.from({length: cell.runs}, (_, k) => cell.first + k).flatMap((other) => {
    const button = element('button', {type: 'button', ...(other === i ? {'aria-current': 'true', disabled: ''} : {})}, String(runs.seed[other]));
    button.addEventListener('click', () => openRun(other));
    return [button, ' '];
  }))];
}

function fillPanel(panel, i) {
  const of = data.groups[runs.group[i]], cell = cellOf(i), close = element('button', {type: 'button', class: 'close'}, 'Close');
  const {params} = data.lines[runs.line[i]], doubts = doubtsOf(runs.doubts[i]);
  const about = dimensions.filter(([name]) => name !== 'dataset').map((one) => described(one, of)).filter((text) => text !== '');
  close.addEventListener('click', () => panel.close());
  panel.replaceChildren(close, element('h2', {id: 'one-title', tabindex: '-1'}, named({line: runs.line[i]})),
    element('p', {}, `n = ${runs.n[i]}, seed ${runs.seed[i]}, ${sources.size > 1 ? `file ${data.lines[runs.line[i]].source}, ` : ''}${about.join(', ')}. Data: `, element('code', {}, of.spec), '.'),
    element('p', {}, `Status: ${runs.status[i]}. Verdict: `, element('b', {class: runs.verdict[i] === 'violated' ? 'bad' : ''}, runs.verdict[i].replace('_', ' ')), '.',
      ...(runs.message[i] ? [` ${runs.message[i]}`] : [])), ...seedLinks(i, cell),
    ...(doubts.length ? [element('h3', {}, 'Doubts'), element('ul', {}, ...doubts.map(([name, text]) => element('li', {}, `${name}: ${text}`)))] : []),
    element('h3', {}, 'Again'), ...commandsOf(i));
  if (Object.keys(params).length) panel.append(element('h3', {}, 'Parameters'), table('Parameters', ['parameter', 'value'],
    Object.entries(params).map(([name, value]) => [name, String(value)])));
  if (runs.status[i] === 'ok') panel.append(element('h3', {}, 'Rows'), rowsText(i, cell));
  panel.append(element('h3', {}, 'Checks'), boundsTableOf(i), element('h3', {}, 'Quantities'),
    table('What was measured', ['quantity', 'value', 'meaning'], quantitiesOf(i)));
}

// Opens what the address says, and closes what it no longer says.
function showRun() {
  const panel = byId('one'), i = /^\d+$/.test(state.run) ? Number(state.run) : -1, there = i >= 0 && i < runs.line.length;
  if (!there) state.run = '';
  if (there) fillPanel(panel, i);
  if (there && !panel.open) panel.showModal();
  if (!there && panel.open) panel.close();
  if (!there) return;
  byId('one-title').focus();
  panel.scrollTop = 0;
}

function openRun(i) {
  state.run = String(i);
  writeHash();
  showRun();
}

// The first run of a cell.
const openerOf = (cell) => () => openRun(cell.first);

function makePanel() {
  const panel = byId('one');
  panel.addEventListener('close', () => {
    if (panel.open) return; // by now another run is shown
    state.run = '';
    writeHash();
  });
  panel.addEventListener('click', (event) => event.target === panel && panel.close());
}
