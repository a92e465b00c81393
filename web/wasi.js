// A WASI (preview 1) of a dozen functions: clocks, random numbers, the text that the module prints, and sleep. There is no
// file and no environment: what else the module imports says so. Knows nothing of models.

const ERRNO = { OK: 0, BADF: 8, FAULT: 21, INVAL: 28, NOSYS: 52, SPIPE: 70 };
const CLOCK_REALTIME = 0;
const SUBSCRIPTION_BYTES = 48;
const EVENT_BYTES = 32;
const ABSOLUTE = 1;
const CHARACTER_DEVICE = 2;
const RANDOM_BYTES = 65536;

/** The module has ended itself. */
export class Exit extends Error {
  constructor(code) {
    super(`the module has ended with code ${code}`);
    this.code = code;
  }
}

/**
 * The imports `wasi_snapshot_preview1`. `memory()` gives the memory; `print(line)` takes each line of both outputs. The rest
 * is for tests: `now()` and `monotonic()` in milliseconds, `random(bytes)`, `sleep(milliseconds)`.
 */
export function wasi({
  memory, print = () => {}, now = () => Date.now(), monotonic = () => performance.now(), random = fillRandom, sleep = pause,
}) {
  // A memory that has grown has another buffer, and a shared one is refused by many functions: nothing is kept of it.
  const view = () => new DataView(memory().buffer);
  const bytes = (start, n) => new Uint8Array(memory().buffer, start, n);
  const output = new Lines(print);
  const time = (clock) => BigInt(Math.round((clock === CLOCK_REALTIME ? now() : monotonic()) * 1e6));
  const none = (counts, sizes) => {
    view().setUint32(counts, 0, true);
    view().setUint32(sizes, 0, true);
    return ERRNO.OK;
  };

  return {
    args_get: () => ERRNO.OK,
    args_sizes_get: none,
    environ_get: () => ERRNO.OK,
    environ_sizes_get: none,
    clock_res_get(_, out) {
      view().setBigUint64(out, 1000n, true);
      return ERRNO.OK;
    },
    clock_time_get(clock, _, out) {
      view().setBigUint64(out, time(clock), true);
      return ERRNO.OK;
    },
    random_get(start, n) {
      // Random numbers are not written to shared memory.
      const part = new Uint8Array(Math.min(n, RANDOM_BYTES));
      for (let done = 0; done < n; done += part.length) {
        random(part);
        bytes(start + done, Math.min(part.length, n - done)).set(part.subarray(0, n - done));
      }
      return ERRNO.OK;
    },
    fd_write(fd, vectors, nVectors, out) {
      if (fd !== 1 && fd !== 2) return ERRNO.BADF;
      let n = 0;
      for (let i = 0; i < nVectors; i++) {
        const [start, size] = [view().getUint32(vectors + 8 * i, true), view().getUint32(vectors + 8 * i + 4, true)];
        output.write(fd, bytes(start, size).slice());
        n += size;
      }
      view().setUint32(out, n, true);
      return ERRNO.OK;
    },
    fd_fdstat_get(fd, out) {
      if (fd > 2) return ERRNO.BADF;
      bytes(out, 24).fill(0);
      view().setUint8(out, CHARACTER_DEVICE);
      return ERRNO.OK;
    },
    fd_seek: (fd) => (fd > 2 ? ERRNO.BADF : ERRNO.SPIPE),
    fd_close: () => ERRNO.BADF,
    fd_read: () => ERRNO.BADF,
    fd_prestat_get: () => ERRNO.BADF,
    fd_prestat_dir_name: () => ERRNO.BADF,
    sched_yield: () => ERRNO.OK,
    poll_oneoff(subscriptions, events, n, out) {
      if (n === 0) return ERRNO.INVAL;
      const clocks = Array.from({ length: n }, (_, i) => subscriptionAt(view(), subscriptions + SUBSCRIPTION_BYTES * i));
      if (clocks.some(({ kind }) => kind !== 0)) return ERRNO.NOSYS;
      const left = ({ clock, timeout, isAbsolute }) => (isAbsolute ? timeout - time(clock) : timeout);
      const shortest = clocks.reduce((a, b) => (left(b) < left(a) ? b : a));
      const wait = left(shortest);
      if (wait > 0n) sleep(Number(wait) / 1e6);
      bytes(events, EVENT_BYTES).fill(0);
      view().setBigUint64(events, shortest.userdata, true);
      view().setUint32(out, 1, true);
      return ERRNO.OK;
    },
    proc_exit(code) {
      throw new Exit(code);
    },
  };
}

/** The imports of a module: these, and for all others of `wasi_snapshot_preview1` a function that says that there is none. */
export function complete(module, imports) {
  const wanted = WebAssembly.Module.imports(module).filter(({ module: name }) => name === 'wasi_snapshot_preview1');
  const missing = wanted.filter(({ name }) => !(name in imports));
  return { ...Object.fromEntries(missing.map(({ name }) => [name, () => ERRNO.NOSYS])), ...imports };
}

function subscriptionAt(view, at) {
  return {
    userdata: view.getBigUint64(at, true),
    kind: view.getUint8(at + 8),
    clock: view.getUint32(at + 16, true),
    timeout: view.getBigUint64(at + 24, true),
    isAbsolute: (view.getUint16(at + 40, true) & ABSOLUTE) !== 0,
  };
}

/** Lines of outputs, from the pieces in which they are written. */
class Lines {
  constructor(print) {
    this.print = print;
    this.rest = new Map();
  }

  write(fd, bytes) {
    const { decoder, text } = this.rest.get(fd) ?? { decoder: new TextDecoder(), text: '' };
    const lines = (text + decoder.decode(bytes, { stream: true })).split('\n');
    this.rest.set(fd, { decoder, text: lines.pop() });
    lines.forEach((line) => this.print(line));
  }
}

const fillRandom = (bytes) => crypto.getRandomValues(bytes);

/** Blocks this thread. Without shared memory nothing but the clock ends the wait. */
function pause(milliseconds) {
  if (typeof SharedArrayBuffer === 'function') {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);
    return;
  }
  const end = performance.now() + milliseconds;
  while (performance.now() < end);
}
