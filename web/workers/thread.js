// A thread of the module: it runs one thread of Rust after the other, and tells the page when it is free.
//
//   page → { type: 'start', module, memory, port, gpuPort, ids } · { type: 'run', tid, argument }
//   page ← { type: 'free' } · { type: 'spawn', tid, argument } · { type: 'print', line } · { type: 'trap', message }

import { blockingCalls, blockingRead, instantiate } from '../instance.js';
import { inbox } from '../platform.js';
import { threadIds } from '../threads.js';

let started = null;

const send = await inbox(async (message) => {
  if (message.type === 'start') started = start(message);
  if (message.type === 'run') await run(message);
});

async function start({ module, memory, port, gpuPort, ids }) {
  const next = threadIds(ids);
  const spawn = (argument) => {
    const tid = next();
    send({ type: 'spawn', tid, argument });
    return tid;
  };
  return { module, memory, spawn, read: blockingRead(port), ...(gpuPort && { compute: blockingCalls(gpuPort) }) };
}

/** Each thread has an instance of its own: its stack and its thread-locals are globals of one. */
async function run({ tid, argument }) {
  const imports = await started;
  try {
    const { instance } = await instantiate({ ...imports, print: (line) => send({ type: 'print', line }) });
    instance.exports.wasi_thread_start(tid, argument);
    send({ type: 'free' });
  } catch (error) {
    send({ type: 'trap', message: String(error?.message ?? error) });
  }
}

send({ type: 'ready' });
