// Where a model's files are: from what a program gives to `load` to a list of all files in order. Fetches nothing.

import { SourceError } from './errors.js';
import { isNode } from './platform.js';

const HUB = 'https://huggingface.co';
const SPLIT = /-(\d{5})-of-(\d{5})\.(gguf|qsf)$/i;
/** The most files of a model, as the module has it. */
const MAX_SHARDS = 4096;

/**
 * The files of a model: `{ name, url }` or `{ name, blob }` each. A split model is named by any of its files, and given
 * as files by all of them.
 */
export function shardsOf(source, base = globalThis.location?.href) {
  if (typeof source === 'string' || source instanceof URL) return urlShards(new URL(withScheme(source, base), base));
  if (isBlob(source)) return [{ name: nameOf(source), blob: source }];
  if (Array.isArray(source) || isFileList(source)) return blobShards([...source]);
  if (typeof source?.repo === 'string' && typeof source.file === 'string') return urlShards(hubUrl(source));
  throw new TypeError('a model is an address, a File, a list of Files, or { repo, file }');
}

const isBlob = (value) => typeof Blob === 'function' && value instanceof Blob;
const isFileList = (value) => typeof FileList === 'function' && value instanceof FileList;
const nameOf = (blob) => blob.name ?? 'model.gguf';

/** A path of Node as an address. */
function withScheme(source, base) {
  const text = String(source);
  if (!isNode || base || /^[a-z][a-z0-9+.-]+:/i.test(text)) return text;
  return new URL(text.split('/').map(encodeURIComponent).join('/'), `file://${process.cwd()}/`).href;
}

function hubUrl({ repo, file, revision = 'main', endpoint = HUB }) {
  const escaped = (path) => path.split('/').map(encodeURIComponent).join('/');
  return new URL(`${escaped(repo)}/resolve/${encodeURIComponent(revision)}/${escaped(file)}`, `${endpoint.replace(/\/$/, '')}/`);
}

function urlShards(url) {
  const name = decodeURIComponent(url.pathname.split('/').at(-1)) || url.host;
  const [, , count, kind] = SPLIT.exec(url.pathname) ?? [];
  if (!count) return [{ name, url: url.href }];
  return numbers(count).map((i) => {
    const tail = `-${i}-of-${count}.${kind}`;
    const shard = new URL(url);
    shard.pathname = url.pathname.replace(SPLIT, tail);
    return { name: name.replace(SPLIT, tail), url: shard.href };
  });
}

function numbers(count) {
  const n = Number(count);
  if (n < 1 || n > MAX_SHARDS) throw new SourceError(`A model of ${n} files is not read; at most ${MAX_SHARDS}.`, 'file');
  return Array.from({ length: n }, (_, i) => String(i + 1).padStart(5, '0'));
}

function blobShards(blobs) {
  if (blobs.length === 0 || !blobs.every(isBlob)) throw new TypeError('a list of at least one File is expected');
  const first = SPLIT.exec(nameOf(blobs[0]));
  if (!first && blobs.length === 1) return [{ name: nameOf(blobs[0]), blob: blobs[0] }];
  const at = (name) => (first ? numbers(first[2]).findIndex((i) => name.replace(SPLIT, '') === nameOf(blobs[0]).replace(SPLIT, '') && SPLIT.exec(name)?.[1] === i) : -1);
  const shards = [];
  for (const blob of blobs) {
    const i = at(nameOf(blob));
    if (i < 0 || shards[i]) throw new SourceError(`${nameOf(blob)} is not one of the files of ${nameOf(blobs[0])}.`, 'file');
    shards[i] = { name: nameOf(blob), blob };
  }
  const n = Number(first[2]);
  if (blobs.length !== n) throw new SourceError(`${blobs.length} of the ${n} files of ${nameOf(blobs[0])} are given.`, 'file');
  return shards;
}
