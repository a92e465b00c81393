#!/usr/bin/env python3
"""Tiny random models of every architecture, with the logits Hugging Face transformers computes for them.

For each row of MODELS: a seeded model is built in transformers, every parameter is drawn away from its default,
the model is written as a GGUF file as llama.cpp's converter would write it (tensor names, metadata, row order of
attn_q and attn_k), and the logits of one token sequence become the golden.  `--check` also proves that the golden
can fail: it removes every parameter and changes every hyperparameter in turn and demands that the logits move.

    models_golden.py ../golden/models            # rewrite the goldens
    models_golden.py ../golden/models --check    # and print the mutation that moves the logits least

All activations are scaled so that the mean square entering any RMS norm is about 100 x eps: then an error in eps
shows in the logits, whatever its size, and the network is otherwise the same.
"""
import argparse
import json
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers

import families

N_VOCAB = 96
NMSE = 1e-9   # required of atta; correct f32 implementations differ by about 1e-12 (llama.cpp from transformers: < 1e-12)
MOVED = 1e-5  # required of every mutation
CALL = 1.001  # demanded of the choice of experts: the last one chosen is likelier than the next by this factor
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "beta_fast": 2.0, "beta_slow": 0.2}
LONGROPE = {"rope_type": "longrope", "partial_rotary_factor": 0.75, "short_factor": [1.0, 1.1, 1.3, 1.2, 1.5, 1.4],
            "long_factor": [1.0, 1.5, 2.5, 4.0, 5.0, 6.0]}


@dataclass
class Row:
    """One golden: a Hugging Face architecture, its shape, and the length of the sequence."""
    name: str
    hf: str                      # prefix of the transformers classes: Llama, Mistral, Qwen2, Gemma3 ...
    d_model: int
    d_ff: int
    heads: tuple                 # (n_heads, n_kv_heads)
    tied: bool
    eps: float
    theta: float
    n_tokens: int
    d_head: int = 0              # 0: d_model / n_heads, and no key_length in the file
    n_layers: int = 2
    n_ctx: int = 256
    rope: dict = field(default_factory=dict)    # beyond the plain {rope_type, rope_theta}
    extra: dict = field(default_factory=dict)   # other fields of the transformers configuration
    theta_swa: float = 0.0       # of the layers with a window, where they have a base of their own
    experts: tuple = ()          # (n_experts, n_used, width of one, width of the shared one); width 0: none
    names_widths: bool = True    # whether the file says the widths of experts
    seed: int = 0                # 0: the number of the row


