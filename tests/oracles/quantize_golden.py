#!/usr/bin/env python3
"""Goldens of the quantizers: llama.cpp's blocks of 10,752 seeded weights.

    quantize_golden.py path/to/libggml-base.so tests/golden/quantize

Writes <TYPE>.bin, what ggml_quantize_chunk makes without importance, and <TYPE>.importance.bin with it, for types that
do without and use it. Weights are not stored: both sides make them from a splitmix64 stream with integers and powers of two alone, so that
no bit depends on a library of mathematics. There are 14 rows of 768, each of another kind; types with blocks of 32 see the
same weights as 48 rows of 224, which are 7 blocks. The library must be built without fused multiply-add.
"""

import ctypes
import pathlib
import sys

import numpy as np

SEED = 20_261_122
N_ROWS, D_ROW = 14, 768
D_SHORT = 224
# Type: id, weights per block, bytes per block, whether importance is used.
TYPES = {
    "Q8_0": (8, 32, 34, False), "Q4_0": (2, 32, 18, True), "Q4_1": (3, 32, 20, True), "Q5_0": (6, 32, 22, True),
    "Q5_1": (7, 32, 24, True), "IQ4_NL": (20, 32, 18, True), "MXFP4": (39, 32, 17, False), "Q2_K": (10, 256, 84, True),
    "Q3_K": (11, 256, 110, True), "Q4_K": (12, 256, 144, True), "Q5_K": (13, 256, 176, True), "Q6_K": (14, 256, 210, True),
    "IQ4_XS": (23, 256, 136, True), "TQ1_0": (34, 256, 54, False), "TQ2_0": (35, 256, 66, False),
    "IQ2_XXS": (16, 256, 66, True), "IQ2_XS": (17, 256, 74, True), "IQ2_S": (22, 256, 82, True), "IQ3_XXS": (18, 256, 98, True),
    "IQ3_S": (21, 256, 110, True),
}
# Types with a codebook get the first rows only: on later ones llama.cpp aborts (too large for f16), or shifts what is behind a
# sub-block of zeros (IQ3_S). The first two are refused without importance.
CODEBOOKS = ["IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]
N_CODEBOOK_ROWS = 7
NEED_IMPORTANCE = ["IQ2_XXS", "IQ2_XS"]


def splitmix64(first: int, n: int) -> np.ndarray:
    """Outputs first to first + n - 1 of the stream."""
    with np.errstate(over="ignore"):
        z = np.uint64(SEED) + np.arange(first + 1, first + n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def row(kind: int, bits: np.ndarray) -> np.ndarray:
    """[D_ROW] f32 of a kind; one output of the stream per weight. A bell is the sum of its four 16-bit parts."""
    parts = bits.view("<u2").reshape(-1, 4).astype(np.int64)
    bell, flat, at = parts.sum(1) - 131_070, parts[:, 0], np.arange(D_ROW)
    integers, exponent = {
        0: (bell, -22),
        1: (bell * bell * bell, -45),
        2: (flat, -16),
        3: (-1 - flat, -10),
        4: (bell, -(at // 16 * 7 % 41)),
        5: (bell, -149),
        6: (bell, -66),
        7: (bell, 108),
        8: (bell, 5),
        9: (np.where((at // 32 % 3 == 1) | (at >= 512), 0, bell), -17),
        10: (bell[at // 32 * 32], -12),
        11: (np.where(at % 256 == 77, bell << 14, bell), -22),
        12: (flat % 16 - 8, -3),
        13: (flat % 3 - 1, -2),
    }[kind]
    return integers.astype(np.float32) * np.ldexp(1.0, exponent).astype(np.float32)


def importance(bits: np.ndarray) -> np.ndarray:
    """[D_ROW] f32 over three orders of magnitude; one in eight is 0."""
    parts = bits.view("<u2").reshape(-1, 4).astype(np.int64)
    integers = np.where(parts[:, 1] % 8 == 0, 0, parts[:, 0])
    return integers.astype(np.float32) * np.ldexp(1.0, -(parts[:, 2] % 10) - 8).astype(np.float32)


def quantize(lib, name: str, weights: np.ndarray, matters) -> bytes:
    ty, block_len, block_bytes, _ = TYPES[name]
    d_row = D_ROW if block_len == 256 else D_SHORT
    out = np.zeros(weights.size // block_len * block_bytes, np.uint8)
    rows = weights.size // d_row
    lib.ggml_quantize_chunk(ty, weights.ctypes.data, out.ctypes.data, 0, rows, d_row, matters)
    return out.tobytes()


def main():
    lib = ctypes.CDLL(sys.argv[1])
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    lib.ggml_quantize_chunk.argtypes = [ctypes.c_int, pointer, pointer, integer, integer, integer, pointer]
    lib.ggml_quantize_chunk.restype = ctypes.c_size_t
    out = pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    weights = np.concatenate([row(kind, splitmix64(kind * D_ROW, D_ROW)) for kind in range(N_ROWS)])
    matters = importance(splitmix64(N_ROWS * D_ROW, D_ROW))
    assert weights.dtype == matters.dtype == np.float32 and np.isfinite(weights).all()
    for name, (*_, uses_importance) in TYPES.items():
        rows = weights[: N_CODEBOOK_ROWS * D_ROW] if name in CODEBOOKS else weights
        if name not in NEED_IMPORTANCE:
            (out / f"{name}.bin").write_bytes(quantize(lib, name, rows, None))
        if uses_importance:
            (out / f"{name}.importance.bin").write_bytes(quantize(lib, name, rows, matters.ctypes.data))


if __name__ == "__main__":
    main()
