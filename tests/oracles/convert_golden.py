#!/usr/bin/env python3
"""Directories to convert: the tiny models of models_golden.py as transformers saves them.

    convert_golden.py ../golden/convert           # those that are kept in the repository
    convert_golden.py --all SOMEWHERE             # every row, as transformers 5 and 4 write it; look at them with HF_ROWS=SOMEWHERE

A directory is called after its row, so that the GGUF file of that row in tests/golden/models says what must come out,
with a suffix for each thing that is particular: `v4`, a configuration as transformers 4 wrote it (made here from the one
that transformers 5 writes); `shards`, several files and an index; `text`, the text part of a multimodal model; `bf16`,
weights of 16 bits, for space; `nextn`, a further layer of multi-token prediction.  Below `quantized` are models whose weights are quantized, beside `expected.safetensors`:
what transformers (or torch) makes of them.
"""
import argparse
import json
import shutil
from dataclasses import replace
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.integrations.bitnet import pack_weights, unpack_weights
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import families
from models_golden import MODELS, build

KEPT = ["bert.bf16", "gemma-embedding.bf16", "modern-bert.bf16", "nomic-bert.bf16", "xlm-roberta-reranker.bf16",
        "deepseek3.bf16", "minicpm3-long.bf16", "ernie4_5.bf16", "ernie4_5-moe.bf16", "gemma.v4.bf16", "gemma2.bf16", "gemma3.text.v4.bf16", "gemma4.text.bf16", "gemma4-moe.bf16", "glm4moe.nextn.bf16", "gpt-oss.bf16", "gpt2.v4.bf16", "gemma3n-second.bf16", "granite.bf16", "granite.hybrid.bf16", "granitemoe-shared.bf16", "lfm2.bf16", "lfm2moe.bf16", "llama3-rope.v4.bf16", "llama4.bf16",
        "mistral3.bf16", "olmo3.bf16", "olmoe.bf16", "phi2.v4.bf16", "phi3-long.v4", "phimoe.bf16", "qwen2.shards.bf16", "qwen2moe-old.bf16", "qwen2vl.bf16", "qwen3.bf16",
        "qwen35.text.bf16", "qwen35moe.bf16", "qwen3moe.bf16", "qwen3next.bf16", "qwen3vl.bf16", "seed_oss.bf16", "smollm2.text.bf16",
        "smollm3.bf16",
        "apertus.bf16", "arcee.bf16", "cohere2.bf16", "command-r-norm.bf16", "exaone4.bf16", "chatglm.bf16", "glm4.bf16", "gptneox.bf16", "jais2.bf16", "minicpm.bf16", "granite_swa.bf16",
        "hunyuan-dense-ntk.bf16", "nemotron.bf16", "stablelm-parallel.bf16", "starcoder2.bf16"]
KEPT += ["bert-classifier.bf16", "jina-bert-v2.bf16", "nomic-bert-moe.bf16", "modern-bert-reranker.bf16", "gemma-embedding-dense.bf16"]
KEPT += ["lfm3.bf16", "mamba2.bf16", "granitehybrid-moe.bf16", "falcon-h1-norm", "nemotron_h.bf16", "falcon-mamba.bf16", "jamba.bf16", "nemotron_h_moe.bf16", "dots1.bf16", "hunyuan-moe.bf16", "qwen4exp-ngrams.bf16", "kimi-linear.bf16", "exaone-moe.bf16"]