MODELS = [
    Row("llama-plain", "Llama", 40, 72, (4, 2), False, 1e-5, 10000.0, 48),
    Row("llama-tied-mha", "Llama", 48, 44, (4, 4), True, 1e-2, 100.0, 40),
    Row("llama3-rope", "Llama", 48, 64, (3, 1), True, 1e-5, 300.0, 80, d_head=16, rope=LLAMA3),
    Row("llama-bias", "Llama", 40, 68, (2, 1), False, 1e-6, 2000.0, 32, extra={"attention_bias": True, "mlp_bias": True}),
    Row("llama-linear-rope", "Llama", 36, 72, (3, 3), False, 1e-5, 1000.0, 64, rope={"rope_type": "linear", "factor": 4.0}),
    Row("mistral", "Mistral", 40, 52, (4, 2), False, 1e-5, 50000.0, 40, d_head=16, extra={"sliding_window": None}),
    Row("smollm2", "Llama", 36, 64, (9, 3), True, 1e-5, 100.0, 24, n_layers=3),
    Row("qwen2", "Qwen2", 48, 60, (4, 2), True, 1e-6, 1000.0, 40),
    Row("qwen2-untied", "Qwen2", 40, 68, (5, 1), False, 1e-2, 10000.0, 48),
    Row("qwen3", "Qwen3", 48, 44, (4, 2), True, 1e-6, 10000.0, 48, d_head=16),
    Row("qwen3-untied", "Qwen3", 40, 68, (2, 1), False, 1e-2, 500.0, 40, d_head=24),
    Row("llama-yarn", "Llama", 32, 44, (2, 1), False, 1e-5, 20.0, 96, seed=101,
        rope={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 400}),
    Row("llama-dynamic-rope", "Llama", 32, 44, (4, 2), True, 1e-5, 500.0, 128, n_ctx=64, rope={"rope_type": "dynamic", "factor": 2.0}, seed=102),
    Row("gemma", "Gemma", 32, 48, (4, 1), True, 1e-6, 10000.0, 40, d_head=12, seed=103),
    Row("gemma2", "Gemma2", 24, 36, (4, 2), True, 1e-6, 10000.0, 48, d_head=10, n_layers=3, seed=104,
        extra={"sliding_window": 11, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 0.02, "query_pre_attn_scalar": 10}),
    Row("gemma3", "Gemma3", 24, 28, (2, 1), True, 1e-6, 500.0, 72, d_head=12, n_layers=7, theta_swa=100.0, seed=105,
        rope={"rope_type": "linear", "factor": 4.0}, extra={"sliding_window": 13, "query_pre_attn_scalar": 12}),
    Row("phi2", "Phi", 32, 60, (4, 4), False, 1e-5, 1000.0, 40, rope={"partial_rotary_factor": 0.75}, seed=106),
    Row("phi3", "Phi3", 32, 44, (4, 2), False, 1e-5, 10000.0, 40, extra={"sliding_window": 15}, seed=107),
    Row("phi3-long", "Phi3", 32, 44, (2, 1), True, 1e-5, 1000.0, 64, n_ctx=96, seed=108,
        rope={**LONGROPE, "original_max_position_embeddings": 24}, extra={"original_max_position_embeddings": 24}),
    Row("phi3-short", "Phi3", 32, 44, (2, 1), False, 1e-5, 1000.0, 40, n_ctx=16384, seed=109,
        rope={**LONGROPE, "original_max_position_embeddings": 4096}, extra={"original_max_position_embeddings": 4096}),
    Row("gpt2", "GPT2", 32, 68, (4, 4), True, 1e-5, 0.0, 48, n_ctx=128, seed=110),
    Row("smollm3", "SmolLM3", 32, 36, (4, 2), True, 1e-6, 1000.0, 40, n_layers=5, seed=111),
    Row("olmo2", "Olmo2", 32, 44, (4, 2), False, 1e-6, 1000.0, 40, seed=112),
    Row("olmo3", "Olmo3", 24, 28, (2, 2), False, 1e-6, 20.0, 96, n_layers=5, theta_swa=20.0, seed=115,
        rope={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 400}, extra={"sliding_window": 17}),
    Row("granite", "Granite", 32, 44, (4, 2), True, 1e-5, 1000.0, 40, seed=113,
        extra={"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.25, "logits_scaling": 8.0}),
    Row("mistral3", "Ministral3", 32, 44, (2, 1), False, 1e-5, 500.0, 96, seed=114, extra={"head_dim": 16},
        rope={**YARN, "original_max_position_embeddings": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.4}),
    Row("mixtral", "Mixtral", 36, 20, (3, 1), False, 1e-5, 1000.0, 48, experts=(5, 2, 20, 0), names_widths=False, seed=101,
        extra={"sliding_window": None}),
    Row("qwen2moe", "Qwen2Moe", 40, 68, (4, 2), False, 1e-6, 10000.0, 48, experts=(6, 3, 12, 28), seed=102,
        extra={"norm_topk_prob": False}),
    Row("qwen2moe-old", "Qwen2Moe", 32, 40, (2, 2), False, 1e-5, 1000.0, 32, experts=(7, 4, 10, 40), names_widths=False, seed=103,
        extra={"norm_topk_prob": False}),
    Row("qwen3moe", "Qwen3Moe", 40, 52, (4, 1), True, 1e-6, 10000.0, 48, d_head=16, experts=(8, 3, 10, 0), seed=104,
        extra={"norm_topk_prob": True}),
    Row("gpt-oss", "GptOss", 32, 12, (4, 2), False, 1e-5, 500.0, 96, d_head=12, n_layers=2, experts=(5, 3, 12, 0), seed=122,
        rope={**YARN, "truncate": False, "original_max_position_embeddings": 40},
        extra={"sliding_window": 15, "swiglu_alpha": 1.702, "swiglu_limit": 7.0}),
    Row("bitnet", "BitNet", 32, 44, (4, 2), True, 1e-3, 1000.0, 40, seed=130),
    Row("bitnet-silu", "BitNet", 32, 44, (4, 4), True, 1e-3, 1000.0, 40, seed=130, extra={"hidden_act": "silu"}),
]

# Fields of the configuration that some classes call otherwise; None: they have no such field.
FIELDS = {
    "Phi": {"rms_norm_eps": "layer_norm_eps"},
    "GPT2": {"hidden_size": "n_embd", "intermediate_size": "n_inner", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
             "num_key_value_heads": None, "max_position_embeddings": "n_positions", "rms_norm_eps": "layer_norm_epsilon", "rope_parameters": None},
}
ARCHITECTURES = {"Mistral": "llama", "Mixtral": "llama", "Phi": "phi2", "Ministral3": "mistral3",
                 "Olmo3": "olmo2", "GptOss": "gpt-oss"}   # others: the class in lower case
ROTATED_IN_PAIRS = {"llama", "granite", "smollm3", "mistral3"}                  # whose converters reorder rows of attn_q and attn_k
OFFSET_NORMS = {"gemma", "gemma2", "gemma3"}                                    # transformers adds 1 to these weights, the converter too
SUB_NORMS = {"attn_sub_norm": "inner_attn_ln", "ffn_sub_norm": "ffn_layernorm"}    # gguf-py knows BitNet's by their older names
POST_NORMS = {"gemma2", "gemma3", "olmo2"}


# The model, in transformers

def rope_parameters(row):
    rope = {"rope_type": "default", "rope_theta": row.theta, **row.rope}
    if row.theta_swa:
        return {"full_attention": rope, "sliding_attention": {"rope_type": "default", "rope_theta": row.theta_swa}}
    return rope


def configuration(row):
    cls = getattr(transformers, f"{row.hf}TextConfig" if row.hf == "Gemma3" else f"{row.hf}Config")
    fields = dict(vocab_size=N_VOCAB, hidden_size=row.d_model, intermediate_size=row.d_ff, num_hidden_layers=row.n_layers,
                  num_attention_heads=row.heads[0], num_key_value_heads=row.heads[1], max_position_embeddings=row.n_ctx,
                  rms_norm_eps=row.eps, tie_word_embeddings=row.tied, rope_parameters=rope_parameters(row), use_cache=False,
                  bos_token_id=1, eos_token_id=2, attn_implementation="eager", dtype="float32", **row.extra)
    if row.d_head:
        fields["head_dim"] = row.d_head
    if row.hf in ("Phi3", "Gemma", "Gemma2", "Gemma3", "SmolLM3", "Olmo2", "Olmo3", "Ministral3"):
        fields["pad_token_id"] = 0              # the default is beyond our vocabulary
    fields |= expert_fields(row) if row.experts else {}
    named = {FIELDS.get(row.hf, {}).get(name, name): value for name, value in fields.items()}
    named.pop(None, None)
    return cls(**named)


def expert_fields(row):
    """The fields of a configuration that say what experts there are."""
    n, n_used, d_ff, d_shared = row.experts
    eager = {"num_experts_per_tok": n_used, "experts_implementation": "eager"}
    if row.hf in ("Mixtral", "GptOss"):
        assert d_ff == row.d_ff
        return {"num_local_experts": n, **eager}
    shared = {"shared_expert_intermediate_size": d_shared} if d_shared else {}
    return {"num_experts": n, "moe_intermediate_size": d_ff, "decoder_sparse_step": 1, **shared, **eager}


def tensor_name(row, name):
    """The GGUF name of a parameter; of gate and up of all experts, which transformers keeps in one, a name of ours."""
    if ".mlp.experts." in name:
        kind = "bias" if name.endswith("_bias") else "weight"
        return f"blk.{name.split('.')[2]}.ffn_{'down' if 'down_proj' in name else 'gate_up'}_exps.{kind}"
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture(row).upper().replace("-", "_")], row.n_layers)
    if name.endswith(".sinks"):                 # a parameter of the attention itself, which the converter calls a weight
        return names.get_name(name) + ".weight"
    for new, old in SUB_NORMS.items():
        name = name.replace(new, old)
    return names.get_name(name, try_suffixes=(".weight", ".bias"))


