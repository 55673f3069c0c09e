// onnx.js - ONNX Runtime as a peer: MultiHeadAttention, and GroupQueryAttention where a causal mask is asked for.
//
// Both take [batch, n, heads * d]; the tensors are brought into that form when they are loaded, which is not
// timed. Outputs are allocated beforehand as well.
'use strict';
const os = require('os');

const {model, FLOAT, INT32} = require('./onnx_model.js');
const {serve} = require('./serve.js');

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

/** One prompt without a past; the keys and values that it returns for the next call are part of the operator. */
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

serve({
  load,
  run: () => session.run(feeds, fetches),
  output: () => exchange(fetches.output.data, n, heads),
});
