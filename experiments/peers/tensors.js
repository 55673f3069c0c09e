// tensors.js - the inputs of a case, and what its output should be.
'use strict';
const fs = require('fs');

const npy = require('./npy.js');

const SAMPLED_ROWS = 64;

/** Uniform numbers in [0, 1), the same for the same seed (mulberry32). */
function uniform(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), state | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Q, K, V [heads, n, d] of mean 0 and variance 1 into directory; returns them. */
function make(directory, {heads, n, d}) {
  fs.mkdirSync(directory, {recursive: true});
  const tensors = {};
  for (const [index, name] of ['q', 'k', 'v'].entries()) {
    const random = uniform(index + 1);
    const data = new Float32Array(heads * n * d);
    for (let i = 0; i < data.length; i++) data[i] = Math.sqrt(12) * (random() - 0.5);
    npy.write(`${directory}/${name}.npy`, [heads, n, d], data);
    tensors[name] = data;
  }
  return tensors;
}

/** One row of the output in double precision. */
function referenceRow({q, k, v}, {computation, n, d, causal}, head, i) {
  const keys = causal ? i + 1 : n;
  const weights = new Float64Array(keys);
  for (let j = 0; j < keys; j++) {
    let s = 0;
    for (let l = 0; l < d; l++) s += q[(head * n + i) * d + l] * k[(head * n + j) * d + l];
    weights[j] = s;
  }
  let sum = 1;
  if (computation === 'attention') {
    const max = weights.reduce((a, b) => Math.max(a, b));
    sum = 0;
    for (let j = 0; j < keys; j++) sum += weights[j] = Math.exp((weights[j] - max) / Math.sqrt(d));
  }
  const row = new Float64Array(d);
  for (let j = 0; j < keys; j++) for (let l = 0; l < d; l++) row[l] += (weights[j] / sum) * v[(head * n + j) * d + l];
  return row;
}

/** Largest difference between two arrays; NaN if there is one. */
function difference(a, b) {
  let most = 0;
  for (let i = 0; i < a.length; i++) {
    const e = Math.abs(a[i] - b[i]);
    if (!(e <= most)) most = e;
    if (Number.isNaN(most)) break;
  }
  return most;
}

/** Largest difference of an output from rows drawn at random, computed in double precision. */
function differenceFromReference(output, tensors, subject) {
  const random = uniform(0);
  let most = 0;
  for (let sample = 0; sample < SAMPLED_ROWS; sample++) {
    const head = Math.floor(random() * subject.heads), i = Math.floor(random() * subject.n);
    const at = (head * subject.n + i) * subject.d;
    const e = difference(output.subarray(at, at + subject.d), referenceRow(tensors, subject, head, i));
    if (!(e <= most)) most = e;
  }
  return most;
}

module.exports = {uniform, make, difference, differenceFromReference, SAMPLED_ROWS};