def deviation(name, shape, row):
    """Mean and standard deviation of a tensor as the file has it, by its GGUF name."""
    # The scale of the residual stream: small, so that eps shows; smaller where biases or further norms hide it.
    small = {"gpt2": 5, "phi2": 5}.get(architecture(row), 3 if architecture(row) in POST_NORMS else 10) * row.eps ** 0.5
    fan_in, base = shape[-1] ** -0.5, name.split(".")[-2]
    embed, residual = row.extra.get("embedding_multiplier", 1.0), row.extra.get("residual_multiplier", 1.0)
    if "_norm" in base:
        if name.endswith("bias"):
            return 0.0, 0.3
        is_post = base.startswith("post_") and architecture(row) in POST_NORMS
        scale = small if is_post else 1.5 if base in ("attn_q_norm", "attn_k_norm") else 1.0
        return scale, 0.2 * min(scale, 1.0)     # unit queries and keys would leave attention nearly uniform
    if base in ("token_embd", "position_embd"):
        return 0.0, small / (embed if architecture(row) not in OFFSET_NORMS else row.d_model ** 0.5)
    if name.endswith("bias"):
        # A router's is smaller, so that no expert is left without positions.
        return 0.0, small if base in ("attn_output", "ffn_down", "ffn_down_exps") else 0.3 if base == "ffn_gate_inp" else 0.7
    if base == "attn_sinks":                    # of the size of scores
        return 0.0, 1.5
    if base == "ffn_gate_up_exps" and "swiglu_limit" in row.extra:  # some beyond the limit
        return 0.0, 4.0 * fan_in
    if base in ("attn_output", "ffn_down", "ffn_down_exps", "ffn_down_shexp"):
        is_clamped = "swiglu_limit" in row.extra    # then the products are large
        return 0.0, (0.4 if is_clamped else 2 if row.experts else 1.2) * small * fan_in / residual
    if base == "ffn_gate_inp":                  # a router, whose favourites should have clearly different weights
        return 0.0, 1.6 * fan_in
    if base in ("attn_q", "attn_k"):            # where a norm follows, its eps must matter too
        reads_residual = architecture(row) == "olmo2"
        return 0.0, (1.0 if reads_residual else small if architecture(row) in ("qwen3", "qwen3moe", "gemma3") else 1.6) * fan_in
    if architecture(row) == "bitnet" and base in ("ffn_gate", "ffn_up"):   # the norm behind them hides large scales
        return 0.0, 0.4 * fan_in
    if base == "attn_qkv":
        return 0.0, 1.6 * fan_in
    if architecture(row) == "olmo2" and base != "output":   # these read the residual itself
        return 0.0, 1.2 * fan_in / small
    return 0.0, 1.2 * fan_in


