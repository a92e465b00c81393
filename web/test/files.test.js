import assert from 'node:assert/strict';
import { test } from 'node:test';

import { AbortError } from '../errors.js';
import { openFile } from '../files.js';
import { BLOCK_BYTES } from '../ranges.js';
import { memoryStore } from '../storage.js';
import { bytesOf, fakeServer } from './fakeserver.js';

const bytes = bytesOf(20 * BLOCK_BYTES + 123);
const shard = { name: 'm.gguf', url: 'https://example.org/m.gguf' };
const noWait = async () => {};

async function opened(options = {}, how = {}) {
  const server = fakeServer(bytes, options);
  const store = how.store ?? memoryStore();
  const file = await openFile(shard, { store, fetch: server.fetch, wait: noWait, ...how });
  return { server, store, file };
}

async function read(file, offset, n) {
  const buffer = new Uint8Array(n);
  await file.read(offset, buffer);
  return buffer;
}

test('any bytes can be read while the file is downloaded, and those are fetched first', async () => {
  const { file, server } = await opened();
  const n = BLOCK_BYTES / 2;
  const offset = 15 * BLOCK_BYTES - 5;
  assert.deepEqual(await read(file, offset, n), bytes.slice(offset, offset + n));
  assert.deepEqual(await read(file, bytes.length - n, n), bytes.slice(-n));
  await file.complete();
  assert.equal(server.nBytesSent(), bytes.length, 'no byte comes twice');
  file.close();
});

test('a small read does not wait for its block', async () => {
  const { file, server } = await opened();
  assert.deepEqual(await read(file, 19 * BLOCK_BYTES, 5), bytes.slice(19 * BLOCK_BYTES, 19 * BLOCK_BYTES + 5));
  assert.ok(server.log.some(({ start, end }) => end - start === 5));
  await file.complete();
  assert.equal(file.nFetched, bytes.length + 5);
  file.close();
});

test('the second visit asks whether the file is the same, and fetches nothing', async () => {
  const first = await opened();
  await first.file.complete();
  first.file.close();
  const second = await opened({}, { store: first.store });
  assert.equal(second.file.isArriving, false);
  assert.deepEqual(await read(second.file, 0, 50), bytes.slice(0, 50));
  assert.deepEqual(second.server.log.map(({ method }) => method), ['HEAD']);
  second.file.close();
});

test('without a network a file that is here as a whole is used, and no other', async () => {
  const first = await opened();
  await first.file.complete();
  first.file.close();
  const down = { faults: () => ({ throws: true }) };
  const second = await opened(down, { store: first.store });
  assert.deepEqual(await read(second.file, 5, 5), bytes.slice(5, 10));
  second.file.close();
  await assert.rejects(opened(down), { code: 'network' });
});

test('a file that a server has changed since the last visit is fetched anew', async () => {
  const first = await opened();
  await first.file.complete();
  first.file.close();
  const second = await opened({ headers: { etag: '"v2"' } }, { store: first.store });
  assert.equal(second.file.nCached, 0);
  await second.file.complete();
  assert.equal(second.file.nFetched, bytes.length);
  second.file.close();
});

test('a server that knows no HEAD is asked for the first block again', async () => {
  const first = await opened();
  await first.file.complete();
  first.file.close();
  const second = await opened({ faults: ({ method }) => (method === 'HEAD' ? { status: 405 } : {}) }, { store: first.store });
  assert.equal(second.file.isArriving, false);
  assert.equal(second.server.nBytesSent(), BLOCK_BYTES);
  second.file.close();
});

test('a download that was ended goes on where it was', async () => {
  const controller = new AbortController();
  const faults = ({ n }) => void (n === 3 && controller.abort());
  const first = await opened({ faults }, { signal: controller.signal });
  await assert.rejects(first.file.complete(), AbortError);
  first.file.close();
  const second = await opened({}, { store: first.store });
  await second.file.complete();
  assert.ok(first.file.nFetched > 0 && second.file.nFetched + first.file.nFetched <= bytes.length);
  assert.deepEqual(await read(second.file, 0, bytes.length), bytes);
  second.file.close();
});

