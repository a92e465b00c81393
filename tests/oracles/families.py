"""Tiny random models of the families of 2026, written as GGUF files by llama.cpp's own converter.

`models_golden.py` writes the rows below beside its own.  A row is a class of transformers, the fields of its
configuration, and changes of these fields that the golden must notice.  llama.cpp's converter (the folder that
`--llama-cpp` names, of llama-cpp-python's source package) turns the saved checkpoint into the GGUF file, so that the
file has the names, the metadata and the row orders that files of users have; only the vocabulary is ours.
"""
import contextlib
import importlib
import io
import json
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers

EPS = 2e-2      # large, so that residuals of ordinary size show it


@dataclass
class Family:
    """One golden."""
    name: str
    arch: str                    # what the converter calls it
    cls: str                     # the class of transformers, without ForCausalLM
    fields: dict                 # of its configuration
    n_tokens: int = 72
    seed: int = 1
    changes: dict = field(default_factory=dict)     # field: another value, which must move the logits
    tensors: dict = field(default_factory=dict)     # part of a parameter's name: (mean, standard deviation)
    experts: tuple = ()          # (experts, experts in use), for the check that no choice is close
    router: str = "gate"         # the module of a layer's `mlp` that chooses experts
    nmse: float = 1e-9


def sizes(**more):
    """Fields that most configurations have."""
    return dict(vocab_size=96, hidden_size=32, intermediate_size=44, num_hidden_layers=4, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=EPS, tie_word_embeddings=False,
                bos_token_id=1, eos_token_id=2, pad_token_id=0, use_cache=False, attn_implementation="eager",
                dtype="float32") | more


QWEN35 = dict(head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=12, linear_value_head_dim=10,
              rope_parameters={"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.5,
                               "mrope_section": [2, 1, 1], "mrope_interleaved": True})
QWEN35_CHANGES = {"rms_norm_eps": 2 * EPS,
                  "rope_parameters": QWEN35["rope_parameters"] | {"rope_theta": 200.0},
                  "layer_types": ["linear_attention"] * 2 + ["full_attention"] * 2}
QWEN_EXPERTS = dict(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=12, shared_expert_intermediate_size=20,
                    experts_implementation="eager")