def empty(row):
    """The model of a row, its parameters not yet ours."""
    suffix = "LMHeadModel" if row.hf == "GPT2" else "ForCausalLM"
    return getattr(transformers, row.hf + suffix)(configuration(row)).eval()


def build(row, seed):
    """The model of a row with every parameter drawn from `seed`."""
    rng = np.random.default_rng(seed)
    model = empty(row)
    for name, p in model.named_parameters():
        shape = (*p.shape[:-2], *p.shape[:-3:-1]) if is_transposed(row, name, p) else p.shape
        mean, std = deviation(tensor_name(row, name), shape, row)
        mean -= offset(row, name)
        p.data = torch.from_numpy((mean + std * rng.standard_normal(p.shape)).astype(np.float32))
    model.tie_weights()
    return model


def is_transposed(row, name, p):
    """Whether transformers keeps a matrix, or one for each expert, as [d_in, d_out]."""
    return row.hf == "GPT2" and p.ndim == 2 and ".h." in name or row.hf == "GptOss" and p.ndim == 3


def offset(row, name):
    """What transformers, and the converter, add to a parameter."""
    return 1.0 if architecture(row) in OFFSET_NORMS and name.endswith("norm.weight") else 0.0


def token_ids(row, seed):
    """BOS, then ordinary tokens at random."""
    rng = np.random.default_rng(seed + 1000)
    return [1] + rng.integers(3, N_VOCAB, row.n_tokens - 1).tolist()


