#!/usr/bin/env python3
"""Tiny random draft heads, with the logits that numpy computes for them in f64.

    draft_heads.py tests/golden/models tests/golden/draft      # rewrite the goldens

Three files, whose targets are models of tests/golden/models:

- eagle3.gguf: a head of EAGLE-3 (Li et al. 2025) for qwen3-untied, as llama.cpp's converter writes it: no embedding, 40 of 96
  tokens (`d2t`, ids), the inputs of layers 0 and 1 and the last residual.
- qwen35-mtp.gguf: qwen35 with a layer of multi-token prediction (DeepSeek-V3 report 2024, section 2.2), without an embedding
  or a norm of its own; its head is surer than the model's.
- bigrams-mtp.gguf: a llama whose layers add nothing, so that a token depends on the one before it alone, with a layer of
  multi-token prediction that says the same: it is always right. With an embedding, a head and a norm of its own.

Of the first two there are expected results (`NAME.golden`, f32 little endian): hidden states of the target for eight positions,
drawn at random, then the logits and the hidden state of the head for these and for two more, which carry its own state on. The
tokens are 5, 6, 7 ... in steps of 7, modulo 96.
"""
import sys
from pathlib import Path

import gguf
import numpy as np

N_VOCAB, N_TAPPED, N_CARRIED = 96, 8, 2
TOKENS = [(5 + 7 * i) % N_VOCAB for i in range(N_TAPPED + N_CARRIED)]


