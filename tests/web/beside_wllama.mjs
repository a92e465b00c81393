// Speed beside wllama (llama.cpp's WebAssembly) in the same browser, in turn:
//   npm install; node beside_wllama.mjs --model FILE.gguf [--threads 1] [--runs 7] [--sentences 16] [--tokens 32] [--warm-ups 3] [--browser PATH]
// Prints medians, and their ratios; needs a quiet machine. Both take the file from this server and keep nothing of it. Knows no
// number that would be good: issue 42 has the goals.

import { existsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { argv } from 'node:process';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

import { chromium } from 'playwright-core';

import { FaultyServer } from './server.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, '../..');
const { values } = parseArgs({
  args: argv.slice(2),
  options: {
    model: { type: 'string' }, browser: { type: 'string' }, threads: { type: 'string', default: '1' }, runs: { type: 'string', default: '7' },
    sentences: { type: 'string', default: '16' }, tokens: { type: 'string', default: '32' },
    'warm-ups': { type: 'string', default: '3' },
  },
});
const [threads, nRuns, nSentences, nTokens, nWarmUps] = ['threads', 'runs', 'sentences', 'tokens', 'warm-ups'].map((name) => Number(values[name]));
/** Of prompts that come first: browsers compile a module anew, for speed, while it runs. */
const WARM_UP = 'a dog ran over the hill and barked at the old mill. ';
/** Of some eleven tokens. */
const SENTENCE = 'the cat sat on the mat and looked at the moon. ';
const server = await new FaultyServer({
  '/': here, '/atta/': join(root, 'web'), '/wllama/': join(here, 'node_modules/@wllama/wllama/esm'), '/model.gguf': resolve(values.model),
}).listen();
const browser = await chromium.launch({
  executablePath: values.browser ?? ['/usr/bin/chromium', '/usr/bin/google-chrome'].find(existsSync), args: ['--no-sandbox'],
});

/** One run in a new page: `{ prefill, decode }`, tokens per second. */
async function measure(engine) {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(`${server.origin}/harness.html`);
  const found = await page.evaluate(engine, { threads, nWarmUps, warmUp: WARM_UP.repeat(nSentences), prompt: SENTENCE.repeat(nSentences), nTokens });
  await context.close();
  return found;
}

async function atta({ threads, nWarmUps, warmUp, prompt, nTokens }) {
  const { load } = await import('/atta/index.js');
  const model = await load('/model.gguf', { threads, cache: 'none', nCtx: 1024, ramBudget: 3e9 });
  const ask = async (body) => JSON.parse((await Array.fromAsync(model.request('/completion', { temperature: 0, ignore_eos: true, ...body }))).join(''));
  for (let i = 0; i < nWarmUps; i++) await ask({ prompt: `${i} ${warmUp}`, n_predict: nTokens });
  const { timings } = await ask({ prompt, n_predict: nTokens });
  const { isa, memory } = await model.stats();
  await model.dispose();
  return { prefill: timings.prompt_per_second, decode: timings.predicted_per_second, n: [timings.prompt_n, timings.predicted_n], isa, bytes: memory.bytes };
}

async function wllama({ threads, nWarmUps, warmUp, prompt, nTokens }) {
  const { Wllama } = await import('/wllama/index.js');
  const engine = new Wllama({ default: '/wllama/wasm/wllama.wasm' }, { suppressNativeLog: true });
  await engine.loadModelFromUrl(`${location.origin}/model.gguf`, { n_threads: threads, n_ctx: 1024, n_gpu_layers: 0, useCache: false });
  const ask = (prompt, n) => engine.createCompletion({ prompt, max_tokens: n, temperature: 0, logit_bias: { [engine.getEOS()]: -100 } });
  for (let i = 0; i < nWarmUps; i++) await ask(`${i} ${warmUp}`, nTokens);
  const { timings } = await ask(prompt, nTokens);
  await engine.exit();
  return { prefill: timings.prompt_per_second, decode: timings.predicted_per_second, n: [timings.prompt_n, timings.predicted_n] };
}

const median = (numbers) => [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)];
const runs = { atta: [], wllama: [] };
try {
  for (let i = 0; i < nRuns; i++) {
    for (const engine of i % 2 ? [wllama, atta] : [atta, wllama]) {
      const found = await measure(engine);
      runs[engine.name].push(found);
      console.error(`${i + 1} ${engine.name}: ${JSON.stringify(found)}`);
    }
  }
} finally {
  await browser.close();
  server.close();
}
const all = (engine, what) => median(runs[engine].map((run) => run[what]));
for (const what of ['prefill', 'decode']) {
  const [ours, theirs] = [all('atta', what), all('wllama', what)];
  console.log(`${what}: atta ${ours.toFixed(1)}, wllama ${theirs.toFixed(1)} tok/s, ratio ${(ours / theirs).toFixed(2)}`);
}