def logits_of(model, tokens):
    """[n_tokens, n_vocab] float32"""
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].numpy().astype("<f4")


def results_of(row, model, tokens):
    """Logits, or the hidden states of an encoder, or the scores of a classifier."""
    types = {}
    if row.first_of_second:
        types["token_type_ids"] = torch.tensor([[int(i >= row.first_of_second) for i in range(len(tokens))]])
    with torch.no_grad():
        out = model(torch.tensor([tokens]), **types)
    return (out.logits if "logits" in out else out.last_hidden_state)[0].numpy().astype("<f4")


# The model, as a GGUF file

def interleaved(w, n_heads):
    """Rows of a rotated head from (first half, second half) to the adjacent pairs that arch `llama` uses."""
    d_pair = w.shape[0] // n_heads // 2
    return w.reshape(n_heads, 2, d_pair, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def rope_divisors(row):
    """Llama 3's frequency divisors, [d_head / 2]: 1 for short waves, `factor` for long ones, a ramp between."""
    d_head, p = row.d_head or row.d_model // row.heads[0], row.rope
    wave = 2 * np.pi * row.theta ** (np.arange(0, d_head, 2) / d_head)
    turns = p["original_max_position_embeddings"] / wave
    ramp = np.clip((turns - p["low_freq_factor"]) / (p["high_freq_factor"] - p["low_freq_factor"]), 0, 1)
    return (1 / ((1 - ramp) / p["factor"] + ramp)).astype(np.float32)


def tensors(row, model):
    """(GGUF name, float32 array) of every tensor, in file order."""
    if row.rope.get("rope_type") == "llama3":
        yield "rope_freqs.weight", rope_divisors(row)
    for name, p in model.named_parameters():    # a tied lm_head is not listed twice
        w, gguf_name = p.detach().numpy(), tensor_name(row, name)
        if architecture(row) in ROTATED_IN_PAIRS and ("q_proj" in name or "k_proj" in name):
            w = interleaved(w, row.heads["k_proj" in name])
        if is_transposed(row, name, p):
            w = w.swapaxes(-1, -2)
        if "gate_up_exps" in gguf_name:         # in halves, or row by row
            halves = (w[:, ::2], w[:, 1::2]) if row.hf == "GptOss" else np.split(w, 2, axis=1)
            for part, half in zip(("gate", "up"), halves):
                yield gguf_name.replace("gate_up", part), half
        elif "gate_inp_shexp" in gguf_name:     # a matrix of one row, which the converter writes as a vector
            yield gguf_name, w[0]
        else:
            yield gguf_name, w + np.float32(offset(row, name)) if offset(row, name) else w
    for key in ("long", "short"):
        if f"{key}_factor" in row.rope:
            yield f"rope_factors_{key}.weight", np.array(row.rope[f"{key}_factor"], np.float32)


def architecture(row):
    return ARCHITECTURES.get(row.hf, row.hf.lower())


def width_of_head(row):
    return row.d_head or row.extra.get("head_dim") or row.d_model // row.heads[0]


def add_rope_parameters(w, row):
    rope, kind = row.rope, row.rope.get("rope_type")
    if architecture(row) == "bitnet":             # its converter says so of every model
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(1.0)
    if kind == "linear":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(rope["factor"])
    w.add_rope_freq_base(row.theta)
    if row.theta_swa:
        w.add_rope_freq_base_swa(row.theta_swa)
    if kind == "dynamic":                       # no converter writes it; the key is the one of the others
        w.add_string(f"{architecture(row)}.rope.scaling.type", "dynamic")
        w.add_rope_scaling_factor(rope["factor"])
        w.add_rope_scaling_orig_ctx_len(row.n_ctx)
    if kind == "yarn":
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(rope["factor"])
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if "beta_fast" in rope:
            w.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
            w.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    if "mscale_all_dim" in rope:
        w.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
    if "llama_4_scaling_beta" in rope:
        w.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
    if architecture(row) == "phi3":
        original = rope.get("original_max_position_embeddings", row.n_ctx)
        w.add_rope_scaling_orig_ctx_len(original)
        if "long_factor" in rope:
            w.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(row.n_ctx / original) / np.log(original))))
        w.add_sliding_window(row.extra.get("sliding_window", 0))


