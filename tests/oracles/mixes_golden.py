#!/usr/bin/env python3
"""Which type llama.cpp's quantizer gives to each tensor, for several shapes of models and every mix.

    mixes_golden.py LLAMA_QUANTIZE ../golden/convert/mixes.json

The models have F16 zeros; llama-quantize is asked what it would do (--dry-run). Most tensors of a role get the same
type, so that the golden says for each mix only the runs of equal types, in llama.cpp's order of tensors.
"""
import json
import re
import subprocess
import sys
import tempfile
from itertools import groupby
from pathlib import Path

import gguf
import numpy as np

MIXES = ("TQ1_0 TQ2_0 IQ2_XXS IQ2_XS IQ2_S IQ2_M Q2_K_S Q2_K IQ3_XXS IQ3_XS IQ3_S IQ3_M Q3_K_S Q3_K_M Q3_K_L IQ4_XS IQ4_NL Q4_0 Q4_1 Q4_K_S Q4_K_M Q5_0 Q5_1 Q5_K_S Q5_K_M Q6_K Q8_0 "
         "MXFP4_MOE F16 BF16 F32").split()
# name: (n_layers, n_heads, n_kv_heads, d_model, d_ff, n_experts, tied)
SHAPES = {
    "plain": (17, 4, 2, 256, 512, 0, False),
    "tied-grouped": (8, 4, 1, 256, 256, 0, True),
    "narrow": (3, 2, 2, 96, 160, 0, False),
    "odd": (2, 2, 2, 40, 72, 0, True),
    "eight-experts": (16, 4, 4, 256, 256, 8, False),
    "five-experts": (9, 4, 2, 256, 256, 5, True),
    "eighty-layers": (80, 8, 1, 256, 256, 0, False),
}
LINE = re.compile(r"\[ *\d+/ *\d+\] +(\S+) +- \[([\d, ]+)\], type = +(\w+), size = .*?(?:\((\w+)\))?$")


def tensors(shape):
    n_layers, n_heads, n_kv_heads, d, d_ff, n_experts, tied = shape
    d_kv = d * n_kv_heads // n_heads
    yield "token_embd.weight", (64, d)
    yield "output_norm.weight", (d,)
    if not tied:
        yield "output.weight", (64, d)
    for l in range(n_layers):
        layer = {"attn_norm": (d,), "ffn_norm": (d,), "attn_q": (d, d), "attn_k": (d_kv, d), "attn_v": (d_kv, d), "attn_output": (d, d)}
        if n_experts:
            layer |= {"ffn_gate_inp": (n_experts, d), "ffn_gate_exps": (n_experts, d_ff, d), "ffn_up_exps": (n_experts, d_ff, d),
                      "ffn_down_exps": (n_experts, d, d_ff)}
        else:
            layer |= {"ffn_gate": (d_ff, d), "ffn_up": (d_ff, d), "ffn_down": (d, d_ff)}
        yield from ((f"blk.{l}.{name}.weight", dims) for name, dims in layer.items())


def is_matrix(name, dims):
    return len(dims) > 1 and "gate_inp" not in name


def write(path, shape):
    n_layers, n_heads, n_kv_heads, d, d_ff, n_experts, _ = shape
    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(n_layers)
    w.add_embedding_length(d)
    w.add_feed_forward_length(d_ff)
    w.add_head_count(n_heads)
    w.add_head_count_kv(n_kv_heads)
    w.add_context_length(128)
    w.add_layer_norm_rms_eps(1e-5)
    if n_experts:
        w.add_expert_count(n_experts)
        w.add_expert_used_count(2)
    w.add_tokenizer_model("llama")
    w.add_token_list([f"t{i}" for i in range(64)])
    w.add_token_scores([0.0] * 64)
    w.add_token_types([1] * 64)
    for name, dims in tensors(shape):
        w.add_tensor(name, np.zeros(dims, np.float16 if is_matrix(name, dims) else np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def types(quantize, path, mix, imatrix):
    """Types of the F16 matrices, in the order in which llama.cpp writes them."""
    options = ["--imatrix", imatrix] if imatrix else []
    said = subprocess.run([quantize, "--dry-run", *options, path, mix], capture_output=True, text=True, check=True)
    found = [LINE.match(line) for line in (said.stdout + said.stderr).splitlines()]
    return [(m[4] or m[3]).upper() for m in found if m and m[3] == "f16"]


def write_imatrix(path, shape):
    w = gguf.GGUFWriter(path, "imatrix", use_temp_file=False)
    w.add_type("imatrix")
    w.add_array("imatrix.datasets", ["zeros"])
    w.add_uint32("imatrix.chunk_count", 1)
    w.add_uint32("imatrix.chunk_size", 512)
    for name, dims in tensors(shape):
        n = dims[0] if len(dims) > 2 else 1
        if len(dims) > 1 and name.startswith("blk"):
            w.add_tensor(f"{name}.in_sum2", np.ones((n, dims[-1]), np.float32))
            w.add_tensor(f"{name}.counts", np.ones((n, 1), np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    quantize, out = sys.argv[1:]
    golden = []
    with tempfile.TemporaryDirectory() as directory:
        for name, shape in SHAPES.items():
            path, imatrix = f"{directory}/{name}.gguf", f"{directory}/{name}.imatrix"
            write(path, shape)
            write_imatrix(imatrix, shape)
            row = {"name": name, "shape": shape[:-1] + (int(shape[-1]),), "mixes": {}}
            for mix in MIXES:
                for key, using in ((mix, None), (f"{mix} imatrix", imatrix)):
                    got = types(quantize, path, mix, using)
                    assert len(got) == sum(is_matrix(*t) for t in tensors(shape)), (name, mix, len(got))
                    row["mixes"][key] = " ".join(f"{len(list(run))}*{ty}" for ty, run in groupby(got))
            same = [key for key in row["mixes"] if key.endswith("imatrix") and row["mixes"][key] == row["mixes"][key.split()[0]]]
            for key in same:
                del row["mixes"][key]
            golden.append(row)
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    Path(out).write_text("[\n" + ",\n".join(json.dumps(row) for row in golden) + "\n]\n")


main()
