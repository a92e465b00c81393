"""Makes the data, the tokenizer and the model, from nothing, with fixed seeds.

    python tools/builtin-model/stories/train.py --out DIR --minutes 7 [--device cuda|cpu] [--stories 240000]

Writes into DIR: tokenizer.model, model.pt (config and weights), log.jsonl, samples.txt. The learning rate follows the
clock, so that the time given is the time used; two runs of the same length differ in the last digits only as far as
the machine's speed differs.
"""

import argparse
import random
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import sentencepiece as spm
import torch

import generate

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
import loop  # noqa: E402
from model import Config  # noqa: E402

BOS, EOS = 1, 2
N_HELD_OUT = 600
PROMPTS = ["Once upon a time", "The little ant", "There was a girl named Mia who", "One day, a robot", "It was a rainy morning when"]


def make_tokenizer(stories, out, n_vocab):
    """SentencePiece BPE with byte fallback, nothing normalized: what GGUF calls tokenizer `llama`."""
    lines = (line for story in stories for line in story.split("\n"))
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(out / "tokenizer"), model_type="bpe", vocab_size=n_vocab,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=True,
        character_coverage=1.0, split_digits=True, unk_id=0, bos_id=BOS, eos_id=EOS, pad_id=-1, num_threads=2,
        minloglevel=1,
    )  # fmt: skip
    return spm.SentencePieceProcessor(model_file=str(out / "tokenizer.model"))


def vary_start(story, rng):
    """A few stories begin in the middle or in lower case, so that any prompt finds its continuation."""
    if rng.random() < 0.08:
        sentences = story.split(". ")
        story = ". ".join(sentences[rng.randrange(0, max(1, len(sentences) // 2)) :])
        story = story[0].upper() + story[1:]
    if rng.random() < 0.02:
        story = story[0].lower() + story[1:]
    return story


def encode(tokenizer, stories, n_ctx, seed):
    """Rows of ids, and weights that are 1."""
    rng = random.Random(seed)
    ids = tokenizer.encode([vary_start(story, rng) for story in stories])
    rows = [np.array([BOS] + x + [EOS], dtype=np.uint16)[: n_ctx + 1] for x in ids]
    return [(row, np.ones(len(row), dtype=np.uint8)) for row in rows]


def samples(tokenizer_file, model, out):
    tokenizer = spm.SentencePieceProcessor(model_file=tokenizer_file)
    generator = torch.Generator().manual_seed(1)
    with open(out / "samples.txt", "a") as f:
        for prompt in PROMPTS:
            for temperature in (0.0, 0.8):
                ids = [BOS] + tokenizer.encode(prompt)
                text = tokenizer.decode(ids[1:] + model.generate(ids, 320, temperature, generator=generator))
                f.write(f"[t={temperature}] {text}\n\n")
                print(f"[t={temperature}] {text}\n", flush=True)


def prepare(args, out, config):
    """Stories, tokenizer, token ids. A tokenizer already in `out` is kept."""
    stories = generate.stories(args.stories + N_HELD_OUT)
    if not (out / "tokenizer.model").exists():
        make_tokenizer(stories[N_HELD_OUT : N_HELD_OUT + 10_000], out, config.n_vocab)
    tokenizer = spm.SentencePieceProcessor(model_file=str(out / "tokenizer.model"))
    return encode(tokenizer, stories[N_HELD_OUT:], config.n_ctx, seed=2), encode(tokenizer, stories[:N_HELD_OUT], config.n_ctx, seed=1)


def main():
    parser = argparse.ArgumentParser()
    loop.add_options(parser, Config())
    parser.add_argument("--stories", type=int, default=240_000)
    args = parser.parse_args()
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    clock = time.time()
    # Before the data is made, so that a model that cannot be gone on from is refused at once.
    n = sum(p.numel() for p in loop.begun(args).parameters())
    rows, held_out = prepare(args, out, args.shape)
    n_tokens = sum(len(ids) for ids, _ in rows)
    print(f"{len(rows)} stories, {n_tokens / 1e6:.2f} M tokens, {n / 1e6:.2f} M parameters, data ready after {time.time() - clock:.0f} s", flush=True)
    loop.start(args, rows, {"held_out": held_out}, partial(samples, str(out / "tokenizer.model")))


if __name__ == "__main__":
    main()