def add_parameters(w, row):
    arch, d_head = architecture(row), width_of_head(row)
    w.add_type("model")
    w.add_name(f"{row.name}-tiny-random".replace("phi3", "phi-three"))  # llama.cpp patches the vocabulary of models named phi3
    w.add_block_count(row.n_layers)
    # The configuration of a dynamic rope has the original context here, a file the one that it stretches to.
    w.add_context_length(int(row.n_ctx * row.rope["factor"]) if row.rope.get("rope_type") == "dynamic" else row.n_ctx)
    w.add_embedding_length(row.d_model)
    w.add_feed_forward_length(row.d_ff)
    w.add_head_count(row.heads[0])
    w.add_head_count_kv(row.heads[1])
    if arch != "gpt2":
        add_rope_parameters(w, row)
    (w.add_layer_norm_eps if arch in ("phi2", "gpt2") else w.add_layer_norm_rms_eps)(row.eps)
    if row.experts:
        w.add_expert_count(row.experts[0])
        w.add_expert_used_count(row.experts[1])
    if row.experts and row.names_widths:
        w.add_expert_feed_forward_length(row.experts[2])
    if row.experts and row.names_widths and row.experts[3]:
        w.add_expert_shared_feed_forward_length(row.experts[3])
    if row.d_head or "head_dim" in row.extra:
        w.add_key_length(d_head)
        w.add_value_length(d_head)
    w.add_file_type(gguf.LlamaFileType.ALL_F32)
    if row.hf == "Olmo3":                       # the one whose converter writes the pattern out
        w.add_sliding_window_pattern([(i + 1) % 4 != 0 for i in range(row.n_layers)])
    if arch in ROTATED_IN_PAIRS:
        w.add_vocab_size(N_VOCAB)
    if arch in ROTATED_IN_PAIRS or arch in ("phi2", "phi3"):
        w.add_rope_dimension_count(int(d_head * row.rope.get("partial_rotary_factor", 1.0)))
    for key, add in {"sliding_window": w.add_sliding_window, "attn_logit_softcapping": w.add_attn_logit_softcapping,
                     "final_logit_softcapping": w.add_final_logit_softcapping, "attention_multiplier": w.add_attention_scale,
                     "embedding_multiplier": w.add_embedding_scale, "residual_multiplier": w.add_residual_scale,
                     "logits_scaling": w.add_logit_scale}.items():
        if row.extra.get(key) is not None and arch != "phi3":
            add(row.extra[key])
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)


def vocabulary():
    """A SentencePiece vocabulary of 96 tokens without byte fallback: controls, pieces (best first), single characters."""
    pieces = ("▁t he ▁a in ▁the er on re at ou en ▁w nd ▁s it or ▁h is ar ▁b ing ▁m ed ▁c es an ▁f ll ▁to ▁d ▁o "
              "st ▁p om le ▁l ▁n ▁in ve ▁and ▁you ▁of ▁be ▁he ha hi me ▁it no ow us ▁y ▁g li ▁r ▁e ▁u").split()
    letters = list("▁etaoinhsrdlumywcfgpbvk.,'!?xjqz-;:\"")[:N_VOCAB - 3 - len(pieces)]
    tokens = ["<unk>", "<s>", "</s>"] + pieces + letters
    scores = [0.0] * 3 + [-float(i) for i in range(len(tokens) - 3)]
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL] + [gguf.TokenType.NORMAL] * (N_VOCAB - 3)
    return tokens, scores, kinds


def add_vocabulary(w):
    tokens, scores, kinds = vocabulary()
    assert len(tokens) == len(set(tokens)) == N_VOCAB
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list(tokens)
    w.add_token_scores(scores)
    w.add_token_types(kinds)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    w.add_add_bos_token(True)
    w.add_add_eos_token(False)


