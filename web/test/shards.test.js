import assert from 'node:assert/strict';
import { test } from 'node:test';

import { MemoryError, StorageError } from '../errors.js';
import { BLOCK_BYTES } from '../ranges.js';
import { Shards } from '../shards.js';
import { memoryStore } from '../storage.js';
import { bytesOf, fakeServer } from './fakeserver.js';

const bytes = bytesOf(3 * BLOCK_BYTES + 5);
const URLS = ['https://example.org/m-1.gguf', 'https://example.org/m-2.gguf'];
const sources = URLS.map((url, i) => ({ name: `m-${i + 1}.gguf`, url }));
const how = (options = {}) => ({ fetch: fakeServer(bytes).fetch, wait: async () => {}, store: memoryStore(), ...options });

test('files are read by their numbers, and described for the module', async () => {
  const reports = [];
  const shards = await Shards.open(sources, how({ report: (amounts) => reports.push(amounts) }));
  const [first, second] = shards.describe();
  assert.deepEqual([first.name, first.bytes, second.name], ['m-1.gguf', bytes.length, 'm-2.gguf']);
  assert.match(first.version, /^[0-9a-f]{32}$/);
  const buffer = new Uint8Array(4);
  assert.equal(await shards.read(1, 2 * BLOCK_BYTES, buffer), 0);
  assert.deepEqual(buffer, bytes.slice(2 * BLOCK_BYTES, 2 * BLOCK_BYTES + 4));
  await shards.complete();
  assert.deepEqual(reports.at(-1), { loaded: 2 * bytes.length, total: 2 * bytes.length, cached: 0, fetched: 2 * bytes.length });
  assert.ok(reports.every(({ total }) => total === 2 * bytes.length), 'a report before all files were open');
  assert.equal(shards.readNow(0, 0, buffer), 0);
  shards.close();
});

test('a read that fails is a reason, and its error is kept', async () => {
  const { fetch } = fakeServer(bytes, { faults: ({ start }) => (start >= BLOCK_BYTES ? { etag: '"v2"' } : {}) });
  const shards = await Shards.open(sources.slice(0, 1), how({ fetch }));
  assert.equal(await shards.read(0, 2 * BLOCK_BYTES, new Uint8Array(4)), 3);
  assert.equal(shards.error.code, 'changed');
  shards.close();
});

test('a browser without room runs a model that fits, and says that it is not kept', async () => {
  const notes = [];
  const shards = await Shards.open(sources, how({ store: memoryStore(1000), fitBytes: 1e9, note: (text) => notes.push(text) }));
  assert.match(notes[0], /not kept/);
  assert.equal(await shards.read(0, 5, new Uint8Array(4)), 0);
  shards.close();
  await assert.rejects(Shards.open(sources, how({ store: memoryStore(1000), fitBytes: 1e6 })), { code: 'quota' });
});

test('a storage that is full before the end of the download passes the rest, if the model fits', async () => {
  const opened = async (fitBytes) => {
    const store = memoryStore(2 * BLOCK_BYTES + 1000);
    // Browsers promise more than they give.
    store.estimate = async () => ({ usage: 0, quota: Infinity });
    const notes = [];
    return { notes, shards: await Shards.open(sources.slice(0, 1), how({ store, fitBytes, note: (text) => notes.push(text) })) };
  };
  const { notes, shards } = await opened(1e9);
  const buffer = new Uint8Array(bytes.length);
  assert.equal(await shards.read(0, 0, buffer), 0);
  assert.deepEqual(buffer, bytes);
  assert.match(notes.join(), /^the model is not kept/);
  shards.close();
  const large = await opened(1e6);
  assert.notEqual(await large.shards.read(0, 0, new Uint8Array(bytes.length)), 0);
  assert.equal(large.shards.error.code, 'quota');
  large.shards.close();
});

test('a model that is not to be kept must fit', async () => {
  await assert.rejects(Shards.open(sources, how({ cache: 'none', fitBytes: 1e6 })), MemoryError);
  (await Shards.open(sources, how({ cache: 'none', fitBytes: 1e9 }))).close();
});

test('without threads a file that is not kept cannot be used', async () => {
  const shards = await Shards.open(sources, how({ cache: 'none' }));
  await assert.rejects(shards.complete(), (error) => error instanceof StorageError && error.code === 'no_storage');
  shards.close();
});
