"""Small torch models of encoders that transformers has no class for: the oracle of their goldens is ours.

Written from the papers and from what their publishers' code computes; parameters have the names of the published
checkpoints.

- JinaBert 2 (Guenther et al. 2023, section 2): BERT with attention lowered by distance (ALiBi, Press et al. 2022, on both
  sides) in place of positions, and a GELU-gated MLP.
- Nomic Embed 2 (Nussbaum and Duderstadt 2025, section 3): BERT with a rope, and experts in every second layer: softmax over
  all, no renormalization, plain GELU MLPs, one bias behind their sum.
- EmbeddingGemma (Schechter Vera et al. 2025, section 2): transformers' Gemma 3 without a causal mask, then the modules of
  sentence-transformers: the mean of all tokens, and two linear layers. The result is the vector before it is scaled.
"""
import json
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import gelu, one_hot
from transformers.modeling_outputs import BaseModelOutput


class Config:
    """The fields of config.json."""

    def __init__(self, architecture, **fields):
        self.__dict__ |= fields
        self.fields = fields | {"architectures": [architecture]}


class Encoder(nn.Module):
    """What the encoders here share with a class of transformers."""

    def __init__(self, config):
        super().__init__()
        self.config = config

    def tie_weights(self):
        """There are none."""

    def save_pretrained(self, folder):
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config.fields))
        save_file({k: v.contiguous() for k, v in self.state_dict().items()}, folder / "model.safetensors", metadata={"format": "pt"})


def heads(x, n):
    """[batch, positions, n * d] to [batch, n, positions, d]"""
    return x.unflatten(-1, (n, -1)).transpose(1, 2)


def mixed(q, k, v, bias=0.0):
    """Attention of heads over all positions, [batch, positions, n * d]."""
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + bias
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class Embeddings(nn.Module):
    def __init__(self, c, normed):
        super().__init__()
        self.word_embeddings = nn.Embedding(c.vocab_size, c.hidden_size)
        self.token_type_embeddings = nn.Embedding(c.type_vocab_size, c.hidden_size)
        if normed:
            self.LayerNorm = nn.LayerNorm(c.hidden_size, eps=c.layer_norm_eps)

    def forward(self, ids, types):
        return self.word_embeddings(ids) + self.token_type_embeddings(torch.zeros_like(ids) if types is None else types)


# JinaBert 2

def slopes(n):
    """The slope of each head: powers of 2^(-8/n); where n is no power of two, those of the next smaller one, then every
    second one of the next larger."""
    whole = 2 ** (n.bit_length() - 1)
    powers = [2 ** (-8 * (i + 1) / whole) for i in range(whole)]
    between = [2 ** (-8 * (i + 1) / (2 * whole)) for i in range(0, 2 * whole, 2)]
    return torch.tensor((powers + between)[:n], dtype=torch.float64).float()


class JinaLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n_heads = c.num_attention_heads
        d, d_ff = c.hidden_size, c.intermediate_size
        norm = lambda: nn.LayerNorm(d, eps=c.layer_norm_eps)
        self.attention = nn.ModuleDict({"self": nn.ModuleDict({name: nn.Linear(d, d) for name in ("query", "key", "value")}),
                                        "output": nn.ModuleDict({"dense": nn.Linear(d, d), "LayerNorm": norm()})})
        self.mlp = nn.ModuleDict({"gated_layers": nn.Linear(d, 2 * d_ff, bias=False), "wo": nn.Linear(d_ff, d), "layernorm": norm()})

    def forward(self, x, bias):
        own, out = self.attention["self"], self.attention["output"]
        q, k, v = (heads(own[name](x), self.n_heads) for name in ("query", "key", "value"))
        x = out["LayerNorm"](x + out["dense"](mixed(q, k, v, bias)))
        gate, up = self.mlp["gated_layers"](x).chunk(2, -1)
        return self.mlp["layernorm"](x + self.mlp["wo"](gelu(gate) * up))


class JinaBertModel(Encoder):
    def __init__(self, c):
        super().__init__(c)
        self.embeddings = Embeddings(c, normed=True)
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList([JinaLayer(c) for _ in range(c.num_hidden_layers)])})

    def forward(self, ids, token_type_ids=None):
        x = self.embeddings.LayerNorm(self.embeddings(ids, token_type_ids))
        at = torch.arange(ids.shape[1])
        bias = -slopes(self.config.num_attention_heads)[:, None, None] * (at[:, None] - at).abs()
        for layer in self.encoder["layer"]:
            x = layer(x, bias)
        return BaseModelOutput(last_hidden_state=x)


# Nomic Embed 2