def write_gguf(path, row, model):
    w = gguf.GGUFWriter(path, architecture(row))
    add_parameters(w, row)
    add_vocabulary(w)
    for name, data in tensors(row, model):
        w.add_tensor(name, np.ascontiguousarray(data))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


# Proof that the golden can fail

def nmse(got, want):
    got, want = got.astype(np.float64), want.astype(np.float64)
    return float(((got - want) ** 2).sum() / (want ** 2).sum())


def without_parameters(row, model, tokens):
    """(name, logits) with each parameter in turn replaced: norms by 1, everything else by 0; those of experts one by one."""
    for name, p in model.named_parameters():
        kept, is_norm = p.data, "_norm.weight" in tensor_name(row, name)
        for part in range(len(kept)) if ".mlp.experts." in name else [slice(None)]:
            p.data = kept.clone()
            p.data[part] = 1 - offset(row, name) if is_norm else 0
            yield f"{name}[{part}]" if isinstance(part, int) else name, logits_of(model, tokens)
        p.data = kept


def other(value):
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, list):
        return [1.5 * x for x in value]
    return int(1.5 * value) if isinstance(value, int) else 1.5 * value


def idle_fields(row):
    """Fields of the rotation that this model does not use, or that cannot change alone."""
    is_long = row.rope.get("original_max_position_embeddings", 0) < row.n_tokens
    longrope = ["short_factor" if is_long else "long_factor", "partial_rotary_factor"]
    return ["mscale"] + (longrope if "long_factor" in row.rope else [])


def with_other_fields(row, seed, tokens):
    """(field, logits) with each hyperparameter in turn changed."""
    changed = {"eps": {"eps": row.eps * 2}}
    changed |= {"theta": {"theta": row.theta * 1.2}} if row.theta else {}
    changed |= {"theta_swa": {"theta_swa": row.theta_swa * 1.2}} if row.theta_swa else {}
    rope = {"factor": 2.0, "low_freq_factor": 1.5, "high_freq_factor": 3.0}
    for k, v in row.rope.items():
        if isinstance(v, (int, float, list)) and k not in idle_fields(row):
            value = 0.5 if k in ("partial_rotary_factor", "mscale_all_dim") else rope.get(k, v)
            value = other(v) if value == v else value
            twice = {"extra": {**row.extra, k: value}} if k in row.extra else {}
            changed["rope " + k] = {"rope": {**row.rope, k: value}, **twice}
    kept = {k: v for k, v in row.rope.items() if k in ("llama_4_scaling_beta", "original_max_position_embeddings")}
    changed |= {"no rope scaling": {"rope": kept}} if row.rope else {}
    for k, v in row.extra.items():
        if isinstance(v, (int, float)) and not isinstance(v, bool) and k not in ("head_dim", "original_max_position_embeddings"):
            changed[k] = {"extra": {**row.extra, k: other(v)}}
    if row.experts:
        changed["experts in use"] = {"experts": (row.experts[0], row.experts[1] - 1, *row.experts[2:])}
    if "norm_topk_prob" in row.extra:
        changed["norm_topk_prob"] = {"extra": {**row.extra, "norm_topk_prob": not row.extra["norm_topk_prob"]}}
    for label, change in changed.items():
        model = empty(replace(row, **change))
        model.load_state_dict(build(row, seed).state_dict())
        yield label, logits_of(model, tokens)


def weakest_mutation(row, seed, tokens, want):
    """The mutation that moves the logits least, and its NMSE; fails below MOVED."""
    mutants = [*without_parameters(row, build(row, seed), tokens), *with_other_fields(row, seed, tokens)]
    moved = sorted((nmse(got, want), label) for label, got in mutants)
    assert moved[0][0] > MOVED, f"{row.name}: {moved[0]} does not show"
    return moved[0]


def closest_call(model, row, tokens):
    """The smallest ratio of the probability of the last expert chosen to that of the first one left out: far enough from 1
    for an implementation that rounds otherwise to choose the same."""
    margins = []
    def look(_, __, out):
        p = out[0].softmax(-1).sort(-1, descending=True).values
        margins.append((p[:, row.experts[1] - 1] / p[:, row.experts[1]]).min())
    router = "router" if row.hf == "GptOss" else "gate"
    hooks = [getattr(layer.mlp, router).register_forward_hook(look) for layer in model.model.layers]
    logits_of(model, tokens)
    [hook.remove() for hook in hooks]
    return float(min(margins))


