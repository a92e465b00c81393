"""The network: llama architecture in plain PyTorch, as small as it goes.

Rotary positions turn the pairs (i, i + d_head / 2), which is fast here; GGUF's `llama` architecture wants neighbours
(2i, 2i+1), so the export reorders the rows of q and k. Knows nothing about data or files.
"""

from copy import deepcopy
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    n_vocab: int = 2048
    n_ctx: int = 512
    n_layers: int = 4
    n_heads: int = 8
    n_kv_heads: int = 4
    d_model: int = 256
    d_ff: int = 512
    rope_base: float = 10000.0
    norm_eps: float = 1e-5

    @property
    def d_head(self):
        return self.d_model // self.n_heads


def rope_tables(config):
    """cos and sin, [n_ctx, d_head / 2]."""
    frequency = config.rope_base ** (-torch.arange(0, config.d_head, 2).float() / config.d_head)
    angle = torch.outer(torch.arange(config.n_ctx).float(), frequency)
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    """x: [batch, n_heads, time, d_head]."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).type_as(x)


def attend(q, k, v):
    """Causal attention of q [batch, n_heads, time, d_head] to k and v [batch, n_kv_heads, time, d_head], shaped like q.

    By plain products, all heads of a key head as one matrix. In bfloat16 a CPU takes 0.5 of the time of PyTorch's flash
    kernel, there and back, at 256 positions, 0.6 at 512 and 1.0 at 1024 (Zen 4, d_head 32); in float32 1.2 at 256.
    """
    b, n_kv_heads, t, d_head = k.shape
    mask = torch.full((t, t), -torch.inf, device=q.device).triu(1)
    scores = q.reshape(b, n_kv_heads, -1, d_head) @ k.mT
    scores = scores.float().view(b, n_kv_heads, -1, t, t) * d_head**-0.5 + mask
    return (scores.softmax(-1).to(v.dtype).view(b, n_kv_heads, -1, t) @ v).view(q.shape)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.q = nn.Linear(c.d_model, c.n_heads * c.d_head, bias=False)
        self.k = nn.Linear(c.d_model, c.n_kv_heads * c.d_head, bias=False)
        self.v = nn.Linear(c.d_model, c.n_kv_heads * c.d_head, bias=False)
        self.o = nn.Linear(c.n_heads * c.d_head, c.d_model, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, self.c.n_heads, -1).transpose(1, 2)
        k = self.k(x).view(b, t, self.c.n_kv_heads, -1).transpose(1, 2)
        v = self.v(x).view(b, t, self.c.n_kv_heads, -1).transpose(1, 2)
        y = attend(rotate(q, cos, sin), rotate(k, cos, sin), v)
        return self.o(y.transpose(1, 2).reshape(b, t, -1))


class FeedForward(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate = nn.Linear(c.d_model, c.d_ff, bias=False)
        self.up = nn.Linear(c.d_model, c.d_ff, bias=False)
        self.down = nn.Linear(c.d_ff, c.d_model, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.attn_norm = nn.RMSNorm(c.d_model, eps=c.norm_eps)
        self.attn = Attention(c)
        self.ffn_norm = nn.RMSNorm(c.d_model, eps=c.norm_eps)
        self.ffn = FeedForward(c)

    def forward(self, x, cos, sin):
        x = x + self.attn(self.attn_norm(x), cos, sin)
        return x + self.ffn(self.ffn_norm(x))


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.n_vocab, config.d_model)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        cos, sin = rope_tables(config)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.apply(self.initialize)
        for block in self.blocks:
            for last in (block.attn.o, block.ffn.down):
                nn.init.normal_(last.weight, std=0.02 / (2 * config.n_layers) ** 0.5)

    @staticmethod
    def initialize(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def hidden(self, ids):
        """ids: [batch, time] to what stands in front of the output matrix: [batch, time, d_model]."""
        t = ids.shape[1]
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, self.cos[:t], self.sin[:t])
        return self.norm(x)

    def forward(self, ids):
        """ids: [batch, time] to logits: [batch, time, n_vocab]; the embedding is also the output matrix."""
        return F.linear(self.hidden(ids), self.embed.weight)

    @torch.no_grad()
    def generate(self, ids, n, temperature=0.0, stop=2, generator=None):
        """Continues one sequence (a list); recomputes everything each step, which is fast enough at this size."""
        out = list(ids)
        for _ in range(n):
            logits = self(torch.tensor([out[-self.config.n_ctx :]], device=self.cos.device))[0, -1].float()
            if temperature == 0:
                token = int(logits.argmax())
            else:
                token = int(torch.multinomial((logits / temperature).softmax(-1).cpu(), 1, generator=generator))
            out.append(token)
            if token == stop:
                break
        return out[len(ids) :]


@torch.no_grad()
def grow(model, n_layers):
    """Gives a model more blocks and leaves what it computes: copies of the one in the middle that add nothing yet (Wu et al. 2024)."""
    blocks, middle = list(model.blocks), len(model.blocks) // 2
    new = [deepcopy(blocks[middle]) for _ in range(n_layers - len(blocks))]
    for block in new:
        nn.init.zeros_(block.attn.o.weight)
        nn.init.zeros_(block.ffn.down.weight)
    model.blocks = nn.ModuleList(blocks[: middle + 1] + new + blocks[middle + 1 :])
    model.config = replace(model.config, n_layers=n_layers)
