#!/usr/bin/env python3
"""A reference in F32 from a quantized file, for comparing types fairly.

    dither.py SOURCE.gguf REFERENCE.gguf

The weights of a quantized file lie on the grid of its own type, which that type reproduces without loss. So each weight
is moved at random within its own step, w + u · step with u uniform in (−½, ½) from a fixed seed, and stored as F32. Needs
numpy and the gguf package. Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 are moved; floats stay as they are, other types are refused.
"""

import sys

import gguf
import numpy as np

STEPPED = {"Q4_0": 18, "Q4_1": 20, "Q5_0": 22, "Q5_1": 24, "Q8_0": 34}
FLOATS = {"F32", "F16", "BF16"}
SEED = 13


def moved(tensor: gguf.ReaderTensor, random: np.random.Generator) -> np.ndarray:
    weights = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
    name = tensor.tensor_type.name
    if name in FLOATS:
        return weights
    if name not in STEPPED:
        sys.exit(f"dither.py: {tensor.name}: the step of {name} is not known here")
    blocks = np.ascontiguousarray(tensor.data).reshape(-1, STEPPED[name])
    steps = np.repeat(np.abs(blocks[:, :2].copy().view(np.float16).astype(np.float32)), 32)
    return weights + (random.random(weights.size, np.float32) - 0.5).reshape(weights.shape) * steps.reshape(weights.shape)


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
