"""Makes the data, the tokenizer and the model, from nothing, with fixed seeds.

    python models/stories/train.py --out DIR --minutes 7 [--device cuda|cpu] [--stories 240000]

Writes into DIR: tokenizer.model, model.pt (config and weights), log.jsonl, samples.txt. The learning rate follows the
clock, so that the time given is the time used; two runs of the same length differ in the last digits only as far as
the machine's speed differs.
"""

import argparse
import json
import math
import random
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import sentencepiece as spm
import torch
import torch.distributed as dist
import torch.nn.functional as F

import generate
from model import Config, Model

BOS, EOS, IGNORE = 1, 2, -100
PRECISION = {"bfloat16": torch.bfloat16, "float32": torch.float32}
N_HELD_OUT = 600
PROMPTS = ["Once upon a time", "The little ant", "There was a girl named Mia who", "One day, a robot", "It was a rainy morning when"]


def make_tokenizer(stories, out, n_vocab):
    """SentencePiece BPE with byte fallback, nothing normalized: what GGUF calls tokenizer `llama`."""
    lines = (line for story in stories for line in story.split("\n"))
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(out / "tokenizer"), model_type="bpe", vocab_size=n_vocab,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=True,
        character_coverage=1.0, split_digits=True, unk_id=0, bos_id=1, eos_id=2, pad_id=-1, num_threads=2,
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
    rng = random.Random(seed)
    ids = tokenizer.encode([vary_start(story, rng) for story in stories])
    return [np.array([BOS] + x + [EOS], dtype=np.uint16)[: n_ctx + 1] for x in ids]


def windows(rows, width, n_rows, seed):
    """Batches [n_rows, width + 1] cut from one long stream of shuffled stories, for ever; the shape never changes."""
    rng = np.random.default_rng(seed)
    while True:
        stream = np.concatenate([rows[i] for i in rng.permutation(len(rows))]).astype(np.int64)
        n = (len(stream) - 1) // (width * n_rows)
        for start in range(0, n * width * n_rows, width * n_rows):
            starts = range(start, start + width * n_rows, width)
            yield torch.from_numpy(np.stack([stream[s : s + width + 1] for s in starts]))


def batch(rows):
    width = (max(len(r) for r in rows) + 6) // 8 * 8
    ids = np.full((len(rows), width), EOS, dtype=np.int64)
    targets = np.full((len(rows), width), IGNORE, dtype=np.int64)
    for i, r in enumerate(rows):
        ids[i, : len(r) - 1] = r[:-1]
        targets[i, : len(r) - 1] = r[1:]
    return torch.from_numpy(ids), torch.from_numpy(targets)


class Muon:
    """Momentum, made orthogonal by Newton-Schulz (Jordan et al. 2024); matrices of one shape go through together."""

    def __init__(self, parameters, precision, momentum=0.95, weight_decay=0.02):
        self.momentum, self.weight_decay, self.precision = momentum, weight_decay, precision
        self.groups = {}
        for p in parameters:
            self.groups.setdefault(tuple(p.shape), []).append(p)
        self.buffers = {shape: torch.zeros(len(ps), *shape, device=ps[0].device) for shape, ps in self.groups.items()}

    @torch.no_grad()
    def step(self, lr):
        for shape, parameters in self.groups.items():
            gradient = torch.stack([p.grad for p in parameters])
            buffer = self.buffers[shape].lerp_(gradient, 1 - self.momentum)
            update = shared(self.orthogonal, gradient.lerp(buffer, self.momentum)) * (0.2 * max(shape) ** 0.5)
            for p, u in zip(parameters, update):
                p.mul_(1 - lr * self.weight_decay).sub_(u, alpha=lr)

    def orthogonal(self, x, steps=5):
        """x: [n, rows, columns], each brought near to the orthogonal matrix closest to it."""
        tall = x.shape[1] > x.shape[2]
        y = (x.mT if tall else x).to(self.precision)
        y = y / (y.norm(dim=(1, 2), keepdim=True) + 1e-7)
        for _ in range(steps):
            a = y @ y.mT
            y = 3.4445 * y + (-4.7750 * a + 2.0315 * a @ a) @ y
        return (y.mT if tall else y).float()


def shared(f, x):
    """f(x) for a stack x, each process doing its part of the stack."""
    if not dist.is_initialized():
        return f(x)
    rank, n = dist.get_rank(), dist.get_world_size()
    y = torch.zeros_like(x)
    y[rank::n] = f(x[rank::n])
    dist.all_reduce(y)
    return y


def rate(progress, step, warmup=30):
    """Warm-up, level for a quarter of the time, then straight down to (almost) nothing."""
    return min(1.0, (step + 1) / warmup, max(0.01, (1.0 - progress) / 0.75))


def loss_of(model, ids, targets, device, precision):
    with torch.autocast(device, dtype=torch.bfloat16, enabled=precision == torch.bfloat16):
        logits = model(ids.to(device))
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.to(device).flatten(), ignore_index=IGNORE)


@torch.no_grad()
def held_out_loss(model, rows, device, precision):
    """Mean over tokens, in nats."""
    total, count = 0.0, 0
    stream = sorted(rows, key=len)
    for start in range(0, len(stream), 8):
        ids, targets = batch(stream[start : start + 8])
        n = int((targets != IGNORE).sum())
        total += float(loss_of(model, ids, targets, device, precision)) * n
        count += n
    return total / count


def samples(model, tokenizer, out, note):
    generator = torch.Generator().manual_seed(1)
    with open(out / "samples.txt", "a") as f:
        for prompt in PROMPTS:
            for temperature in (0.0, 0.8):
                ids = [BOS] + tokenizer.encode(prompt)
                text = tokenizer.decode(ids[1:] + model.generate(ids, 320, temperature, generator=generator))
                f.write(f"[{note}, t={temperature}] {text}\n\n")
                print(f"[{note}, t={temperature}] {text}\n", flush=True)


