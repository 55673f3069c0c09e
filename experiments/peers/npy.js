// npy.js - float32 arrays in NumPy's .npy files, version 1.
'use strict';
const fs = require('fs');

const MAGIC = '\x93NUMPY\x01\x00';

/** Reads '<f4' in C order: {shape, data}. */
function read(path) {
  const file = fs.readFileSync(path);
  if (file.toString('latin1', 0, 8) !== MAGIC) throw new Error(`${path}: not an npy file of version 1`);
  const start = 10 + file.readUInt16LE(8);
  const header = file.toString('latin1', 10, start);
  if (!/'descr': *'<f4'/.test(header) || !/'fortran_order': *False/.test(header))
    throw new Error(`${path}: not '<f4' in C order`);
  const shape = header.match(/'shape': *\(([^)]*)\)/)[1].split(',').filter((s) => s.trim()).map(Number);
  const count = shape.reduce((a, b) => a * b, 1);
  if (file.length - start !== 4 * count) throw new Error(`${path}: ${file.length} bytes do not fit the shape`);
  const data = new Float32Array(count); // aligned, which the file's bytes need not be
  Buffer.from(data.buffer).set(file.subarray(start));
  return {shape, data};
}

function write(path, shape, data) {
  let header = `{'descr': '<f4', 'fortran_order': False, 'shape': (${shape.join(', ')},), }`;
  header = header.padEnd(Math.ceil((header.length + 11) / 64) * 64 - 11) + '\n';
  const lead = Buffer.alloc(10);
  lead.write(MAGIC, 'latin1');
  lead.writeUInt16LE(header.length, 8);
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  fs.writeFileSync(path, Buffer.concat([lead, Buffer.from(header, 'latin1'), bytes]));
}

module.exports = {read, write};
