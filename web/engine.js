// The module's functions, for JavaScript: arguments written into its memory, results read from it, statuses as errors.
// Runs in the engine worker. Knows the C interface (crates/capi, crates/web) and no request's content.

import { errorOfStatus } from './errors.js';

const OK = 0;
const END = 4;
const PENDING = 5;
/** `atta_event` on a machine with pointers of 4 bytes. */
const EVENT_BYTES = 32;
const KINDS = ['prompt', 'text', 'token', 'note', 'json', 'done'];
/** Options that are numbers; all others are texts. */
const NUMBERS = new Set(['ctx', 'batch', 'keep', 'threads', 'parallel', 'experts', 'ram_budget', 'verify', 'prewarm', 'shrink']);

/** The functions of an instance. */
export class Engine {
  #encoder = new TextEncoder();
  #decoder = new TextDecoder();

  constructor({ exports }, memory = exports.memory) {
    this.exports = exports;
    this.memory = memory;
    this.event = this.#alloc(EVENT_BYTES);
    this.out = this.#alloc(8);
  }

  /**
   * Opens a model: `shards` are `{ name, bytes, version, arriving }`, `options` those of atta.h by name, and `gpu` is what
   * shall lie on the GPU, `{ layers, bytes }`, if anything.
   */
  open(shards, options, gpu) {
    const handle = this.#options(options);
    try {
      const files = this.#encoder.encode(JSON.stringify(shards));
      const wish = this.#encoder.encode(gpu ? JSON.stringify(gpu) : '');
      return this.#withBytes(files, (start) =>
        this.#withBytes(wish, (at) => this.#make('atta_web_open', start, files.length, at, wish.length, handle)));
    } finally {
      this.exports.atta_options_free(handle);
    }
  }

  free(model) {
    this.exports.atta_model_free(model);
  }

  /** Begins a request; `body` is an object, or undefined for a GET. */
  request(model, path, body) {
    const json = body === undefined ? new Uint8Array() : this.#encoder.encode(JSON.stringify(body));
    return this.#withText(path, (name) =>
      this.#withBytes(json, (start) => this.#make('atta_request', model, name, body === undefined ? 0 : start, json.length)));
  }

  /** The next event of a request, for which it computes so long at most: `{ kind, text }`, or null if there is none yet. */
  next(generation, milliseconds) {
    const status = this.exports.atta_next_within(generation, milliseconds, this.event, EVENT_BYTES);
    if (status === PENDING) return null;
    if (status === END) return { kind: 'done', text: '' };
    this.#check(status);
    const view = new DataView(this.memory.buffer, this.event, EVENT_BYTES);
    return { kind: KINDS[view.getInt32(0, true)] ?? 'unknown', text: this.#text(view.getUint32(8, true), view.getUint32(12, true)) };
  }

  cancel(generation) {
    this.exports.atta_cancel(generation);
  }

  freeRequest(generation) {
    this.exports.atta_generation_free(generation);
  }

  /** A number of the model, such as "ram_used". */
  number(model, name) {
    return this.#withText(name, (start) => {
      this.#check(this.exports.atta_model_number(model, start, this.out));
      return Number(new DataView(this.memory.buffer).getBigUint64(this.out, true));
    });
  }

  /** A text of the model, such as "isa". */
  text(model, name) {
    return this.#withText(name, (start) => {
      const buffer = this.#make('atta_model_text', model, start);
      const text = this.#text(this.exports.atta_buffer_data(buffer), this.exports.atta_buffer_size(buffer));
      this.exports.atta_buffer_free(buffer);
      return text;
    });
  }

  version() {
    return this.#cText(this.exports.atta_version());
  }

  #options(options) {
    const handle = this.#make('atta_options_new');
    try {
      for (const [name, value] of Object.entries(options)) if (value !== undefined) this.#setOption(handle, name, value);
    } catch (error) {
      this.exports.atta_options_free(handle);
      throw error;
    }
    return handle;
  }

  #setOption(handle, name, value) {
    this.#withText(name, (key) => {
      if (NUMBERS.has(name)) return this.#check(this.exports.atta_options_set_u64(handle, key, BigInt(value)));
      if (typeof value === 'number') return this.#check(this.exports.atta_options_set_f64(handle, key, value));
      const bytes = this.#encoder.encode(String(value));
      return this.#withBytes(bytes, (start) => this.#check(this.exports.atta_options_set_text(handle, key, start, bytes.length)));
    });
  }

  /** Calls a function that gives a handle through its last argument. */
  #make(name, ...args) {
    this.#check(this.exports[name](...args, this.out));
    return new DataView(this.memory.buffer).getUint32(this.out, true);
  }

  #check(status) {
    if (status !== OK) throw errorOfStatus(status, this.#cText(this.exports.atta_last_error()));
  }

  #withText(text, use) {
    return this.#withBytes(this.#encoder.encode(`${text}\0`), use);
  }

  #withBytes(bytes, use) {
    const start = this.#alloc(bytes.length);
    try {
      new Uint8Array(this.memory.buffer, start, bytes.length).set(bytes);
      return use(start);
    } finally {
      this.exports.atta_web_free(start, bytes.length);
    }
  }

  #alloc(n) {
    const start = this.exports.atta_web_alloc(n);
    if (start === 0) throw errorOfStatus(7, `no memory for ${n} bytes of a request`);
    return start >>> 0;
  }

  /** A text of the module; shared memory is copied, since a decoder refuses it. */
  #text(start, n) {
    return this.#decoder.decode(new Uint8Array(this.memory.buffer, start >>> 0, n).slice());
  }

  #cText(start) {
    const bytes = new Uint8Array(this.memory.buffer, start >>> 0);
    return this.#text(start, bytes.indexOf(0));
  }
}
