#!/usr/bin/env python3
"""Writes a tiny QSF file from the byte layout of the plan, and what is in it, for tests.

It shares no code with atta and needs Python alone: `python3 tests/oracles/qsf_golden.py`. The outputs, in
tests/golden/qsf/:

plain.qsf       two layers with all five types of blocks, rows of 64 and of 96 weights, and bytes of no section
compressed.qsf  the same model, its first layer in LZ4, its second in Zstandard
plain.txt       of each tensor: GGUF's name, type, CRC-32 of its weights as f32, in the order of the file
plain.logits    logits after each of a few tokens in f64, by the equations of Llama with Hugging Face's rope
"""

import math
import random
import struct
import zlib
from pathlib import Path

OUT = Path(__file__).parent.parent / "golden" / "qsf"
D, HEADS, KV_HEADS, D_HEAD, FF, VOCAB, LAYERS = 64, 4, 2, 16, 96, 33, 2
THETA, EPS = 10000.0, 1e-5
TOKENS = [1, 5, 32, 7]
BLOCK_BYTES = {0: 20, 1: 20, 2: 28, 3: 36, 4: 18}
NAMES = ["QSF2S", "QSF2", "QSF3", "QSF4", "QSFT"]
RANDOM = random.Random(1)


def f16(x):
    return struct.pack("<e", x)


