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

N_VOCAB = 96
NMSE = 1e-9   # demanded of us; correct f32 implementations differ by about 1e-12 (llama.cpp from transformers: < 1e-12)
MOVED = 1e-5  # demanded of every mutation
CALL = 1.001  # demanded of the choice of experts: the last one chosen is likelier than the next by this factor
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}


@dataclass
class Row:
    """One golden: a Hugging Face architecture, its shape, and the length of the sequence."""
    name: str
    hf: str                      # prefix of the transformers classes: Llama, Mistral, Qwen2, Qwen3
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
    experts: tuple = ()          # (n_experts, n_used, width of one, width of the shared one); width 0: none
    names_widths: bool = True    # whether the file says the widths of experts
    seed: int = 0                # 0: the row's number


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
    Row("mixtral", "Mixtral", 36, 20, (3, 1), False, 1e-5, 1000.0, 48, experts=(5, 2, 20, 0), names_widths=False, seed=101,
        extra={"sliding_window": None}),
    Row("qwen2moe", "Qwen2Moe", 40, 68, (4, 2), False, 1e-6, 10000.0, 48, experts=(6, 3, 12, 28), seed=102,
        extra={"norm_topk_prob": False}),
    Row("qwen2moe-old", "Qwen2Moe", 32, 40, (2, 2), False, 1e-5, 1000.0, 32, experts=(7, 4, 10, 40), names_widths=False, seed=103,
        extra={"norm_topk_prob": False}),
    Row("qwen3moe", "Qwen3Moe", 40, 52, (4, 1), True, 1e-6, 10000.0, 48, d_head=16, experts=(8, 3, 10, 0), seed=104,
        extra={"norm_topk_prob": True}),
]


# The model, in transformers

def configuration(row):
    rope = {"rope_type": "default", "rope_theta": row.theta, **row.rope}
    shape = {"head_dim": row.d_head} if row.d_head else {}
    shape |= expert_shape(row) if row.experts else {}
    cls = getattr(transformers, f"{row.hf}Config")
    return cls(vocab_size=N_VOCAB, hidden_size=row.d_model, intermediate_size=row.d_ff, num_hidden_layers=row.n_layers,
               num_attention_heads=row.heads[0], num_key_value_heads=row.heads[1], max_position_embeddings=row.n_ctx,
               rms_norm_eps=row.eps, tie_word_embeddings=row.tied, rope_parameters=rope, use_cache=False,
               bos_token_id=1, eos_token_id=2, attn_implementation="eager", experts_implementation="eager", dtype="float32", **shape, **row.extra)


def expert_shape(row):
    """The fields of a configuration that say what experts there are."""
    n, n_used, d_ff, d_shared = row.experts
    if row.hf == "Mixtral":
        assert d_ff == row.d_ff
        return {"num_local_experts": n, "num_experts_per_tok": n_used}
    shared = {"shared_expert_intermediate_size": d_shared} if d_shared else {}
    return {"num_experts": n, "num_experts_per_tok": n_used, "moe_intermediate_size": d_ff, "decoder_sparse_step": 1, **shared}


def deviation(name, shape, row):
    """Mean and standard deviation of a parameter, by its Hugging Face name."""
    small = 10 * row.eps ** 0.5                 # scale of the residual stream
    fan_in = shape[-1] ** -0.5
    if "norm" in name:
        return 1.0, 0.2
    if "embed_tokens" in name:
        return 0.0, small
    if name.endswith("bias"):
        return 0.0, small if "o_proj" in name or "down_proj" in name else 0.7
    if "o_proj" in name or "down_proj" in name:
        return 0.0, (2 if row.experts else 1.2) * small * fan_in
    if "mlp.gate.weight" in name:               # a router, whose favourites should have clearly different weights
        return 0.0, 1.6 * fan_in
    if "q_proj" in name or "k_proj" in name:    # a norm per head follows in Qwen3, and its eps must matter too
        return 0.0, (small if row.hf.startswith("Qwen3") else 1.6) * fan_in
    return 0.0, 1.2 * fan_in


def empty(row):
    """The model of a row, its parameters not yet ours."""
    return getattr(transformers, f"{row.hf}ForCausalLM")(configuration(row)).eval()


def build(row, seed):
    """The model of a row with every parameter drawn from `seed`."""
    rng = np.random.default_rng(seed)
    model = empty(row)
    for name, p in model.named_parameters():
        mean, std = deviation(name, p.shape, row)
        if "q_norm" in name or "k_norm" in name:
            mean = 1.5                          # unit queries and keys would leave attention nearly uniform
        p.data = torch.from_numpy((mean + std * rng.standard_normal(p.shape)).astype(np.float32))
    model.tie_weights()
    return model


