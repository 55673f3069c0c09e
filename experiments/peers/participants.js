// participants.js - who is compared. A new peer: a program that serves the protocol of README.md, and an entry here.
//
// computation: attention, or the matrix products of its textbook form alone. The first participant of a
// computation is the one that the others are compared with. target(d, causal): the speed of attnlab over the
// peer's that the project aims at; none where it has no aim. tolerance: of an output, as a fraction of its largest
// element.
'use strict';
const path = require('path');

const FP32 = 1e-4; // far above its rounding, far below what computes something else
const BF16 = 2e-2; // likewise, of operands with 8 bits

const here = (file) => path.join(__dirname, file);

function participants({build, python, specs}) {
  const attnlab = path.join(build, 'experiments/peers/peer_attnlab');
  const openblas = path.join(build, 'experiments/peers/peer_openblas');
  const entries = [
    ...specs.map((spec) => ({
      computation: 'attention',
      name: `attnlab ${spec}`,
      command: [attnlab, spec],
      tolerance: spec.includes('bf16') ? BF16 : FP32,
    })),
    {
      computation: 'attention',
      name: 'OpenBLAS flash loop',
      command: [openblas, 'flash'],
      target: (d) => ({64: 1.9, 128: 1.6})[d],
    },
    {
      computation: 'attention',
      name: 'ONNX Runtime',
      command: [process.execPath, here('onnx.js')],
      target: (d, causal) => (causal ? {64: 5, 128: 3} : {64: 2, 128: 1.6})[d],
    },
    {computation: 'attention', name: 'PyTorch', command: [python, here('pytorch.py')]},
    {computation: 'products', name: 'attnlab gemm', command: [attnlab, 'products']},
    {computation: 'products', name: 'OpenBLAS sgemm', command: [openblas, 'products'], target: () => 0.8},
  ];
  return entries.map((entry) => ({tolerance: FP32, ...entry}));
}

module.exports = {participants};