def rotated(x, theta):
    """Halves of a head, turned together."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * theta ** (-torch.arange(half, dtype=torch.float64) / half)
    cos, sin = angles.cos().float(), angles.sin().float()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class NomicExperts(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n, self.n_used = c.num_experts, c.moe_top_k
        self.router = nn.ModuleDict({"layer": nn.Linear(c.hidden_size, self.n, bias=False)})
        experts = nn.Module()
        experts.mlp = nn.Module()
        experts.mlp.w1 = nn.Parameter(torch.zeros(self.n * c.n_inner, c.hidden_size))
        experts.mlp.w2 = nn.Parameter(torch.zeros(self.n * c.n_inner, c.hidden_size))
        experts.bias = nn.Parameter(torch.zeros(c.hidden_size))
        self.experts = experts

    def forward(self, x):
        weights, chosen = self.router["layer"](x).softmax(-1).topk(self.n_used, -1)
        factors = (one_hot(chosen, self.n) * weights[..., None]).sum(-2)                       # [batch, positions, n]
        up, down = (w.unflatten(0, (self.n, -1)) for w in (self.experts.mlp.w1, self.experts.mlp.w2))
        each = torch.einsum("bpef,efd->bped", gelu(torch.einsum("bpd,efd->bpef", x, up)), down)
        return (factors[..., None] * each).sum(-2) + self.experts.bias


class NomicMlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(c.hidden_size, c.n_inner), nn.Linear(c.n_inner, c.hidden_size)

    def forward(self, x):
        return self.fc2(gelu(self.fc1(x)))


class NomicLayer(nn.Module):
    def __init__(self, c, has_experts):
        super().__init__()
        self.config = c
        self.attn = nn.ModuleDict({"Wqkv": nn.Linear(c.hidden_size, 3 * c.hidden_size), "out_proj": nn.Linear(c.hidden_size, c.hidden_size)})
        self.norm1, self.norm2 = (nn.LayerNorm(c.hidden_size, eps=c.layer_norm_epsilon) for _ in range(2))
        self.mlp = NomicExperts(c) if has_experts else NomicMlp(c)

    def forward(self, x):
        q, k, v = (heads(part, self.config.n_head) for part in self.attn["Wqkv"](x).chunk(3, -1))
        theta = self.config.rotary_emb_base
        x = self.norm1(x + self.attn["out_proj"](mixed(rotated(q, theta), rotated(k, theta), v)))
        return self.norm2(x + self.mlp(x))


class NomicBertMoeModel(Encoder):
    def __init__(self, c):
        super().__init__(c)
        self.embeddings = Embeddings(c, normed=False)
        self.emb_ln = nn.LayerNorm(c.hidden_size, eps=c.layer_norm_epsilon)
        layers = [NomicLayer(c, l % c.moe_every_n_layers == 1) for l in range(c.n_layer)]
        self.encoder = nn.ModuleDict({"layers": nn.ModuleList(layers)})

    def forward(self, ids, token_type_ids=None):
        x = self.emb_ln(self.embeddings(ids, token_type_ids))
        for layer in self.encoder["layers"]:
            x = layer(x)
        return BaseModelOutput(last_hidden_state=x)


# EmbeddingGemma

MODULES = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"), ("3_Dense", "Dense"), ("4_Normalize", "Normalize")]


class EmbeddingGemmaModel(nn.Module):
    """The result is one vector, [1, 1, d_out]."""

    def __init__(self, c):
        super().__init__()
        self.config = c.text
        self.text = transformers.Gemma3TextModel(c.text)
        self.dense_2 = nn.Linear(c.text.hidden_size, c.d_inner, bias=False)
        self.dense_3 = nn.Linear(c.d_inner, c.text.hidden_size, bias=False)

    def tie_weights(self):
        """There are none."""

    def forward(self, ids, token_type_ids=None):
        mean = self.text(ids).last_hidden_state.mean(1, keepdim=True)
        return BaseModelOutput(last_hidden_state=self.dense_3(self.dense_2(mean)))

    def save_pretrained(self, folder):
        folder = Path(folder)
        self.text.save_pretrained(folder)
        modules = [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"} for i, (path, kind) in enumerate(MODULES)]
        (folder / "modules.json").write_text(json.dumps(modules, indent=1) + "\n")
        for path, _ in MODULES[1:4]:
            (folder / path).mkdir(exist_ok=True)
        pooling = {"word_embedding_dimension": self.text.config.hidden_size, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling) + "\n")
        for path, dense in (("2_Dense", self.dense_2), ("3_Dense", self.dense_3)):
            fields = {"in_features": dense.in_features, "out_features": dense.out_features, "bias": False,
                      "activation_function": "torch.nn.modules.linear.Identity"}
            (folder / path / "config.json").write_text(json.dumps(fields) + "\n")
            save_file({"linear.weight": dense.weight.detach().contiguous()}, folder / path / "model.safetensors", metadata={"format": "pt"})


class EmbeddingGemmaConfig:
    """The configuration of the text part, and the width between the two linear layers."""

    def __init__(self, d_inner, **fields):
        self.d_inner = d_inner
        self.text = transformers.Gemma3TextConfig(**fields)


# By the name of a row's class in families.py: configuration and model.
CLASSES = {
    "JinaBert": (lambda **fields: Config("JinaBertForMaskedLM", **fields), JinaBertModel),
    "NomicBertMoe": (lambda **fields: Config("NomicBertModel", **fields), NomicBertMoeModel),
    "EmbeddingGemma": (EmbeddingGemmaConfig, EmbeddingGemmaModel),
}
