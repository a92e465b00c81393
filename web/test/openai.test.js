import assert from 'node:assert/strict';
import { test } from 'node:test';

import { AbortError, AttaError, errorOfStatus, fromWire, RequestError, SourceError, StorageError, toWire } from '../errors.js';
import { interfaces } from '../openai.js';
import { reasonOf } from '../reasons.js';

/** A model that answers with these texts. */
function answering(...texts) {
  const sent = [];
  let isOver = false;
  async function* send(path, body, { signal } = {}) {
    sent.push({ path, body });
    try {
      for (const text of texts) {
        if (signal?.aborted) throw new AbortError();
        if (text instanceof Error) throw text;
        yield text;
      }
    } finally {
      isOver = true;
    }
  }
  return { ...interfaces(send), sent, isOver: () => isOver };
}

const chunk = (content) => JSON.stringify({ object: 'chat.completion.chunk', choices: [{ index: 0, delta: { content } }] });
const hello = { messages: [{ role: 'user', content: 'Hello' }] };

test('a completion is the object that the engine wrote', async () => {
  const model = answering('{"object":"chat.completion","choices":[]}');
  assert.equal((await model.chat.completions.create(hello)).object, 'chat.completion');
  assert.deepEqual(model.sent, [{ path: '/v1/chat/completions', body: hello }]);
});

test('a stream gives its chunks in order', async () => {
  const model = answering(chunk('He'), chunk('llo'));
  let text = '';
  for await (const part of await model.chat.completions.create({ ...hello, stream: true })) text += part.choices[0].delta.content;
  assert.equal(text, 'Hello');
});

test('a reader that leaves a stream cancels it', async () => {
  const model = answering(chunk('a'), chunk('b'), chunk('c'));
  for await (const part of await model.completions.create({ prompt: 'x', stream: true })) {
    assert.equal(part.choices[0].delta.content, 'a');
    break;
  }
  assert.ok(model.isOver());
});

test('the stream’s own controller ends it quietly, a signal of the caller by an error', async () => {
  const model = answering(chunk('a'), chunk('b'));
  const own = await model.chat.completions.create({ ...hello, stream: true });
  let n = 0;
  for await (const _ of own) {
    n += 1;
    own.controller.abort();
  }
  assert.equal(n, 1);
  const controller = new AbortController();
  const theirs = await model.chat.completions.create({ ...hello, stream: true }, { signal: controller.signal });
  await assert.rejects(async () => { for await (const _ of theirs) controller.abort(); }, AbortError);
});

test('a stream is read once', async () => {
  const stream = await answering(chunk('a')).chat.completions.create({ ...hello, stream: true });
  for await (const _ of stream);
  await assert.rejects(async () => { for await (const _ of stream); }, (error) => error instanceof AttaError && error.code === 'used');
});

test('a stream is lines of JSON for those who want bytes', async () => {
  const stream = await answering(chunk('a'), chunk('b')).chat.completions.create({ ...hello, stream: true });
  const text = await new Response(stream.toReadableStream()).text();
  assert.deepEqual(text.trim().split('\n').map((line) => JSON.parse(line).choices[0].delta.content), ['a', 'b']);
});

test('an error of the engine reaches the caller', async () => {
  const refused = new RequestError('no such field', 'request');
  await assert.rejects(answering(refused).chat.completions.create(hello), refused);
  await assert.rejects(answering().chat.completions.create(hello), AbortError);
  await assert.rejects(answering('oops').embeddings.create({ input: 'x' }), { code: 'failed' });
});

test('embeddings have no stream, and tokens have their own fields', async () => {
  await assert.rejects(answering().embeddings.create({ input: 'x', stream: true }), TypeError);
  const model = answering('{"tokens":[1,2],"content":"ab"}');
  assert.deepEqual(await model.tokenize('ab', { bos: true }), [1, 2]);
  assert.deepEqual(model.sent[0], { path: '/tokenize', body: { content: 'ab', parse_special: true, add_special: true } });
  assert.equal(await model.detokenize(new Uint32Array([1, 2])), 'ab');
  assert.deepEqual(model.sent[1].body, { tokens: [1, 2] });
});

test('an error is of the same class and code on the other side of a worker', () => {
  for (const error of [new StorageError('full', 'quota'), new AbortError('stop'), errorOfStatus(8, 'too long')]) {
    const again = fromWire(structuredClone(toWire(error)));
    assert.ok(again instanceof error.constructor);
    assert.deepEqual([again.code, again.message, again.name], [error.code, error.message, error.name]);
  }
  assert.equal(fromWire(toWire(new TypeError('x'))).code, 'failed');
});

test('each error of a read has its number for the module', () => {
  const numbers = [new AbortError(), new SourceError('', 'network'), new SourceError('', 'changed'), new SourceError('', 'truncated'), new StorageError('', 'quota'), new StorageError('', 'evicted'), new TypeError()];
  assert.deepEqual(numbers.map(reasonOf), [1, 2, 3, 4, 5, 6, 8]);
});
