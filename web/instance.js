// An instance of the module in a worker: its imports, and how it reads files. Knows no request.

import { complete, wasi } from './wasi.js';

/** Words of a worker's mailbox: whether the answer is there, and the reason of a read. */
const ANSWERED = 0;
const REASON = 1;

/**
 * Makes an instance. `read(shard, offset, start, nBytes)` gives 0 or a reason; `spawn(argument)` gives the number of a new
 * thread; `print(line)` takes what the module prints. `memory` is the shared one, if the module imports one.
 */
export async function instantiate({ module, memory, read, spawn, print }) {
  let instance = null;
  const current = () => memory ?? instance.exports.memory;
  const imports = {
    wasi_snapshot_preview1: complete(module, wasi({ memory: current, print })),
    // Files are larger than 2^53 bytes nowhere.
    atta_io: { read: (shard, offset, start, n) => read(shard, Number(offset), start >>> 0, n >>> 0) },
    wasi: { 'thread-spawn': spawn },
    ...(memory && { env: { memory } }),
  };
  instance = await WebAssembly.instantiate(module, imports);
  return { instance, memory: current() };
}

/**
 * A read by the io worker, for a thread that may block: the request goes through `port`, the bytes come into the shared
 * memory, and the answer is a word that this thread waits for.
 */
export function blockingRead(port) {
  const mailbox = new Int32Array(new SharedArrayBuffer(8));
  return (shard, offset, start, nBytes) => {
    Atomics.store(mailbox, ANSWERED, 0);
    port.postMessage({ type: 'read', shard, offset, start, nBytes, mailbox });
    Atomics.wait(mailbox, ANSWERED, 0);
    return Atomics.load(mailbox, REASON);
  };
}

/** Answers a read of another thread. */
export function answerRead(mailbox, reason) {
  Atomics.store(mailbox, REASON, reason);
  Atomics.store(mailbox, ANSWERED, 1);
  Atomics.notify(mailbox, ANSWERED);
}
