// What this browser can run, and so which build of the module, how many threads and how much memory. Knows no model.

import { MemoryError, UnsupportedError } from './errors.js';
import { isNode } from './platform.js';

const PAGE_BYTES = 1 << 16;
/** What a module with threads begins with, as `cargo xtask web` makes it: 16 MB. */
const INITIAL_PAGES = 256;
/** The most that a shared memory may grow to, in GiB, in the order in which they are tried: phones refuse the first ones. */
const MAXIMUM_GIB = [4, 2, 1, 0.5];
/** Bytes of the memory that are not for models: the module's own, stacks, KV cache of a first answer. */
const RESERVED_BYTES = 192 << 20;
const DESKTOP_BUDGET = 1.5 * 2 ** 30;
const PHONE_BUDGET = 0.7 * 2 ** 30;
const MAX_THREADS = 16;

/** The three builds, best first. */
export const BUILDS = ['mt-relaxed', 'mt-simd', 'st-simd'];

// Modules of one function `t: () → i32` with three local vectors, by its instructions.
const moduleOf = (code) => {
  const body = [1, 3, 0x7b, ...code, 0x0b];
  const section = (id, bytes) => [id, bytes.length, ...bytes];
  return new Uint8Array([
    0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
    ...section(1, [1, 0x60, 0, 1, 0x7f]),
    ...section(3, [1, 0]),
    ...section(7, [1, 1, 0x74, 0, 0]),
    ...section(10, [1, body.length, ...body]),
  ]);
};

const GET = (i) => [0x20, i];
const SET = (i) => [0x21, i];
const CONST = (...leb) => [0x41, ...leb];
const SPLAT8 = [0xfd, 0x0f];
const SPLAT32 = [0xfd, 0x11];
const LANE0 = [0xfd, 0x1b, 0];
const DOT = [0xfd, 0x93, 0x02];

/** i32x4.dot_i16x8_s of ones. */
const SIMD = moduleOf([...CONST(1), ...SPLAT8, ...CONST(1), ...SPLAT8, 0xfd, 0xba, 0x01, ...LANE0]);

// What the kernels compute for a code of 2 and a value of −128 on top of a sum of 5: two relaxed dot products, of
// which an early V8 (in Node 20 behind its flag) lets the second one spoil the first.
const RELAXED = moduleOf([
  ...CONST(0x80, 0x7f), ...SPLAT8, ...SET(0),
  ...CONST(2), ...SPLAT8, ...SET(1),
  ...GET(0), ...GET(1), ...CONST(1), 0xfd, 0x6d, ...CONST(0), ...SPLAT32, ...DOT, ...SET(2),
  ...GET(0), ...GET(1), ...CONST(1), ...SPLAT8, 0xfd, 0x4e, ...CONST(5), ...SPLAT32, ...DOT,
  ...GET(2), ...CONST(1), 0xfd, 0xab, 0x01, 0xfd, 0xae, 0x01, ...LANE0,
]);

function valueOf(bytes) {
  if (!WebAssembly.validate(bytes)) return null;
  return new WebAssembly.Instance(new WebAssembly.Module(bytes)).exports.t();
}

/** What there is: `{ simd, relaxed, shared }`. */
export function detect() {
  return {
    simd: typeof WebAssembly === 'object' && valueOf(SIMD) !== null,
    relaxed: typeof WebAssembly === 'object' && valueOf(RELAXED) === -1019,
    shared: hasSharedMemory(),
  };
}

function hasSharedMemory() {
  if (typeof SharedArrayBuffer !== 'function' || !(isNode || globalThis.crossOriginIsolated)) return false;
  try {
    return new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true }).buffer instanceof SharedArrayBuffer;
  } catch {
    return false;
  }
}

/** The build for what `detect` found, and in words why it is not a better one. `asked` names one. */
export function chooseBuild({ simd, relaxed, shared }, asked) {
  if (!simd) throw new UnsupportedError('This browser has no SIMD in WebAssembly (Chrome 91, Firefox 89, Safari 16.4).', 'no_simd');
  if (asked !== undefined && !BUILDS.includes(asked)) throw new TypeError(`build: ${asked}, expected one of ${BUILDS.join(', ')}`);
  if (asked?.startsWith('mt') && !shared) throw new UnsupportedError(NO_THREADS, 'no_threads');
  if (asked === 'mt-relaxed' && !relaxed) throw new UnsupportedError(NO_RELAXED, 'no_relaxed');
  if (asked) return { build: asked, reason: 'it was asked for' };
  if (!shared) return { build: 'st-simd', reason: NO_THREADS };
  if (!relaxed) return { build: 'mt-simd', reason: NO_RELAXED };
  return { build: 'mt-relaxed', reason: 'all is there' };
}

const NO_THREADS = 'the page has no shared memory: it is not isolated by COOP and COEP';
const NO_RELAXED = 'this browser has no relaxed SIMD';

/** A shared memory with the largest maximum that the browser grants: `{ memory, maximum }` in bytes. */
export function sharedMemory(make = (options) => new WebAssembly.Memory(options)) {
  let refused;
  for (const gib of MAXIMUM_GIB) {
    const maximum = (gib * 2 ** 30) / PAGE_BYTES;
    try {
      return { memory: make({ initial: INITIAL_PAGES, maximum, shared: true }), maximum: maximum * PAGE_BYTES };
    } catch (error) {
      refused = error;
    }
  }
  throw new MemoryError(`The browser gives no memory of ${MAXIMUM_GIB.at(-1)} GiB: ${refused.message}`, 'memory', { cause: refused });
}

/** The bytes that a model may take: what was asked for, or what such a device has, within the memory. */
export function budgetOf(asked, maximum, isSmall = isPhone()) {
  if (asked !== undefined && !(Number.isFinite(asked) && asked > 0)) throw new TypeError(`ramBudget: ${asked}, expected bytes`);
  const wanted = asked ?? (isSmall ? PHONE_BUDGET : DESKTOP_BUDGET);
  return Math.floor(Math.min(wanted, maximum - RESERVED_BYTES));
}

function isPhone() {
  const { userAgentData, userAgent = '', deviceMemory } = globalThis.navigator ?? {};
  return Boolean(userAgentData?.mobile) || /Mobi|iPhone|iPad|Android/.test(userAgent) || deviceMemory <= 4;
}

/** Threads that compute: what was asked for, or the cores less one for the page. */
export function threadsOf(asked, build, nCores = globalThis.navigator?.hardwareConcurrency ?? 2) {
  if (asked !== undefined && !(Number.isInteger(asked) && asked >= 1)) throw new TypeError(`threads: ${asked}, expected 1 or more`);
  if (build === 'st-simd') return 1;
  return Math.min(asked ?? Math.max(1, nCores - 1), MAX_THREADS);
}
