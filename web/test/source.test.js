import assert from 'node:assert/strict';
import { test } from 'node:test';

import { shardsOf } from '../source.js';

const BASE = 'https://page.example/app/';

test('an address may be relative to the page', () => {
  assert.deepEqual(shardsOf('m/a.gguf', BASE), [{ name: 'a.gguf', url: 'https://page.example/app/m/a.gguf' }]);
});

test('any file of a split model names all of them', () => {
  const shards = shardsOf('https://x.org/q-00002-of-00003.gguf?download=true', BASE);
  assert.deepEqual(shards.map(({ name }) => name), ['q-00001-of-00003.gguf', 'q-00002-of-00003.gguf', 'q-00003-of-00003.gguf']);
  assert.equal(shards[2].url, 'https://x.org/q-00003-of-00003.gguf?download=true');
  assert.throws(() => shardsOf('https://x.org/q-00001-of-99999.gguf'), { code: 'file' });
});

test('a repository and a file are an address of Hugging Face', () => {
  const [{ url }] = shardsOf({ repo: 'org/repo', file: 'q4/a b.gguf' });
  assert.equal(url, 'https://huggingface.co/org/repo/resolve/main/q4/a%20b.gguf');
  const [mirror] = shardsOf({ repo: 'o/r', file: 'a.gguf', revision: 'v1', endpoint: 'https://hub.example/' });
  assert.equal(mirror.url, 'https://hub.example/o/r/resolve/v1/a.gguf');
});

test('files are put in order, and all of them must be there', () => {
  const file = (name) => new File(['x'], name);
  const names = shardsOf([file('m-00002-of-00002.gguf'), file('m-00001-of-00002.gguf')]).map(({ name }) => name);
  assert.deepEqual(names, ['m-00001-of-00002.gguf', 'm-00002-of-00002.gguf']);
  assert.throws(() => shardsOf([file('m-00002-of-00002.gguf')]), /1 of the 2 files/);
  assert.throws(() => shardsOf([file('m-00001-of-00002.gguf'), file('n-00002-of-00002.gguf')]), { code: 'file' });
  assert.throws(() => shardsOf([file('a.gguf'), file('b.gguf')]), { code: 'file' });
  assert.equal(shardsOf(file('a.gguf'))[0].name, 'a.gguf');
});

test('what is no model is a type error', () => {
  for (const wrong of [undefined, 5, {}, { repo: 'a' }, []]) assert.throws(() => shardsOf(wrong, BASE), TypeError);
});

test('a path of Node is a file', () => {
  assert.match(shardsOf('m/a b.gguf')[0].url, /^file:\/\/.*\/m\/a%20b\.gguf$/);
});
