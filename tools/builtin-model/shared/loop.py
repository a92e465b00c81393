"""Learning: the optimizer, and the loop that stops by the clock.

Knows token ids and weights of tokens, not what they say. One process, or several that share the gradients (a CPU does
best with one process a core, each with one thread).
"""

import json
import math
import signal
import sys
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import gguf_file
import torch
import torch.distributed as dist
import torch.nn.functional as F
from choose import Chooser
from model import Config, Model, grow
from pack import padded, windows

PRECISION = {"bfloat16": torch.bfloat16, "float32": torch.float32}


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


def hidden_of(model, device, precision, ids):
    """ids: [batch, time] to what stands in front of the output matrix, in that precision."""
    with torch.autocast(device, dtype=torch.bfloat16, enabled=precision == torch.bfloat16):
        return model.hidden(ids.to(device)).to(precision)


def loss_of(hidden, output, ids, weights):
    """The weighted mean over tokens, in nats; ids and weights: [batch, time + 1].

    hidden: the network up to the output matrix [n_vocab, d_model]; what does not count is not multiplied with that.
    """
    w = weights[:, 1:].flatten()
    counts = w.nonzero()[:, 0]
    x = hidden(ids[:, :-1]).flatten(0, 1)[counts]
    losses = F.cross_entropy(F.linear(x, output.to(x.dtype)).float(), ids[:, 1:].flatten()[counts], reduction="none")
    return (losses * w[counts]).sum() / w.sum()


@torch.no_grad()
def held_out_loss(model, rows, device, precision):
    """Mean over the tokens that count, in nats."""
    total, count, hidden = 0.0, 0.0, partial(hidden_of, model, device, precision)
    rows = sorted(rows, key=lambda row: len(row[0]))
    for start in range(0, len(rows), 8):
        ids, weights = padded(rows[start : start + 8])
        n = float(weights[:, 1:].sum())
        total += float(loss_of(hidden, model.embed.weight, ids.to(device), weights.to(device))) * n
        count += n
    return total / count


def average_gradients(parameters):
    """One all-reduce for all gradients, when several processes train together; then their norm is at most 1."""
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


def batches(args, rank, n_ranks, hidden, output, rows, choice):
    """What this process learns from: ids and weights, for ever; with a choice, each process reads rows of its own."""
    if not choice:
        return (tuple(part[rank::n_ranks] for part in batch) for batch in windows(rows, args.widths, args.batch_tokens, seed=3))
    return Chooser(rows[rank::n_ranks], args.widths, args.batch_tokens // n_ranks, choice, hidden, output, seed=3 + rank)


def train(args, rank, n_ranks, model, rows, held_out, choice, out):
    """Until the time is up; every `1 / looks` of it the losses are written down and the model is saved.

    held_out: {name: rows}.
    """
    precision, output, parameters = PRECISION[args.precision], model.embed.weight, list(model.parameters())
    hidden = partial(torch.compile(hidden_of) if args.compile else hidden_of, model, args.device, precision)
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    muon = Muon(matrices, precision)
    adam = torch.optim.AdamW([p for p in parameters if id(p) not in chosen], lr=args.lr, betas=(0.9, 0.98), weight_decay=0.0)
    stream = batches(args, rank, n_ranks, hidden, output, rows, choice)
    started, step, mean, next_look = time.time(), 0, None, 0.0
    while (progress := agreed((time.time() - started) / (60 * args.minutes))) < 1:
        ids, weights = next(stream)
        loss = loss_of(hidden, output, ids.to(args.device), weights.to(args.device))
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
            report(out, model, {name: rows[:100] for name, rows in held_out.items()}, args, stream, step, mean, started)
            save(model, out)
    if rank == 0:
        report(out, model, held_out, args, stream, step, mean, started)
        save(model, out)


def report(out, model, held_out, args, stream, step, mean, started):
    line = {"step": step, "tokens": step * args.batch_tokens, "minutes": round((time.time() - started) / 60, 2), "train": round(mean or 0, 4)}
    if isinstance(stream, Chooser):
        line |= {"read": stream.n_read * args.processes, "threshold": round(stream.threshold.value, 4)}
    for name, rows in held_out.items():
        loss = held_out_loss(model, rows, args.device, PRECISION[args.precision])
        line |= {name: round(loss, 4), f"{name} perplexity": round(math.exp(loss), 3)}
    print(line, flush=True)
    with open(out / "log.jsonl", "a") as log:
        log.write(json.dumps(line) + "\n")


def save(model, out):
    torch.save({"config": asdict(model.config), "weights": {k: v.cpu() for k, v in model.state_dict().items()}}, out / "model.pt")


def load(path):
    """The model that `save` wrote, or that of a GGUF file, on the CPU."""
    if str(path).endswith(".gguf"):
        return gguf_file.read(path)
    saved = torch.load(path, weights_only=True)
    model = Model(Config(**saved["config"]))
    model.load_state_dict(saved["weights"])
    return model


def begun(args):
    """The model of `args.shape` to train: a new one, or the one to go on from, with as many blocks more as it lacks."""
    if not args.resume:
        return Model(args.shape)
    model = load(args.resume)
    if replace(args.shape, n_layers=model.config.n_layers) != model.config or args.shape.n_layers < model.config.n_layers:
        raise SystemExit(f"--resume: {model.config} cannot become --shape {args.shape}")
    grow(model, args.shape.n_layers)
    return model


def meeting(args):
    """The file by which the processes find each other."""
    return (Path(args.out) / "meet").resolve()


def work(rank, n_ranks, args, rows, held_out, finish, choice):
    """One training process; on a CPU one for each core, each with one thread."""
    if n_ranks > 1:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=meeting(args).as_uri(), rank=rank, world_size=n_ranks)
    torch.manual_seed(0)
    out = Path(args.out)
    model = begun(args).to(args.device)
    train(args, rank, n_ranks, model, rows, held_out, choice, out)
    if rank == 0:
        finish(model.eval(), out)


def start(args, rows, held_out, finish, choice=None):
    """Trains in `args.processes` processes; `finish(model, out)` is called in the first one at the end.

    choice: None to learn from all texts.
    """
    meeting(args).unlink(missing_ok=True)
    arguments = (args.processes, args, rows, held_out, finish, choice)
    if args.processes > 1:
        # Whoever is told to end takes its processes along, which would go on for as long as they were told.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        torch.multiprocessing.spawn(work, arguments, nprocs=args.processes, daemon=True)
    else:
        work(0, *arguments)


def shape(text):
    return Config(**{name: int(value) for name, value in (part.split("=") for part in text.split(","))})


def widths(text):
    return sorted(int(width) for width in text.split(","))


def add_options(parser, default_shape, lr=5e-3):
    """The options that all trainings have."""
    parser.add_argument("--out", required=True)
    parser.add_argument("--minutes", type=float, default=7)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--processes", type=int, default=1, help="training processes (CPU: one a core)")
    parser.add_argument("--batch-tokens", type=int, default=16384)
    parser.add_argument("--widths", type=widths, default=[512], help="tokens of a window: one number, or some, as in 256,512,1024")
    parser.add_argument("--lr", type=float, default=lr)
    parser.add_argument("--looks", type=int, default=20)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--precision", choices=PRECISION, default="bfloat16", help="float32 for CPUs without bf16 arithmetic")
    parser.add_argument("--shape", type=shape, default=default_shape, help="fields of the configuration, as in n_layers=5,d_model=512,d_ff=1536")
    parser.add_argument("--resume", help="a model.pt or a GGUF file to go on from; blocks that --shape has more begin as no-ops")
