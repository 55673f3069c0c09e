// process.js - the driver's side of a peer: a process that answers a line with a line (README.md has the protocol).
'use strict';
const {spawn} = require('child_process');
const readline = require('readline');

class Process {
  constructor(command, environment) {
    const [program, ...options] = command;
    this.child = spawn(program, options, {stdio: ['pipe', 'pipe', 'inherit'], env: environment});
    this.end = 'ended';
    this.child.on('error', (error) => (this.end = error.code === 'ENOENT' ? 'not installed' : error.message));
    this.child.on('exit', (code, signal) => (this.end = `ended: ${signal ?? `exit code ${code}`}`));
    this.child.stdin.on('error', () => {}); // the missing answer says so
    this.lines = readline.createInterface({input: this.child.stdout})[Symbol.asyncIterator]();
  }

  /** What follows "ok "; an Error of what follows "no ", or of how the process ended. */
  async ask(request) {
    this.child.stdin.write(request + '\n');
    const {value, done} = await this.lines.next();
    if (done) {
      await new Promise((resolve) => setImmediate(resolve));
      throw new Error(this.end);
    }
    if (!value.startsWith('ok ')) throw new Error(value.replace(/^no /, ''));
    return value.slice(3);
  }

  close() {
    this.child.stdin.end();
  }
}

module.exports = {Process};
