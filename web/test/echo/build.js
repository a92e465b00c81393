// Builds echo.rs.txt as the module is built, into a folder. Null where rustc lacks a target.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const SOURCE = join(dirname(fileURLToPath(import.meta.url)), 'echo.rs.txt');

export function buildEcho(folder) {
  mkdirSync(folder, { recursive: true });
  let root;
  try {
    root = execFileSync('rustc', ['--print', 'sysroot'], { encoding: 'utf8' }).trim();
  } catch {
    return null;
  }
  for (const [name, target] of [['mt-simd', 'wasm32-wasip1-threads'], ['st-simd', 'wasm32-wasip1']]) {
    const start = join(root, 'lib/rustlib', target, 'lib/self-contained/crt1-reactor.o');
    if (!existsSync(start)) return null;
    const links = [start, '--export=_initialize', ...(name.startsWith('mt') ? ['--max-memory=4294967296'] : [])];
    execFileSync('rustc', [
      '--edition=2024', '--crate-name=echo', '--crate-type=cdylib', '--target', target, '-O', '-Cpanic=abort', '-Cstrip=symbols', '-Ctarget-feature=+simd128',
      ...links.map((argument) => `-Clink-arg=${argument}`), SOURCE, '-o', join(folder, `${name}.wasm`),
    ], { stdio: ['ignore', 'ignore', 'inherit'] });
  }
  return folder;
}
