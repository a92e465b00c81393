import assert from 'node:assert/strict';
import { test } from 'node:test';

import { MemoryError, UnsupportedError } from '../errors.js';
import { budgetOf, chooseBuild, detect, sharedMemory, threadsOf } from '../features.js';

test('what this Node has is found, and the modules of the tests are valid', () => {
  const found = detect();
  assert.equal(found.simd, true);
  assert.equal(found.shared, true);
  const major = Number(process.versions.node.split('.')[0]);
  if (major >= 22) assert.equal(found.relaxed, true);
});

test('the best build is chosen, and why it is not a better one is said', () => {
  assert.equal(chooseBuild({ simd: true, relaxed: true, shared: true }).build, 'mt-relaxed');
  assert.match(chooseBuild({ simd: true, relaxed: false, shared: true }).reason, /relaxed/);
  const single = chooseBuild({ simd: true, relaxed: true, shared: false });
  assert.equal(single.build, 'st-simd');
  assert.match(single.reason, /COOP/);
  assert.throws(() => chooseBuild({ simd: false }), UnsupportedError);
});

test('a build that was asked for and cannot run is an error', () => {
  const no = { simd: true, relaxed: false, shared: false };
  assert.equal(chooseBuild(no, 'st-simd').build, 'st-simd');
  assert.throws(() => chooseBuild(no, 'mt-simd'), { code: 'no_threads' });
  assert.throws(() => chooseBuild({ ...no, shared: true }, 'mt-relaxed'), { code: 'no_relaxed' });
  assert.throws(() => chooseBuild(no, 'avx'), TypeError);
});

test('a smaller memory is taken where the browser refuses a large one', () => {
  const asked = [];
  const make = ({ maximum }) => {
    asked.push(maximum);
    if (maximum > 16384) throw new RangeError('no');
    return 'memory';
  };
  assert.deepEqual(sharedMemory(make), { memory: 'memory', maximum: 2 ** 30 });
  assert.deepEqual(asked, [65536, 32768, 16384]);
  assert.throws(() => sharedMemory(() => { throw new RangeError('no'); }), MemoryError);
});

test('a budget is never more than the memory has', () => {
  assert.equal(budgetOf(undefined, 4 * 2 ** 30, false), 1.5 * 2 ** 30);
  assert.equal(budgetOf(undefined, 2 ** 30, true), Math.floor(0.7 * 2 ** 30));
  assert.ok(budgetOf(8 * 2 ** 30, 2 ** 30) < 2 ** 30);
  assert.throws(() => budgetOf(-1, 2 ** 30), TypeError);
});

test('one core is left to the page', () => {
  assert.equal(threadsOf(undefined, 'mt-simd', 4), 3);
  assert.equal(threadsOf(undefined, 'mt-simd', 1), 1);
  assert.equal(threadsOf(8, 'st-simd', 4), 1);
  assert.throws(() => threadsOf(0, 'mt-simd'), TypeError);
});
