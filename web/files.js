// The files of a model as the module reads them: any bytes at any time, from the storage, the network or the user's disk.
//
// Knows no module and no message. The one idea: a read of bytes that are not here waits for their blocks, which are fetched
// first; meanwhile the rest of the file is downloaded behind it. The engine asks in the order of its first pass, so that
// this is the order of the download, without knowing what a layer is.

import { CacheFile, versionOf } from './cachefile.js';
import { AbortError, AttaError, SourceError, StorageError } from './errors.js';
import { chunksOf, RemoteFile } from './fetcher.js';
import { isNode } from './platform.js';
import { BLOCK_BYTES, nextRun } from './ranges.js';

/** Requests at a time of one file. */
const N_FETCHES = 4;
/** Bytes between two records of what is here: a tab that ends in between fetches them again. */
const REMEMBER_BYTES = 32 << 20;
/**
 * Reads of at most so many bytes do not wait for their blocks, but are fetched by themselves. An engine that opens a model
 * reads small tensors of every layer, one after the other: a block for each would take as long as the whole download.
 */
const SMALL_BYTES = 32 << 10;

/**
 * Opens a file. `how` is `{ store, cache, fetch, signal, wait, progress, full }`; without a store, or with the cache `'none'`,
 * every read is a request. `full(error)` says whether the rest of a file may be read so when the storage is full. All have `name`, `nBytes`, `version`, `isArriving`, `read(offset, buffer)` and `close()`; those
 * that need not wait have `readNow(offset, buffer)`.
 */
export async function openFile(shard, how) {
  if (shard.blob) return new BlobFile(shard);
  if (shard.url.startsWith('file:') && isNode) return openDisk(shard);
  const remote = new RemoteFile(shard.url, how);
  const isKept = how.cache !== 'none' && how.store;
  if (isKept && (await isStillRight(shard, remote, how.store))) return CachedFile.open(shard, remote, {}, how);
  const start = await remote.open(BLOCK_BYTES);
  return isKept ? CachedFile.open(shard, remote, start, how) : uncached(shard, remote, start);
}

/** Whether the storage has bytes of the version that the server has, or all bytes of one while there is no network. */
async function isStillRight({ url }, remote, store) {
  const found = await CacheFile.find(store, url);
  if (!found || found.map.nSet === 0) return false;
  try {
    return await remote.isStill(found.identity, found.map.nBytes);
  } catch (error) {
    if (error.code !== 'network' || !found.map.isComplete) throw error;
    remote.take(found.identity, found.map.nBytes);
    return true;
  }
}

async function uncached(shard, remote, { rest }) {
  if (!remote.hasRanges) {
    await rest.body?.cancel();
    throw new SourceError(`${shard.url}: the server sends no parts of the file, so that it can be used only with a cache.`, 'http');
  }
  return new PassingFile(shard, remote);
}

/** A file that the user has given. */
class BlobFile {
  constructor({ name, blob }) {
    Object.assign(this, { name, blob, nBytes: blob.size, isArriving: false });
    this.version = versionOf(`${name} ${blob.lastModified ?? ''}`, blob.size);
  }

  async read(offset, buffer) {
    buffer.set(new Uint8Array(await this.#slice(offset, buffer).arrayBuffer().catch((error) => { throw this.#gone(error); })));
  }

  /** In a worker of a browser. */
  readNow(offset, buffer) {
    if (typeof FileReaderSync !== 'function') throw new SourceError(`${this.name}: only a worker of a browser reads a File at once.`, 'file');
    let bytes;
    try {
      bytes = new FileReaderSync().readAsArrayBuffer(this.#slice(offset, buffer));
    } catch (error) {
      throw this.#gone(error);
    }
    buffer.set(new Uint8Array(bytes));
  }

  #slice(offset, buffer) {
    return this.blob.slice(offset, offset + buffer.length);
  }

  #gone(error) {
    return new SourceError(`${this.name} cannot be read; it may have been changed or moved: ${error.message}`, 'changed', { cause: error });
  }

  close() {}
}

/** A file of Node's disk. */
async function openDisk({ name, url }) {
  const fs = await import('node:fs');
  let fd;
  try {
    fd = fs.openSync(new URL(url), 'r');
  } catch (error) {
    throw new SourceError(`${name}: ${error.message}`, error.code === 'ENOENT' ? 'not_found' : 'file', { cause: error });
  }
  const { size, mtimeMs } = fs.fstatSync(fd);
  const readNow = (offset, buffer) => {
    let done = 0;
    while (done < buffer.length) {
      const n = fs.readSync(fd, buffer, done, buffer.length - done, offset + done);
      if (n === 0) throw new SourceError(`${name} became shorter.`, 'truncated');
      done += n;
    }
  };
  return {
    name, nBytes: size, version: versionOf(`${url} ${mtimeMs}`, size), isArriving: false, readNow,
    read: async (offset, buffer) => readNow(offset, buffer),
    close: () => fs.closeSync(fd),
  };
}

/** A file of a server that is not kept: weights are read once, and stay in the engine's memory. */
class PassingFile {
  constructor({ name }, remote) {
    Object.assign(this, { name, remote, nBytes: remote.nBytes, isArriving: true });
    this.version = remote.identity ? versionOf(remote.identity, remote.nBytes) : null;
  }

