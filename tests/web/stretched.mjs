// A GGUF file whose last layer lies beyond 4 GiB, made from a small one: sparse, so that it takes no more disk. Knows of GGUF
// only where its tensors' offsets are.

import { closeSync, openSync, readFileSync, writeSync } from 'node:fs';

const GAP = 4 * 2 ** 30;
/** Bytes of the types of metadata: u8, i8, u16, i16, u32, i32, f32, bool; 8 is a string, 9 an array; u64, i64, f64. */
const SIZES = [1, 1, 2, 2, 4, 4, 4, 1, null, null, 8, 8, 8];
const ALIGNMENT = 'general.alignment';

class Cursor {
  constructor(bytes) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.bytes = bytes;
    this.at = 0;
  }

  u32() {
    this.at += 4;
    return this.view.getUint32(this.at - 4, true);
  }

  u64() {
    this.at += 8;
    return Number(this.view.getBigUint64(this.at - 8, true));
  }

  string() {
    const n = this.u64();
    this.at += n;
    return new TextDecoder().decode(this.bytes.subarray(this.at - n, this.at));
  }

  skipValue(type) {
    if (type === 8) return void this.string();
    if (type !== 9) return void (this.at += SIZES[type]);
    const inner = this.u32();
    for (let n = this.u64(); n > 0; n--) this.skipValue(inner);
  }
}

/** The places of the tensors' offsets in a file, and where its data begin. */
function tensorsOf(bytes) {
  const cursor = new Cursor(bytes);
  cursor.at = 8;
  const [nTensors, nPairs] = [cursor.u64(), cursor.u64()];
  let alignment = 32;
  for (let i = 0; i < nPairs; i++) {
    const key = cursor.string();
    const type = cursor.u32();
    if (key === ALIGNMENT) alignment = cursor.view.getUint32(cursor.at, true);
    cursor.skipValue(type);
  }
  const tensors = Array.from({ length: nTensors }, () => {
    const name = cursor.string();
    for (let n = cursor.u32(); n > 0; n--) cursor.u64();
    cursor.u32();
    return { name, place: cursor.at, offset: cursor.u64() };
  });
  return { tensors, data: Math.ceil(cursor.at / alignment) * alignment };
}

/** Writes the stretched file; where its last layer begins. */
export function stretch(from, to) {
  const bytes = readFileSync(from);
  const { tensors, data } = tensorsOf(bytes);
  const layers = tensors.map(({ name }) => Number(/^blk\.(\d+)\./.exec(name)?.[1] ?? -1));
  const last = Math.max(...layers);
  const border = Math.min(...tensors.filter((_, i) => layers[i] === last).map(({ offset }) => offset));
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (const { place, offset } of tensors) if (offset >= border) view.setBigUint64(place, BigInt(offset + GAP), true);
  const file = openSync(to, 'w');
  writeSync(file, bytes, 0, data + border, 0);
  writeSync(file, bytes, data + border, bytes.length - data - border, data + border + GAP);
  closeSync(file);
  return data + border + GAP;
}
