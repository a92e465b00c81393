import assert from 'node:assert/strict';
import { test } from 'node:test';

import { AbortError, SourceError } from '../errors.js';
import { RemoteFile } from '../fetcher.js';
import { bytesOf, fakeServer } from './fakeserver.js';

const URL = 'https://example.org/m.gguf';
const bytes = bytesOf(5000);
const noWait = async () => {};

async function opened(options, first = 100) {
  const server = fakeServer(bytes, options);
  const file = new RemoteFile(URL, { fetch: server.fetch, wait: noWait });
  return { server, file, ...(await file.open(first)) };
}

test('the first request tells length and version, and its bytes are kept', async () => {
  const { file, first, server } = await opened();
  assert.equal(file.nBytes, 5000);
  assert.equal(file.identity, '"v1"');
  assert.deepEqual(first, bytes.slice(0, 100));
  assert.equal(server.log.length, 1);
  assert.deepEqual(await file.read(4000, 1000), bytes.slice(4000));
});

test('a file shorter than the first request is whole', async () => {
  const { first } = await opened({}, 1 << 20);
  assert.equal(first.length, 5000);
});

test('a body that is cut is continued where it ended', async () => {
  const { file, server } = await opened({ faults: ({ n }) => (n === 1 ? { cut: 300 } : {}) });
  assert.deepEqual(await file.read(1000, 1000), bytes.slice(1000, 2000));
  assert.deepEqual(server.log.slice(1).map(({ start }) => start), [1000, 1300]);
});

test('a server that always ends early is an error that says where', async () => {
  const { file } = await opened({ faults: ({ n }) => (n > 0 ? { cut: 0 } : {}) });
  await assert.rejects(file.read(1000, 1000), (error) => error instanceof SourceError && error.code === 'truncated' && /1000 of 5000/.test(error.message));
});

test('a file that changes while it is downloaded is found by its tag, its length, or a whole body', async () => {
  for (const fault of [{ etag: '"v2"' }, { total: 4999 }]) {
    const { file } = await opened({ faults: ({ n }) => (n === 1 ? fault : {}) });
    await assert.rejects(file.read(0, 10), { code: 'changed' });
  }
  const dated = { etag: null, 'last-modified': 'Sun, 29 Nov 2026 00:00:00 GMT' };
  const { file } = await opened({ headers: dated });
  assert.match(file.identity, /^date Sun/);
});

test('a weak tag is no version', async () => {
  const { file } = await opened({ headers: { etag: 'W/"x"' } });
  assert.equal(file.identity, '');
});

test('bytes from another place are refused', async () => {
  const { file } = await opened({ faults: ({ n }) => (n === 1 ? { shift: 1 } : {}) });
  await assert.rejects(file.read(0, 10), { code: 'http' });
});

test('errors that pass are tried again, others are not', async () => {
  const busy = await opened({ faults: ({ n }) => (n < 2 ? { status: 503 } : {}) });
  assert.equal(busy.server.log.length, 3);
  const lost = await opened({ faults: ({ n }) => (n < 1 ? { throws: true } : {}) });
  assert.equal(lost.server.log.length, 2);
  const gone = fakeServer(bytes, { faults: () => ({ status: 404 }) });
  await assert.rejects(new RemoteFile(URL, { fetch: gone.fetch, wait: noWait }).open(10), { code: 'not_found' });
  assert.equal(gone.log.length, 1);
  const down = fakeServer(bytes, { faults: () => ({ throws: true }) });
  await assert.rejects(new RemoteFile(URL, { fetch: down.fetch, wait: noWait }).open(10), { code: 'network' });
  assert.equal(down.log.length, 4);
});

test('a length that the page may not see is asked for by HEAD', async () => {
  const { file, server } = await opened({ exposesRange: false });
  assert.equal(file.nBytes, 5000);
  assert.deepEqual(server.log.map(({ method }) => method), ['GET', 'HEAD']);
});

test('a server without ranges gives its body to be read in order', async () => {
  const { file, first, rest } = await opened({ ranges: false });
  assert.equal(file.hasRanges, false);
  assert.equal(file.nBytes, 5000);
  assert.equal(first, null);
  assert.deepEqual(new Uint8Array(await rest.arrayBuffer()), bytes);
});

test('an abort ends the retries', async () => {
  const controller = new AbortController();
  const server = fakeServer(bytes, { faults: () => ({ status: 503 }) });
  const wait = async () => controller.abort();
  const file = new RemoteFile(URL, { fetch: server.fetch, signal: controller.signal, wait });
  await assert.rejects(file.open(10), AbortError);
});