  read(offset, buffer) {
    return readThrough(this.remote, offset, buffer);
  }

  close() {}
}

/** Fills `buffer` from the server. */
async function readThrough(remote, offset, buffer) {
  for (let done = 0; done < buffer.length; done += BLOCK_BYTES * 8) {
    const n = Math.min(BLOCK_BYTES * 8, buffer.length - done);
    buffer.set(await remote.read(offset + done, n), done);
  }
}

/** A file of a server that is kept in the storage as it comes. */
export class CachedFile {
  static async open(shard, remote, start, how) {
    await makeRoom(how.store, remote.nBytes, shard.name);
    // Without a version nothing says that bytes of an earlier visit are still right.
    const identity = remote.identity || `visit ${Date.now()} ${Math.random()}`;
    const cache = await CacheFile.open(how.store, shard.url, { identity, nBytes: remote.nBytes });
    const file = new CachedFile(shard, remote, cache, how);
    try {
      file.#begin(start);
    } catch (error) {
      file.close();
      throw error;
    }
    return file;
  }

  constructor(shard, remote, cache, { progress = () => {}, full = () => false }) {
    Object.assign(this, { name: shard.name, nBytes: remote.nBytes, remote, cache, progress, full });
    this.version = versionOf(cache.identity, remote.nBytes);
    this.nCached = cache.map.nBytesSet;
    this.nFetched = 0;
    this.unremembered = 0;
    this.busy = new Set();
    this.nFetching = 0;
    this.cursor = 0;
    /** Reads that wait: `{ first, end, resolve, reject }`. */
    this.waits = [];
    this.error = null;
    /** Whether the storage has no room for the rest, which every read fetches by itself. */
    this.isFull = false;
    this.done = new Promise((resolve) => { this.whenDone = resolve; });
    this.failed = new Promise((_, reject) => { this.whenFailed = reject; });
    this.failed.catch(() => {});
  }

  get isArriving() {
    return !this.cache.map.isComplete;
  }

  #begin({ first, rest }) {
    const { map } = this.cache;
    if (rest && !map.isComplete) return void this.#takeWhole(rest);
    rest?.body?.cancel();
    if (first && map.nBlocks > 0 && !map.has(0)) this.#keep(0, first);
    this.#fetchMore();
  }

  /** Fills `buffer`, and waits for its blocks if they are not here. */
  async read(offset, buffer) {
    const [first, end] = this.cache.map.blocksOf(offset, buffer.length);
    const isHere = () => this.cache.map.hasAll(first, end);
    const isSmall = buffer.length <= SMALL_BYTES && this.remote.hasRanges && !this.error;
    if (!isHere() && !isSmall) await this.#arrival(first, end);
    if (isHere()) this.readNow(offset, buffer);
    else await this.#passThrough(offset, buffer);
  }