def half(x):
    return struct.unpack("<e", f16(x))[0]


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bits(codes, width):
    """Codes in order, the low bits of a byte first."""
    number = sum(code << (width * i) for i, code in enumerate(codes))
    return number.to_bytes(len(codes) * width // 8, "little")


def block(kind):
    """Bytes and weights of a block of 64."""
    scale = half(RANDOM.uniform(0.02, 0.06))
    low = half(RANDOM.uniform(-0.12, -0.04))
    if kind == 4:
        signs = [RANDOM.randrange(2) for _ in range(64)]
        zeros = [int(RANDOM.random() < 0.3) for _ in range(64)]
        weights = [0.0 if z else -scale if s else scale for s, z in zip(signs, zeros)]
        return f16(scale) + bits(signs, 1) + bits(zeros, 1), weights
    n_bits = {0: 2, 1: 2, 2: 3, 3: 4}[kind]
    codes = [RANDOM.randrange(1 << n_bits) for _ in range(64)]
    if kind == 0:
        return f16(scale) + f16(0) + bits(codes, 2), [scale * (q - 1.5) for q in codes]
    weights = [f32(f32(q * scale) + low) for q in codes]
    if kind == 2:
        packed = bits([q & 3 for q in codes], 2) + bits([q >> 2 for q in codes], 1)
    else:
        packed = bits(codes, n_bits)
    return f16(scale) + f16(low) + packed, weights


def matrix(kind, rows, cols):
    data, weights = b"", []
    for _ in range(rows):
        row = []
        for _ in range((cols + 63) // 64):
            packed, values = block(kind)
            data += packed
            row += values
        weights.append(row[:cols])
    assert len(data) == rows * ((cols + 63) // 64) * BLOCK_BYTES[kind]
    return data, weights


def norm():
    weights = [half(RANDOM.uniform(0.7, 1.3)) for _ in range(D)]
    return b"".join(f16(w) for w in weights), weights


DIMS = [(HEADS * D_HEAD, D), (KV_HEADS * D_HEAD, D), (KV_HEADS * D_HEAD, D), (D, HEADS * D_HEAD), (FF, D), (FF, D), (D, FF)]
ROLES = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "attn_norm", "ffn_norm"]
# Type bytes of the tensors of both layers; 0xff is the layer's own type, and of norms f16.
KINDS = [[0, 1, 2, 4, 0xFF, 3, 2, 0xFF, 0xFF], [0xFF, 0xFF, 4, 0, 2, 4, 0xFF, 0xFF, 33]]
LAYER_KINDS = [1, 3]


def layer(number):
    """Bytes of the section, and weights by role."""
    section, weights = b"", {}
    for role in [7, 0, 1, 2, 3, 8, 4, 5, 6]:
        kind = KINDS[number][role]
        header = lambda rows, cols: struct.pack("<IIIB3x", role, rows, cols, kind)
        if role >= 7:
            data, values = norm()
            section += header(1, D) + data
            kind = "F16"
        else:
            rows, cols = DIMS[role]
            kind = LAYER_KINDS[number] if kind == 0xFF else kind
            data, values = matrix(kind, rows, cols)
            section += header(rows, cols) + data
            kind = NAMES[kind]
        weights[role] = (values, kind)
    return section, weights


def lz4(data):
    """A block of LZ4: the longest of a few recent matches, greedily."""
    out, literals, at, seen = bytearray(), bytearray(), 0, {}

    def count(n):
        rest = []
        while n >= 255:
            rest.append(255)
            n -= 255
        return rest + [n]

    def sequence(offset, length):
        n = len(literals)
        token = min(n, 15) << 4 | (min(length - 4, 15) if offset else 0)
        out.append(token)
        if n >= 15:
            out.extend(count(n - 15))
        out.extend(literals)
        if offset:
            out.extend(struct.pack("<H", offset))
            if length - 4 >= 15:
                out.extend(count(length - 4 - 15))
        literals.clear()

    while at < len(data):
        key = data[at : at + 4]
        before = seen.get(key)
        seen[key] = at
        # The last match starts 12 bytes before the end at the latest, and the last 5 bytes are literals.
        if before is not None and at - before < 65536 and at < len(data) - 12:
            length = 4
            while at + length < len(data) - 5 and data[before + length] == data[at + length]:
                length += 1
            sequence(at - before, length)
            at += length
        else:
            literals.append(data[at])
            at += 1
    sequence(0, 0)
    return bytes(out)


def zstd(data):
    """A frame of Zstandard with stored blocks."""
    frame = struct.pack("<IBI", 0xFD2FB528, 0b1010_0000, len(data))
    blocks = [data[i : i + 100_000] for i in range(0, len(data), 100_000)]
    for i, part in enumerate(blocks):
        frame += (len(part) << 3 | int(i + 1 == len(blocks))).to_bytes(3, "little") + part
    return frame


def file(layers, embedding, final, compress):
    """The sections: index, embedding, layers, final; with compression without gaps."""
    gap = b"" if compress else b"gap"
    at = 128 + 32 * LAYERS
    embedding_at = at + len(gap)
    at = embedding_at + len(embedding)
    index, sections = b"", b""
    for number, section in enumerate(layers):
        stored = [lz4, zstd][number](section) if compress else section
        code = [1, 3][number] if compress else 0
        entry = struct.pack("<QIIBBHIfI", at, len(stored), len(section), LAYER_KINDS[number], code, 9, zlib.crc32(stored), 0.5 + number, 0)
        index += entry
        sections += stored + gap
        at += len(stored) + len(gap)
    total = at + len(final)
    head = b"QSF1" + struct.pack(
        "<11I4Bf3Q4I", 1, 128, 1, LAYERS, D, HEADS, KV_HEADS, VOCAB, 128, FF, D_HEAD, 5, 1, 1, 1, THETA, 128, embedding_at, at, 1, 2, 0, total & 0xFFFFFFFF
    )
    assert len(head) == 96
    head += struct.pack("<I28x", zlib.crc32(head))
    data = head + index + gap + embedding + sections + final
    assert len(data) == total
    return data


def rms(x, weight):
    scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + EPS)
    return [v * scale * w for v, w in zip(x, weight)]


def times(weights, x):
    return [sum(w * v for w, v in zip(row, x)) for row in weights]


def rope(x, position):
    out = list(x)
    for head in range(0, len(x), D_HEAD):
        for i in range(D_HEAD // 2):
            angle = position / THETA ** (2 * i / D_HEAD)
            a, b = x[head + i], x[head + D_HEAD // 2 + i]
            out[head + i] = a * math.cos(angle) - b * math.sin(angle)
            out[head + D_HEAD // 2 + i] = a * math.sin(angle) + b * math.cos(angle)
    return out


def attention(q, keys, values):
    out = []
    for head in range(HEADS):
        part = slice(head // (HEADS // KV_HEADS) * D_HEAD, (head // (HEADS // KV_HEADS) + 1) * D_HEAD)
        own = q[head * D_HEAD : (head + 1) * D_HEAD]
        scores = [sum(a * b for a, b in zip(own, key[part])) / math.sqrt(D_HEAD) for key in keys]
        weights = [math.exp(s - max(scores)) for s in scores]
        total = sum(weights)
        out += [sum(w * v[part][i] for w, v in zip(weights, values)) / total for i in range(D_HEAD)]
    return out


def logits(embedding, layers, final_norm, head):
    caches = [([], []) for _ in layers]
    for position, token in enumerate(TOKENS):
        x = list(embedding[token])
        for (keys, values), (_, weights) in zip(caches, layers):
            of = lambda role: weights[role][0]
            h = rms(x, of(7))
            keys.append(rope(times(of(1), h), position))
            values.append(times(of(2), h))
            q = rope(times(of(0), h), position)
            x = [a + b for a, b in zip(x, times(of(3), attention(q, keys, values)))]
            h = rms(x, of(8))
            gated = [g / (1 + math.exp(-g)) * u for g, u in zip(times(of(4), h), times(of(5), h))]
            x = [a + b for a, b in zip(x, times(of(6), gated))]
        yield times(head, rms(x, final_norm))


def line(name, kind, values):
    flat = values if isinstance(values[0], float) else [v for row in values for v in row]
    return f"{name} {kind} {zlib.crc32(struct.pack(f'<{len(flat)}f', *flat)):08x}\n"


def main():
    data, embedding = matrix(3, VOCAB, D)
    section = struct.pack("<4I", 3, len(data), VOCAB, D) + data
    layers = [layer(number) for number in range(LAYERS)]
    norm_data, final_norm = norm()
    head_data, head = matrix(3, VOCAB, D)
    for name, compress in [("plain", False), ("compressed", True)]:
        data = file([s for s, _ in layers], section, norm_data + head_data, compress)
        (OUT / f"{name}.qsf").write_bytes(data)
    text = line("token_embd.weight", "QSF4", embedding)
    for number, (_, weights) in enumerate(layers):
        for role, (values, kind) in weights.items():
            text += line(f"blk.{number}.{ROLES[role]}.weight", kind, values)
    text += line("output_norm.weight", "F16", final_norm) + line("output.weight", "QSF4", head)
    (OUT / "plain.txt").write_text(text)
    rows = logits(embedding, layers, final_norm, head)
    (OUT / "plain.logits").write_bytes(b"".join(struct.pack(f"<{VOCAB}f", *row) for row in rows))


if __name__ == "__main__":
    main()
