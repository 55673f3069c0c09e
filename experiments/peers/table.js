// table.js - the journal of a comparison as a table in Markdown.
'use strict';

const {SAMPLED_ROWS} = require('./tensors.js');

// 97.5 % points of Student's t for 1 to 10 degrees of freedom; beyond, an approximation good to 0.3 %.
const STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
const student = (freedom) => STUDENT[freedom - 1] ?? 1.96 + 2.6 / freedom;

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/** Geometric mean of ratios and its 95 % interval (of the mean logarithm). */
function summarise(ratios) {
  const logs = ratios.map(Math.log), count = logs.length;
  const mean = logs.reduce((a, b) => a + b, 0) / count;
  const variance = logs.reduce((a, x) => a + (x - mean) ** 2, 0) / (count - 1);
  const reach = student(count - 1) * Math.sqrt(variance / count);
  return {ratio: Math.exp(mean), low: Math.exp(mean - reach), high: Math.exp(mean + reach)};
}

function flops({computation, heads, n, d, causal}) {
  const pairs = causal ? (n * (n + 1)) / 2 : n * n;
  return 4 * heads * d * pairs; // of the matrix products, as is usual; the exponentials are not counted
}

/** "1.52 (1.50-1.55)" and "1.6: no" of attnlab's speed over a peer's; open: the interval has the target in it. */
function comparison(rounds, ours, peer, target) {
  const paired = rounds.filter((times) => times[ours] && times[peer]).map((times) => times[peer] / times[ours]);
  if (paired.length === 0) return ['', ''];
  const {ratio, low, high} = paired.length > 1 ? summarise(paired) : {ratio: paired[0], low: 0, high: Infinity};
  const verdict = low >= target ? 'met' : high < target ? 'no' : 'open';
  return [`${ratio.toFixed(2)} (${low.toFixed(2)}-${high.toFixed(2)})`, target ? `${target}: ${verdict}` : ''];
}

function caseRows({subject, participants, rounds}) {
  const ours = participants[0].name;
  const where = [subject.computation, subject.n, subject.d, subject.causal ? 'causal' : ''];
  return participants.map(({name, problem, error, target}, index) => {
    const seconds = rounds.map((times) => times[name]).filter(Boolean);
    if (problem || seconds.length === 0) return [...where, name, problem ?? 'not run', '', '', '', ''];
    const time = median(seconds);
    const [ratio, verdict] = index === 0 ? ['', ''] : comparison(rounds, ours, name, target);
    return [...where, name, time.toPrecision(3), (flops(subject) / time / 1e9).toFixed(0), ratio, verdict,
      error.toExponential(1)];
  });
}

/** Lines of a table; the columns are as wide as their content. */
function grid(rows, right) {
  const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => String(row[column]).length)));
  const pad = (cell, column) => String(cell)[right[column] ? 'padStart' : 'padEnd'](widths[column]);
  const line = (row) => `| ${row.map(pad).join(' | ')} |`;
  const rule = `|${widths.map((width, column) => '-'.repeat(width + 1) + (right[column] ? ':' : '-')).join('|')}|`;
  return [line(rows[0]), rule, ...rows.slice(1).map(line)];
}

/** facts: {machine, date, threads, heads}; cases: [{subject, participants, rounds}]. */
function table(facts, unordered) {
  const key = (c) => JSON.stringify(c.subject);
  const cases = [...unordered].sort((a, b) => key(a).localeCompare(key(b), 'en', {numeric: true}));
  const head = ['', 'n', 'd', 'mask', 'who', 'seconds', 'GFLOP/s', 'attnlab / it', 'target', 'difference'];
  const right = [false, true, true, false, false, true, true, true, true, true];
  const everyone = cases.flatMap((c) => c.participants);
  const about = (who) => new Set(everyone.filter((p) => p.name === who).map((p) => p.description ?? p.problem));
  const who = [...new Set(everyone.map((p) => p.name))].map((name) => `${name}: ${[...about(name)].join(' or ')}`);
  const counts = cases.map((c) => c.rounds.length);
  return [
    `${facts.machine}; ${facts.date}; ${facts.threads} threads, batch 1, ${facts.heads} heads, fp32.`,
    `${who.join('. ')}.`,
    '',
    ...grid([head, ...cases.flatMap(caseRows)], right),
    '',
    `Medians of ${[...new Set([Math.min(...counts), Math.max(...counts)])].join(' to ')} rounds: one execution of ` +
    'each in random order. attnlab / it: ratio of speeds, geometric mean over rounds with its 95 % interval; ' +
    'target: met or no where the whole interval says so. ' +
    `Difference: the largest from attnlab's output (attnlab: from ${SAMPLED_ROWS} rows in double precision), as a ` +
    'fraction of the largest element.',
  ].join('\n');
}

module.exports = {table};
