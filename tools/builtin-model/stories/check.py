"""Reads the GGUF file back, runs it in float32 and writes what the engine's tests compare with.

    python tools/builtin-model/stories/check.py --gguf tests/golden/stories.gguf --run DIR --golden tools/builtin-model/stories/golden.json

The weights are the dequantized ones of the file, so the golden tells of the engine and not of the quantization.
"""

import argparse
import hashlib
import json
import math
import sys
from pathlib import Path

import sentencepiece as spm
import torch

import generate
import train

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
import gguf_file  # noqa: E402
import loop  # noqa: E402

N_GREEDY = 48
GOLDEN_PROMPTS = ["Once upon a time", "The little ant", "There was a girl named Mia who", "One day, a small robot", "It was a rainy morning when"]


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
    model = gguf_file.read(args.gguf)
    tokenizer = spm.SentencePieceProcessor(model_file=str(Path(args.run) / "tokenizer.model"))
    if args.golden:
        made = golden(model, tokenizer, args.gguf)
        cases = ",\n  ".join(json.dumps(case, ensure_ascii=False) for case in made["cases"])
        Path(args.golden).write_text(f'{{"sha256": "{made["sha256"]}",\n "cases": [\n  {cases}\n ]}}\n')
    stories = [generate.story(i) for i in range(train.N_HELD_OUT)]
    rows = train.encode(tokenizer, stories, model.config.n_ctx, seed=1)
    loss = loop.held_out_loss(model, rows, "cpu", torch.float32)
    print(f"held out: {loss:.4f} nats a token, perplexity {math.exp(loss):.3f}, {sum(len(ids) for ids, _ in rows)} tokens")
    if args.samples:
        train.samples(str(Path(args.run) / "tokenizer.model"), model, Path(args.run))


if __name__ == "__main__":
    main()
