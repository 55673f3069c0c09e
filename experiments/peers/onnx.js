// onnx.js - ONNX Runtime as a peer, by the protocol of README.md: MultiHeadAttention, and GroupQueryAttention
// where a causal mask is asked for.
//
// Both take [batch, n, heads * d]; the tensors are brought into that form when they are loaded, which is not
// timed. Outputs are allocated beforehand as well.
'use strict';
const fs = require('fs');
const os = require('os');
const readline = require('readline');

// ---- an ONNX model of one node, in protobuf's wire format (onnx.proto's field numbers) ----

const FLOAT = 1;
const INT32 = 6;

function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return Buffer.from([...bytes, value]);
}

const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);

/** A text, or a message from its fields. */
function bytes(field, ...parts) {
  const content = Buffer.concat(parts.map((part) => Buffer.from(part)));
  return Buffer.concat([varint(field * 8 + 2), varint(content.length), content]);
}

// ValueInfoProto: name, TypeProto.tensor_type (element type, shape of dimensions that have no size)
function value(field, [name, type, rank]) {
  const shape = bytes(2, ...Array.from({length: rank}, () => bytes(1)));
  return bytes(field, bytes(1, name), bytes(2, bytes(1, number(1, type), shape)));
}

/**
 * operator: of the domain com.microsoft. inputs, outputs: [name, type, rank]; null for one that is left out.
 * attributes: integers by name.
 */
function model(operator, inputs, outputs, attributes) {
  const INT_ATTRIBUTE = 2;
  const node = [
    ...inputs.map((input) => bytes(1, input ? input[0] : '')),
    ...outputs.map((output) => bytes(2, output[0])),
    bytes(4, operator),
    ...Object.entries(attributes).map(([name, i]) =>
      bytes(5, bytes(1, name), number(3, i), number(20, INT_ATTRIBUTE))),
    bytes(7, 'com.microsoft'),
  ];
  const graph = [
    bytes(1, ...node),
    bytes(2, operator),
    ...inputs.filter(Boolean).map((input) => value(11, input)),
    ...outputs.map((output) => value(12, output)),
  ];
  const opset = (domain, version) => bytes(8, bytes(1, domain), number(2, version));
  const IR_VERSION = 8;
  return Buffer.concat([number(1, IR_VERSION), bytes(7, ...graph), opset('', 17), opset('com.microsoft', 1)]);
}

// ---- the operators ----

let session, feeds, fetches, heads, n, d;

/** [a, b, d] to [b, a, d] */
function exchange(data, a, b) {
  const out = new Float32Array(data.length);
  for (let i = 0; i < a; i++)
    for (let j = 0; j < b; j++)
      out.set(data.subarray((i * b + j) * d, (i * b + j + 1) * d), (j * a + i) * d);
  return out;
}

const f32 = (name) => [name, FLOAT, 3];
const inputs = [f32('query'), f32('key'), f32('value')];

function multiHead(ort, tensors) {
  feeds = tensors;
  fetches = ['output'];
  return model('MultiHeadAttention', inputs, [f32('output')], {num_heads: heads});
}

/** One prompt without a past. The keys and values that it returns for the next call are part of the operator. */
function groupQuery(ort, tensors) {
  const matrix = 4 * heads * n * n;
  if (matrix > os.freemem()) throw new Error(`GroupQueryAttention needs ${Math.ceil(matrix / 2 ** 30)} GiB`);
  feeds = {...tensors, seqlens_k: new ort.Tensor('int32', [n - 1], [1]),
    total_sequence_length: new ort.Tensor('int32', [n], [1])};
  fetches = ['output', 'present_key', 'present_value'];
  return model('GroupQueryAttention',
    [...inputs, null, null, ['seqlens_k', INT32, 1], ['total_sequence_length', INT32, 1]],
    [f32('output'), ['present_key', FLOAT, 4], ['present_value', FLOAT, 4]],
    {num_heads: heads, kv_num_heads: heads});
}

async function load({q, k, v, causal, threads}) {
  let ort;
  try {
    ort = require('onnxruntime-node');
  } catch {
    throw new Error('not installed');
  }
  [heads, n, d] = q.shape;
  const tensor = (a) => new ort.Tensor('float32', exchange(a.data, heads, n), [1, n, heads * d]);
  const tensors = {query: tensor(q), key: tensor(k), value: tensor(v)};
  const bytes = (causal ? groupQuery : multiHead)(ort, tensors);
  session = await ort.InferenceSession.create(bytes, {intraOpNumThreads: threads, interOpNumThreads: 1});
  fetches = Object.fromEntries(fetches.map((name) => [name, name === 'output' ?
    new ort.Tensor('float32', new Float32Array(heads * n * d), [1, n, heads * d]) :
    new ort.Tensor('float32', new Float32Array(heads * n * d), [1, heads, n, d])]));
  return `ONNX Runtime ${require('onnxruntime-node/package.json').version} ` +
    (causal ? 'GroupQueryAttention' : 'MultiHeadAttention');
}

// ---- float32 arrays in NumPy's files, and the protocol ----

function readNpy(path) {
  const file = fs.readFileSync(path), start = 10 + file.readUInt16LE(8);
  const shape = file.toString('latin1', 10, start).match(/\((\d+), (\d+), (\d+)\)/).slice(1).map(Number);
  const data = new Float32Array(shape[0] * shape[1] * shape[2]); // aligned, as the file is not
  Buffer.from(data.buffer).set(file.subarray(start));
  return {shape, data};
}

function writeNpy(path, shape, data) {
  const text = `{'descr': '<f4', 'fortran_order': False, 'shape': (${shape.join(', ')}), }`;
  const header = text.padEnd(117) + '\n';
  const lead = Buffer.from(`\x93NUMPY\x01\x00${String.fromCharCode(header.length)}\x00${header}`, 'latin1');
  fs.writeFileSync(path, Buffer.concat([lead, Buffer.from(data.buffer, data.byteOffset, data.byteLength)]));
}

async function answer(line) {
  const [request, ...rest] = line.split(' ');
  if (request === 'load') {
    const directory = rest.slice(2).join(' ');
    const [q, k, v] = ['q', 'k', 'v'].map((name) => readNpy(`${directory}/${name}.npy`));
    return load({q, k, v, causal: rest[0] === '1', threads: Number(rest[1])});
  }
  if (request === 'save') {
    writeNpy(rest.join(' '), [heads, n, d], exchange(fetches.output.data, n, heads));
    return '';
  }
  if (request !== 'run') throw new Error(`unknown request '${line}'`);
  const start = process.hrtime.bigint();
  await session.run(feeds, fetches);
  return Number(process.hrtime.bigint() - start) * 1e-9;
}

async function serve() {
  for await (const line of readline.createInterface({input: process.stdin})) {
    const reply = answer(line).then((text) => `ok ${text}`, (error) => `no ${error.message.split('\n')[0]}`);
    process.stdout.write(`${await reply}\n`);
  }
}

serve();
