// A file of a server in the browser's storage: its bytes as far as they are here, and a record beside them that says which
// those are, and of what version of the file. Knows no network. The one idea: bytes are flushed before the record that
// speaks of them, so that a tab that ends at any time leaves a record that is true.

import { AttaError, StorageError } from './errors.js';
import { BLOCK_BYTES, BlockMap } from './ranges.js';

const MAGIC = 'ATTAMAP1';
const MAX_RECORD = 16 << 20;

/** The name of the files of an address: letters and digits, different for different addresses. */
export function keyOf(address) {
  const hash = (seed) => {
    let value = BigInt(seed);
    for (const byte of new TextEncoder().encode(address)) value = ((value ^ BigInt(byte)) * 0x100000001b3n) & 0xffffffffffffffffn;
    return value.toString(16).padStart(16, '0');
  };
  return hash('0xcbf29ce484222325') + hash('0x84222325cbf29ce4');
}

/** 128 bits in hexadecimal digits that differ where versions of a file do. */
export const versionOf = (identity, nBytes) => keyOf(`${identity}\n${nBytes}`);

/** A record as bytes. */
export function encodeRecord({ identity, map }) {
  const json = new TextEncoder().encode(JSON.stringify({ identity, nBytes: map.nBytes, blockBytes: map.blockBytes }));
  const bytes = new Uint8Array(12 + json.length + map.bits.length);
  bytes.set(new TextEncoder().encode(MAGIC));
  new DataView(bytes.buffer).setUint32(8, json.length, true);
  bytes.set(json, 12);
  bytes.set(map.bits, 12 + json.length);
  return bytes;
}

/** The record of these bytes; null if they are none, such as those of a write that was cut. */
export function decodeRecord(bytes) {
  try {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (new TextDecoder().decode(bytes.slice(0, 8)) !== MAGIC) return null;
    const end = 12 + view.getUint32(8, true);
    if (end > bytes.length) return null;
    const { identity, nBytes, blockBytes } = JSON.parse(new TextDecoder().decode(bytes.slice(12, end)));
    if (typeof identity !== 'string' || blockBytes !== BLOCK_BYTES) return null;
    const map = BlockMap.fromBits(nBytes, bytes.slice(end), blockBytes);
    return map && { identity, map };
  } catch {
    return null;
  }
}

/** A cached file, open for one writer. */
export class CacheFile {
  /**
   * Opens the file of an address, whose version is `identity`; bytes of another version are dropped.
   * `store` is as in storage.js. Throws a StorageError `locked` if another tab writes it.
   */
  static async open(store, address, { identity, nBytes }) {
    const key = keyOf(address);
    const unlock = await store.lock(key);
    if (!unlock) throw new StorageError('Another tab is downloading this file; it can be used here when that is done.', 'locked');
    const file = new CacheFile(store, key, unlock, identity);
    try {
      await file.#open(nBytes);
    } catch (error) {
      file.close();
      throw storageError(error);
    }
    return file;
  }

  /** The record of an address, `{ identity, map }`; null if there is none. */
  static async find(store, address) {
    const name = `${keyOf(address)}.map`;
    if (!(await store.names()).includes(name)) return null;
    let handle = null;
    try {
      handle = await store.open(name);
      return readRecord(handle);
    } catch (error) {
      throw storageError(error);
    } finally {
      handle?.close();
    }
  }

  constructor(store, key, unlock, identity) {
    Object.assign(this, { store, key, unlock, identity, data: null, record: null, map: null });
  }

  async #open(nBytes) {
    this.data = await this.store.open(`${this.key}.data`);
    this.record = await this.store.open(`${this.key}.map`);
    const found = readRecord(this.record);
    const isSame = found?.identity === this.identity && found.map.nBytes === nBytes;
    this.map = isSame ? found.map : new BlockMap(nBytes);
    if (!isSame) this.record.truncate(0);
    // The browser may have evicted one file and kept the other.
    if (this.map.nSet > 0 && this.data.getSize() < lastByte(this.map)) this.map = new BlockMap(nBytes);
  }

  /** Writes whole blocks, and remembers them. */
  write(first, bytes) {
    const [start, end] = this.map.bytesOf(first, first + Math.ceil(bytes.length / this.map.blockBytes));
    if (bytes.length !== end - start) throw new RangeError(`${bytes.length} bytes are no whole blocks`);
    try {
      writeAll(this.data, bytes, start);
      this.data.flush();
      for (let i = first; i * this.map.blockBytes < end; i++) this.map.set(i);
    } catch (error) {
      throw storageError(error);
    }
  }

  /** Makes the record say what was written so far. */
  remember() {
    try {
      const bytes = encodeRecord(this);
      writeAll(this.record, bytes, 0);
      this.record.truncate(bytes.length);
      this.record.flush();
    } catch (error) {
      throw storageError(error);
    }
  }

  /** Makes the record say nothing, so that the next visit begins anew: the file was changed on its server. */
  forget() {
    this.record.truncate(0);
    this.record.flush();
  }

  /** Fills `buffer` with the bytes from `offset` on, which must be here. */
  read(offset, buffer) {
    let done = 0;
    while (done < buffer.length) {
      const n = this.data.read(buffer.subarray(done), { at: offset + done });
      if (!isCount(n, buffer.length - done)) throw new StorageError('The browser has removed the file from its storage.', 'evicted');
      done += n;
    }
  }

  close() {
    for (const handle of [this.data, this.record]) handle?.close();
    this.data = this.record = null;
    this.unlock?.();
    this.unlock = null;
  }
}

function readRecord(handle) {
  const size = handle.getSize();
  if (size < 12 || size > MAX_RECORD) return null;
  const bytes = new Uint8Array(size);
  handle.read(bytes, { at: 0 });
  return decodeRecord(bytes);
}

function lastByte(map) {
  let last = map.nBlocks - 1;
  while (last >= 0 && !map.has(last)) last -= 1;
  return map.bytesOf(last, last + 1)[1];
}

function writeAll(handle, bytes, at) {
  let done = 0;
  while (done < bytes.length) {
    const n = handle.write(bytes.subarray(done), { at: at + done });
    if (!isCount(n, bytes.length - done)) throw new StorageError('The browser gives no more storage.', 'quota');
    done += n;
  }
}

/** Whether so many bytes were read or written: Chromium gives the negative number of an error as a large one. */
const isCount = (n, atMost) => n > 0 && n <= atMost;

/** An error of the browser's storage as one of ours. */
export function storageError(error) {
  if (error instanceof AttaError) return error;
  const code = {
    QuotaExceededError: 'quota', ENOSPC: 'quota', EDQUOT: 'quota', NotFoundError: 'evicted', NoModificationAllowedError: 'locked',
  }[error?.code && typeof error.code === 'string' ? error.code : error?.name];
  const words = { quota: 'The browser gives no more storage', evicted: 'The browser has removed the file', locked: 'Another tab has the file' };
  return new StorageError(`${words[code] ?? 'The storage failed'}: ${error?.message ?? error}`, code ?? 'no_storage', { cause: error });
}
