#!/usr/bin/env python3
"""Files of torch.save, for `crates/convert/src/pickle`: tests/golden/pickle.

    VENV/bin/python tests/oracles/pickle_golden.py tests/golden/pickle

Needs torch. `plain.bin` holds one tensor of each type, and tensors that share their elements; `plain.json` lists its contents. The other files must be refused. `meta-*` are tiny Llamas in Meta's layout, for `crates/convert/src/meta`; `hugging-face` is one in Hugging Face's. What torch writes names its folder and a random number, so that a second run gives other bytes.
"""

import json
import os
import pathlib
import sys
import zipfile
from collections import OrderedDict

import torch

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]


class Code:
    """A pickle of this runs a program."""

    def __reduce__(self):
        return os.system, ("echo run",)


def plain() -> OrderedDict:
    base = torch.arange(24, dtype=torch.float32).view(6, 4) * 0.25 - 2
    tensors = OrderedDict((str(d).split(".")[1], (torch.arange(6) - 2).to(d).view(2, 3)) for d in DTYPES)
    tensors["embed.weight"] = torch.nn.Parameter(base)
    tensors["head.weight"] = tensors["embed.weight"]
    tensors["rows"] = base[2:5]
    tensors["one"] = base[1:2].expand(1, 4)
    tensors["scalar"] = torch.tensor(7.5)
    tensors["empty"] = torch.zeros(0, 3)
    tensors._metadata = OrderedDict({"": {"version": 1}})
    return tensors


def meta_weights(number: int, *shape: int) -> torch.Tensor:
    """Small whole numbers, which every type holds."""
    return ((torch.arange(torch.Size(shape).numel()) * 7 + number * 13) % 251 - 125).view(shape)


def meta(out: pathlib.Path, dtype, **more) -> None:
    """Meta's layout in two files: a Llama 2 cuts its embedding by columns, a Llama 3 by rows."""
    dim, hid, vocab, layer = 16, 24, 20, "layers.0."
    rows = {"output": (vocab, dim), layer + "attention.wq": (dim, dim), layer + "attention.wk": (dim, dim), layer + "attention.wv": (dim, dim)}
    rows |= {layer + "feed_forward.w1": (hid, dim), layer + "feed_forward.w3": (hid, dim)}
    columns = {layer + "attention.wo": (dim, dim), layer + "feed_forward.w2": (dim, hid)}
    copies = {"norm": (dim,), layer + "attention_norm": (dim,), layer + "ffn_norm": (dim,)}
    (rows if more else columns)["tok_embeddings"] = (vocab, dim)
    files = [{}, {}]
    for number, (name, shape) in enumerate(sorted((rows | columns | copies).items())):
        whole = meta_weights(number, *shape).to(dtype)
        parts = [whole, whole] if name in copies else whole.chunk(2, 0 if name in rows else 1)
        for file, part in zip(files, parts):
            file[name + ".weight"] = part.clone()
    if not more:
        files[0]["rope.freqs"] = files[1]["rope.freqs"] = torch.ones(4)
    out.mkdir(parents=True, exist_ok=True)
    for i, file in enumerate(files):
        torch.save(file, out / f"consolidated.{i:02}.pth")
    params = {"dim": dim, "multiple_of": 8, "n_heads": 2, "n_layers": 1, "norm_eps": 1e-5, "vocab_size": vocab if more else -1} | more
    (out / "params.json").write_text(json.dumps(params) + "\n")


def hugging_face(out: pathlib.Path) -> None:
    """A tiny tied Llama as Hugging Face keeps it, in the old form: config.json and a pickle."""
    dim, hid, vocab, layer = 16, 24, 20, "model.layers.0."
    shapes = {"model.embed_tokens": (vocab, dim), "model.norm": (dim,), layer + "input_layernorm": (dim,), layer + "post_attention_layernorm": (dim,)}
    shapes |= {layer + f"self_attn.{x}_proj": (dim, dim) for x in "qkvo"}
    shapes |= {layer + "mlp.gate_proj": (hid, dim), layer + "mlp.up_proj": (hid, dim), layer + "mlp.down_proj": (dim, hid)}
    tensors = {name + ".weight": meta_weights(number, *shape).half() for number, (name, shape) in enumerate(sorted(shapes.items()))}
    out.mkdir(parents=True, exist_ok=True)
    torch.save(tensors, out / "pytorch_model.bin")
    sizes = {"hidden_size": dim, "intermediate_size": hid, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": vocab}
    config = {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": True}
    (out / "config.json").write_text(json.dumps(config | sizes) + "\n")


def main() -> None:
    out = pathlib.Path(sys.argv[1])
    hugging_face(out / "hugging-face")
    meta(out / "meta-llama2", torch.float16)
    meta(out / "meta-llama3", torch.bfloat16, n_kv_heads=2, rope_theta=500000.0, use_scaled_rope=True, rope_scaling_factor=8.0)
    out.mkdir(parents=True, exist_ok=True)
    tensors = plain()
    torch.save(tensors, out / "plain.bin")
    told = {n: {"dtype": str(t.dtype), "dims": list(t.shape), "values": t.detach().double().flatten().tolist()} for n, t in tensors.items()}
    (out / "plain.json").write_text(json.dumps(told, indent=0) + "\n")
    torch.save({n: t.clone() for n, t in tensors.items() if n in ("float32", "int64")}, out / "protocol-4.bin", pickle_protocol=4)
    torch.save({"w": torch.zeros(2, 3).t()}, out / "transposed.bin")
    torch.save({"w": torch.zeros(4, 4)[:, ::2]}, out / "gaps.bin")
    torch.save({"w": torch.zeros(2), "x": Code()}, out / "code.bin")
    torch.save({"w": torch.zeros(2), "x": Code()}, out / "code-4.bin", pickle_protocol=4)
    torch.save({"model": {"w": torch.zeros(2)}, "step": 5}, out / "nested.bin")
    torch.save({"w": torch.zeros(2)}, out / "old.bin", _use_new_zipfile_serialization=False)
    with zipfile.ZipFile(out / "gaps.bin") as source, zipfile.ZipFile(out / "compressed.bin", "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))


if __name__ == "__main__":
    main()
