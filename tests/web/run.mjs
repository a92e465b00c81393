// Drives @atta/web in Chromium:
//   npm install; node run.mjs --atta PROGRAM [--browser PATH] [--model FILE.gguf] [--large FILE.gguf] [--page FOLDER] [--shots FOLDER] [NAME …]
// after `cargo xtask web` (and `node examples/web/build.mjs` for --page). Texts are compared with those that the program prints.
// --large is a model of which 300 MB are kept. Names choose cases. Exits with 1 if one fails. No case decides by a time.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { argv, exit } from 'node:process';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

import { chromium } from 'playwright-core';

import { FaultyServer } from './server.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, '../..');
const { values: given, positionals: chosen } = parseArgs({
  args: argv.slice(2), allowPositionals: true,
  options: Object.fromEntries(['atta', 'browser', 'model', 'large', 'page', 'shots'].map((name) => [name, { type: 'string' }])),
});
const BUILT_IN = join(root, 'crates/cli/assets/home.gguf');
const model = resolve(given.model ?? BUILT_IN);
const PROMPT = 'Once upon a time';
const N = 24;
const MB = 1 << 20;

const server = await new FaultyServer({
  '/': here, '/atta/': join(root, 'web'), '/model.gguf': model, '/page/': resolve(given.page ?? join(root, 'examples/web/dist')),
  ...(given.large && { '/large.gguf': resolve(given.large) }),
}).listen();
const launch = (...args) => chromium.launch({
  executablePath: given.browser ?? ['/usr/bin/chromium', '/usr/bin/google-chrome'].find(existsSync), args: ['--no-sandbox', ...args],
});
const browser = await launch();