def as_version_4(config):
    """The fields of transformers 4."""
    c = dict(config, transformers_version="4.51.3", torch_dtype=config["dtype"])
    del c["dtype"]
    rope = c.pop("rope_parameters", None)
    if rope and "full_attention" in rope:
        if c["model_type"] == "gemma3_text":
            c["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
            c["sliding_window_pattern"] = 6
            del c["_sliding_window_pattern"], c["layer_types"]
        rope = rope["full_attention"]
    if rope:
        rope = dict(rope)
        c["rope_theta"] = rope.pop("rope_theta")
        if "partial_rotary_factor" in rope:
            c["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        kind = rope.pop("rope_type")
        if kind == "longrope":                      # the original context stood beside
            rope = {"type": "longrope", **{k: v for k, v in rope.items() if k != "original_max_position_embeddings"}}
        c["rope_scaling"] = None if kind == "default" else {"rope_type": kind, **rope} if "type" not in rope else rope
    if c["model_type"] == "gpt2":
        c["n_ctx"] = c["n_positions"]
    if c["model_type"] in ("gemma2", "qwen2", "qwen3", "smollm3"):
        c.pop("layer_types", None)
    return c


def as_text_part(config, tensors):
    """The text part of a multimodal model."""
    text = {k: v for k, v in config.items() if k not in ("architectures", "transformers_version", "torch_dtype")}
    name = config["architectures"][0]
    named = {"Ministral3ForCausalLM": "Mistral3ForConditionalGeneration"}.get(name, name.replace("ForCausalLM", "ForConditionalGeneration"))
    whole = {"architectures": [named], "model_type": "gemma3", "image_token_index": 95, "text_config": text,
             "vision_config": {"hidden_size": 4, "num_hidden_layers": 1}, "transformers_version": "4.51.3"}
    if name.startswith("Qwen3_5"):
        other = {"model.visual.patch_embed.proj.weight": torch.zeros(4, 3, 2, 2), "mtp.fc.weight": torch.zeros(4, 8)}
        return whole, {k.replace("model.", "model.language_model.", 1): v for k, v in tensors.items()} | other
    if name.startswith("Llama"):
        whole["architectures"] = ["SmolVLMForConditionalGeneration"]
        other = {"model.vision_model.post_layernorm.weight": torch.zeros(4), "model.connector.modality_projection.proj.weight": torch.zeros(24, 4)}
        return whole, {k.replace("model.", "model.text_model.", 1): v for k, v in tensors.items()} | other
    tensors = {f"language_model.{k}": v for k, v in tensors.items()}
    other = {"vision_tower.vision_model.embeddings.patch_embedding.weight": torch.zeros(4, 3, 2, 2),
             "multi_modal_projector.mm_input_projection_weight": torch.zeros(4, 24)}
    return whole, {**tensors, **other}


def as_hybrid(config, tensors):
    """A Granite in the layout of Granite 4, whose gate and up are one tensor."""
    more = {"architectures": ["GraniteMoeHybridForCausalLM"], "shared_intermediate_size": config["intermediate_size"], "intermediate_size": 7,
            "num_local_experts": 0, "num_experts_per_tok": 0, "position_embedding_type": "rope", "mamba_n_heads": 4,
            "layer_types": ["attention"] * config["num_hidden_layers"]}
    renamed = {}
    for name, w in tensors.items():
        at, _, last = name.partition(".mlp.")
        if last == "gate_proj.weight":
            renamed[f"{at}.shared_mlp.input_linear.weight"] = torch.cat([w, tensors[f"{at}.mlp.up_proj.weight"]])
        elif last == "down_proj.weight":
            renamed[f"{at}.shared_mlp.output_linear.weight"] = w
        elif not last:
            renamed[name] = w
    return config | more, renamed


def save(folder, config, tensors, n_shards):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    tensors = {k: v.contiguous() for k, v in tensors.items()}
    if n_shards == 1:
        return save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    names, index = sorted(tensors), {}
    for i in range(n_shards):
        shard = f"model-{i + 1:05}-of-{n_shards:05}.safetensors"
        part = {name: tensors[name] for name in names[i::n_shards]}
        save_file(part, folder / shard, metadata={"format": "pt"})
        index |= {name: shard for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}, indent=1) + "\n")


def model_of(name):
    """The model of a row, whose weights are those of its golden."""
    for row in families.FAMILIES:
        if row.name == name:
            return families.build(row)
    number, row = next((i, row) for i, row in enumerate(MODELS, 1) if row.name == name)
    return build(row, row.seed or number)


def write(out, label, scratch):
    """Writes one directory: a row with its variations."""
    name, *particular = label.split(".")
    family = next((row for row in families.FAMILIES if row.name == name), None)
    shutil.rmtree(scratch, ignore_errors=True)
    families.save(family, model_of(name), scratch)
    config, tensors = json.loads((scratch / "config.json").read_text()), load_file(scratch / "model.safetensors")
    config = families.altered(config, family.files.get("config.json", {}) if family else {})
    if "bf16" in particular:
        # Numbers of activations become metadata, which must be those of the golden, and so do whole numbers.
        config["dtype"] = "bfloat16"
        tensors = {k: v.bfloat16() if v.is_floating_point() and ".act_fn." not in k else v for k, v in tensors.items()}
    if "v4" in particular:
        config = as_version_4(config)
    if "text" in particular:
        config, tensors = as_text_part(config, tensors)
    if "hybrid" in particular:
        config, tensors = as_hybrid(config, tensors)
    if "nextn" in particular:
        tensors[f"model.layers.{config['num_hidden_layers']}.eh_proj.weight"] = torch.zeros(4, 8)
    save(out / label, config, tensors, 3 if "shards" in particular else 1)
    for module in [*scratch.glob("modules.json"), *scratch.glob("[0-9]_*")]:    # of sentence-transformers
        to = out / label / module.name
        shutil.copytree(module, to, dirs_exist_ok=True) if module.is_dir() else shutil.copy(module, to)
        if "bf16" in particular and (to / "model.safetensors").exists():
            dense = {k: v.bfloat16() for k, v in load_file(to / "model.safetensors").items()}
            save_file(dense, to / "model.safetensors", metadata={"format": "pt"})


# Quantized weights

def of_kind(name, **fields):
    """A model of one layer whose weights are drawn like those of a row."""
    row = next(row for row in MODELS if row.name == name)
    return build(replace(row, **{"d_model": 32, "d_ff": 32, "n_layers": 1} | fields), 1).bfloat16()


