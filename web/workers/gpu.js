// The gpu worker: the browser's WebGPU for threads that block. It never blocks itself.
//
//   page → { type: 'find', memory, allowsSoftware } · { type: 'port', port } · { type: 'ask', id }
//   page ← { type: 'found', reason } · { type: 'answer', id, value }
//   threads, through their ports → { operation, device, buffer, at, input, nInput, output, nOutput, mailbox }

import { findAdapter, Gpu } from '../gpu.js';
import { answer } from '../instance.js';
import { inbox, listen } from '../platform.js';

let gpu = null;

const send = await inbox(async (message) => {
  switch (message.type) {
    case 'find': return find(message);
    case 'port': return serve(message.port);
    case 'ask': return send({ type: 'answer', id: message.id, value: gpu?.stats() ?? null });
  }
});

async function find({ memory, allowsSoftware }) {
  gpu = new Gpu({ memory, find: () => findAdapter({ allowsSoftware }) });
  const { reason } = await findAdapter({ allowsSoftware });
  send({ type: 'found', reason });
}

/** Each thread has texts of its own. */
function serve(port) {
  const texts = { last: '' };
  listen(port, async ({ mailbox, ...call }) => answer(mailbox, await gpu.call(call, texts)));
}

send({ type: 'ready' });
