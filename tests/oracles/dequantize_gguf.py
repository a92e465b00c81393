#!/usr/bin/env python3
"""The same GGUF file with every tensor as F32, dequantized by gguf-py; metadata copied.

What llama.cpp computes on the result is the reference for what the quantized file means: it has no rounded activations.

    dequantize_gguf.py IN.gguf OUT.gguf
"""
import sys

import gguf
import numpy as np


def copy_metadata(reader, writer):
    for key, f in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value = int(gguf.LlamaFileType.ALL_F32) if key == "general.file_type" else f.contents()
        kind = f.types[0]
        writer.add_key_value(key, value, kind, f.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)


def main():
    reader = gguf.GGUFReader(sys.argv[1])
    writer = gguf.GGUFWriter(sys.argv[2], reader.fields["general.architecture"].contents())
    copy_metadata(reader, writer)
    for t in reader.tensors:
        data = t.data if t.tensor_type == gguf.GGMLQuantizationType.F32 else gguf.quants.dequantize(t.data, t.tensor_type)
        writer.add_tensor(t.name, np.ascontiguousarray(data, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
