// @atta/web: large language models from GGUF files, in the browser and in Node.
//
//   const model = await load('https://…/model.gguf');
//   const answer = await model.chat.completions.create({ messages: [{ role: 'user', content: 'Hello' }] });
//
// This file starts the workers and carries messages between them and the caller. It computes nothing: a page stays smooth.

import { AbortError, abortOf, DisposedError, EngineError, fromWire, ModelError, throwIfAborted, UnsupportedError } from './errors.js';
import { budgetOf, chooseBuild, detect, sharedMemory, threadsOf } from './features.js';
import { interfaces } from './openai.js';
import { compile, moduleUrl, startWorker } from './platform.js';
import { shardsOf } from './source.js';
import { newIds, ThreadPool } from './threads.js';

export * from './errors.js';

/** The largest memory of a module without threads, whose memory grows by itself. */
const SINGLE_MAXIMUM = 2 ** 32;
/** Threads of the module beside those that compute: four that read weights, and the scheduler. */
const OTHER_THREADS = 5;
/** Lines of what the module prints that are kept for the words of a trap. */
const KEPT_LINES = 20;
const LOST_GPU = 'the GPU was lost';
const OPTIONS = new Set([
  'threads', 'gpu', 'gpuLayers', 'gpuBudget', 'ramBudget', 'cache', 'onProgress', 'onNote', 'signal', 'build', 'nCtx', 'nBatch', 'nParallel', 'kv', 'chatTemplate',
  'name', 'folder', 'modules',
]);