def mxfp4():
    """gpt-oss, its experts in blocks."""
    model = of_kind("gpt-oss", heads=(2, 1), d_head=16, experts=(2, 1, 32, 0), rope={}, extra={"sliding_window": 15})
    gen = torch.Generator().manual_seed(1)
    tensors, expected = dict(model.state_dict()), {}
    for role, rows in (("gate_up_proj", 64), ("down_proj", 32)):
        at = f"model.layers.0.mlp.experts.{role}"
        blocks = torch.randint(0, 256, (2, rows, 1, 16), dtype=torch.uint8, generator=gen)
        scales = torch.randint(118, 124, (2, rows, 1), dtype=torch.uint8, generator=gen)
        w = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).transpose(1, 2)    # [n, d_out, d_in]
        del tensors[at]
        tensors |= {f"{at}_blocks": blocks, f"{at}_scales": scales}
        expected |= {"blk.0.ffn_down_exps.weight": w} if rows == 32 else {"blk.0.ffn_gate_exps.weight": w[:, ::2], "blk.0.ffn_up_exps.weight": w[:, 1::2]}
    return model, tensors, expected, {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}


NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
EXPECTED = ("attn_k", "ffn_down")                   # the others are no different


def bitnet(quantization, of):
    """A BitNet whose matrices `of` makes: (tensors to add, weights that they mean)."""
    model = of_kind("bitnet", heads=(2, 1))
    tensors, expected = dict(model.state_dict()), {}
    for name, gguf in NAMES.items():
        at = f"model.layers.0.{name}.weight"
        new, means = of(at, tensors.pop(at))
        tensors |= new
        expected |= {f"blk.0.{gguf}.weight": means} if gguf in EXPECTED else {}
    return model, tensors, expected, {"quant_method": "bitnet", **quantization}


def ternary(w):
    """-1, 0 and 1, and by what they were multiplied: WeightQuant in transformers."""
    w = w.float()
    scale = 1.0 / w.abs().mean().clamp_(min=1e-5)
    return (w * scale).round().clamp(-1, 1), scale


def packed(at, w, multiplied):
    signs, scale = ternary(w)
    stored = 1 / scale if multiplied else scale
    bytes = pack_weights(signs.clone())
    signs = unpack_weights(bytes, torch.float32)
    return {at: bytes, f"{at}_scale": stored.reshape(1)}, signs * stored if multiplied else signs / stored


def online(at, w):
    signs, scale = ternary(w)
    return {at: w}, signs / scale


def fp8():
    """Qwen3, its matrices in 8-bit floats with a scale for each block."""
    model = of_kind("qwen3", heads=(2, 1))
    tensors, expected = dict(model.state_dict()), {}
    tensors.pop("lm_head.weight", None)
    gen = torch.Generator().manual_seed(1)
    for name, gguf in NAMES.items():
        at = f"model.layers.0.{name}.weight"
        w = tensors[at].to(torch.float8_e4m3fn)
        scales = 0.5 + torch.rand(-(-w.shape[0] // 24), -(-w.shape[1] // 20), generator=gen)
        tensors |= {at: w, f"{at}_scale_inv": scales}
        spread = scales.repeat_interleave(24, 0).repeat_interleave(20, 1)[:w.shape[0], :w.shape[1]]
        expected |= {f"blk.0.{gguf}.weight": w.float() * spread} if gguf in EXPECTED else {}
    return model, tensors, expected, {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [24, 20]}


def write_quantized(out, scratch):
    auto = {"linear_class": "autobitlinear"}
    for name, (model, tensors, expected, quantization) in {
        "mxfp4": mxfp4(),
        "bitnet": bitnet({}, lambda at, w: packed(at, w, False)),
        "bitnet-offline": bitnet({**auto, "quantization_mode": "offline"}, lambda at, w: packed(at, w, True)),
        "bitnet-online": bitnet({**auto, "quantization_mode": "online"}, online),
        "fp8": fp8(),
    }.items():
        model.config.save_pretrained(scratch)
        config = json.loads((scratch / "config.json").read_text())
        config["architectures"], config["quantization_config"] = [type(model).__name__], quantization
        if model.config.tie_word_embeddings:
            tensors.pop("lm_head.weight", None)
        save(out / name, config, tensors, 1)
        save_file({k: v.contiguous() for k, v in expected.items()}, out / name / "expected.safetensors")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out", type=Path, help="tests/golden/convert")
    ap.add_argument("--all", action="store_true", help="every row, as both versions write it")
    ap.add_argument("--only", default="", help="only directories whose name begins like this")
    a = ap.parse_args()
    transformers.logging.set_verbosity_error()
    scratch = a.out / "scratch"
    everything = [f"{row.name}{kind}" for row in MODELS for kind in ("", ".v4", ".shards.bf16")] + ["mistral3.text"]
    everything += [f"{row.name}{kind}" for row in families.FAMILIES for kind in ("", ".bf16")]
    for label in everything if a.all else KEPT:
        if label.startswith(a.only):
            write(a.out, label, scratch)
    if not (a.all or a.only):
        write_quantized(a.out / "quantized", scratch)
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