test('a file that changes is an error of every read that waits, and the next visit begins anew', async () => {
  const first = await opened({ faults: ({ n }) => (n > 2 ? { etag: '"v2"' } : {}) });
  await assert.rejects(read(first.file, 19 * BLOCK_BYTES, 5), { code: 'changed' });
  first.file.close();
  const second = await opened({}, { store: first.store });
  assert.equal(second.file.nCached, 0);
  second.file.close();
});

test('a full storage is an error with its code', async () => {
  const store = memoryStore(5 * BLOCK_BYTES);
  await assert.rejects(opened({}, { store }), { code: 'quota' });
  store.estimate = async () => ({ usage: 0, quota: Infinity });
  const { file } = await opened({}, { store });
  await assert.rejects(file.complete(), { code: 'quota' });
  file.close();
});

test('a server without ranges is read in order', async () => {
  const { file, server } = await opened({ ranges: false });
  assert.deepEqual(await read(file, bytes.length - 9, 9), bytes.slice(-9));
  assert.equal(server.log.length, 1);
  file.close();
});

test('without a cache each read is a request', async () => {
  const { file, server } = await opened({}, { cache: 'none' });
  assert.deepEqual(await read(file, 77, 1000), bytes.slice(77, 1077));
  assert.equal(server.nBytesSent(), BLOCK_BYTES + 1000);
  await assert.rejects(opened({ ranges: false }, { cache: 'none' }), { code: 'http' });
});

test('progress is told with what came from the cache', async () => {
  const seen = [];
  const { file } = await opened({}, { progress: ({ cache }) => seen.push(cache.map.nBytesSet) });
  await file.complete();
  assert.equal(seen.at(-1), bytes.length);
  assert.deepEqual(seen, [...seen].sort((a, b) => a - b));
  file.close();
});

test('a file of the user is read by its parts', async () => {
  const blob = new File([bytes], 'u.gguf', { lastModified: 5 });
  const file = await openFile({ name: 'u.gguf', blob }, {});
  assert.equal(file.nBytes, bytes.length);
  assert.deepEqual(await read(file, 1000, 7), bytes.slice(1000, 1007));
});

test('a read after the end of the model is an abort, and so is one that waited', async () => {
  const { file } = await opened({ faults: ({ n }) => (n > 0 ? { status: 503 } : {}) }, { wait: () => new Promise(() => {}) });
  const waiting = read(file, 10 * BLOCK_BYTES, 5);
  file.close();
  await assert.rejects(waiting, AbortError);
  assert.throws(() => file.readNow(0, new Uint8Array(1)), AbortError);
});

test('bytes beyond 4 GiB are read and kept where they are', async () => {
  const { mkdtempSync, openSync, writeSync, closeSync, rmSync } = await import('node:fs');
  const { tmpdir } = await import('node:os');
  const { join } = await import('node:path');
  const { pathToFileURL } = await import('node:url');
  const { CacheFile } = await import('../cachefile.js');
  const { openStore } = await import('../storage.js');
  const folder = mkdtempSync(join(tmpdir(), 'atta-web-'));
  const at = 5 * 2 ** 30;
  try {
    // Both files are sparse.
    const fd = openSync(join(folder, 'large.gguf'), 'w');
    writeSync(fd, bytes, 0, 9, at);
    closeSync(fd);
    const disk = await openFile({ name: 'large.gguf', url: pathToFileURL(join(folder, 'large.gguf')).href }, {});
    assert.equal(disk.nBytes, at + 9);
    assert.deepEqual(await read(disk, at + 2, 5), bytes.slice(2, 7));
    disk.close();
    const cache = await CacheFile.open(await openStore(folder), shard.url, { identity: 'v', nBytes: at + 9 });
    cache.write(5120, bytes.slice(0, 9));
    const buffer = new Uint8Array(5);
    cache.read(at + 2, buffer);
    assert.deepEqual(buffer, bytes.slice(2, 7));
    cache.close();
  } finally {
    rmSync(folder, { recursive: true });
  }
});
