// compare.js - the driver: the same tensors for every participant, in turn, in one run.
'use strict';
const {execFileSync} = require('child_process');
const fs = require('fs');
const os = require('os');
const path = require('path');
const {parseArgs} = require('util');

const npy = require('./npy.js');
const {participants} = require('./participants.js');
const {Process} = require('./process.js');
const {table} = require('./table.js');
const {uniform, make, difference, differenceFromReference} = require('./tensors.js');

const PAUSE = 20; // ms before an execution, for the threads of the one before to go to sleep

const OPTIONS = {
  only: {type: 'string', default: ''},
  rounds: {type: 'string', default: '10'},
  seconds: {type: 'string', default: 'Infinity'},
  threads: {type: 'string', default: '2'},
  heads: {type: 'string', default: '8'},
  without: {type: 'string', multiple: true, default: []},
  ours: {type: 'string', multiple: true, default: ['tiled']},
  quick: {type: 'boolean', default: false},
  continue: {type: 'boolean', default: false},
};

const text = (value) => (typeof value === 'boolean' ? (value ? 'yes' : 'no') : String(value));

/** Cases, by "key=value+value,key=value": computation, n, d, causal. */
function selectCases(only, heads) {
  const all = [];
  for (const n of [4096, 16384])
    for (const d of [64, 128])
      for (const causal of [false, true]) all.push({computation: 'attention', n, d, causal, heads});
  for (const d of [64, 128]) all.push({computation: 'products', n: 4096, d, causal: false, heads});
  const conditions = only.split(',').filter(Boolean).map((condition) => condition.split('='));
  for (const [key] of conditions)
    if (!(key in all[0])) throw new Error(`--only: no '${key}'; expected computation, n, d, causal or heads`);
  const chosen = all.filter((c) => conditions.every(([key, values]) => values.split('+').includes(text(c[key]))));
  if (chosen.length === 0) throw new Error(`--only ${only}: no such case`);
  return chosen;
}

function shuffle(items, random) {
  for (let i = items.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [items[i], items[j]] = [items[j], items[i]];
  }
  return items;
}

/** Loads, executes once and returns the output, whose difference from what it should be is check(output); sets
 * description and error, or problem. */
async function introduce(member, request, file, check) {
  try {
    member.description = await member.process.ask(request);
    await member.process.ask('run');
    await member.process.ask(`save ${file}`);
    const output = npy.read(file).data;
    const error = check(output) / output.reduce((a, x) => Math.max(a, Math.abs(x)), 0);
    if (!(error <= member.tolerance)) throw new Error(`output differs by ${error.toExponential(1)}`);
    member.error = error;
    return output;
  } catch (failure) {
    member.problem = failure.message;
    process.stderr.write(`${member.name}: ${member.problem}\n`);
  }
}

async function oneRound(members, random) {
  const times = {};
  for (const member of shuffle([...members], random)) {
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    try {
      times[member.name] = Number(await member.process.ask('run'));
    } catch (failure) {
      member.problem = failure.message;
    }
  }
  return times;
}

async function runCase(subject, members, {directory, threads, rounds, seconds, done, environment}) {
  const tensors = make(directory, subject);
  const request = `load ${Number(subject.causal)} ${threads} ${directory}`;
  let ours;
  for (const member of members) {
    member.process = new Process(member.command, environment);
    const output = await introduce(member, request, `${directory}/o.npy`, (o) =>
      (ours ? difference(o, ours) : differenceFromReference(o, tensors, subject)));
    ours ??= output;
    if (!ours) break;
  }
  const results = [];
  const start = Date.now();
  for (let round = 0; round < rounds && Date.now() - start < 1000 * seconds; round++) {
    const able = members.filter((member) => member.error !== undefined && !member.problem);
    results.push(await oneRound(able, uniform(1000 * (done + round) + subject.n + subject.d)));
  }
  for (const member of members) member.process?.close();
  return results;
}

function facts(threads, heads) {
  const first = (program, ...options) => execFileSync(program, options).toString().split('\n')[0];
  const processors = os.cpus();
  return {
    machine: `${processors[0].model}, ${processors.length} processors, ${os.type()} ${os.release()}; attnlab ` +
      `${first('git', 'describe', '--always', '--dirty')}; ${first('cc', '--version')}; node ${process.version}`,
    date: new Date().toISOString().slice(0, 10),
    threads,
    heads,
  };
}

/** The journal to add to: that of the last run, or a new one. */
function open(journal, goOn, now) {
  if (!goOn || !fs.existsSync(journal)) return {facts: now, cases: []};
  const state = JSON.parse(fs.readFileSync(journal));
  for (const key of ['machine', 'threads', 'heads'])
    if (state.facts[key] !== now[key]) throw new Error(`--continue: begun with ${state.facts[key]}, now ${now[key]}`);
  return state;
}

async function main() {
  const {values} = parseArgs({options: OPTIONS});
  const threads = Number(values.threads), heads = Number(values.heads);
  const rounds = values.quick ? 5 : Number(values.rounds);
  const cases = selectCases(values.quick ? `n=4096,d=64${values.only && ','}${values.only}` : values.only, heads);
  const folder = path.resolve('build/peers');
  const journal = path.join(folder, 'journal.json');
  const state = open(journal, values.continue, facts(threads, heads));
  const known = state.cases;
  const everyone = participants({build: path.resolve('build/release'), specs: values.ours,
    python: process.env.PEERS_PYTHON ?? 'python3'});

  for (const subject of cases) {
    const name = JSON.stringify(subject);
    const earlier = known.find((c) => JSON.stringify(c.subject) === name);
    const asked = everyone.filter((p) => p.computation === subject.computation);
    const members = asked.filter((p) => !values.without.includes(p.name)).map((p) => ({...p}));
    process.stderr.write(`${name}\n`);
    const results = await runCase(subject, members, {
      directory: path.join(folder, 'data'), threads, rounds, seconds: Number(values.seconds),
      done: earlier?.rounds.length ?? 0,
      environment: {...process.env, OPENBLAS_NUM_THREADS: String(threads), OMP_NUM_THREADS: String(threads)},
    });
    const described = members.map(({name: who, description, error, problem, target}) =>
      ({name: who, description, error, problem, target: target?.(subject.d, subject.causal)}));
    const absent = (earlier?.participants ?? []).filter((p) => !members.some((m) => m.name === p.name));
    const place = (p) => asked.findIndex((a) => a.name === p.name);
    const record = {
      subject,
      participants: [...described, ...absent].sort((a, b) => place(a) - place(b)),
      rounds: [...(earlier?.rounds ?? []), ...results],
    };
    if (earlier) known[known.indexOf(earlier)] = record;
    else known.push(record);
    fs.writeFileSync(journal, JSON.stringify(state, null, 1));
  }
  process.stdout.write(table(state.facts, known) + '\n');
}

main().catch((error) => {
  process.stderr.write(`compare.js: ${error.message}\n`);
  process.exit(2);
});
