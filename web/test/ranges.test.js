import assert from 'node:assert/strict';
import { test } from 'node:test';

import { BlockMap, MAX_RUN, nextRun } from '../ranges.js';

const nothing = () => false;

test('bytes lie in the blocks that hold any of them', () => {
  const map = new BlockMap(1000, 100);
  assert.deepEqual(map.blocksOf(0, 1), [0, 1]);
  assert.deepEqual(map.blocksOf(99, 2), [0, 2]);
  assert.deepEqual(map.blocksOf(950, 50), [9, 10]);
  assert.deepEqual(map.blocksOf(5, 0), [0, 0]);
  assert.throws(() => map.blocksOf(950, 51), RangeError);
});

test('the last block may be short', () => {
  const map = new BlockMap(250, 100);
  assert.equal(map.nBlocks, 3);
  assert.deepEqual(map.bytesOf(2, 3), [200, 250]);
  map.set(2);
  assert.equal(map.nBytesSet, 50);
  map.set(0);
  map.set(0);
  assert.equal(map.nBytesSet, 150);
  map.set(1);
  assert.ok(map.isComplete);
  assert.equal(map.nBytesSet, 250);
});

test('a file of more than 4 GiB has its blocks beyond it', () => {
  const map = new BlockMap(5 * 2 ** 30 + 1);
  assert.equal(map.nBlocks, 5 * 1024 + 1);
  assert.deepEqual(map.blocksOf(5 * 2 ** 30, 1), [5120, 5121]);
});

test('a set is the same after its bits were kept, and bits of another length are none', () => {
  const map = new BlockMap(1000, 100);
  [0, 7, 8, 9].forEach((i) => map.set(i));
  const again = BlockMap.fromBits(1000, map.bits.slice(), 100);
  assert.equal(again.nSet, 4);
  assert.ok(again.hasAll(7, 10) && !again.hasAll(6, 10));
  assert.equal(BlockMap.fromBits(1000, new Uint8Array(3), 100), null);
  assert.equal(BlockMap.fromBits(1000, new Uint8Array([255, 255]), 100).nSet, 10, 'bits behind the end count nothing');
});

test('blocks that are waited for come first, in the order of the waits', () => {
  const map = new BlockMap(3000, 100);
  assert.deepEqual(nextRun(map, nothing, [[20, 21], [5, 6]], 0), [20, 28]);
  map.set(20);
  assert.deepEqual(nextRun(map, nothing, [[20, 21], [5, 6]], 0), [5, 13]);
});

test('without a wait the download goes on at its cursor, and comes back for what it passed', () => {
  const map = new BlockMap(2000, 100);
  for (let i = 10; i < 20; i++) map.set(i);
  assert.deepEqual(nextRun(map, nothing, [], 15), [0, MAX_RUN]);
  assert.deepEqual(nextRun(map, (i) => i < 3, [], 15), [3, 10]);
  for (let i = 0; i < 10; i++) map.set(i);
  assert.equal(nextRun(map, nothing, [], 15), null);
});

test('a run ends where a block is here or being fetched', () => {
  const map = new BlockMap(1000, 100);
  map.set(4);
  assert.deepEqual(nextRun(map, (i) => i === 2, [], 0), [0, 2]);
  assert.deepEqual(nextRun(map, (i) => i < 3, [], 0), [3, 4]);
});
