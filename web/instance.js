// An instance of the module in a worker: its imports, and how it reads files. Knows no request.

import { complete, wasi } from './wasi.js';

/** Words of a worker's mailbox: whether the answer is there, and its number. */
const ANSWERED = 0;
const NUMBER = 1;
/** What WebGPU's calls give where there is none. */
const NO_GPU = -1;

/**
 * Makes an instance. `read(shard, offset, start, nBytes)` gives 0 or a reason; `compute(call)` does an operation of
 * gpu.js; `spawn(argument)` gives the number of a new thread; `print(line)` takes what the module prints. `memory` is the
 * shared one, if the module imports one.
 */
export async function instantiate({ module, memory, read, compute = () => NO_GPU, spawn, print }) {
  let instance = null;
  const current = () => memory ?? instance.exports.memory;
  const imports = {
    wasi_snapshot_preview1: complete(module, wasi({ memory: current, print })),
    // Files are larger than 2^53 bytes nowhere.
    atta_io: { read: (shard, offset, start, n) => read(shard, Number(offset), start >>> 0, n >>> 0) },
    atta_gpu: { call: (...args) => compute(gpuCall(...args)) },
    wasi: { 'thread-spawn': spawn },
    ...(memory && { env: { memory } }),
  };
  instance = await WebAssembly.instantiate(module, imports);
  return { instance, memory: current() };
}

/** The arguments of an operation of gpu.js; addresses are unsigned. */
function gpuCall(operation, device, buffer, at, input, nInput, output, nOutput) {
  return { operation, device, buffer, at: Number(at), input: input >>> 0, nInput: nInput >>> 0, output: output >>> 0, nOutput: nOutput >>> 0 };
}

/**
 * Asks another worker through `port`, for a thread that may block: bytes lie in the shared memory, and the answer is a
 * word that this thread waits for.
 */
export function blockingCalls(port) {
  const mailbox = new Int32Array(new SharedArrayBuffer(8));
  return (message) => {
    Atomics.store(mailbox, ANSWERED, 0);
    port.postMessage({ ...message, mailbox });
    Atomics.wait(mailbox, ANSWERED, 0);
    return Atomics.load(mailbox, NUMBER);
  };
}

/** A read by the io worker. */
export function blockingRead(port) {
  const call = blockingCalls(port);
  return (shard, offset, start, nBytes) => call({ type: 'read', shard, offset, start, nBytes });
}

/** Answers a call of another thread. */
export function answer(mailbox, number) {
  Atomics.store(mailbox, NUMBER, number);
  Atomics.store(mailbox, ANSWERED, 1);
  Atomics.notify(mailbox, ANSWERED);
}
