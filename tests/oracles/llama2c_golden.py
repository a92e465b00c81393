#!/usr/bin/env python3
"""Files of llama2.c and LEAP, for `crates/convert/src/llama2c`: tests/golden/llama2c.

    python3 tests/oracles/llama2c_golden.py tests/golden/llama2c

Needs numpy. Written from the layouts of karpathy/llama2.c's `export.py` and `tokenizer.py`, not with them. No weights are random:
`weights` says what each is, and the Rust tests compute them anew.
"""

import pathlib
import struct
import sys

import numpy as np

# dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len
SMALL = (8, 12, 2, 2, 1, 261, 6)
WIDE = (64, 128, 1, 2, 1, 261, 32)
NARROW = (32, 96, 2, 4, 2, 261, 16)


def weights(number: int, n: int) -> np.ndarray:
    """The weights of tensor `number`: a hash of number and index, in multiples of 2^-23 from -1 to 1."""
    h = (np.arange(n, dtype=np.uint64) * 2654435761 + number * 40503) & 0xFFFFFFFF
    h ^= h >> 15
    h = (h * 2246822519) & 0xFFFFFFFF
    h ^= h >> 13
    return ((h >> 8).astype(np.int64) - (1 << 23)).astype(np.float32) / np.float32(1 << 23)


def tensors(sizes, tied: bool) -> dict:
    """Every tensor by its name in llama2.c; layer l of a tensor that stands `k`th here has the number 100 l + k."""
    dim, hid, n_layers, n_heads, n_kv, vocab, _ = sizes
    kv = dim // n_heads * n_kv
    shapes = {"tok": (vocab, dim), "att_norm": (dim,), "wq": (dim, dim), "wk": (kv, dim), "wv": (kv, dim), "wo": (dim, dim)}
    shapes |= {"ffn_norm": (dim,), "w1": (hid, dim), "w2": (dim, hid), "w3": (hid, dim), "norm": (dim,), "out": (vocab, dim)}
    result = {}
    for k, (name, shape) in enumerate(shapes.items()):
        layers = 1 if name in ("tok", "norm", "out") else n_layers
        for l in range(layers):
            result[name, l] = weights(100 * l + k, int(np.prod(shape))).reshape(shape)
    if tied:
        del result["out", 0]
    return result


def named(all_tensors: dict, *names: str):
    return [t for name in names for (n, _), t in all_tensors.items() if n == name]


def v0(sizes, tied: bool) -> bytes:
    dim, hid, n_layers, n_heads, n_kv, vocab, seq = sizes
    all_tensors = tensors(sizes, tied)
    out = struct.pack("<7i", dim, hid, n_layers, n_heads, n_kv, vocab if tied else -vocab, seq)
    order = ["tok", "att_norm", "wq", "wk", "wv", "wo", "ffn_norm", "w1", "w2", "w3", "norm"]
    out += b"".join(t.tobytes() for t in named(all_tensors, *order))
    angles = np.outer(np.arange(seq), 10000.0 ** -(np.arange(0, dim // n_heads, 2) / (dim // n_heads)))
    out += np.cos(angles).astype("<f4").tobytes() + np.sin(angles).astype("<f4").tobytes()
    return out + b"".join(t.tobytes() for t in named(all_tensors, "out"))


NORMS = ["att_norm", "ffn_norm", "norm"]
MATRICES = ["tok", "wq", "wk", "wv", "wo", "w1", "w2", "w3", "out"]


def header(version: int, sizes, tied: bool, group=b"") -> bytes:
    return (struct.pack("<Ii7iB", 0x616B3432, version, *sizes, tied) + group).ljust(256, b"\0")


def v1(sizes, tied: bool) -> bytes:
    all_tensors = tensors(sizes, tied)
    return header(1, sizes, tied) + b"".join(t.tobytes() for t in named(all_tensors, *NORMS, *MATRICES))


def int8(w: np.ndarray, group: int) -> bytes:
    w = w.reshape(-1, group)
    scale = np.abs(w).max(axis=1) / np.float32(127)
    codes = np.rint(w / scale[:, None]).astype(np.int8)
    return codes.tobytes() + scale.astype("<f4").tobytes()


def v2(sizes, tied: bool) -> bytes:
    group = 64
    while sizes[0] % group:
        group //= 2
    all_tensors = tensors(sizes, tied)
    out = header(2, sizes, tied, struct.pack("<i", group))
    out += b"".join(t.tobytes() for t in named(all_tensors, *NORMS))
    return out + b"".join(int8(t, group) for t in named(all_tensors, *MATRICES))


def tokenizer() -> bytes:
    texts = [b"<unk>", b"\n<s>\n", b"\n</s>\n"] + [b"<0x%02X>" % b for b in range(256)] + [b" t", "  é".encode()]
    scores = [0.0] * 259 + [-0.0, -1.5]
    entries = b"".join(struct.pack("<fI", s, len(t)) + t for s, t in zip(scores, texts))
    return struct.pack("<I", max(map(len, texts))) + entries


def main() -> None:
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    files = {"tokenizer.bin": tokenizer(), "small-v0.bin": v0(SMALL, False), "small-v0-tied.bin": v0(SMALL, True)}
    files |= {"small-v1.bin": v1(SMALL, False), "wide-v2.bin": v2(WIDE, True), "narrow-v2.bin": v2(NARROW, False)}
    for name, data in files.items():
        (out / name).write_bytes(data)


if __name__ == "__main__":
    main()