def average_gradients(parameters):
    """One all-reduce for all gradients, when several processes train together."""
    if dist.is_initialized():
        flat = torch.cat([p.grad.flatten() for p in parameters])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for p, g in zip(parameters, flat.split([p.numel() for p in parameters])):
            p.grad.copy_(g.view_as(p))
        norm = flat.norm()
    else:
        norm = torch.cat([p.grad.flatten() for p in parameters]).norm()
    if norm > 1.0:
        for p in parameters:
            p.grad.mul_(1.0 / norm)


def agreed(value):
    """The first process decides, so that all learn at the same rate and stop at the same step."""
    if not dist.is_initialized():
        return value
    box = torch.tensor([value])
    dist.broadcast(box, 0)
    return float(box)


def train(args, rank, n_ranks, model, rows, held_out, out):
    run, precision = torch.compile(loss_of) if args.compile else loss_of, PRECISION[args.precision]
    parameters = list(model.parameters())
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    muon = Muon(matrices, precision)
    adam = torch.optim.AdamW([p for p in parameters if id(p) not in chosen], lr=args.lr, betas=(0.9, 0.98), weight_decay=0.0)
    stream = windows(rows[rank::n_ranks], args.width, args.batch_tokens // args.width // n_ranks, seed=3 + rank)
    started, step, mean, next_look = time.time(), 0, None, 0.0
    while (progress := agreed((time.time() - started) / (60 * args.minutes))) < 1:
        ids = next(stream)
        loss = run(model, ids[:, :-1], ids[:, 1:], args.device, precision)
        loss.backward()
        average_gradients(parameters)
        lr = args.lr * rate(progress, step)
        adam.param_groups[0]["lr"] = lr
        adam.step()
        muon.step(lr)
        for p in parameters:
            p.grad = None
        step += 1
        if step % 10 == 0:
            mean = float(loss.detach()) if mean is None else 0.8 * mean + 0.2 * float(loss.detach())
        if rank == 0 and mean is not None and progress >= next_look:
            next_look = progress + 1 / args.looks
            report(out, model, held_out[:100], args, step, mean, started)
            save(model, out)
    if rank == 0:
        report(out, model, held_out, args, step, mean, started)
        save(model, out)


def report(out, model, held_out, args, step, mean, started):
    loss = held_out_loss(model, held_out, args.device, PRECISION[args.precision])
    line = {"step": step, "tokens": step * args.batch_tokens, "minutes": round((time.time() - started) / 60, 2),
            "train": round(mean or 0, 4), "held_out": round(loss, 4), "perplexity": round(math.exp(loss), 3)}  # fmt: skip
    print(line, flush=True)
    with open(out / "log.jsonl", "a") as log:
        log.write(json.dumps(line) + "\n")


def save(model, out):
    torch.save({"config": asdict(model.config), "weights": {k: v.cpu() for k, v in model.state_dict().items()}}, out / "model.pt")


def work(rank, n_ranks, args, tokenizer, rows, held_out):
    """One training process; on a CPU one for each core, each with one thread."""
    if n_ranks > 1:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{args.out}/meet", rank=rank, world_size=n_ranks)
    torch.manual_seed(0)
    out = Path(args.out)
    model = Model(args.shape).to(args.device)
    if args.resume:
        model.load_state_dict(torch.load(args.resume, weights_only=True)["weights"])
    train(args, rank, n_ranks, model, rows, held_out, out)
    if rank == 0:
        samples(model.eval(), spm.SentencePieceProcessor(model_file=tokenizer), out, "final")


def prepare(args, out, config):
    """Stories, tokenizer, token ids. A tokenizer already in `out` is kept."""
    stories = generate.stories(args.stories + N_HELD_OUT)
    if not (out / "tokenizer.model").exists():
        make_tokenizer(stories[N_HELD_OUT : N_HELD_OUT + 10_000], out, config.n_vocab)
    tokenizer = spm.SentencePieceProcessor(model_file=str(out / "tokenizer.model"))
    return encode(tokenizer, stories[N_HELD_OUT:], config.n_ctx, seed=2), encode(tokenizer, stories[:N_HELD_OUT], config.n_ctx, seed=1)


def shape(text):
    return Config(**{name: int(value) for name, value in (part.split("=") for part in text.split(","))})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--minutes", type=float, default=7)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--processes", type=int, default=1, help="training processes (CPU: one a core)")
    parser.add_argument("--stories", type=int, default=240_000)
    parser.add_argument("--batch-tokens", type=int, default=16384)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--looks", type=int, default=20)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--precision", choices=PRECISION, default="bfloat16", help="float32 for CPUs without bf16 arithmetic")
    parser.add_argument("--shape", type=shape, default=Config(), help="fields of the configuration, as in n_layers=5,d_model=512,d_ff=1536")
    parser.add_argument("--resume", help="a model.pt to go on from")
    args = parser.parse_args()
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "meet").unlink(missing_ok=True)
    clock = time.time()
    rows, held_out = prepare(args, out, args.shape)
    n = sum(p.numel() for p in Model(args.shape).parameters())
    print(f"{len(rows)} stories, {sum(map(len, rows)) / 1e6:.2f} M tokens, {n / 1e6:.2f} M parameters, data ready after {time.time() - clock:.0f} s", flush=True)
    arguments = (args.processes, args, str(out / "tokenizer.model"), rows, held_out)
    if args.processes > 1:
        torch.multiprocessing.spawn(work, arguments, nprocs=args.processes)
    else:
        work(0, *arguments)


if __name__ == "__main__":
    main()
