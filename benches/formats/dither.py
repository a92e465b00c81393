#!/usr/bin/env python3
"""A reference in F32 from a quantized file, for comparing types fairly.

    dither.py SOURCE.gguf REFERENCE.gguf

The weights of a quantized file lie on the grid of its own type, which that type reproduces without loss. So each weight
is moved at random within its own step, w + u · step with u uniform in (−½, ½) from a fixed seed, and stored as F32. Needs
numpy and the gguf package. Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K and Q6_K are moved; floats stay as they are, other types are
refused.
"""

import sys

import gguf
import numpy as np

# Bytes of a block.
STEPPED = {"Q4_0": 18, "Q4_1": 20, "Q5_0": 22, "Q5_1": 24, "Q8_0": 34, "Q4_K": 144, "Q6_K": 210}
FLOATS = {"F32", "F16", "BF16"}
SEED = 13


def moved(tensor: gguf.ReaderTensor, random: np.random.Generator) -> np.ndarray:
    weights = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
    name = tensor.tensor_type.name
    if name in FLOATS:
        return weights
    if name not in STEPPED:
        sys.exit(f"dither.py: {tensor.name}: the step of {name} is not known here")
    steps = steps_of(name, np.ascontiguousarray(tensor.data).reshape(-1, STEPPED[name]))
    return weights + (random.random(weights.size, np.float32) - 0.5).reshape(weights.shape) * steps.reshape(weights.shape)


def steps_of(name: str, blocks: np.ndarray) -> np.ndarray:
    """The distance of neighbouring levels, for each weight."""
    if name == "Q4_K":
        return np.repeat(halves(blocks[:, :2]) * scales_of_q4_k(blocks[:, 4:16]), 32)
    if name == "Q6_K":
        return np.repeat(np.abs(halves(blocks[:, 208:]) * blocks[:, 192:208].view(np.int8)), 16)
    return np.repeat(np.abs(halves(blocks[:, :2])), 32)


def halves(columns: np.ndarray) -> np.ndarray:
    return columns.copy().view(np.float16).astype(np.float32)


def scales_of_q4_k(packed: np.ndarray) -> np.ndarray:
    """Eight scales of 6 bits: four in the low bits of bytes 0 to 3, four from bytes 8 to 11 and the high bits of 0 to 3."""
    low = packed[:, :4] & 63
    high = (packed[:, 8:12] & 15) | ((packed[:, :4] >> 6) << 4)
    return np.concatenate([low, high], axis=1).astype(np.float32)


def copy_keys(reader: gguf.GGUFReader, writer: gguf.GGUFWriter) -> None:
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=sub_type)


def main() -> None:
    source, reference = sys.argv[1:]
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(reference, reader.fields["general.architecture"].contents())
    copy_keys(reader, writer)
    writer.add_file_type(0)
    random = np.random.default_rng(SEED)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, moved(tensor, random))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()


main()