/** Loads a model: see index.d.ts. */
export async function load(source, options = {}) {
  const { signal } = options;
  throwIfAborted(signal);
  const settings = settingsOf(source, options);
  const model = new Model(settings);
  const abort = () => model._abort(abortOf(signal));
  signal?.addEventListener('abort', abort, { once: true });
  try {
    await model._start();
    throwIfAborted(signal);
    return model;
  } catch (error) {
    model._close();
    throw signal?.aborted ? abortOf(signal) : error;
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}

/** What this place can run, and the build that `load` would take: `{ build, reason, simd, relaxed, shared }`. */
export function support() {
  const found = detect();
  try {
    return { ...found, ...chooseBuild(found) };
  } catch (error) {
    return { ...found, build: null, reason: error.message };
  }
}

function settingsOf(source, options) {
  const unknown = Object.keys(options).find((name) => !OPTIONS.has(name));
  if (unknown) throw new TypeError(`load has no option ${unknown}; it has ${[...OPTIONS].join(', ')}`);
  const { gpu = 'off', gpuLayers, gpuBudget, cache = 'opfs' } = options;
  if (!['off', 'auto', 'on'].includes(gpu)) throw new TypeError(`gpu: ${gpu}, expected off, auto or on`);
  for (const [name, value] of Object.entries({ gpuLayers, gpuBudget })) {
    if (value !== undefined && !(Number.isSafeInteger(value) && value >= 0)) throw new TypeError(`${name}: ${value}, expected a whole number`);
    if (value !== undefined && gpu === 'off') throw new TypeError(`${name} needs a gpu`);
  }
  if (!['opfs', 'none'].includes(cache)) throw new TypeError(`cache: ${cache}, expected opfs or none`);
  const { build, reason } = chooseBuild(detect(), options.build);
  return { ...options, gpu, cache, build, reason, sources: shardsOf(source) };
}

/** A loaded model. Its methods beside those of index.d.ts, which begin with `_`, are for `load`. */
class Model {
  #settings;
  #engine = null;
  #io = null;
  /** The worker with the GPU, if the model is there; or why not. */
  #gpu = null;
  #noGpu = 'it was not asked for';
  #pool = null;
  #memory = null;
  #maximum = SINGLE_MAXIMUM;
  #dead = null;
  /** What waits for a worker to have done something: by the type of its message. */
  #expected = new Map();
  #streams = new Map();
  #answers = new Map();
  #nRequests = 0;
  #lines = [];
  #unread = null;
  #amounts = { loaded: 0, total: 0, cached: 0, fetched: 0 };
  #info = null;
  #last = null;
  #times = {};

  constructor(settings) {
    this.#settings = settings;
    Object.assign(this, interfaces((path, body, options) => this.#request(path, body, options)));
  }

  async _start() {
    const { build, sources } = this.#settings;
    const start = performance.now();
    const module = await compile(moduleUrl(build, this.#settings.modules)).catch((error) => {
      throw new UnsupportedError(`The module cannot be loaded: ${error.message}`, 'no_module', { cause: error });
    });
    const hasThreads = build !== 'st-simd';
    if (hasThreads) ({ memory: this.#memory, maximum: this.#maximum } = sharedMemory());
    const threads = threadsOf(this.#settings.threads, build);
    this.#engine = await this.#worker('engine', (message) => this.#receive(message));
    const files = hasThreads ? await this.#startThreads(module, threads, sources) : { sources, ...this.#filesHow() };
    if (!hasThreads) this.#engine.send({ type: 'start', module });
    await this.#expect('started');
    if (!hasThreads) this.#withoutGpu('there are no threads, which wait for it');
    const gpu = this.#gpu && { wish: this.#gpuWish(), isOptional: this.#settings.gpu === 'auto' };
    this.#engine.send({ type: 'open', gpu, ...(hasThreads ? { shards: files.shards, files: {} } : { files }), options: this.#engineOptions(threads) });
    const { info, reason } = await this.#expect('opened');
    this.#info = info;
    if (reason) this.#withoutGpu(reason);
    this.#times.load = performance.now() - start;
    this.#settings.nThreads = threads;
  }

  /** Starts the io worker and the threads, and opens the files. */
  async #startThreads(module, threads, sources) {
    const ids = newIds();
    this.#io = await this.#worker('io', (message) => this.#receive(message));
    if (this.#settings.gpu !== 'off') await this.#startGpu();
    this.#pool = new ThreadPool({
      print: (line) => this.#print(line),
      broken: (error) => this.#trap(error.message),
      start: async (receive) => {
        const worker = await this.#worker('thread', receive);
        this.#sendStart(worker, module, ids);
        return worker;
      },
    });
    this.#io.send({ type: 'open', shards: sources, options: this.#filesHow(), memory: this.#memory });
    const warm = this.#pool.warm(threads - 1 + OTHER_THREADS);
    const [{ shards }] = await Promise.all([this.#expect('opened'), warm]);
    this.#sendStart(this.#engine, module, ids);
    return { shards };
  }

  /** Gives a worker the module, and a way to each worker that it waits for. */
  #sendStart(worker, module, ids) {
    const portTo = (other) => {
      if (!other) return undefined;
      const { port1, port2 } = new MessageChannel();
      other.send({ type: 'port', port: port1 }, [port1]);
      return port2;
    };
    const [port, gpuPort] = [portTo(this.#io), portTo(this.#gpu)];
    worker.send({ type: 'start', module, memory: this.#memory, port, gpuPort, ids }, [port, gpuPort].filter(Boolean));
  }

  /** Starts the gpu worker, which stays if the browser has a GPU. */
  async #startGpu() {
    this.#gpu = await this.#worker('gpu', (message) => this.#receive(message));
    this.#gpu.send({ type: 'find', memory: this.#memory, allowsSoftware: this.#settings.gpu === 'on' });
    const { reason } = await this.#expect('found');
    if (reason) this.#withoutGpu(reason);
  }

  /** Goes on with the CPU alone, if that will do. */
  #withoutGpu(reason) {
    if (this.#settings.gpu === 'on') throw new UnsupportedError(`No GPU: ${reason}.`, 'no_gpu');
    if (this.#settings.gpu === 'off') return;
    this.#gpu?.stop();
    this.#gpu = null;
    this.#noGpu = reason;
  }

  #gpuWish() {
    const { gpuLayers: layers, gpuBudget: bytes } = this.#settings;
    return { layers, bytes };
  }

  /** How files are opened. Without threads none is read past the storage. */
  #filesHow() {
    const { cache, folder, ramBudget, build } = this.#settings;
    // Only a page can ask; what it hears changes nothing.
    if (cache !== 'none') globalThis.navigator?.storage?.persist?.().catch(() => {});
    return { cache, folder, fitBytes: build === 'st-simd' ? 0 : budgetOf(ramBudget, this.#maximum) };
  }

  #engineOptions(threads) {
    const { nCtx, nBatch, nParallel, kv, chatTemplate, name, ramBudget } = this.#settings;
    return {
      threads, ctx: nCtx, batch: nBatch, parallel: nParallel, kv, chat_template: chatTemplate, name,
      // What fits stays in memory, and the rest is read again for each token.
      weights: 'streamed',
      ram_budget: budgetOf(ramBudget, this.#maximum),
      // A context that is asked for is not made smaller.
      shrink: nCtx === undefined ? 1 : 0,
    };
  }

  async #worker(name, receive) {
    let ready;
    const isReady = new Promise((resolve, reject) => { ready = { resolve, reject }; });
    const worker = await startWorker(name, {
      receive: (message) => (message.type === 'ready' ? ready.resolve() : receive(message)),
      fail: (error) => {
        ready.reject(new UnsupportedError(`A worker cannot be started: ${error.message}`, 'no_workers', { cause: error }));
        this.#trap(error.message);
      },
    });
    await isReady.catch((error) => {
      worker.stop();
      throw error;
    });
    if (!this.#dead) return worker;
    worker.stop();
    throw this.#dead;
  }

  #expect(type) {
    if (this.#dead) return Promise.reject(this.#dead);
    return new Promise((resolve, reject) => this.#expected.set(type, { resolve, reject }));
  }

  #receive(message) {
    switch (message.type) {
      case 'started': case 'opened': case 'disposed': case 'amounts': case 'found': return this.#arrived(message);
      case 'failed': return this.#failed(fromWire(message.error));
      case 'progress': return this.#progress(message);
      case 'unread': return void (this.#unread = fromWire(message.error));
      case 'piece': return this.#streams.get(message.id)?.push(message.text);
      case 'note': return this.#note(message.text);
      case 'end': return this.#streams.get(message.id)?.end();
      case 'error': return this.#streams.get(message.id)?.fail(this.#cause(fromWire(message.error)));
      case 'answer': return void this.#answers.get(message.id)?.(message.value);
      case 'spawn': return void this.#pool.run(message.tid, message.argument);
      case 'print': return this.#print(message.line);
      case 'trap': return this.#trap(message.message);
    }
  }

  #arrived(message) {
    const waiting = this.#expected.get(message.type);
    this.#expected.delete(message.type);
    waiting?.resolve(message);
  }

  /** The error of a read is nearer to its cause than that of a step that wanted the bytes. */
  #cause(error) {
    const unread = this.#unread;
    this.#unread = null;
    return unread && (error instanceof EngineError || error instanceof ModelError) ? unread : error;
  }

  #failed(error) {
    const waiting = [...this.#expected.values()];
    this.#expected.clear();
    const cause = this.#cause(error);
    waiting.forEach(({ reject }) => reject(cause));
  }

  #progress({ loaded, total, cached, fetched }) {
    this.#amounts = { loaded, total, cached, fetched };
    this.#settings.onProgress?.({ loaded, total, cached, build: this.#settings.build });
  }

  #note(text) {
    if (this.#settings.onNote) this.#settings.onNote(text);
    else console.warn(`atta: ${text}`);
  }

  #print(line) {
    this.#lines.push(line);
    if (this.#lines.length > KEPT_LINES) this.#lines.shift();
  }

  /** A thread has trapped: the memory that all of them share means nothing any more. */
  #trap(message) {
    const words = [message, ...this.#lines].filter(Boolean).join('\n');
    this.#die(new EngineError(`The engine has ended by a fault: ${words}`, 'trap'));
  }

  #die(error) {
    if (this.#dead) return;
    this.#dead = error;
    this.#failed(error);
    for (const stream of this.#streams.values()) stream.fail(error);
    for (const answer of this.#answers.values()) answer(null);
    this.#engine?.stop();
    this.#io?.stop();
    this.#gpu?.stop();
    this.#pool?.close();
  }

  _abort(error) {
    this.#io?.send({ type: 'abort' });
    this.#engine?.send({ type: 'abort' });
    this.#failed(error);
  }

  _close() {
    this.#die(new DisposedError('The model was disposed of.', 'disposed'));
  }

  /** Sends a request, and gives the texts of its response as they come. */
  async *#request(path, body, { signal } = {}) {
    if (this.#dead) throw this.#dead;
    throwIfAborted(signal);
    const id = this.#nRequests++;
    const stream = new TextQueue();
    const abort = () => stream.fail(abortOf(signal));
    const started = performance.now();
    let first = null;
    this.#streams.set(id, stream);
    signal?.addEventListener('abort', abort, { once: true });
    this.#engine.send({ type: 'request', id, path, body });
    try {
      for await (const text of stream) {
        first ??= performance.now();
        this.#measure(text, started, first);
        yield text;
      }
    } finally {
      signal?.removeEventListener('abort', abort);
      this.#streams.delete(id);
      if (!stream.isOver && !this.#dead) this.#engine.send({ type: 'cancel', id });
    }
  }

  /** Keeps the speed of the last answer, which its last chunk has. */
  #measure(text, started, first) {
    if (!text.includes('"usage"') && !text.includes('"timings"')) return;
    const { usage, timings } = JSON.parse(text);
    if (!usage) return;
    this.#last = {
      promptTokens: usage.prompt_tokens ?? 0,
      completionTokens: usage.completion_tokens ?? 0,
      firstMs: first - started,
      totalMs: performance.now() - started,
      promptPerSecond: timings?.prompt_per_second,
      tokensPerSecond: timings?.predicted_per_second,
    };
  }

  /**
   * Sends a request to another path of `atta serve`, such as "/props": a GET without a body. Gives the texts of the
   * response, one for each event of a stream.
   */
  request(path, body, options) {
    return this.#request(path, body, options);
  }

  /** Asks a worker for what it knows; null if it has ended. */
  async #ask(worker) {
    const id = this.#nRequests++;
    const answer = await new Promise((resolve) => {
      this.#answers.set(id, resolve);
      worker.send({ type: 'ask', id });
    });
    this.#answers.delete(id);
    return answer;
  }

  async stats() {
    if (this.#dead) throw this.#dead;
    const info = await this.#ask(this.#engine);
    const gpu = this.#gpu && (await this.#ask(this.#gpu));
    if (!info) throw this.#dead;
    const { build, reason, nThreads } = this.#settings;
    return {
      build, reason, gpu, gpuReason: gpu ? null : this.#gpu ? LOST_GPU : this.#noGpu, threads: nThreads, isa: info.isa, name: info.name, weights: info.weights,
      memory: { bytes: info.memoryBytes, maximum: this.#maximum, reserved: info.ramUsed },
      download: { ...this.#amounts },
      loadMs: this.#times.load,
      last: this.#last,
    };
  }

  /** What was known when the model was opened: `{ name, isa, nCtxTrain }`. */
  get info() {
    const { name, isa, nCtxTrain } = this.#info;
    return { name, isa, nCtxTrain };
  }

  /** Ends all requests, frees the memory, and closes the files. */
  async dispose() {
    if (this.#dead) return;
    const disposed = this.#expect('disposed');
    this.#engine.send({ type: 'dispose' });
    await disposed.catch(() => {});
    this.#io?.send({ type: 'abort' });
    if (this.#io) {
      const closed = this.#expect('amounts');
      this.#io.send({ type: 'amounts' });
      await closed.catch(() => {});
    }
    this._close();
  }

  async [Symbol.asyncDispose]() {
    await this.dispose();
  }
}

/** Texts that come while a reader waits, or before it does. */
class TextQueue {
  #texts = [];
  #error = null;
  #wake = null;
  isOver = false;

  push(text) {
    this.#texts.push(text);
    this.#wake?.();
  }

  end() {
    this.isOver = true;
    this.#wake?.();
  }

  fail(error) {
    this.#error ??= error;
    // An abort has still to reach the engine.
    this.isOver ||= !(error instanceof AbortError);
    this.#wake?.();
  }

  async *[Symbol.asyncIterator]() {
    for (;;) {
      if (this.#error) throw this.#error;
      if (this.#texts.length > 0) yield this.#texts.shift();
      else if (this.isOver) return;
      else await new Promise((resolve) => { this.#wake = resolve; });
    }
  }
}
