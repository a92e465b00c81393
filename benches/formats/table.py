#!/usr/bin/env python3
"""Size, KL divergence, perplexity and speed of one model in many types, as the table of docs/formats.md.

    table.py --atta PATH reference.gguf --calibration TEXT --test TEXT [--work DIR] [--markdown | --json] TYPE…

A TYPE is a name of `atta convert --type` (`t3_m`, `q4_k_m`), `pure:q3_k` for all matrices in one type, `size:t3_m` for
types chosen under the size of that file with --calibrate, `guess:t3_m` for the same without, `size:45M` for a size, or
`ggml:q3_k_m` for types chosen among ggml's. Every model is made from the reference with one importance matrix of the
calibration text, and is compared with it on the test text; the two texts must not overlap.

With `--pairs A-B,…` the difference of two models is printed with its error, from the divergences token by token. What
was measured is kept in the work directory, so that a run can be repeated with more types.
"""

import argparse
import json
import math
import pathlib
import struct
import subprocess
import sys

GGML = "q2_k,q3_k,q4_0,q4_k,q5_0,q5_k,q6_k,q8_0"
SCORED_BYTES = 13


def note(line: str) -> None:
    print(f"table.py: {line}", file=sys.stderr, flush=True)


class Bench:
    """One reference, one importance matrix, one text."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.work = pathlib.Path(args.work)
        self.work.mkdir(parents=True, exist_ok=True)

    def atta(self, *words: str) -> str:
        done = subprocess.run([self.args.atta, *words], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"table.py: atta {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def made(self, name: str, *words: str) -> str:
        """A file of the work directory, made by atta if it is not there; `@` stands for its path."""
        path = str(self.work / name)
        if not pathlib.Path(path).exists():
            note(f"making {name}")
            self.atta(*[path if word == "@" else word for word in words])
        return path

    def threads(self) -> list[str]:
        return ["-j", str(self.args.threads)] if self.args.threads else []

    def imatrix(self) -> str:
        words = ["imatrix", self.args.reference, "-f", self.args.calibration, "-o", "@", *self.threads()]
        return self.made("calibration.imatrix", *words, *chunks(self.args.imatrix_chunks))

    def logits(self) -> str:
        words = ["perplexity", self.args.reference, "-f", self.args.test, "--save-logits", "@", *self.threads()]
        return self.made("reference.logits", *words, *chunks(self.args.chunks))

    def model(self, spec: str) -> str:
        """The file of a TYPE."""
        kind, _, name = spec.rpartition(":")
        name_of_file = spec.replace(":", "-") + ".gguf"
        words = ["convert", self.args.reference, "@", "--imatrix", self.imatrix(), *self.threads()]
        if kind in ("", "pure"):
            return self.made(name_of_file, *words, "--type", name, *(["--pure"] if kind else []))
        size = name if name[0].isdigit() else f"{pathlib.Path(self.model(name)).stat().st_size}B"
        words += ["--target-size", size]
        words += [] if kind == "guess" else ["--calibrate", self.args.calibrate or self.args.calibration]
        words += ["--types", GGML] if kind == "ggml" else []
        return self.made(name_of_file, *words)

    def scores(self, spec: str) -> dict:
        """The figures of a TYPE; those of its tokens are in its journal."""
        path = self.work / f"{spec.replace(':', '-')}.json"
        if path.exists():
            return json.loads(path.read_text())
        model = self.model(spec)
        note(f"measuring {spec}")
        words = ["perplexity", model, "--kld", self.logits(), "--resume", self.journal(spec), "--json", *self.threads()]
        figures = json.loads(self.atta(*words))
        info = json.loads(self.atta("inspect", model, "--json"))
        figures["file_bytes"] = pathlib.Path(model).stat().st_size
        figures["n_weights"] = sum(kind["weights"] for kind in info["tensors_by_type"].values())
        if not self.args.no_speed:
            speed = json.loads(self.atta("bench", model, "-p", "512", "-n", "64", "--json", *self.threads()))
            figures |= {key: speed[key] for key in ("prefill_tok_s", "decode_tok_s")}
        path.write_text(json.dumps(figures, indent=1))
        return figures

    def journal(self, spec: str) -> str:
        return str(self.work / f"{spec.replace(':', '-')}.journal")

    def divergences(self, spec: str) -> list[float]:
        """The divergence of every token, from the journal: a line of JSON, then a record for each chunk."""
        data = pathlib.Path(self.journal(spec)).read_bytes()
        head, _, records = data.partition(b"\n")
        n = json.loads(head)["n_ctx"]
        n_scored = n - 1 - n // 2
        all_tokens = []
        for at in range(0, len(records), SCORED_BYTES * n_scored):
            all_tokens += struct.unpack_from(f"<{n_scored}f", records, at + 8 * n_scored)
        return all_tokens

    def difference(self, pair: str) -> str:
        one, other = pair.split("-")
        apart = [a - b for a, b in zip(self.divergences(one), self.divergences(other), strict=True)]
        mean = sum(apart) / len(apart)
        error = math.sqrt(sum((x - mean) ** 2 for x in apart) / (len(apart) - 1) / len(apart))
        return f"{one} - {other}: {mean:+.4f} ± {error:.4f} nats, {mean / error:+.1f} standard errors"


def chunks(n: int | None) -> list[str]:
    return ["--chunks", str(n)] if n else []


def row(spec: str, figures: dict) -> list[str]:
    speed = [f"{figures[key]:.0f}" if key in figures else "" for key in ("prefill_tok_s", "decode_tok_s")]
    return [
        spec,
        f"{figures['file_bytes'] / 1e6:.1f}",
        f"{8 * figures['file_bytes'] / figures['n_weights']:.2f}",
        f"{figures['kld_mean']:.4f} ± {figures['kld_stderr']:.4f}",
        f"{100 * figures['same_top']:.1f} %",
        f"{figures['ppl']:.2f}",
        *speed,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", help="GGUF file, best in floats")
    parser.add_argument("types", nargs="+", metavar="TYPE")
    parser.add_argument("--atta", required=True)
    parser.add_argument("--calibration", required=True, metavar="TEXT", help="text of the importance matrix")
    parser.add_argument("--calibrate", metavar="TEXT", help="text of --calibrate, if another one")
    parser.add_argument("--test", required=True, metavar="TEXT")
    parser.add_argument("--chunks", type=int, help="chunks of the test text to score")
    parser.add_argument("--imatrix-chunks", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--work", default="formats-work", metavar="DIR")
    parser.add_argument("--no-speed", action="store_true")
    parser.add_argument("--pairs", default="", metavar="A-B,…")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    bench = Bench(args)
    found = {spec: bench.scores(spec) for spec in args.types}
    if args.json:
        print(json.dumps(found, indent=1))
        return
    rows = [row(spec, figures) for spec, figures in found.items()]
    rows.sort(key=lambda cells: float(cells[1]))
    names = ["type", "MB", "bits per weight", "KL divergence", "same best token", "perplexity", "prompt, tok/s", "text, tok/s"]
    for cells in [names, ["---"] * len(names), *rows]:
        print("| " + " | ".join(cells) + " |")
    for pair in filter(None, args.pairs.split(",")):
        print(bench.difference(pair))


main()
