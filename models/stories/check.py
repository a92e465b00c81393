"""Reads the GGUF file back, runs it in float32 and writes what the engine's tests compare with.

    python models/stories/check.py --gguf crates/cli/assets/stories.gguf --run DIR --golden models/stories/golden.json

The weights are the dequantized ones of the file, so the golden tells of the engine and not of the quantization.
"""

import argparse
import hashlib
import json
import math
from pathlib import Path

import gguf
import sentencepiece as spm
import torch

import generate
import train
from export import BLOCK_TENSORS, halves
from model import Config, Model

N_GREEDY = 48
GOLDEN_PROMPTS = ["Once upon a time", "The little ant", "There was a girl named Mia who", "One day, a small robot", "It was a rainy morning when"]


def read(path):
    """The file as a float32 torch model."""
    reader = gguf.GGUFReader(path)
    field = lambda key: reader.fields["llama." + key].contents()
    config = Config(
        n_vocab=field("vocab_size"), n_ctx=field("context_length"), n_layers=field("block_count"), n_heads=field("attention.head_count"),
        n_kv_heads=field("attention.head_count_kv"), d_model=field("embedding_length"), d_ff=field("feed_forward_length"),
        rope_base=field("rope.freq_base"), norm_eps=field("attention.layer_norm_rms_epsilon"),
    )  # fmt: skip
    arrays = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    weights = {"embed.weight": arrays["token_embd.weight"], "norm.weight": arrays["output_norm.weight"]}
    for l in range(config.n_layers):
        for ours, theirs in BLOCK_TENSORS.items():
            w = arrays[f"blk.{l}.{theirs}"]
            weights[f"blocks.{l}.{ours}"] = halves(w, config.d_head) if ours in ("attn.q.weight", "attn.k.weight") else w
    model = Model(config)
    model.load_state_dict({k: torch.tensor(v).float() for k, v in weights.items()})
    return model.eval()


@torch.no_grad()
def greedy(model, ids, n):
    """Greedy ids, and for each the distance between the first and the second logit."""
    out, margins = list(ids), []
    for _ in range(n):
        best = model(torch.tensor([out]))[0, -1].topk(2)
        margins.append(round(float(best.values[0] - best.values[1]), 4))
        out.append(int(best.indices[0]))
        if out[-1] == train.EOS:
            break
    return out[len(ids) :], margins


def golden(model, tokenizer, path):
    cases = []
    for prompt in GOLDEN_PROMPTS:
        ids = [train.BOS] + tokenizer.encode(prompt)
        more, margins = greedy(model, ids, N_GREEDY)
        text = tokenizer.decode(ids[1:] + more)[len(prompt) :]
        cases.append({"prompt": prompt, "ids": ids, "greedy_ids": more, "greedy_text": text, "margins": margins})
    return {"sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest(), "cases": cases}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--golden")
    parser.add_argument("--samples", action="store_true")
    args = parser.parse_args()
    model = read(args.gguf)
    tokenizer = spm.SentencePieceProcessor(model_file=str(Path(args.run) / "tokenizer.model"))
    if args.golden:
        made = golden(model, tokenizer, args.gguf)
        cases = ",\n  ".join(json.dumps(case, ensure_ascii=False) for case in made["cases"])
        Path(args.golden).write_text(f'{{"sha256": "{made["sha256"]}",\n "cases": [\n  {cases}\n ]}}\n')
    stories = [generate.story(i) for i in range(train.N_HELD_OUT)]
    rows = train.encode(tokenizer, stories, model.config.n_ctx, seed=1)
    loss = train.held_out_loss(model, rows, "cpu")
    print(f"held out: {loss:.4f} nats a token, perplexity {math.exp(loss):.3f}, {sum(map(len, rows))} tokens")
    if args.samples:
        train.samples(model, tokenizer, Path(args.run), "gguf")


if __name__ == "__main__":
    main()
