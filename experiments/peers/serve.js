// serve.js - the side of a peer written in JavaScript: serves the protocol of README.md.
'use strict';
const readline = require('readline');

const npy = require('./npy.js');

/**
 * methods.load({q, k, v, causal, threads}) returns a description; methods.run() computes; methods.output()
 * returns [heads, n, d]. All may be asynchronous; what they throw is answered.
 */
async function serve(methods) {
  let shape;
  async function answer(line) {
    const [, request, rest] = line.match(/^(\w*) ?(.*)$/);
    if (request === 'load') {
      const [, causal, threads, directory] = rest.match(/^([01]) (\d+) (.+)$/);
      const [q, k, v] = ['q', 'k', 'v'].map((name) => npy.read(`${directory}/${name}.npy`));
      shape = q.shape;
      return methods.load({q, k, v, causal: causal === '1', threads: Number(threads)});
    }
    if (request === 'run') {
      const start = process.hrtime.bigint();
      await methods.run();
      return Number(process.hrtime.bigint() - start) * 1e-9;
    }
    if (request === 'save') return npy.write(rest, shape, await methods.output());
    throw new Error(`unknown request '${line}'`);
  }
  for await (const line of readline.createInterface({input: process.stdin})) {
    let reply;
    try {
      reply = `ok ${(await answer(line)) ?? ''}`;
    } catch (error) {
      reply = `no ${error.message.split('\n')[0]}`;
    }
    process.stdout.write(reply + '\n');
  }
}

module.exports = {serve};