def token_ids(row, seed):
    """BOS, then ordinary tokens at random."""
    rng = np.random.default_rng(seed + 1000)
    return [1] + rng.integers(3, N_VOCAB, row.n_tokens - 1).tolist()


def logits_of(model, tokens):
    """[n_tokens, n_vocab] float32"""
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].numpy().astype("<f4")


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
    arch = gguf.MODEL_ARCH[architecture(row).upper()]
    names = gguf.get_tensor_name_map(arch, row.n_layers)
    if row.rope.get("rope_type") == "llama3":
        yield "rope_freqs.weight", rope_divisors(row)
    for name, p in model.named_parameters():    # a tied lm_head is not listed twice
        w = p.detach().numpy()
        if architecture(row) == "llama" and ("q_proj" in name or "k_proj" in name):
            w = interleaved(w, row.heads["k_proj" in name])
        if ".mlp.experts." in name:
            yield from expert_tensors(name, w)
        elif name.endswith("shared_expert_gate.weight"):
            yield names.get_name(name, try_suffixes=(".weight",)), w[0]
        else:
            yield names.get_name(name, try_suffixes=(".weight", ".bias")), w


def expert_tensors(name, w):
    """Those of all experts of a layer, [n_experts, d_out, d_in]; transformers keeps gate and up in one."""
    prefix = f"blk.{name.split('.')[2]}.ffn"
    if name.endswith("down_proj"):
        yield f"{prefix}_down_exps.weight", w
    else:
        gate, up = np.split(w, 2, axis=1)
        yield f"{prefix}_gate_exps.weight", gate
        yield f"{prefix}_up_exps.weight", up


def architecture(row):
    return {"Llama": "llama", "Mistral": "llama", "Mixtral": "llama"}.get(row.hf, row.hf.lower())


def add_parameters(w, row):
    w.add_type("model")
    w.add_name(f"{row.name}-tiny-random")
    w.add_block_count(row.n_layers)
    w.add_context_length(row.n_ctx)
    w.add_embedding_length(row.d_model)
    w.add_feed_forward_length(row.d_ff)
    w.add_head_count(row.heads[0])
    w.add_head_count_kv(row.heads[1])
    if row.rope.get("rope_type") == "linear":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(row.rope["factor"])
    w.add_rope_freq_base(row.theta)
    w.add_layer_norm_rms_eps(row.eps)
    if row.experts:
        w.add_expert_count(row.experts[0])
        w.add_expert_used_count(row.experts[1])
    if row.experts and row.names_widths:
        w.add_expert_feed_forward_length(row.experts[2])
    if row.experts and row.names_widths and row.experts[3]:
        w.add_expert_shared_feed_forward_length(row.experts[3])
    if row.d_head:
        w.add_key_length(row.d_head)
        w.add_value_length(row.d_head)
    w.add_file_type(gguf.LlamaFileType.ALL_F32)
    if architecture(row) == "llama":
        w.add_vocab_size(N_VOCAB)
        w.add_rope_dimension_count(row.d_head or row.d_model // row.heads[0])
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


def without_parameters(model, tokens):
    """(name, logits) with each parameter in turn replaced: norms by 1, everything else by 0; those of experts one by one."""
    for name, p in model.named_parameters():
        kept = p.data
        for part in range(len(kept)) if ".mlp.experts." in name else [slice(None)]:
            p.data = kept.clone()
            p.data[part] = 1 if "norm" in name else 0
            yield f"{name}[{part}]" if isinstance(part, int) else name, logits_of(model, tokens)
        p.data = kept


def with_other_fields(row, seed, tokens):
    """(field, logits) with each hyperparameter in turn changed."""
    changed = {"eps": {"eps": row.eps * 2}, "theta": {"theta": row.theta * 1.2}}
    rope = {"factor": 2.0, "low_freq_factor": 1.5, "high_freq_factor": 3.0, "original_max_position_embeddings": 40}
    changed |= {"rope " + k: {"rope": {**row.rope, k: v}} for k, v in rope.items() if k in row.rope}
    changed |= {"no rope scaling": {"rope": {}}} if row.rope else {}
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
    mutants = [*without_parameters(build(row, seed), tokens), *with_other_fields(row, seed, tokens)]
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
    hooks = [layer.mlp.gate.register_forward_hook(look) for layer in model.model.layers]
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
    ap.add_argument("--hf", type=Path, help="also save the transformers models here")
    a = ap.parse_args()
    entries = []
    for number, row in enumerate(MODELS, 1):
        seed = row.seed or number
        model, tokens = build(row, seed), token_ids(row, seed)
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
        entries.append({"name": row.name, "arch": architecture(row), "gguf": f"{row.name}.gguf", "logits": f"{row.name}.logits",
                        "n_tokens": row.n_tokens, "nmse": NMSE, "tokens": tokens})
    write_index(a.out, entries)


if __name__ == "__main__":
    main()
