#!/usr/bin/env python3
"""LoRA adapters of tiny models as peft saves them, with the logits that transformers and peft compute with them.

    lora_golden.py ../golden/lora

A directory is called after its row of models_golden.py, whose GGUF file in tests/golden/models is the base: its logits
are compared first, so that the weights here are those there.  Each row has something that others do not: `llama-plain`
embedding and head, rsLoRA, and a rank and an alpha of its own for some modules; `qwen2` and `qwen3` all linear modules;
`gemma3` a scaled embedding; `phi3` fused modules; `gpt2` matrices that transformers keeps transposed.
"""
import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, get_peft_model

from models_golden import MODELS, build, logits_of, nmse

LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ROWS = {
    "llama-plain": dict(r=3, lora_alpha=5, target_modules=LINEAR + ["embed_tokens", "lm_head"], use_rslora=True,
                        rank_pattern={"o_proj": 2}, alpha_pattern={"down_proj": 7}),
    "qwen2": dict(r=2, lora_alpha=4, target_modules=LINEAR),
    "qwen3": dict(r=4, lora_alpha=4, target_modules=LINEAR),
    "gemma3": dict(r=2, lora_alpha=3, target_modules=LINEAR + ["embed_tokens"]),
    "phi3": dict(r=2, lora_alpha=4, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]),
    "gpt2": dict(r=2, lora_alpha=4, target_modules=["c_attn", "c_fc", "c_proj"], fan_in_fan_out=True),
}


def deviation(name, model):
    """Of the elements of a matrix of an adapter: what it adds is of the size of the weights."""
    module, kind = name.removesuffix(".weight").replace(".default", "").rsplit(".", 1)
    return 1.0 if kind.endswith("_A") else 0.3 * model.get_submodule(module + ".base_layer").weight.std().item()


def adapt(row, seed, fields):
    model = get_peft_model(build(row, seed), LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **fields))
    rng = np.random.default_rng(seed + 2000)
    for name, p in model.named_parameters():
        if "lora_" in name:
            values = deviation(name, model) * rng.standard_normal(p.shape)
            p.data = torch.from_numpy(values.astype(np.float32))
    return model.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    models = out.parent / "models"
    index = {entry["name"]: entry for entry in json.loads((models / "index.json").read_text())["models"]}
    for number, row in enumerate(MODELS, 1):
        if row.name not in ROWS:
            continue
        seed = row.seed or number
        tokens = index[row.name]["tokens"]
        expected = np.fromfile(models / index[row.name]["logits"], "<f4").reshape(len(tokens), -1)
        assert nmse(logits_of(build(row, seed), tokens), expected) < 1e-9, f"{row.name}: the base is another model"
        model = adapt(row, seed, ROWS[row.name])
        folder = out / row.name
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        (folder / "README.md").unlink(missing_ok=True)
        config = json.loads((folder / "adapter_config.json").read_text())
        config["target_modules"].sort()         # a set, whose order is another one each time
        (folder / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")
        logits = logits_of(model, tokens)
        logits.tofile(folder / "logits")
        print(f"{row.name:12} moved {nmse(logits, expected):.1e}", sorted(p.name for p in folder.iterdir()))


if __name__ == "__main__":
    main()
