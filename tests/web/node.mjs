// The package with its modules under Node 22: `node node.mjs --atta PROGRAM [--model FILE.gguf]`, after `cargo xtask web`. Texts are
// those that the program prints, also of a file whose last layer lies beyond 4 GiB. Exits with 1 if one differs.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { argv } from 'node:process';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

import { load } from '../../web/index.js';
import { stretch } from './stretched.mjs';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
const { values } = parseArgs({ args: argv.slice(2), options: { atta: { type: 'string' }, model: { type: 'string' } } });
const small = resolve(values.model ?? join(root, 'crates/cli/assets/home.gguf'));
const PROMPT = 'Once upon a time';
const N = 24;

const printed = execFileSync(resolve(values.atta), ['run', small, '-p', PROMPT, '-n', String(N), '--temp', '0'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });

async function text(file, options) {
  const model = await load(file, options);
  const { choices } = await model.completions.create({ prompt: PROMPT, max_tokens: N, temperature: 0 });
  const { build, isa, threads, memory } = await model.stats();
  await model.dispose();
  console.log(`${file}: ${build} (${isa}), ${threads} threads, ${Math.round(memory.bytes / 2 ** 20)} MiB`);
  return choices[0].text;
}

for (const options of [{ build: 'st-simd' }, { build: 'mt-simd', threads: 1 }, { build: 'mt-simd', threads: 2 }, { build: 'mt-relaxed', threads: 2 }]) {
  assert.equal((await text(small, options)).trim(), printed.trim());
}
const folder = mkdtempSync(join(tmpdir(), 'atta-web-'));
try {
  const large = join(folder, 'stretched.gguf');
  assert.ok(stretch(small, large) > 2 ** 32);
  assert.equal((await text(large, { threads: 2 })).trim(), printed.trim());
} finally {
  rmSync(folder, { recursive: true });
}
console.log('all texts are those of the program');
