// The io worker: files for threads that block. It never blocks itself, since what it waits for comes by its event loop.
//
//   page → { type: 'open', shards, options, memory } · { type: 'port', port } · { type: 'abort', message } · { type: 'amounts' }
//   page ← { type: 'opened', shards } · { type: 'failed', error } · { type: 'progress', … } · { type: 'amounts', … }
//   threads, through their ports → { type: 'read', shard, offset, start, nBytes, mailbox }

import { toWire } from '../errors.js';
import { answer } from '../instance.js';
import { inbox, listen } from '../platform.js';
import { Shards } from '../shards.js';

const controller = new AbortController();
let shards = null;
let memory = null;

const send = await inbox(async (message) => {
  switch (message.type) {
    case 'open': return open(message);
    case 'port': return listen(message.port, read);
    case 'abort':
      controller.abort();
      shards?.close();
      return;
    case 'amounts': return send({ type: 'amounts', amounts: shards?.amounts() });
  }
});

async function open({ shards: asked, options, memory: shared }) {
  memory = shared;
  try {
    shards = await Shards.open(asked, {
      ...options,
      signal: controller.signal,
      report: (amounts) => send({ type: 'progress', ...amounts }),
      note: (text) => send({ type: 'note', text }),
    });
    send({ type: 'opened', shards: shards.describe() });
  } catch (error) {
    send({ type: 'failed', error: toWire(error) });
  }
}

async function read({ shard, offset, start, nBytes, mailbox }) {
  // The storage writes into shared memory, the memory of a download does too.
  const reason = await shards.read(shard, offset, new Uint8Array(memory.buffer, start, nBytes));
  if (reason !== 0) send({ type: 'unread', error: toWire(shards.error) });
  answer(mailbox, reason);
}

send({ type: 'ready' });
