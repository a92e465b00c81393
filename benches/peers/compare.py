#!/usr/bin/env python3
"""atta and llama.cpp side by side: same files, same run, alternating.

    compare.py MODEL.gguf … [-p 512] [-n 64] [-t 1,2] [-r 5] [--llama-bench PATH] [--atta PATH] [--markdown]

Each round runs one engine, then the other; figures are medians over the rounds, ratios are medians of the rounds'
ratios, since a shared machine drifts more from minute to minute than the engines differ. Both read a prompt of -p tokens
from an empty context and write -n tokens, with one warm-up of their own. llama-bench is that of llama.cpp; README.md
says how to build it. Peak private memory (RssAnon) is sampled while each engine runs.
"""

import argparse
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from watched import watch  # noqa: E402


def run(command):
    """The standard output of a command, and its peak private memory."""
    seen = watch(command)
    if seen.code:
        sys.exit(f"{' '.join(command)}: exit {seen.code}\n{seen.err[-2000:]}")
    return seen.out, seen.peak_private


def atta(args, model, threads):
    out, peak = run([args.atta, "bench", model, "-p", str(args.p), "-n", str(args.n), "-r", "1", "-j", str(threads), "--json"])
    report = json.loads(out)
    return report["prefill_tok_s"], report["decode_tok_s"], peak


def llama(args, model, threads):
    out, peak = run([args.llama_bench, "-m", model, "-p", str(args.p), "-n", str(args.n), "-r", "1", "-t", str(threads), "-o", "json"])
    rates = {bool(row["n_gen"]): row["avg_ts"] for row in json.loads(out)}
    return rates.get(False, 0.0), rates.get(True, 0.0), peak


def compare(args, model, threads):
    rounds = [(atta(args, model, threads), llama(args, model, threads)) for _ in range(args.r)]
    ours, theirs = zip(*rounds)
    median = lambda rows, i: statistics.median(row[i] for row in rows)
    ratio = lambda i: statistics.median(a[i] / b[i] for a, b in rounds if b[i])
    return {
        "model": pathlib.Path(model).name, "threads": threads,
        "prefill": {"atta": median(ours, 0), "llama.cpp": median(theirs, 0), "ratio": ratio(0)},
        "decode": {"atta": median(ours, 1), "llama.cpp": median(theirs, 1), "ratio": ratio(1)},
        "private_bytes": {"atta": max(r[2] for r in ours), "llama.cpp": max(r[2] for r in theirs)},
    }  # fmt: skip


def show(row, markdown):
    p, d, m = row["prefill"], row["decode"], row["private_bytes"]
    cells = [
        f"{row['model']:36}", f"{row['threads']:2}",
        f"{p['atta']:7.1f}", f"{p['llama.cpp']:7.1f}", f"{p['ratio']:5.2f}",
        f"{d['atta']:7.1f}", f"{d['llama.cpp']:7.1f}", f"{d['ratio']:5.2f}",
        f"{m['atta'] / 1e6:7.0f}", f"{m['llama.cpp'] / 1e6:7.0f}",
    ]  # fmt: skip
    print("| " + " | ".join(cells) + " |" if markdown else " ".join(cells), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("-p", type=int, default=512, help="tokens of the prompt")
    parser.add_argument("-n", type=int, default=64, help="tokens written")
    parser.add_argument("-t", default="1,2", help="numbers of threads")
    parser.add_argument("-r", type=int, default=5, help="rounds")
    parser.add_argument("--atta", default="target/release/atta")
    parser.add_argument("--llama-bench", default="target/peers/build/bin/llama-bench")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", action="store_true", help="one object a line instead of a table")
    args = parser.parse_args()
    if not args.json:
        head = ["model", "threads", "prefill atta", "llama.cpp", "ratio", "decode atta", "llama.cpp", "ratio", "MB atta", "llama.cpp"]
        print("| " + " | ".join(head) + " |\n|" + "---|" * len(head) if args.markdown else "  ".join(head), flush=True)
    for model in args.models:
        for threads in map(int, args.t.split(",")):
            row = compare(args, model, threads)
            print(json.dumps(row), flush=True) if args.json else show(row, args.markdown)


if __name__ == "__main__":
    main()
