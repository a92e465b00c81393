// Which blocks of a file are here, and which to fetch next. Arithmetic alone: no file, no network.

/** Bytes of a block: the unit that is fetched, written and remembered. */
export const BLOCK_BYTES = 1 << 20;
/** The most blocks that one request fetches: more of them cost no time, and fewer let urgent ones pass. */
export const MAX_RUN = 8;

/** A set of blocks of a file of `nBytes`; the last one may be short. */
export class BlockMap {
  constructor(nBytes, blockBytes = BLOCK_BYTES) {
    if (!Number.isSafeInteger(nBytes) || nBytes < 0) throw new RangeError(`a file of ${nBytes} bytes`);
    this.nBytes = nBytes;
    this.blockBytes = blockBytes;
    this.nBlocks = Math.ceil(nBytes / blockBytes);
    this.bits = new Uint8Array(Math.ceil(this.nBlocks / 8));
    this.nSet = 0;
  }

  /** The set that `bits` has, as another one's `bits` were; null if there are too few or too many of them. */
  static fromBits(nBytes, bits, blockBytes = BLOCK_BYTES) {
    const map = new BlockMap(nBytes, blockBytes);
    if (bits.length !== map.bits.length) return null;
    for (let i = 0; i < map.nBlocks; i++) if (bits[i >> 3] & (1 << (i & 7))) map.set(i);
    return map;
  }

  has(i) {
    return (this.bits[i >> 3] & (1 << (i & 7))) !== 0;
  }

  set(i) {
    if (this.has(i)) return;
    this.bits[i >> 3] |= 1 << (i & 7);
    this.nSet += 1;
  }

  get isComplete() {
    return this.nSet === this.nBlocks;
  }

  /** The blocks of some bytes: the first, and the one behind the last. */
  blocksOf(offset, nBytes) {
    if (nBytes === 0) return [0, 0];
    if (offset < 0 || offset + nBytes > this.nBytes) throw new RangeError(`bytes ${offset}+${nBytes} of ${this.nBytes}`);
    return [Math.floor(offset / this.blockBytes), Math.floor((offset + nBytes - 1) / this.blockBytes) + 1];
  }

  /** Where blocks lie in the file: the first byte, and the one behind the last. */
  bytesOf(first, end) {
    return [first * this.blockBytes, Math.min(end * this.blockBytes, this.nBytes)];
  }

  hasAll(first, end) {
    for (let i = first; i < end; i++) if (!this.has(i)) return false;
    return true;
  }

  /** Bytes of the blocks that are set. */
  get nBytesSet() {
    const lastIsShort = this.nBlocks > 0 && this.has(this.nBlocks - 1);
    const short = lastIsShort ? this.nBlocks * this.blockBytes - this.nBytes : 0;
    return this.nSet * this.blockBytes - short;
  }
}

/**
 * The next blocks to fetch, `[first, end]`; null if there are none. Those that are waited for come first, in the order of
 * the waits; then the blocks behind `cursor`, and at last those before it. `isBusy` says which are being fetched.
 */
export function nextRun(map, isBusy, waits, cursor) {
  const isFree = (i) => !map.has(i) && !isBusy(i);
  for (const [first, end] of waits) {
    for (let i = first; i < end; i++) if (isFree(i)) return runFrom(map, isFree, i);
  }
  for (let n = 0; n < map.nBlocks; n++) {
    const i = (cursor + n) % map.nBlocks;
    if (isFree(i)) return runFrom(map, isFree, i);
  }
  return null;
}

function runFrom(map, isFree, first) {
  let end = first + 1;
  while (end < map.nBlocks && end - first < MAX_RUN && isFree(end)) end += 1;
  return [first, end];
}
