import assert from 'node:assert/strict';
import { test } from 'node:test';

import { complete, Exit, wasi } from '../wasi.js';

const OK = 0;
const BADF = 8;

function opened(options = {}) {
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 4, shared: true });
  const lines = [];
  const calls = wasi({ memory: () => memory, print: (line) => lines.push(line), ...options });
  const view = () => new DataView(memory.buffer);
  const put = (at, text) => new Uint8Array(memory.buffer, at).set(new TextEncoder().encode(text));
  /** Writes texts to an output, as vectors. */
  const write = (fd, ...texts) => {
    texts.forEach((text, i) => {
      put(1000 + 100 * i, text);
      view().setUint32(8 * i, 1000 + 100 * i, true);
      view().setUint32(8 * i + 4, new TextEncoder().encode(text).length, true);
    });
    return calls.fd_write(fd, 0, texts.length, 500);
  };
  return { memory, calls, view, lines, write };
}

test('lines are printed whole, whatever the pieces they are written in', () => {
  const { write, lines, view } = opened();
  assert.equal(write(2, 'thread pani', 'cked\nat '), OK);
  assert.equal(view().getUint32(500, true), 19);
  assert.deepEqual(lines, ['thread panicked']);
  write(1, 'other\n');
  write(2, 'line 5\n\n');
  assert.deepEqual(lines, ['thread panicked', 'other', 'at line 5', '']);
  assert.equal(write(3, 'x'), BADF);
});

test('a character that is cut in two is put together', () => {
  const { calls, memory, view, lines } = opened();
  const bytes = new TextEncoder().encode('é\n');
  for (const part of [bytes.subarray(0, 1), bytes.subarray(1)]) {
    new Uint8Array(memory.buffer, 1000).set(part);
    view().setUint32(0, 1000, true);
    view().setUint32(4, part.length, true);
    calls.fd_write(1, 0, 1, 500);
  }
  assert.deepEqual(lines, ['é']);
});

test('clocks give nanoseconds', () => {
  const { calls, view } = opened({ now: () => 1234.5, monotonic: () => 2.25 });
  assert.equal(calls.clock_time_get(0, 0n, 16), OK);
  assert.equal(view().getBigUint64(16, true), 1234500000n);
  calls.clock_time_get(1, 0n, 16);
  assert.equal(view().getBigUint64(16, true), 2250000n);
});

test('random numbers reach shared memory, any number of them', () => {
  const { calls, memory } = opened({ random: (part) => part.fill(7) });
  assert.equal(calls.random_get(10, 300), OK);
  assert.deepEqual([...new Uint8Array(memory.buffer, 9, 3)], [0, 7, 7]);
  assert.deepEqual([...new Uint8Array(memory.buffer, 309, 2)], [7, 0]);
  memory.grow(2);
  assert.equal(calls.random_get(0, 150_000), OK);
  assert.deepEqual([...new Uint8Array(memory.buffer, 149_999, 2)], [7, 0]);
});

test('there are no arguments, no environment and no files', () => {
  const { calls, view } = opened();
  view().setUint32(0, 9, true);
  assert.equal(calls.environ_sizes_get(0, 4), OK);
  assert.equal(view().getUint32(0, true), 0);
  assert.equal(calls.fd_prestat_get(3, 0), BADF);
  assert.equal(calls.fd_fdstat_get(3, 0), BADF);
  assert.equal(calls.fd_fdstat_get(2, 64), OK);
});

function subscribe(view, at, { timeout, kind = 0, absolute = 0, userdata = 5n, clock = 1 }) {
  view.setBigUint64(at, userdata, true);
  view.setUint8(at + 8, kind);
  view.setUint32(at + 16, clock, true);
  view.setBigUint64(at + 24, timeout, true);
  view.setUint16(at + 40, absolute, true);
}

test('a sleep lasts until the earliest of its times', () => {
  const slept = [];
  const { calls, view } = opened({ sleep: (ms) => slept.push(ms), monotonic: () => 100 });
  subscribe(view(), 1000, { timeout: 9_000_000n, userdata: 1n });
  subscribe(view(), 1048, { timeout: 103_000_000n, absolute: 1, userdata: 2n });
  assert.equal(calls.poll_oneoff(1000, 2000, 2, 500), OK);
  assert.deepEqual(slept, [3]);
  assert.equal(view().getBigUint64(2000, true), 2n);
  assert.equal(view().getUint32(500, true), 1);
  subscribe(view(), 1000, { timeout: 50_000_000n, absolute: 1 });
  assert.equal(calls.poll_oneoff(1000, 2000, 1, 500), OK);
  assert.equal(slept.length, 1, 'a time that is over');
  subscribe(view(), 1000, { timeout: 1n, kind: 1 });
  assert.equal(calls.poll_oneoff(1000, 2000, 1, 500), 52);
});

test('the default sleep takes its time', () => {
  const { calls, view } = opened();
  subscribe(view(), 1000, { timeout: 20_000_000n });
  const start = performance.now();
  assert.equal(calls.poll_oneoff(1000, 2000, 1, 500), OK);
  assert.ok(performance.now() - start >= 15);
});

test('an exit ends the call with its code', () => {
  assert.throws(() => opened().calls.proc_exit(3), (error) => error instanceof Exit && error.code === 3);
});

test('functions that are not here say that there are none', async () => {
  // (import "wasi_snapshot_preview1" "path_open" (func)) and "fd_write", with the type () → ().
  const name = (text) => [text.length, ...new TextEncoder().encode(text)];
  const entry = (text) => [...name('wasi_snapshot_preview1'), ...name(text), 0, 0];
  const list = [2, ...entry('path_open'), ...entry('fd_write')];
  const module = await WebAssembly.compile(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 4, 1, 0x60, 0, 0, 2, list.length, ...list]));
  const imports = complete(module, { fd_write: () => 1 });
  assert.equal(imports.path_open(), 52);
  assert.equal(imports.fd_write(), 1);
});
