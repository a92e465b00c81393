#!/usr/bin/env python3
"""Goldens of the scalar codecs: what gguf-py (or, for types that it does not decode, ggml) makes of 1,000 random
blocks of each type.

Writes tests/golden/codec/types.txt, the name, id, weights and bytes per block of every type that gguf-py knows, and
tests/golden/codec/<TYPE>.txt for each that we decode. The blocks are not stored: both sides make them from a splitmix64 stream, seeded
with the type's id. Stored are a digest of all outputs, so that every bit is compared, and the first outputs of the
first two blocks, so that a failure can be read. With --dump DIR the inputs and outputs are written in full, for a
comparison by hand. Needs: pip install gguf==0.19.0 numpy.
"""

import argparse
import functools
import pathlib

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

N_BLOCKS = 1000
N_SHOWN = 8
MASK = (1 << 64) - 1
# gguf-py has Q8_1, which no file holds, with two f32 as it once was; in ggml it is two f16 and 32 bytes.
STALE = ["Q8_1"]

# Byte offsets of the f16 numbers in a block. Their exponents are kept below 31, so that they are finite.
F16_AT = {
    "F16": [0], "Q1_0": [0], "Q2_0": [0], "Q4_0": [0], "Q5_0": [0], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "Q4_1": [0, 2], "Q5_1": [0, 2], "IQ4_NL": [0], "IQ4_XS": [0], "IQ1_S": [0],
    "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "TQ1_0": [52], "TQ2_0": [64],
}
# The byte at the end of a float and its exponent bits; where all are set, one is cleared. IQ1_M has a nibble of d there.
TOP_BYTE = {"F32": (3, 0x7F), "BF16": (1, 0x7F), "IQ1_M": (55, 0x70)}
DECODED = [
    "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ1_S", "IQ1_M",
    "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4", "NVFP4", "Q1_0", "Q2_0",
]


def q1_0(blocks: np.ndarray) -> np.ndarray:
    """d where a bit is set, else -d: dequantize_row_q1_0 of ggml-quants.c, llama.cpp 01243c58."""
    d = blocks[:, :2].copy().view("<f2").astype("<f4")
    bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little")
    return np.where(bits == 1, d, -d)


def q2_0(blocks: np.ndarray) -> np.ndarray:
    """(code - 1)*d, four codes in a byte, lowest bits first: dequantize_row_q2_0 of the same file."""
    d = blocks[:, :2].copy().view("<f2").astype("<f4")
    codes = (blocks[:, 2:, None] >> np.array([0, 2, 4, 6], dtype=np.uint8)) & 3
    return (codes.reshape(len(blocks), 64).astype("<f4") - 1) * d


# Types that gguf-py does not decode: id, weights and bytes per block, and what ggml makes of blocks.
OF_GGML = {"Q1_0": (41, 128, 18, q1_0), "Q2_0": (42, 64, 18, q2_0)}


def splitmix64(seed: int, n_bytes: int) -> np.ndarray:
    """n_bytes of the stream, each 64-bit output little endian."""
    words, state = [], seed
    for _ in range((n_bytes + 7) // 8):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        words.append(z ^ (z >> 31))
    return np.array(words, dtype="<u8").view(np.uint8)[:n_bytes]


def random_blocks(name: str, seed: int, block_bytes: int) -> np.ndarray:
    """[N_BLOCKS, block_bytes] u8; every bit random but those that would make a scale infinite or NaN."""
    blocks = splitmix64(seed, N_BLOCKS * block_bytes).reshape(N_BLOCKS, block_bytes).copy()
    for at in F16_AT.get(name, []):
        top = blocks[:, at + 1]
        top[(top & 0x7C) == 0x7C] &= 0xBF
    if name in TOP_BYTE:
        at, exponent = TOP_BYTE[name]
        top = blocks[:, at]
        top[(top & exponent) == exponent] &= 0xBF
    return blocks


def fnv1a(words: np.ndarray) -> int:
    """FNV-1a over 32-bit words: one round per word."""
    digest = 0xCBF29CE484222325
    for word in words.tolist():
        digest = ((digest ^ word) * 0x100000001B3) & MASK
    return digest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dump", type=pathlib.Path, help="also write inputs and outputs here in full")
    args = parser.parse_args()
    golden = pathlib.Path(__file__).resolve().parents[1] / "golden" / "codec"
    golden.mkdir(parents=True, exist_ok=True)
    sizes = [f"{t.name} {int(t)} {n} {n_bytes}" for t, (n, n_bytes) in GGML_QUANT_SIZES.items() if t.name not in STALE]
    (golden / "types.txt").write_text("\n".join(sizes) + "\n")
    for name in DECODED:
        if name in OF_GGML:
            ty, block_len, block_bytes, dequantize = OF_GGML[name]
        else:
            ty = GGMLQuantizationType[name]
            block_len, block_bytes = GGML_QUANT_SIZES[ty]
            dequantize = functools.partial(gguf.quants.dequantize, qtype=ty)
        blocks = random_blocks(name, int(ty), block_bytes)
        values = dequantize(blocks).astype("<f4").reshape(N_BLOCKS, block_len)
        bits = values.view("<u4")
        lines = [f"digest {fnv1a(bits.reshape(-1)):016x}"]
        for block in range(2):
            lines.append(f"block {block} " + " ".join(f"{b:08x}" for b in bits[block, :N_SHOWN]))
        (golden / f"{name}.txt").write_text("\n".join(lines) + "\n")
        if args.dump:
            args.dump.mkdir(parents=True, exist_ok=True)
            (args.dump / f"{name}.in").write_bytes(blocks.tobytes())
            (args.dump / f"{name}.out").write_bytes(values.tobytes())


if __name__ == "__main__":
    main()
