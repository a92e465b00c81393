#!/usr/bin/env python3
"""atta and its peers side by side: same files, same run, in turn.

    compare.py MODEL.gguf … [-p 512] [-n 64] [-d 0] [-t 1,2] [-r 5] [--peer NAME=PATH …] [--atta PATH] [--isa NAME] [--markdown]

Each round runs atta, then each peer; figures are medians over the rounds, ratios are medians of the rounds' ratios, since
a shared machine drifts more from minute to minute than the engines differ. All read a prompt of -p tokens and write -n
tokens, each behind -d tokens of context, with one warm-up of their own. A peer is a llama-bench, of llama.cpp or of a fork
of it; README.md says how to build them. Peak private memory (RssAnon) is sampled while each engine runs. Under the engines
stands what atta measured of the machine in the same rounds, and how much of it atta used.
"""

import argparse
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from watched import watch  # noqa: E402

# What `atta bench` says of the machine: bytes and int8 products per second at best, and the shares of them that it used.
MACHINE = ("read_bytes_per_s", "int8_mac_per_s", "decode_share", "prefill_share")


def run(command):
    """The standard output of a command, and its peak private memory."""
    seen = watch(command)
    if seen.code:
        sys.exit(f"{' '.join(command)}: exit {seen.code}\n{seen.err[-2000:]}")
    return seen.out, seen.peak_private


def workload(args):
    """What to measure; both kinds of programs call it the same. Depth only where there is one: not all forks know it."""
    depth = ["-d", str(args.d)] if args.d else []
    return ["-p", str(args.p), "-n", str(args.n), "-r", "1", *depth]


def atta(args, model, threads):
    """{prefill, decode: tokens per second, private_bytes, and the four of MACHINE}"""
    isa = ["--isa", args.isa] if args.isa else []
    out, peak = run([args.atta, "bench", model, *workload(args), "-j", str(threads), "--json", *isa])
    report = json.loads(out)
    rates = {"prefill": report["prefill_tok_s"], "decode": report["decode_tok_s"], "private_bytes": peak}
    return rates | {key: report[key] for key in MACHINE}


def peer(args, path, model, threads):
    """The same of a llama-bench, which knows nothing of the machine."""
    out, peak = run([path, "-m", model, *workload(args), "-t", str(threads), "-o", "json"])
    # Forks print lines of their own in front.
    start = out.find("[\n")
    if start < 0:
        sys.exit(f"{path} printed no JSON")
    rates = {bool(row["n_gen"]): row["avg_ts"] for row in json.loads(out[start:])}
    return {"prefill": rates.get(False, 0.0), "decode": rates.get(True, 0.0), "private_bytes": peak}


def compare(args, model, threads):
    """{model, threads, depth, engines: {name: {prefill, decode, private_bytes, and for peers how many times as fast atta is}}, machine: MACHINE}"""
    engines = {"atta": lambda: atta(args, model, threads)}
    engines |= {name: lambda path=path: peer(args, path, model, threads) for name, path in args.peer}
    rounds = [{name: measure() for name, measure in engines.items()} for _ in range(args.r)]
    row = {"model": pathlib.Path(model).name, "threads": threads, "depth": args.d, "engines": {}}
    for name in engines:
        seen = row["engines"][name] = {"private_bytes": max(r[name]["private_bytes"] for r in rounds)}
        for what in ("prefill", "decode"):
            seen[what] = statistics.median(r[name][what] for r in rounds)
            if name != "atta" and all(r[name][what] for r in rounds):
                seen[f"{what}_ratio"] = statistics.median(r["atta"][what] / r[name][what] for r in rounds)
    row["machine"] = {key: statistics.median(r["atta"][key] for r in rounds) for key in MACHINE}
    return row


def show(row, markdown):
    """A line for each engine, and one for the machine."""
    for name, seen in row["engines"].items():
        cells = [f"{row['model']:24}", f"{row['threads']:2}", f"{name:16}"]
        for what in ("prefill", "decode"):
            cells += [f"{seen[what]:7.1f}", f"{seen[f'{what}_ratio']:5.2f}" if f"{what}_ratio" in seen else " " * 5]
        cells.append(f"{seen['private_bytes'] / 1e6:7.0f}")
        print("| " + " | ".join(cells) + " |" if markdown else " ".join(cells), flush=True)
    show_machine(row, markdown)


def show_machine(row, markdown):
    """In the columns of prefill and decode what limits each, and beside it atta's share."""
    seen = row["machine"]
    cells = [f"{row['model']:24}", f"{row['threads']:2}", f"{'machine':16}"]
    cells += [f"{seen['int8_mac_per_s'] / 1e9:.1f} GMAC/s", f"{seen['prefill_share']:.0%} used"]
    cells += [f"{seen['read_bytes_per_s'] / 1e9:.1f} GB/s", f"{seen['decode_share']:.0%} used", ""]
    print("| " + " | ".join(cells) + " |" if markdown else " ".join(cells).rstrip(), flush=True)


def named_path(text):
    name, _, path = text.partition("=")
    if not path or name == "atta":
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH of a peer")
    return name, path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("-p", type=int, default=512, help="tokens of the prompt")
    parser.add_argument("-n", type=int, default=64, help="tokens written")
    parser.add_argument("-d", type=int, default=0, metavar="DEPTH", help="tokens in the context before either starts")
    parser.add_argument("-t", default="1,2", help="numbers of threads")
    parser.add_argument("-r", type=int, default=5, help="rounds")
    parser.add_argument("--atta", default="target/release/atta")
    parser.add_argument("--isa", help="instruction set for atta, such as avx512 beside peers that were built without AMX")
    parser.add_argument("--peer", type=named_path, action="append", metavar="NAME=PATH", help="a llama-bench; may be given again")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", action="store_true", help="one object a line instead of a table")
    args = parser.parse_args()
    args.peer = args.peer or [("llama.cpp", "target/peers/build/bin/llama-bench")]
    if not args.json:
        head = ["model", "threads", "engine", "prefill", "atta is … times as fast", "decode", "atta is … times as fast", "private MB"]
        print("| " + " | ".join(head) + " |\n|" + "---|" * len(head) if args.markdown else "  ".join(head), flush=True)
    for model in args.models:
        for threads in map(int, args.t.split(",")):
            row = compare(args, model, threads)
            print(json.dumps(row), flush=True) if args.json else show(row, args.markdown)


if __name__ == "__main__":
    main()