def rms(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotated(x, n, base, adjacent):
    """The first n elements of each head, [positions, heads, d], turned by their position."""
    half = n // 2
    angles = np.arange(len(x))[:, None, None] * base ** (-np.arange(half) / half)
    a, b = (x[..., 0:n:2], x[..., 1:n:2]) if adjacent else (x[..., :half], x[..., half:n])
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    first = np.stack(turned, -1).reshape(a.shape[:-1] + (n,)) if adjacent else np.concatenate(turned, -1)
    return np.concatenate([first, x[..., n:]], -1)


def attention(q, k, v):
    """Causal attention of heads, [positions, heads, d]; several heads of q read one of k and v."""
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(q.shape[-1])
    scores = np.where(np.tri(len(q), dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hts,shd->thd", weights / weights.sum(-1, keepdims=True), v).reshape(len(q), -1)


def mlp(t, x):
    gate = x @ t["ffn_gate"].T
    return (gate / (1 + np.exp(-gate)) * (x @ t["ffn_up"].T)) @ t["ffn_down"].T


class Head:
    """What both kinds share: a naive computation of all rows from the start."""

    def results(self, states):
        """Logits and hidden states of all rows: those of the target first, then the head's own."""
        own = []
        for _ in range(N_CARRIED):
            own.append(self.rows(states, own)[1][-1])
        return self.rows(states, own)


class Eagle(Head):
    """The layer of EAGLE-3: its attention reads [norm(e); norm(h)], and the residual is h."""

    def __init__(self, t, embed, c):
        self.t, self.embed, self.c = t, embed, c

    def rows(self, states, own):
        t, eps, (n_heads, n_kv, d_head, base) = self.t, self.c["eps"], self.c["heads"]
        h = np.concatenate([states @ t["fc"].T, np.array(own).reshape(len(own), -1)]) if own else states @ t["fc"].T
        e = self.embed[TOKENS[:len(h)]]
        joined = np.concatenate([rms(e, t["attn_norm"], eps), rms(h, t["attn_norm_2"], eps)], -1)
        q, k, v = ((joined @ t[name].T).reshape(len(h), n, d_head) for name, n in (("attn_q", n_heads), ("attn_k", n_kv), ("attn_v", n_kv)))
        q, k = (rotated(x, d_head, base, adjacent=True) for x in (q, k))
        x = (rms(h, t["attn_norm_2"], eps) if self.c["keeps_norm"] else h) + attention(q, k, v) @ t["attn_output"].T
        x = x + mlp(t, rms(x, t["ffn_norm"], eps))
        return rms(x, t["output_norm"], eps) @ t["output"].T, x


class Mtp(Head):
    """A layer of Qwen3.5 behind W [norm(e); norm(h)]: gated attention, norms of queries and keys."""

    def __init__(self, t, shared, c):
        self.t, self.shared, self.c = t, shared, c

    def rows(self, states, own):
        t, eps, (n_heads, n_kv, d_head, base) = self.t, self.c["eps"], self.c["heads"]
        h = np.concatenate([states, np.array(own).reshape(len(own), -1)]) if own else states
        e = self.shared["token_embd"][TOKENS[:len(h)]]
        x = np.concatenate([rms(e, t["nextn.enorm"], eps), rms(h, t["nextn.hnorm"], eps)], -1) @ t["nextn.eh_proj"].T
        y = rms(x, t["attn_norm"], eps)
        q, gate = np.split((y @ t["attn_q"].T).reshape(len(h), n_heads, 2 * d_head), 2, -1)
        k, v = ((y @ t[name].T).reshape(len(h), n_kv, d_head) for name in ("attn_k", "attn_v"))
        q, k = (rotated(rms(x, t[w], eps), self.c["n_rot"], base, adjacent=False) for x, w in ((q, "attn_q_norm"), (k, "attn_k_norm")))
        heads = attention(q, k, v) / (1 + np.exp(-gate.reshape(len(h), -1)))
        x = x + heads @ t["attn_output"].T
        x = x + mlp(t, rms(x, t["post_attention_norm"], eps))
        normed = rms(x, self.shared["output_norm"], eps)
        return normed @ t["nextn.shared_head_head"].T, normed


def drawn(rng, *shape):
    """A matrix that keeps the size of its input, or the weight of a norm."""
    x = rng.standard_normal(shape)
    return (1 + 0.3 * x if len(shape) == 1 else x / np.sqrt(shape[-1])).astype(np.float32)


def copied(reader, writer, skip=(), **changed):
    """Copies metadata, with other values for some keys."""
    for key, f in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture" or key in skip:
            continue
        value = changed.get(key, f.contents())
        kind = f.types[0]
        writer.add_key_value(key, value, kind, f.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)


def write(writer, tensors):
    for name, data in tensors.items():
        writer.add_tensor(name, data if name == "d2t" else data.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def weights(reader):
    return {t.name: np.array(t.data) for t in reader.tensors}


def golden(path, head, rng, d_states):
    states = rng.standard_normal((N_TAPPED, d_states)).astype(np.float32)
    logits, own = head.results(states.astype(np.float64))
    np.concatenate([x.astype("<f4").ravel() for x in (states, logits, own)]).tofile(path)


def eagle(models, out):
    rng = np.random.default_rng(1)
    target = gguf.GGUFReader(models / "qwen3-untied.gguf")
    d, d_ff, eps, heads, n_guessed, taps = 40, 52, 1e-2, (4, 2, 12, 100.0), 40, [0, 1, 2]
    n_heads, n_kv, d_head, base = heads
    shapes = {"attn_norm": (d,), "attn_norm_2": (d,), "attn_q": (n_heads * d_head, 2 * d), "attn_k": (n_kv * d_head, 2 * d),
              "attn_v": (n_kv * d_head, 2 * d), "attn_output": (d, n_heads * d_head), "ffn_norm": (d,), "ffn_gate": (d_ff, d),
              "ffn_up": (d_ff, d), "ffn_down": (d, d_ff)}
    t = {name: drawn(rng, *shape) for name, shape in shapes.items()}
    whole = {"fc": drawn(rng, d, len(taps) * d), "output_norm": drawn(rng, d), "output": 4 * drawn(rng, n_guessed, d)}
    d2t = np.sort(rng.choice(N_VOCAB, n_guessed, replace=False)).astype(np.int64)
    w = gguf.GGUFWriter(out / "eagle3.gguf", "eagle3")
    w.add_array("eagle3.extract_layers", taps)
    w.add_uint32("eagle3.target_hidden_size", d)
    w.add_bool("eagle3.norm_before_residual", True)
    w.add_block_count(1)
    w.add_context_length(256)
    w.add_embedding_length(d)
    w.add_feed_forward_length(d_ff)
    w.add_head_count(n_heads)
    w.add_head_count_kv(n_kv)
    w.add_key_length(d_head)
    w.add_value_length(d_head)
    w.add_rope_dimension_count(d_head)
    w.add_rope_freq_base(base)
    w.add_layer_norm_rms_eps(eps)
    w.add_vocab_size(N_VOCAB)
    copied(target, w, skip=[key for key in target.fields if not key.startswith("tokenizer")])
    names = {f"blk.0.{name}.weight": x for name, x in t.items()} | {f"{name}.weight": x for name, x in whole.items()}
    write(w, names | {"d2t": d2t})
    embed = weights(target)["token_embd.weight"]
    head = Eagle({name: x.astype(np.float64) for name, x in (t | whole).items()}, embed.astype(np.float64),
                 {"eps": eps, "heads": heads, "keeps_norm": True})
    golden(out / "eagle3.golden", head, rng, len(taps) * d)


def mtp(models, out):
    rng = np.random.default_rng(2)
    target = gguf.GGUFReader(models / "qwen35.gguf")
    tensors = weights(target)
    n, d, d_head = 4, 32, 16
    layer = {name.removeprefix("blk.3."): drawn(rng, *x.shape) for name, x in tensors.items() if name.startswith("blk.3.")}
    layer |= {"nextn.eh_proj.weight": drawn(rng, d, 2 * d), "nextn.enorm.weight": drawn(rng, d), "nextn.hnorm.weight": drawn(rng, d),
              "nextn.shared_head_head.weight": 5 * drawn(rng, N_VOCAB, d)}
    w = gguf.GGUFWriter(out / "qwen35-mtp.gguf", "qwen35")
    recurrent = [True, True, True, False, False]
    copied(target, w, **{"qwen35.block_count": n + 1, "qwen35.attention.recurrent_layers": recurrent})
    w.add_uint32("qwen35.nextn_predict_layers", 1)
    write(w, tensors | {f"blk.{n}.{name}": x for name, x in layer.items()})
    as_f64 = lambda tensors: {name.removesuffix(".weight"): x.astype(np.float64) for name, x in tensors.items()}
    c = {"eps": 0.02, "heads": (4, 2, d_head, 50.0), "n_rot": 8}
    golden(out / "qwen35-mtp.golden", Mtp(as_f64(layer), as_f64(tensors), c), rng, d)


def bigrams(models, out):
    rng = np.random.default_rng(3)
    target = gguf.GGUFReader(models / "llama-plain.gguf")
    tensors = weights(target)
    for name, x in tensors.items():
        if name.endswith(("attn_output.weight", "ffn_down.weight")):
            x[:] = 0
    # Each token is followed by another one, and surely: the head's row of the next token is the embedding of this one.
    d = tensors["token_embd.weight"].shape[1]
    embed = drawn(rng, N_VOCAB, d) * np.sqrt(d)
    following = np.roll(np.arange(3, N_VOCAB), 11)
    head = np.zeros_like(embed)
    head[following] = embed[3:] / np.linalg.norm(embed[3:], axis=1, keepdims=True) * 3
    ones = np.ones(d, np.float32)
    tensors |= {"token_embd.weight": embed, "output.weight": head, "output_norm.weight": ones}
    n = int(target.fields["llama.block_count"].contents())
    layer = {name.removeprefix("blk.0."): x for name, x in tensors.items() if name.startswith("blk.0.")}
    layer |= {"nextn.eh_proj.weight": np.concatenate([np.eye(d), np.zeros((d, d))], 1).astype(np.float32),
              "nextn.enorm.weight": ones, "nextn.hnorm.weight": ones, "nextn.shared_head_norm.weight": ones,
              "nextn.embed_tokens.weight": embed, "nextn.shared_head_head.weight": head}
    w = gguf.GGUFWriter(out / "bigrams-mtp.gguf", "llama")
    copied(target, w, **{"llama.block_count": n + 1})
    w.add_uint32("llama.nextn_predict_layers", 1)
    write(w, tensors | {f"blk.{n}.{name}": x for name, x in layer.items()})


if __name__ == "__main__":
    models, out = map(Path, sys.argv[1:])
    for make in (eagle, mtp, bigrams):
        make(models, out)
