// onnx_model.js - an ONNX model of one node, written in protobuf's wire format (onnx.proto's field numbers).
'use strict';

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
    ...Object.entries(attributes).map(([name, i]) => bytes(5, bytes(1, name), number(3, i), number(20, INT_ATTRIBUTE))),
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

module.exports = {model, FLOAT, INT32};