  /** Fills `buffer` from the server, and keeps nothing. */
  async #passThrough(offset, buffer) {
    if (this.error) throw this.error;
    try {
      await Promise.race([readThrough(this.remote, offset, buffer), this.failed]);
      this.nFetched += buffer.length;
    } catch (error) {
      this.#fail(error);
      throw this.error;
    }
  }

  /** Fills `buffer` from blocks that are here. */
  readNow(offset, buffer) {
    if (this.cache.data === null) throw new AbortError('The model was disposed of.');
    this.cache.read(offset, buffer);
  }

  /** Waits until the whole file is here. */
  async complete() {
    await this.#arrival(0, this.cache.map.nBlocks);
  }

  #arrival(first, end) {
    if (this.isFull || this.cache.map.hasAll(first, end)) return Promise.resolve();
    if (this.error) return Promise.reject(this.error);
    return new Promise((resolve, reject) => {
      this.waits.push({ first, end, resolve, reject });
      this.cursor = end;
      this.#fetchMore();
    });
  }

  /** Keeps as many requests in flight as may be. */
  #fetchMore() {
    while (this.nFetching < N_FETCHES && !this.error && !this.isFull && this.remote.hasRanges) {
      const waits = this.waits.map(({ first, end }) => [first, end]);
      const run = nextRun(this.cache.map, (i) => this.busy.has(i), waits, this.cursor);
      if (!run) return;
      this.#fetchRun(run);
    }
  }

  async #fetchRun([first, end]) {
    for (let i = first; i < end; i++) this.busy.add(i);
    this.nFetching += 1;
    const [start, stop] = this.cache.map.bytesOf(first, end);
    try {
      this.#keep(first, await this.remote.read(start, stop - start));
    } catch (error) {
      this.#fail(error);
    }
    this.nFetching -= 1;
    for (let i = first; i < end; i++) this.busy.delete(i);
    if (this.nFetching === 0 && this.cache.map.isComplete) this.whenDone();
    this.#fetchMore();
  }

  /** Takes a body that comes in order. */
  async #takeWhole(response) {
    let block = new Uint8Array(Math.min(BLOCK_BYTES, this.nBytes));
    let [i, n] = [0, 0];
    try {
      for await (let chunk of chunksOf(response)) {
        while (chunk.length > 0) {
          if (n === block.length) throw new SourceError(`${this.name}: more bytes came than the server said.`, 'http');
          const taken = chunk.subarray(0, block.length - n);
          block.set(taken, n);
          n += taken.length;
          chunk = chunk.subarray(taken.length);
          if (n < block.length) continue;
          this.#keep(i, block);
          i += 1;
          block = new Uint8Array(Math.min(BLOCK_BYTES, this.nBytes - i * BLOCK_BYTES));
          n = 0;
        }
      }
      if (!this.cache.map.isComplete) throw new SourceError(`${this.name}: the server ends at byte ${i * BLOCK_BYTES + n} of ${this.nBytes}.`, 'truncated');
      this.whenDone();
    } catch (error) {
      this.#fail(error);
    }
  }

  #keep(first, bytes) {
    if (this.cache.data === null) return;
    this.nFetched += bytes.length;
    if (!this.isFull) this.#store(first, bytes);
    this.progress(this);
    const { map } = this.cache;
    const ready = this.waits.filter(({ first: from, end }) => this.isFull || map.hasAll(from, end));
    this.waits = this.waits.filter((wait) => !ready.includes(wait));
    ready.forEach(({ resolve }) => resolve());
  }

  #store(first, bytes) {
    try {
      this.cache.write(first, bytes);
      this.unremembered += bytes.length;
      if (this.unremembered >= REMEMBER_BYTES || this.cache.map.isComplete) this.#remember();
    } catch (error) {
      this.isFull = error.code === 'quota' && this.remote.hasRanges && this.full(error);
      if (!this.isFull) throw error;
      // There is no room for a record either.
      this.unremembered = 0;
    }
  }

  #remember() {
    this.cache.remember();
    this.unremembered = 0;
  }

  #fail(error) {
    this.error ??= error instanceof AttaError ? error : new SourceError(`${this.name}: ${error.message}`, 'network', { cause: error });
    if (this.error.code === 'changed' && this.cache.data !== null) this.cache.forget();
    this.whenFailed(this.error);
    this.waits.splice(0).forEach(({ reject }) => reject(this.error));
  }

  close() {
    const isRight = this.error?.code !== 'changed';
    this.#fail(new AbortError('The model was disposed of.'));
    if (isRight && this.cache.data !== null && this.unremembered > 0) this.#remember();
    this.cache.close();
  }
}

/** Refuses a file that the browser has no room for, before its first byte. */
async function makeRoom(store, nBytes, name) {
  const { usage = 0, quota = Infinity } = await store.estimate();
  if (nBytes > quota) {
    const mib = (n) => `${Math.round(n / 2 ** 20)} MiB`;
    throw new StorageError(`${name} has ${mib(nBytes)}, and the browser gives this page ${mib(quota)}; ${mib(usage)} are used.`, 'quota');
  }
}

