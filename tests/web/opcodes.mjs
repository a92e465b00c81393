// Finds relaxed instructions in modules whose results differ from machine to machine: `opcodes.mjs MODULE.wasm …`. Of all of
// WebAssembly's relaxed SIMD only the dot product of bytes is used, with operands for which every machine gives the same
// integers (crates/kernels/src/isa/wasm_relaxed.rs). Knows the encoding of instructions, and no names of functions.

import { readFile } from 'node:fs/promises';
import { argv, exit } from 'node:process';
import { pathToFileURL } from 'node:url';

const CODE_SECTION = 10;
/** i32x4.relaxed_dot_i8x16_i7x16_add_s. */
const ALLOWED = 0x113;
const RELAXED = [0x100, 0x113];
const NAMES = {
  0x100: 'relaxed_swizzle', 0x101: 'relaxed_trunc', 0x102: 'relaxed_trunc', 0x103: 'relaxed_trunc', 0x104: 'relaxed_trunc',
  0x105: 'relaxed_madd', 0x106: 'relaxed_nmadd', 0x107: 'relaxed_madd', 0x108: 'relaxed_nmadd', 0x109: 'relaxed_laneselect',
  0x10a: 'relaxed_laneselect', 0x10b: 'relaxed_laneselect', 0x10c: 'relaxed_laneselect', 0x10d: 'relaxed_min', 0x10e: 'relaxed_max',
  0x10f: 'relaxed_min', 0x110: 'relaxed_max', 0x111: 'relaxed_q15mulr', 0x112: 'relaxed_dot_i8x16_i7x16_s',
};

class Reader {
  constructor(bytes, at = 0, end = bytes.length) {
    Object.assign(this, { bytes, at, end });
  }

  byte() {
    if (this.at >= this.end) throw new Error(`the module ends at byte ${this.at}`);
    return this.bytes[this.at++];
  }

  skip(n) {
    this.at += n;
  }

  /** An unsigned LEB128 of at most 32 bits. */
  u32() {
    let value = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      const byte = this.byte();
      value += (byte & 127) * 2 ** shift;
      if (byte < 128) return value;
    }
    throw new Error(`byte ${this.at}: a number is too long`);
  }

  /** Any LEB128, whose value means nothing here. */
  leb() {
    while (this.byte() >= 128);
  }

  memarg() {
    // Bit 6 of the alignment says that an index of a memory follows.
    if (this.u32() & 64) this.leb();
    this.leb();
  }

  blockType() {
    this.leb();
  }
}

/** How many instructions of each relaxed opcode a module has. */
export function relaxedOpcodes(bytes) {
  const counts = new Map();
  const reader = new Reader(bytes, 8);
  while (reader.at < bytes.length) {
    const id = reader.byte();
    const size = reader.u32();
    const end = reader.at + size;
    if (id === CODE_SECTION) code(new Reader(bytes, reader.at, end), counts);
    reader.at = end;
  }
  return counts;
}

function code(reader, counts) {
  for (let n = reader.u32(); n > 0; n--) {
    const size = reader.u32();
    const body = new Reader(reader.bytes, reader.at, reader.at + size);
    for (let locals = body.u32(); locals > 0; locals--) {
      body.leb();
      body.byte();
    }
    while (body.at < body.end) instruction(body, counts);
    reader.at = body.end;
  }
}

function instruction(reader, counts) {
  const opcode = reader.byte();
  if (opcode >= 0x28 && opcode <= 0x3e) return reader.memarg();
  switch (opcode) {
    case 0x02: case 0x03: case 0x04: case 0x06: return reader.blockType();
    case 0x0e: {
      for (let n = reader.u32() + 1; n > 0; n--) reader.leb();
      return;
    }
    case 0x11: case 0x13:
      reader.leb();
      return reader.leb();
    case 0x1c: {
      for (let n = reader.u32(); n > 0; n--) reader.byte();
      return;
    }
    case 0x43: return reader.skip(4);
    case 0x44: return reader.skip(8);
    case 0xfc: return bulk(reader);
    case 0xfd: return vector(reader, counts);
    case 0xfe: return atomic(reader);
  }
  if (HAS_INDEX.has(opcode)) return reader.leb();
  if (!HAS_NOTHING(opcode)) throw new Error(`byte ${reader.at - 1}: opcode ${opcode.toString(16)} is not known here`);
}

/** Branches, calls, variables, tables, sizes of memories, constants, references. */
const HAS_INDEX = new Set([
  0x07, 0x08, 0x09, 0x0c, 0x0d, 0x10, 0x12, 0x18, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x3f, 0x40, 0x41, 0x42, 0xd0, 0xd2,
]);
const HAS_NOTHING = (opcode) =>
  [0x00, 0x01, 0x05, 0x0a, 0x0b, 0x0f, 0x19, 0x1a, 0x1b, 0xd1].includes(opcode) || (opcode >= 0x45 && opcode <= 0xc4);

function bulk(reader) {
  const opcode = reader.u32();
  if (opcode <= 7) return;
  const nIndices = { 8: 2, 9: 1, 10: 2, 11: 1, 12: 2, 13: 1, 14: 2, 15: 1, 16: 1, 17: 1 }[opcode];
  if (nIndices === undefined) throw new Error(`byte ${reader.at}: opcode fc ${opcode} is not known here`);
  for (let i = 0; i < nIndices; i++) reader.leb();
}

function vector(reader, counts) {
  const opcode = reader.u32();
  if (opcode >= RELAXED[0] && opcode <= RELAXED[1]) counts.set(opcode, (counts.get(opcode) ?? 0) + 1);
  if (opcode <= 11 || opcode === 0x5c || opcode === 0x5d) return reader.memarg();
  if (opcode >= 0x54 && opcode <= 0x5b) {
    reader.memarg();
    return reader.skip(1);
  }
  if (opcode === 12 || opcode === 13) return reader.skip(16);
  if (opcode >= 21 && opcode <= 34) return reader.skip(1);
}

function atomic(reader) {
  if (reader.u32() === 3) return reader.skip(1);
  reader.memarg();
}

/** Words about a module that must not be shipped; null if it may. */
export function unstable(bytes) {
  const bad = [...relaxedOpcodes(bytes)].filter(([opcode]) => opcode !== ALLOWED);
  if (bad.length === 0) return null;
  return bad.map(([opcode, n]) => `${n} × ${NAMES[opcode]}`).join(', ');
}

if (import.meta.url === pathToFileURL(argv[1] ?? '').href) {
  let isGood = argv.length > 2;
  for (const path of argv.slice(2)) {
    const bytes = await readFile(path);
    const found = unstable(bytes);
    const nDots = relaxedOpcodes(bytes).get(ALLOWED) ?? 0;
    console.log(`${path}: ${found ? `differs from machine to machine: ${found}` : `${nDots} relaxed dot products, nothing else that is relaxed`}`);
    isGood &&= !found;
  }
  exit(isGood ? 0 : 1);
}
