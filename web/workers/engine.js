// The engine worker: it owns the model, and computes or waits for those that do. Between two events of a response it
// returns to its event loop, so that a cancellation is seen within a token. Without threads it reads files, too.
//
//   page → { type: 'start', module, memory, port, gpuPort, ids } · { type: 'open', shards, gpu, options, files } ·
//          { type: 'request', id, path, body } · { type: 'cancel', id } · { type: 'ask', id } · { type: 'dispose' } · { type: 'abort' }
//   page ← { type: 'started' } · { type: 'opened', info, reason } · { type: 'progress', … } · { type: 'failed', error } ·
//          { type: 'piece', id, text } · { type: 'note', id, text } · { type: 'end', id } · { type: 'error', id, error } ·
//          { type: 'answer', id, value } · { type: 'spawn', tid, argument } · { type: 'print', line } · { type: 'trap', message }

import { AbortError, toWire } from '../errors.js';
import { Engine } from '../engine.js';
import { blockingCalls, blockingRead, instantiate } from '../instance.js';
import { inbox } from '../platform.js';
import { Requests } from '../requests.js';
import { Shards } from '../shards.js';
import { threadIds } from '../threads.js';

const controller = new AbortController();
let engine = null;
let model = 0;
let requests = null;
/** The files, where there are no threads. */
let files = null;
let hasThreads = false;

const send = await inbox(async (message) => {
  try {
    await receive(message);
  } catch (error) {
    fail(error, { type: 'failed' });
  }
});

async function receive(message) {
  switch (message.type) {
    case 'start': return start(message);
    case 'open': return open(message);
    case 'request': return requests.add(message);
    case 'cancel': return requests?.cancel(message.id);
    case 'ask': return send({ type: 'answer', id: message.id, value: info() });
    case 'abort': return void controller.abort();
    case 'dispose': return dispose();
  }
}

/** An error of the module is a trap: after one its state means nothing. */
function fail(error, message) {
  if (error instanceof WebAssembly.RuntimeError) send({ type: 'trap', message: error.message });
  else send({ ...message, error: toWire(error) });
}

async function start({ module, memory, port, gpuPort, ids }) {
  hasThreads = Boolean(memory);
  const next = hasThreads ? threadIds(ids) : null;
  const spawn = (argument) => {
    const tid = next();
    send({ type: 'spawn', tid, argument });
    return tid;
  };
  const read = hasThreads ? blockingRead(port) : readHere;
  const compute = gpuPort && blockingCalls(gpuPort);
  const { instance, memory: used } = await instantiate({ module, memory, read, compute, spawn, print: (line) => send({ type: 'print', line }) });
  instance.exports._initialize();
  engine = new Engine(instance, used);
  send({ type: 'started', version: engine.version() });
}

/** A read on the only thread there is: the bytes must be here. */
function readHere(shard, offset, start, nBytes) {
  const reason = files.readNow(shard, offset, new Uint8Array(engine.memory.buffer, start, nBytes));
  if (reason !== 0) send({ type: 'unread', error: toWire(files.error) });
  return reason;
}

/** Opens the model; without threads, after its files are here. */
async function open({ shards, gpu, options, files: { sources, ...how } }) {
  if (!hasThreads) {
    files = await Shards.open(sources, { ...how, signal: controller.signal, report: (amounts) => send({ type: 'progress', ...amounts }) });
    await files.complete();
  }
  if (controller.signal.aborted) throw new AbortError();
  const reason = place(shards ?? files.describe(), gpu, options);
  requests = new Requests(engine, model, { send, fail });
  send({ type: 'opened', info: info(), reason });
}

/** Opens the model on the GPU; or, where that is optional, on the CPU alone: the reason comes back. */
function place(shards, gpu, options) {
  try {
    model = engine.open(shards, options, gpu?.wish);
  } catch (error) {
    if (!gpu?.isOptional || error instanceof WebAssembly.RuntimeError) throw error;
    model = engine.open(shards, options);
    return error.message;
  }
}

function info() {
  return {
    isa: engine.text(model, 'isa'),
    weights: engine.text(model, 'weights'),
    name: engine.text(model, 'name'),
    ramUsed: engine.number(model, 'ram_used'),
    nCtxTrain: engine.number(model, 'n_ctx_train'),
    memoryBytes: engine.memory.buffer.byteLength,
    ...(files && { amounts: files.amounts() }),
  };
}

async function dispose() {
  await requests?.close();
  if (model !== 0) engine.free(model);
  model = 0;
  files?.close();
  send({ type: 'disposed' });
}

send({ type: 'ready' });
