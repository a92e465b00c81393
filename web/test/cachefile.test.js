import assert from 'node:assert/strict';
import { test } from 'node:test';

import { CacheFile, decodeRecord, encodeRecord, keyOf } from '../cachefile.js';
import { StorageError } from '../errors.js';
import { BLOCK_BYTES, BlockMap } from '../ranges.js';
import { memoryStore, openStore } from '../storage.js';

const ADDRESS = 'https://example.org/m.gguf';
const N = 2 * BLOCK_BYTES + 10;
const open = (store, identity = 'v1', nBytes = N) => CacheFile.open(store, ADDRESS, { identity, nBytes });
const block = (value, n = BLOCK_BYTES) => new Uint8Array(n).fill(value);

test('what was written and remembered is there at the next visit', async () => {
  const store = memoryStore();
  const file = await open(store);
  file.write(1, block(7));
  file.write(2, block(8, 10));
  file.remember();
  file.close();
  const again = await open(store);
  assert.deepEqual([0, 1, 2].map((i) => again.map.has(i)), [false, true, true]);
  const bytes = new Uint8Array(4);
  again.read(2 * BLOCK_BYTES - 2, bytes);
  assert.deepEqual([...bytes], [7, 7, 8, 8]);
});

test('bytes that were not remembered are fetched again', async () => {
  const store = memoryStore();
  const file = await open(store);
  file.write(0, block(1));
  file.close();
  assert.equal((await open(store)).map.nSet, 0);
});

test('another version, or another length, begins anew', async () => {
  const store = memoryStore();
  const file = await open(store);
  file.write(0, block(1));
  file.remember();
  file.close();
  const changed = await open(store, 'v2');
  assert.equal(changed.map.nSet, 0);
  changed.close();
  assert.equal((await open(store, 'v1', N + 1)).map.nSet, 0);
});

test('a file that was evicted while its record stayed begins anew', async () => {
  const store = memoryStore();
  const file = await open(store);
  file.write(1, block(1));
  file.remember();
  file.close();
  await store.remove(`${keyOf(ADDRESS)}.data`);
  assert.equal((await open(store)).map.nSet, 0);
});

test('a second writer is refused until the first one is done', async () => {
  const store = memoryStore();
  const first = await open(store);
  await assert.rejects(open(store), { code: 'locked' });
  first.close();
  (await open(store)).close();
});

test('a full storage is an error with its code, and what was remembered before stays true', async () => {
  const store = memoryStore(BLOCK_BYTES + 4096);
  const file = await open(store);
  file.write(0, block(1));
  file.remember();
  assert.throws(() => file.write(1, block(2)), (error) => error instanceof StorageError && error.code === 'quota');
  file.close();
  const again = await open(store);
  assert.deepEqual([again.map.has(0), again.map.has(1)], [true, false]);
});

test('the number of an error in place of a count, as Chromium gives it, is a full storage', async () => {
  const store = memoryStore();
  const file = await open(store);
  file.data.write = () => 2 ** 32 - 8;
  assert.throws(() => file.write(0, block(1)), { code: 'quota' });
  assert.equal(file.map.has(0), false);
  file.close();
});

test('a part of a block cannot be written', async () => {
  const file = await open(memoryStore());
  assert.throws(() => file.write(0, block(1, 100)), RangeError);
});

test('bytes that are no record are none', () => {
  const map = new BlockMap(N);
  map.set(1);
  const bytes = encodeRecord({ identity: 'é', map });
  assert.deepEqual(decodeRecord(bytes).map.bits, map.bits);
  for (const wrong of [bytes.slice(0, 5), bytes.slice(0, 20), bytes.slice(0, -1), new Uint8Array(40)]) {
    assert.equal(decodeRecord(wrong), null);
  }
});

test('a folder of Node keeps files as a browser does, for one writer at a time', async () => {
  const { mkdtemp, rm } = await import('node:fs/promises');
  const { tmpdir } = await import('node:os');
  const { join } = await import('node:path');
  const folder = await mkdtemp(join(tmpdir(), 'atta-web-'));
  try {
    const store = await openStore(folder);
    const file = await open(store);
    file.write(0, block(5));
    file.remember();
    await assert.rejects(open(store), { code: 'locked' });
    file.close();
    const again = await open(store);
    assert.equal(again.map.nSet, 1);
    again.close();
    assert.ok((await store.estimate()).quota > 0);
  } finally {
    await rm(folder, { recursive: true });
  }
});