GEMMA4 = dict(rms_norm_eps=0.1, head_dim=12, global_head_dim=16, num_hidden_layers=6, sliding_window=13, final_logit_softcapping=2.0,
              layer_types=["sliding_attention", "full_attention"] * 3, tie_word_embeddings=True,
              rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
                               "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 300.0}})
GEMMA4_CHANGES = {"rms_norm_eps": 0.2, "sliding_window": 11, "final_logit_softcapping": 3.0,
                  "rope_parameters": GEMMA4["rope_parameters"] | {"sliding_attention": {"rope_type": "default", "rope_theta": 70.0}}}
# Small queries, keys and values: their norms would hide a change of the epsilon of the norm before.
GEMMA4_TENSORS = {name: (0.0, 0.04) for name in ("q_proj", "k_proj", "v_proj")}
NO_LAYER_EMBEDDINGS = dict(hidden_size_per_layer_input=0, vocab_size_per_layer_input=1)

FAMILIES = [
    Family("gemma4", "gemma4", "Gemma4", sizes(**GEMMA4 | dict(hidden_size_per_layer_input=8, vocab_size_per_layer_input=96,
           num_kv_shared_layers=3, use_double_wide_mlp=True, num_hidden_layers=7, num_key_value_heads=1,
           layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2 + ["full_attention"])), seed=5,
           changes=GEMMA4_CHANGES, tensors=GEMMA4_TENSORS, nmse=1e-10),
    Family("gemma4-dense", "gemma4", "Gemma4", sizes(**GEMMA4, **NO_LAYER_EMBEDDINGS, attention_k_eq_v=True,
           num_global_key_value_heads=1), seed=6, changes=GEMMA4_CHANGES, tensors=GEMMA4_TENSORS, nmse=1e-10),
    Family("gemma4-moe", "gemma4", "Gemma4", sizes(**GEMMA4, **NO_LAYER_EMBEDDINGS, attention_k_eq_v=True,
           num_global_key_value_heads=1, enable_moe_block=True, num_experts=6, top_k_experts=3, moe_intermediate_size=12,
           experts_implementation="eager"), seed=7, experts=(6, 3),
           changes={"top_k_experts": 2}, tensors=GEMMA4_TENSORS, nmse=1e-10),
    Family("qwen35", "qwen35", "Qwen3_5", sizes(**QWEN35), changes=QWEN35_CHANGES),
    Family("qwen35-tied", "qwen35", "Qwen3_5", sizes(**QWEN35 | {"linear_num_value_heads": 2, "linear_conv_kernel_dim": 3,
           "linear_key_head_dim": 16, "linear_value_head_dim": 16}, tie_word_embeddings=True, num_hidden_layers=3,
           layer_types=["linear_attention", "full_attention", "linear_attention"]), seed=2),
    Family("qwen35moe", "qwen35moe", "Qwen3_5Moe", sizes(**QWEN35, **QWEN_EXPERTS), seed=3, experts=(6, 3),
           changes={"num_experts_per_tok": 2}),
    Family("qwen3next", "qwen3next", "Qwen3Next", sizes(**QWEN35 | {"rope_parameters": {"rope_type": "default",
           "rope_theta": 500.0, "partial_rotary_factor": 0.5}}, **QWEN_EXPERTS, norm_topk_prob=True), seed=4, experts=(6, 3),
           changes={"num_experts_per_tok": 2}),
]


def configuration(row, **other):
    name = row.cls + ("TextConfig" if hasattr(transformers, row.cls + "TextConfig") else "Config")
    return getattr(transformers, name)(**(row.fields | other))


def empty(row, **other):
    torch.manual_seed(0)
    return getattr(transformers, row.cls + "ForCausalLM")(configuration(row, **other)).eval()


def deviation(row, name, p):
    """Mean and standard deviation of a parameter; `p` is as transformers makes it."""
    for part, given in row.tensors.items():
        if part in name:
            return given
    fan_in = p.shape[-1] ** -0.5
    if name.endswith("A_log"):
        return -1.0, 0.7
    if name.endswith("dt_bias"):
        return 0.0, 1.0
    if "conv" in name and name.endswith("weight"):
        return 0.0, 0.5
    if "norm" in name and name.endswith("weight"):
        return round(float(p.detach().mean())), 0.2          # 0 where the class adds 1
    if name.endswith(("layer_scalar", "router.scale", "per_expert_scale")):
        return 1.0, 0.2
    if name.endswith("bias"):
        return 0.0, 0.3
    if "embed" in name:
        return 0.0, 0.3
    if any(part in name for part in ("o_proj", "out_proj", "down_proj")):
        return 0.0, 0.4 * fan_in
    if any(part in name for part in ("q_proj", "k_proj")):
        return 0.0, 1.6 * fan_in
    return 0.0, 1.3 * fan_in


def weights(model):
    """(name, tensor) of everything that a checkpoint has."""
    yield from model.named_parameters()
    yield from ((name, p) for name, p in model.named_buffers() if name.endswith("layer_scalar"))


def build(row):
    """The model of a row with every parameter drawn from its seed."""
    rng = np.random.default_rng(row.seed)
    model = empty(row)
    for name, p in weights(model):
        mean, std = deviation(row, name, p)
        p.data = torch.from_numpy((mean + std * rng.standard_normal(p.shape)).astype(np.float32))
    model.tie_weights()
    return model


def mutants(row, model, logits):
    """(what, logits) with each parameter in turn replaced (norms by 1, everything else by 0), and each change of a field."""
    for name, p in weights(model):
        kept = p.data
        blank = float(deviation(row, name, p)[0]) if "norm" in name and name.endswith("weight") else 0.0
        for part in range(len(kept)) if ".experts." in name and kept.ndim == 3 else [slice(None)]:
            p.data = kept.clone()
            p.data[part] = blank
            yield f"{name}[{part}]" if isinstance(part, int) else name, logits(model)
        p.data = kept
    for name, value in row.changes.items():
        other = empty(row, **{name: value})
        other.load_state_dict(model.state_dict(), strict=False)
        yield name, logits(other)


def write_gguf(path, row, model, llama_cpp, add_vocabulary):
    """The checkpoint, converted by llama.cpp."""
    sys.path.insert(0, str(llama_cpp))
    conversion = importlib.import_module("conversion")
    base = importlib.import_module("conversion.base")
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        model.save_pretrained(folder)
        if row.arch.startswith("gemma"):    # whose converter counts the tokens
            count = {"model": {"vocab": {str(i): i for i in range(model.config.vocab_size)}}, "added_tokens": []}
            (Path(folder) / "tokenizer.json").write_text(json.dumps(count))
        arch = base.get_model_architecture(base.ModelBase.load_hparams(Path(folder), False), base.ModelType.TEXT)
        cls = conversion.get_model_class(arch)
        cls = type(cls.__name__, (cls,), {"set_vocab": lambda self: add_vocabulary(self.gguf_writer), "model_arch": cls.model_arch,
                                            "no_mtp": True})
        with torch.inference_mode():
            cls(Path(folder), gguf.LlamaFileType.ALL_F32, path, model_name=f"{row.name}-tiny-random").write()
