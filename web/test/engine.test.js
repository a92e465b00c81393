// The calls of the module, against a module in JavaScript that keeps what it is given.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Engine } from '../engine.js';
import { MemoryError, ModelError, RequestError } from '../errors.js';

function fakeModule({ events = [], fails = {} } = {}) {
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 8, shared: true });
  const calls = [];
  let [next, live] = [64, 0];
  const view = () => new DataView(memory.buffer);
  const bytes = (start, n) => new Uint8Array(memory.buffer, start, n).slice();
  const text = (start, n) => new TextDecoder().decode(bytes(start, n ?? new Uint8Array(memory.buffer, start).indexOf(0)));
  const put = (words) => {
    const encoded = new TextEncoder().encode(`${words}\0`);
    const start = exports.atta_web_alloc(encoded.length);
    live -= 1;
    new Uint8Array(memory.buffer, start, encoded.length).set(encoded);
    return start;
  };
  let error = 0;
  const result = (name, out, handle) => {
    if (fails[name]) {
      error = put(fails[name][1]);
      view().setUint32(out, 0, true);
      return fails[name][0];
    }
    view().setUint32(out, handle, true);
    return 0;
  };
  const exports = {
    memory,
    atta_web_alloc(n) {
      live += 1;
      const start = next;
      next += (n + 15) & ~15;
      if (next > memory.buffer.byteLength) memory.grow(1);
      return start;
    },
    atta_web_free: () => void (live -= 1),
    atta_last_error: () => error || put(''),
    atta_options_new: (out) => result('options', out, 11),
    atta_options_free: (handle) => calls.push(['options_free', handle]),
    atta_options_set_u64: (_, key, value) => void calls.push([text(key), value]) ?? 0,
    atta_options_set_f64: (_, key, value) => void calls.push([text(key), value]) ?? 0,
    atta_options_set_text: (_, key, start, n) => void calls.push([text(key), text(start, n)]) ?? 0,
    atta_web_open: (start, n, gpu, nGpu, options, out) => void calls.push(['open', JSON.parse(text(start, n)), nGpu > 0 ? JSON.parse(text(gpu, nGpu)) : null, options]) ?? result('open', out, 22),
    atta_model_free: (handle) => calls.push(['free', handle]),
    atta_request: (model, path, start, n, out) => void calls.push(['request', model, text(path), start && text(start, n)]) ?? result('request', out, 33),
    atta_next_within(_, __, event) {
      const [status, kind, words] = events.shift() ?? [4];
      if (status) return status;
      memory.grow(1);
      view().setInt32(event, kind, true);
      view().setUint32(event + 8, put(words), true);
      view().setUint32(event + 12, new TextEncoder().encode(words).length, true);
      return 0;
    },
    atta_cancel: () => calls.push(['cancel']),
    atta_generation_free: () => calls.push(['free request']),
    atta_model_number: (_, name, out) => void view().setBigUint64(out, text(name) === 'ram_used' ? 5_000_000_000n : 0n, true) ?? 0,
    atta_model_text: (_, name, out) => result('text', out, put(`${text(name)}!`)),
    atta_buffer_data: (buffer) => buffer,
    atta_buffer_size: (buffer) => text(buffer).length,
    atta_buffer_free: () => {},
    atta_version: () => put('0.1.0'),
  };
  return { engine: new Engine({ exports }), calls, nLive: () => live };
}

test('a model is opened with its files and options, each by the setter of its type', () => {
  const { engine, calls, nLive } = fakeModule();
  const before = nLive();
  const shards = [{ name: 'é.gguf', bytes: 5_000_000_000 }];
  assert.equal(engine.open(shards, { ram_budget: 5_000_000_000, kv: 'q8', quality: 0.5, ctx: undefined }), 22);
  assert.deepEqual(calls, [['ram_budget', 5_000_000_000n], ['kv', 'q8'], ['quality', 0.5], ['open', shards, null, 11], ['options_free', 11]]);
  engine.open(shards, {}, { layers: 2 });
  assert.deepEqual(calls.at(-2), ['open', shards, { layers: 2 }, 11]);
  assert.equal(nLive(), before, 'all arguments are freed');
});

test('a failure is an error of its class, with the words of the module', () => {
  const { engine, calls } = fakeModule({ fails: { open: [6, 'no model'] } });
  assert.throws(() => engine.open([], {}), (error) => error instanceof ModelError && error.message === 'no model');
  assert.deepEqual(calls.at(-1), ['options_free', 11]);
  const small = fakeModule({ fails: { open: [7, 'too small'], request: [9, 'no such field'] } });
  assert.throws(() => small.engine.open([], {}), MemoryError);
  assert.throws(() => small.engine.request(22, '/x', {}), RequestError);
});

test('events come with their texts, also after the memory has grown', () => {
  const { engine, calls } = fakeModule({ events: [[5], [0, 4, '{"a":"ü"}'], [0, 3, 'a note'], [0, 5, '']] });
  const generation = engine.request(22, '/v1/chat/completions', { messages: [] });
  assert.equal(generation, 33);
  assert.deepEqual(calls.at(-1), ['request', 22, '/v1/chat/completions', '{"messages":[]}']);
  const kinds = Array.from({ length: 5 }, () => engine.next(generation, 20));
  assert.deepEqual(kinds, [null, { kind: 'json', text: '{"a":"ü"}' }, { kind: 'note', text: 'a note' }, { kind: 'done', text: '' }, { kind: 'done', text: '' }]);
});

test('a request without a body is a GET', () => {
  const { engine, calls } = fakeModule();
  engine.request(22, '/props');
  assert.deepEqual(calls.at(-1), ['request', 22, '/props', 0]);
});

test('numbers may be larger than 32 bits', () => {
  const { engine } = fakeModule();
  assert.equal(engine.number(22, 'ram_used'), 5_000_000_000);
  assert.equal(engine.text(22, 'isa'), 'isa!');
  assert.equal(engine.version(), '0.1.0');
});