/** The text that the program prints, of tokens that are the likeliest ones. */
function native(file = model, n = N) {
  return execFileSync(resolve(given.atta), ['run', file, '-p', PROMPT, '-n', String(n), '--temp', '0'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
}

/** A page with the package, in a browser context of its own: nothing is kept from other cases. */
async function opened({ context, path = '/harness.html' } = {}) {
  const own = context ?? (await browser.newContext());
  const page = await own.newPage();
  page.on('pageerror', (error) => console.error(`  page: ${error.message}`));
  await page.goto(server.origin + path);
  await page.waitForFunction(() => window.isReady);
  const call = (name, ...args) => page.evaluate(([name, args]) => window.calls[name](...args), [name, args]);
  return { context: own, page, call, close: () => own.close() };
}

const load = (place, options, source = '/model.gguf') => place.call('load', 'm', source, options);
const complete = async (place) => {
  const { choices, error } = await place.call('complete', 'm', { prompt: PROMPT, max_tokens: N, temperature: 0 });
  assert.ok(choices, error?.message);
  return choices[0].text;
};

/** What `atta run` prints is the text, and a line end. */
const sameText = (text, expected) => assert.equal(text.trim(), expected.trim());

const cases = {
  async 'text is that of the program, for each build and number of threads'() {
    const expected = native();
    for (const [build, threads] of [['st-simd'], ['mt-simd', 1], ['mt-simd', 2], ['mt-relaxed', 1], ['mt-relaxed', 2]]) {
      const place = await opened();
      const { stats, error } = await load(place, { build, threads });
      assert.ok(stats, `${build}: ${error?.message}`);
      assert.equal(stats.build, build);
      sameText(await complete(place), expected);
      await place.close();
    }
  },

  async 'a page without shared memory runs on one thread, and says why'() {
    server.isIsolated = false;
    const place = await opened();
    assert.equal(await place.call('isolated'), false);
    const { stats, error } = await load(place);
    assert.ok(stats, error?.message);
    assert.equal(stats.build, 'st-simd');
    assert.match(stats.reason, /COOP/);
    sameText(await complete(place), native());
    await place.close();
  },

  async 'a second visit fetches nothing of the model, and works without a network'() {
    const { context, ...first } = await opened();
    await load(first);
    // A model is open before all of its file is here.
    await first.page.waitForFunction(async () => {
      const { download } = await window.calls.stats('m');
      return download.loaded === download.total;
    });
    await first.page.close();
    server.log.length = 0;
    const second = await opened({ context });
    const { stats, error } = await load(second);
    assert.ok(stats, error?.message);
    assert.equal(server.nModelBytes, 0);
    assert.equal(stats.download.fetched, 0);
    sameText(await complete(second), native());
    await second.call('dispose', 'm');
    await second.page.route('**/model.gguf', (route) => route.abort());
    const offline = await load(second);
    assert.ok(offline.stats, offline.error?.message);
    await context.close();
  },

  async 'a download that breaks off is continued, and no byte of it comes twice'() {
    const place = await opened();
    server.log.length = 0;
    server.faults = { nCuts: 3 };
    const { stats, error } = await load(place);
    assert.ok(stats, error?.message);
    sameText(await complete(place), native());
    await place.call('dispose', 'm');
    assert.ok(server.nModelBytes <= stats.download.total + 3 * MB, `${server.nModelBytes} of ${stats.download.total}`);
    await place.close();
  },

  async 'a server that lies about the length, or changes the file, is an error that says so'() {
    for (const faults of [{ lie: 5 }, { changesAt: MB }]) {
      const place = await opened();
      server.faults = faults;
      const { error } = await load(place);
      assert.equal(error?.code, 'changed', JSON.stringify(error));
      await place.close();
    }
  },

  async 'a file that was changed between two visits is fetched anew'() {
    const { context, ...first } = await opened();
    await load(first);
    await first.page.close();
    server.faults = { etag: '"v2"' };
    server.log.length = 0;
    const second = await opened({ context });
    const { stats } = await load(second);
    await second.call('dispose', 'm');
    assert.equal(stats.download.cached, 0);
    assert.ok(server.nModelBytes > 0);
    await context.close();
  },

  async 'a server without parts of files is read in order'() {
    server.faults = { noRanges: true };
    const place = await opened();
    const { stats, error } = await load(place);
    assert.ok(stats, error?.message);
    sameText(await complete(place), native());
    await place.close();
  },

  async 'a load and an answer are aborted'() {
    const place = await opened();
    server.faults = { bytesPerSecond: MB };
    const { error } = await load(place, { abortMs: 300 });
    assert.equal(error?.code, 'aborted');
    server.faults = {};
    await load(place);
    const chat = { messages: [{ role: 'user', content: 'Count to one hundred.' }], max_tokens: 200 };
    const stopped = await place.call('chat', 'm', chat, { stopAfter: 3 });
    assert.equal(stopped.n, 3);
    const after = await place.call('chat', 'm', { ...chat, max_tokens: 4 });
    assert.ok(!after.error, after.error?.message);
    await place.close();
  },

  async 'a full storage is an error with its code, unless the model fits memory'() {
    const place = await opened();
    const devtools = await place.context.newCDPSession(place.page);
    await devtools.send('Storage.overrideQuotaForOrigin', { origin: server.origin, quotaSize: 2 * MB });
    const { error } = await load(place, { build: 'st-simd' });
    assert.equal(error?.code, 'quota', JSON.stringify(error));
    const unkept = await load(place);
    assert.ok(unkept.stats, unkept.error?.message);
    sameText(await complete(place), native());
    await place.close();
  },

  async 'a second tab that would download the same file is told so'() {
    const first = await opened();
    server.faults = { bytesPerSecond: MB };
    const loading = load(first);
    await first.page.waitForTimeout(500);
    const second = await opened({ context: first.context });
    const { error } = await load(second);
    assert.equal(error?.code, 'locked', JSON.stringify(error));
    server.faults = {};
    await loading;
    await first.close();
  },

  async 'a tab that ends while it writes leaves what the next one can use'() {
    const { context, ...first } = await opened();
    server.faults = { bytesPerSecond: 4 * MB };
    load(first).catch(() => {});
    await first.page.waitForTimeout(800);
    await first.page.close();
    server.faults = {};
    const second = await opened({ context });
    const { stats, error } = await load(second);
    assert.ok(stats, error?.message);
    sameText(await complete(second), native());
    await context.close();
  },

  async 'a file that the browser has removed is fetched again'() {
    const { context, ...first } = await opened();
    await load(first);
    await first.call('dispose', 'm');
    await first.call('evict');
    const { stats, error } = await load(first);
    assert.ok(stats, error?.message);
    assert.equal(stats.download.cached, 0);
    await context.close();
  },

  async 'tokens, and JSON by a schema, are as from the program'() {
    const place = await opened();
    await load(place);
    assert.ok((await place.call('tokenize', 'm', PROMPT)).length > 2);
    const schema = { type: 'object', properties: { n: { type: 'integer', minimum: 0, maximum: 9 } }, required: ['n'], additionalProperties: false };
    const { text, error } = await place.call('chat', 'm', {
      messages: [{ role: 'user', content: 'A number.' }], max_tokens: 40, response_format: { type: 'json_schema', json_schema: { name: 'n', schema, strict: true } },
    });
    assert.ok(!error, error?.message);
    assert.ok(Number.isInteger(JSON.parse(text).n));
    await place.close();
  },

  async 'with WebGPU, text is that of the program, for all layers and for some, and after the device was destroyed'() {
    const expected = native();
    const playing = await launch('--enable-unsafe-webgpu');
    const run = async (options) => {
      const place = await opened({ context: await playing.newContext() });
      const { error } = await load(place, options);
      assert.ok(!error, error?.message);
      sameText(await complete(place), expected);
      const { gpu, gpuReason } = await place.call('stats', 'm');
      await place.close();
      return gpu ?? gpuReason;
    };
    try {
      const all = await run({ gpu: 'on' });
      assert.equal(all.layers, all.nLayers);
      assert.ok(all.submits >= N && all.dispatches > all.submits, JSON.stringify(all));
      assert.match(await run({ gpu: 'auto' }), /a software GPU/);
      // Kernels are compiled for seconds, so one run is about both.
      server.faults = { prelude: { path: '/atta/workers/gpu.js', text: DESTROYED } };
      const second = await run({ gpu: 'on', gpuLayers: 1, threads: 2 });
      assert.equal(second.layers, 1);
      assert.ok(second.submits < N, `${second.submits} submissions of the second device`);
    } finally {
      await playing.close();
    }
  },

  async 'without an adapter, a GPU is an error or the CPU, as is asked for'() {
    const place = await opened();
    const { error } = await load(place, { gpu: 'on' });
    assert.equal(error?.code, 'no_gpu', JSON.stringify(error));
    const { stats } = await load(place, { gpu: 'auto' });
    assert.match(stats.gpuReason, /no GPU|no WebGPU/);
    sameText(await complete(place), native());
    await place.close();
  },

  async 'a large model runs under a budget of 300 MB'() {
    if (!given.large) return 'skipped: --large names no file';
    const place = await opened();
    const { stats, error } = await load(place, { ramBudget: 300e6, nCtx: 512 }, '/large.gguf');
    assert.ok(stats, error?.message);
    assert.ok(stats.memory.bytes <= 300e6 + 192 * MB, `${stats.memory.bytes} bytes`);
    const { choices } = await place.call('complete', 'm', { prompt: PROMPT, max_tokens: 4, temperature: 0 });
    sameText(choices[0].text, native(resolve(given.large), 4));
    await place.close();
  },

  async 'the page answers with the model that comes with it, on a desktop and on a phone, offline, and is installable'() {
    const dist = resolve(given.page ?? join(root, 'examples/web/dist'));
    if (!existsSync(join(dist, 'index.html'))) return 'skipped: no page was built';
    server.isIsolated = false;
    for (const [name, viewport] of [['desktop', { width: 1280, height: 800 }], ['phone', { width: 390, height: 844 }]]) {
      const context = await browser.newContext({ viewport });
      const page = await context.newPage();
      await page.goto(`${server.origin}/page/`);
      // The service worker reloads the page once.
      await page.waitForFunction(() => crossOriginIsolated);
      const devtools = await context.newCDPSession(page);
      const { installabilityErrors } = await devtools.send('Page.getInstallabilityErrors');
      // A context of a test is a private window.
      assert.deepEqual(installabilityErrors.filter(({ errorId }) => errorId !== 'in-incognito'), []);
      await ask(page, 'turn on the light in the kitchen');
      if (given.shots) await page.screenshot({ path: join(given.shots, `${name}.png`) });
      await context.setOffline(true);
      await page.reload();
      await ask(page, 'good night');
      await context.setOffline(false);
      await page.click('#models');
      if (given.shots) await page.screenshot({ path: join(given.shots, `${name}-models.png`) });
      await context.close();
    }
  },
};

/** In front of the gpu worker: the first device is destroyed in the tenth token or so, by the 20th submission. */
const DESTROYED = `
  const { submit } = GPUQueue.prototype;
  const { requestDevice } = GPUAdapter.prototype;
  let [n, device] = [0];
  GPUAdapter.prototype.requestDevice = async function (...args) { return (device = await requestDevice.apply(this, args)); };
  GPUQueue.prototype.submit = function (...args) {
    if (++n === 20) device.destroy();
    return submit.apply(this, args);
  };
`;

/** Writes a message, and waits for the end of the answer. */
async function ask(page, text) {
  await page.waitForFunction(() => /thread/.test(document.getElementById('engine')?.textContent ?? ''));
  await page.fill('#input', text);
  await page.press('#input', 'Enter');
  await page.waitForSelector('.turn.assistant:last-child:not([data-state=live])');
  assert.deepEqual(await page.locator('.turn.assistant .failure:not([hidden])').allTextContents(), []);
}

let nFailed = 0;
try {
  for (const [name, run] of Object.entries(cases)) {
    if (chosen.length > 0 && !chosen.some((part) => name.includes(part))) continue;
    Object.assign(server, { faults: {}, isIsolated: true });
    const start = Date.now();
    try {
      const note = await run();
      console.log(`${note ? `- ${note}` : 'ok'}: ${name} (${((Date.now() - start) / 1000).toFixed(1)} s)`);
    } catch (error) {
      nFailed += 1;
      console.error(`FAILED: ${name}\n${error.stack}`);
    }
  }
} finally {
  await browser.close();
  server.close();
}
exit(nFailed > 0 ? 1 : 0);
