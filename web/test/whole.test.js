// The package as a whole under Node, with workers, threads and a server, around the module of echo/, which takes seconds to
// build: ATTA_ECHO names a folder with its builds. Skipped where rustc lacks WebAssembly's targets.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';

import { AbortError, DisposedError, EngineError, load, RequestError, SourceError, support } from '../index.js';
import { BLOCK_BYTES } from '../ranges.js';
import { buildEcho } from './echo/build.js';
import { bytesOf } from './fakeserver.js';

const folder = mkdtempSync(join(tmpdir(), 'atta-web-'));
const modules = process.env.ATTA_ECHO ?? buildEcho(join(folder, 'echo'));
const skip = modules === null && 'rustc cannot build for wasm32-wasip1 and wasm32-wasip1-threads';
const bytes = bytesOf(9 * BLOCK_BYTES + 77);
const SUM = bytes.reduce((a, b) => a + b, 0);
const log = [];
let faults = {};
let base;

const server = createServer((request, response) => {
  if (request.method === 'HEAD') return response.writeHead(200, { etag: '"v1"', 'content-length': bytes.length }).end();
  const found = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '');
  const start = Number(found[1]);
  const end = Math.min(Number(found[2]) + 1, bytes.length);
  log.push({ start, end });
  if (faults.stall && start > 0) return;
  const tag = start >= (faults.changesAt ?? Infinity) ? '"v2"' : '"v1"';
  response.writeHead(206, { etag: tag, 'content-range': `bytes ${start}-${end - 1}/${bytes.length}` });
  response.end(bytes.subarray(start, end));
});

before(() => new Promise((resolve) => {
  server.listen(0, '127.0.0.1', () => {
    base = `http://127.0.0.1:${server.address().port}`;
    resolve();
  });
}));
after(() => {
  server.closeAllConnections();
  server.close();
  rmSync(folder, { recursive: true });
});

let nCaches = 0;
const cacheOf = (name = `cache${nCaches++}`) => join(folder, name);
const open = (source, options = {}) =>
  load(source, { modules: pathToFileURL(`${modules}/`), build: 'mt-simd', threads: 2, folder: cacheOf(), ...options });
const hello = { messages: [{ role: 'user', content: 'Hello' }] };

for (const build of ['mt-simd', 'st-simd']) {
  test(`a model of a server is read by ranges and answers, ${build}`, { skip }, async () => {
    log.length = 0;
    const seen = [];
    const model = await open(`${base}/m.gguf`, { build, onProgress: (progress) => seen.push(progress) });
    const answer = await model.chat.completions.create(hello);
    assert.equal(answer.sum, SUM);
    assert.equal(answer.threads, build === 'st-simd' ? 1 : 2);
    assert.equal(log.reduce((sum, { start, end }) => sum + end - start, 0), bytes.length, 'no byte comes twice');
    assert.equal(seen.at(-1).loaded, bytes.length);
    const stats = await model.stats();
    assert.equal(stats.build, build);
    assert.equal(stats.download.fetched, bytes.length);
    assert.deepEqual([stats.last.promptTokens, stats.last.completionTokens], [3, 4]);
    await model.dispose();
    await assert.rejects(model.chat.completions.create(hello), DisposedError);
  });

  test(`a stream comes chunk by chunk, and ends where its reader leaves, ${build}`, { skip }, async () => {
    const path = join(folder, 'disk.gguf');
    writeFileSync(path, bytes);
    const model = await open(path, { build });
    let n = 0;
    for await (const chunk of await model.chat.completions.create({ ...hello, stream: true })) {
      assert.equal(chunk.choices[0].delta.content, `${n} `);
      n += 1;
      if (n === 5) break;
    }
    assert.equal(n, 5);
    const controller = new AbortController();
    const stream = await model.chat.completions.create({ ...hello, stream: true }, { signal: controller.signal });
    await assert.rejects(async () => { for await (const _ of stream) controller.abort(); }, AbortError);
    const two = [1, 2].map(() => model.chat.completions.create(hello));
    assert.deepEqual((await Promise.all(two)).map(({ sum }) => sum), [SUM, SUM]);
    await assert.rejects(model.chat.completions.create({ messages: [], user: 'refuse' }), RequestError);
    await assert.rejects(model.chat.completions.create({ messages: [], user: 'fail' }), (error) => error instanceof EngineError && error.message === 'the step failed');
    await model.dispose();
  });
}

test('the second visit fetches nothing', { skip }, async () => {
  const cache = cacheOf('visits');
  await (await open(`${base}/m.gguf`, { folder: cache })).dispose();
  log.length = 0;
  const model = await open(`${base}/m.gguf`, { folder: cache });
  assert.equal((await model.chat.completions.create(hello)).sum, SUM);
  assert.deepEqual(log, []);
  await model.dispose();
});

test('files of the user are read where they are', { skip }, async () => {
  const model = await open([new File([bytes], 'm-00001-of-00002.gguf'), new File([bytes], 'm-00002-of-00002.gguf')]);
  assert.equal((await model.chat.completions.create(hello)).sum, 2 * SUM);
  await model.dispose();
});

test('a file that changes while it is loaded is an error that says so', { skip }, async () => {
  faults = { changesAt: 5 * BLOCK_BYTES };
  try {
    await assert.rejects(open(`${base}/m.gguf`), (error) => error instanceof SourceError && error.code === 'changed');
  } finally {
    faults = {};
  }
});

test('an abort ends a load that waits for the server', { skip }, async () => {
  faults = { stall: true };
  try {
    const controller = new AbortController();
    const loading = open(`${base}/m.gguf`, { signal: controller.signal, onProgress: () => setTimeout(() => controller.abort(), 50) });
    await assert.rejects(loading, AbortError);
  } finally {
    faults = {};
  }
});

test('a panic is an error with its words, and the end of the model', { skip }, async () => {
  const path = join(folder, 'disk.gguf');
  writeFileSync(path, bytes);
  const model = await open(path);
  await assert.rejects(model.chat.completions.create({ messages: [], user: 'panic' }), (error) => error.code === 'trap' && /as it was asked to/.test(error.message));
  await assert.rejects(model.stats(), { code: 'trap' });
});

test('a GPU that is not there is an error, or a reason', { skip }, async () => {
  const path = join(folder, 'disk.gguf');
  writeFileSync(path, bytes);
  await assert.rejects(open(path, { gpu: 'on' }), { code: 'no_gpu', message: 'No GPU: there is no WebGPU here.' });
  const reasonOf = async (options) => {
    const model = await open(path, options);
    const { gpu, gpuReason } = await model.stats();
    assert.equal(gpu, null);
    assert.equal((await model.chat.completions.create(hello)).sum, SUM);
    await model.dispose();
    return gpuReason;
  };
  assert.equal(await reasonOf({ gpu: 'auto' }), 'there is no WebGPU here');
  assert.match(await reasonOf({ gpu: 'auto', build: 'st-simd' }), /no threads/);
  assert.match(await reasonOf({}), /not asked for/);
  await assert.rejects(open(path, { gpuLayers: 2 }), TypeError);
  await assert.rejects(open(path, { gpu: 'auto', gpuBudget: -1 }), TypeError);
});

test('options that do not exist, and files that do not, are errors', { skip }, async () => {
  await assert.rejects(open('nothing.gguf', { thread: 2 }), /no option thread/);
  await assert.rejects(open(join(folder, 'nothing.gguf')), { code: 'not_found' });
  assert.ok(support().build);
});
