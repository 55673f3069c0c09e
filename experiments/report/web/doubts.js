// doubts.js - what not to trust, and why: violated bounds, runs without a result, noise, provenance, estimates.
'use strict';

// Doubts among these bits: [name, text]. kinds: with which their texts begin; none: all.
function doubtsOf(bits, kinds) {
  return data.doubts.filter(([, text], bit) => (bits >> bit) & 1 && (!kinds || kinds.some((kind) => text.startsWith(`${kind}:`))));
}

// Their names, as links to what they mean.
function doubtMarks(bits, kinds) {
  return doubtsOf(bits, kinds).map(([name, text]) => element('a', {class: 'mark', href: `#doubt-${name}`, title: text}, name));
}

const counts = (object) => Object.entries(object).filter(([, count]) => count)
  .map(([name, count]) => `${count} ${name.replace('_', ' ')}`).join(', ');

function drawHeadline() {
  const {totals} = data, bad = totals.violations.length, line = byId('headline');
  line.append(`${totals.runs} runs${totals.runs ? `: ${counts(totals.statuses)}` : ''}. Verdicts on ${totals.bounds} bounds of runs and ${totals.properties} properties of ${totals.settings} settings: ${counts(totals.verdicts) || 'none'}.`);
  if (datasets.size === 1) line.append(' Data: ', element('span', {id: 'data-of', title: data.groups[0].spec}, data.groups[0].dataset), '.');
  if (!bad && counts(totals.verdicts)) line.append(' No bound is violated.');
  if (bad) line.after(element('p', {}, element('a', {class: 'bad', href: '#doubts'}, `Violated checks: ${bad}.`)));
  if (totals.unchecked.length) line.after(element('p', {class: 'bad'},
    `Unchecked: ${totals.unchecked.join(', ')}. No check of their kind of variant applied: they take no part in the comparison.`));
}

// Runs that did not end well, one row for each reason: messages that differ in numbers alone are one.
function failedTable() {
  const reasons = new Map();
  data.runs.status.forEach((status, i) => {
    if (status === 'ok') return;
    const what = JSON.stringify([status, data.lines[data.runs.line[i]].variant, data.runs.message[i].replace(/[0-9.]+/g, '#')]);
    reasons.set(what, [(reasons.get(what)?.[0] || 0) + 1, data.runs.message[i]]);
  });
  return reasons.size ? [table('Runs without a result', ['status', 'variant', 'runs', 'message'],
    [...reasons].map(([what, [count, message]]) => [...JSON.parse(what).slice(0, 2), count, message]), 2)] : [];
}

// What each doubt means, and of how many runs.
function doubtTable() {
  const found = data.doubts.map(([name, text], bit) => [name, text, data.runs.doubts.filter((bits) => (bits >> bit) & 1).length])
    .filter(([, , count]) => count);
  if (!found.length) return element('p', {}, 'No number gave reason to doubt it.');
  const made = table('Doubts about runs; marks in the tables lead here', ['doubt', 'runs', 'meaning'],
    found.map(([name, text, count]) => [name, count, text]));
  made.querySelectorAll('tbody tr').forEach((row, i) => row.setAttribute('id', `doubt-${found[i][0]}`));
  return made;
}

function drawDoubts() {
  const {totals} = data, place = byId('doubts-body');
  if (totals.violations.length) place.append(table('Violated bounds', ['kind', 'check', 'measured', 'bound', 'statement', 'command'],
    totals.violations.slice(0, 100).map((one) => [one.kind, one.check, asRatio(one.measured), asRatio(one.value), one.statement, one.rerun]), 2));
  if (totals.errors.length) place.append(table('Checks that could not be evaluated', ['check', 'message'],
    totals.errors.slice(0, 100).map((one) => [one.check, one.message]), 2));
  place.append(element('div', {id: 'failed'}, ...failedTable()));
  if (data.warnings.length) place.append(element('ul', {}, ...data.warnings.map((text) => element('li', {}, text))));
  place.append(doubtTable());
  data.sessions.forEach((session, i) => {
    const rows = Object.entries(session).filter(([, value]) => value !== '' && value !== null).map(([name, value]) =>
      [name, name.endsWith('_time') ? new Date(value * 1000).toISOString() : String(value)]);
    place.append(element('details', {}, element('summary', {}, `Session ${i}: ${session.cpu_model || 'machine unknown'}, ${session.compiler || ''}`),
      table(`Session ${i}`, ['what', 'message'], rows, 2)));
  });
}

function drawEstimates() {
  const ratios = ([runs, median, worst, n]) => [asRatio(median), runs ? `${asRatio(worst)} (n = ${n})` : '-'];
  byId('estimates').hidden = !data.estimates.length;
  byId('estimates-body').append(table('Actual over estimate',
    ['setting', 'runs', ...['time', 'run', 'memory'].flatMap((name) => [name, `${name}, worst`])],
    data.estimates.map((one) => [named(one), Math.max(one.time[0], one.run[0], one.memory[0]), ...ratios(one.time), ...ratios(one.run), ...ratios(one.memory)])));
}