def sharpest_attention(model, tokens):
    """Mean of the largest attention probability over rows with at least 8 keys."""
    with torch.no_grad():
        maps = model(torch.tensor([tokens]), output_attentions=True).attentions
    return float(torch.stack([m[0, :, 8:].amax(-1).mean() for m in maps]).mean())


def write_index(out, entries):
    """index.json, one model per line."""
    versions = {name: version(name) for name in ("transformers", "torch", "gguf", "numpy")}
    lines = ",\n".join("  " + json.dumps(e) for e in entries)
    head = json.dumps({"written_by": "tests/oracles/models_golden.py", "versions": versions, "n_vocab": N_VOCAB})
    (out / "index.json").write_text(f'{head[:-1]}, "models": [\n{lines}\n]}}\n')


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out", type=Path, help="tests/golden/models")
    ap.add_argument("--check", action="store_true", help="prove that every parameter and field moves the logits")
    ap.add_argument("--only", default="", help="only rows whose name begins like this; the index has all")
    ap.add_argument("--llama-cpp", type=Path, help="llama.cpp's source, to write the rows of families.py too; without it those stay as they are")
    ap.add_argument("--hf", type=Path, help="also save the transformers models here")
    a = ap.parse_args()
    transformers.logging.set_verbosity_error()  # it warns of ratios that only real models keep
    entries = []
    for number, row in enumerate(MODELS, 1):
        seed = row.seed or number
        tokens = token_ids(row, seed)
        entries.append({"name": row.name, "arch": architecture(row), "gguf": f"{row.name}.gguf", "logits": f"{row.name}.logits",
                        "n_tokens": row.n_tokens, "nmse": NMSE, "tokens": tokens})
        if not row.name.startswith(a.only):
            continue
        model = build(row, seed)
        want = logits_of(model, tokens)
        write_gguf(a.out / f"{row.name}.gguf", row, model)
        want.tofile(a.out / f"{row.name}.logits")
        if a.hf:
            model.save_pretrained(a.hf / row.name)
        if a.check:
            moved, label = weakest_mutation(row, seed, tokens, want)
            if row.experts:
                call = closest_call(model, row, tokens)
                assert call > CALL, f"{row.name}: a choice of experts by a factor of {call}"
            print(f"{row.name:18} sharpest attention {sharpest_attention(model, tokens):.2f}  weakest mutation: {label} {moved:.1e}")
    entries += [write_family(a, row) for row in families.FAMILIES]
    write_index(a.out, entries)


def write_family(a, row):
    """Writes the golden of a row of families.py; its entry in the index."""
    rng = np.random.default_rng(row.seed + 1000)
    tokens = [1] + rng.integers(3, N_VOCAB, row.n_tokens - 1).tolist()
    if a.llama_cpp and row.name.startswith(a.only):
        model = families.build(row)
        want = results_of(row, model, tokens)
        families.write_gguf(a.out / f"{row.name}.gguf", row, model, a.llama_cpp, add_vocabulary)
        want.tofile(a.out / f"{row.name}.logits")
        if a.hf:
            model.save_pretrained(a.hf / row.name)
        if a.check:
            moved, label = min((nmse(got, want), label) for label, got in families.mutants(row, model, lambda m: results_of(row, m, tokens)))
            assert moved > MOVED, f"{row.name}: {label} {moved} does not show"
            call = families.closest_choice(lambda: results_of(row, model, tokens))
            assert call > CALL, f"{row.name}: a choice of blocks by a factor of {call}"
            print(f"{row.name:18} weakest mutation: {label} {moved:.1e}")
    entry = {"name": row.name, "arch": row.arch, "gguf": f"{row.name}.gguf", "logits": f"{row.name}.logits",
             "n_tokens": row.n_tokens, "nmse": row.nmse, "tokens": tokens}
    return entry if row.head == "ForCausalLM" else entry | {"encoder": True, "first_of_second": row.first_of_second or row.n_tokens}


if __name__ == "__main__":
    main()
