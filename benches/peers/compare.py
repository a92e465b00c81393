#!/usr/bin/env python3
"""atta and its peers side by side: same files, same run, in turn, on the same CPUs.

    compare.py MODEL.gguf … [-p 512,2048] [-n 64] [-d 0] [-t 1,2] [-r 5] [--peer NAME=PATH …] [--openvino FOLDER]
               [--atta PATH] [--isa NAME] [--cpus LIST] [--markdown]

Each round runs atta, then each peer; figures are medians over the rounds, ratios are medians of the rounds' ratios, since
a shared machine drifts more from minute to minute than the engines differ. All read a prompt of -p tokens and write -n
tokens, each behind -d tokens of context, with one warm-up of their own. A peer is a llama-bench, of llama.cpp or of a fork
of it; README.md says how to build them. Peak private memory (RssAnon) is sampled while each engine runs. Under the engines
stands what atta measured of the machine in the same rounds, and how much of it atta used.

--openvino FOLDER adds OpenVINO GenAI from that virtual environment. It writes behind the prompt that it has read, so all
engines do: decode is measured behind -p tokens, and -p is 512,2048,6000,16000 unless it is given. A file that OpenVINO cannot
read leaves it out, with a line that says why.
"""

import argparse
import itertools
import json
import os
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from watched import watch  # noqa: E402

# What `atta bench` says of the machine: bytes and int8 products per second at best, and the shares of them that it used.
MACHINE = ("read_bytes_per_s", "int8_mac_per_s", "decode_share", "prefill_share")

# Prompts beside OpenVINO, whose strength are long ones.
LONG_PROMPTS = "512,2048,6000,16000"

HERE = pathlib.Path(__file__).resolve().parent


def run(args, threads, command):
    """The standard output of a command on the CPUs of so many threads, and its peak private memory."""
    cpus = args.cpus or ",".join(map(str, sorted(os.sched_getaffinity(0))[:threads]))
    seen = watch(["taskset", "-c", cpus, *command])
    if seen.code:
        sys.exit(f"{' '.join(command)}: exit {seen.code}\n{seen.err[-2000:]}")
    return seen.out, seen.peak_private


def workloads(args, n_prompt):
    """What to measure, as options of both kinds of programs. Depth only where there is one: not all forks know it."""
    depth = ["-d", str(args.d)] if args.d else []
    if not args.openvino:
        return [["-p", str(n_prompt), "-n", str(args.n), "-r", "1", *depth]]
    return [["-p", str(n_prompt), "-n", "0", "-r", "1"], ["-p", "0", "-n", str(args.n), "-r", "1", "-d", str(n_prompt)]]


def joined(parts):
    """The figures of several runs of an engine: each of the run that measured it."""
    return {key: max(part[key] for part in parts) for key in parts[0]}


def atta(args, model, threads, n_prompt):
    """{prefill, decode: tokens per second, private_bytes, and the four of MACHINE}"""
    isa = ["--isa", args.isa] if args.isa else []

    def part(workload):
        out, peak = run(args, threads, [args.atta, "bench", model, *workload, "-j", str(threads), "--json", *isa])
        report = json.loads(out)
        rates = {"prefill": report["prefill_tok_s"], "decode": report["decode_tok_s"], "private_bytes": peak}
        return rates | {key: report[key] for key in MACHINE}

    return joined([part(workload) for workload in workloads(args, n_prompt)])


def peer(args, path, model, threads, n_prompt):
    """The same of a llama-bench, which knows nothing of the machine."""

    def part(workload):
        out, peak = run(args, threads, [path, "-m", model, *workload, "-t", str(threads), "-o", "json"])
        # Forks print lines of their own in front.
        start = out.find("[\n")
        if start < 0:
            sys.exit(f"{path} printed no JSON")
        rates = {bool(row["n_gen"]): row["avg_ts"] for row in json.loads(out[start:])}
        return {"prefill": rates.get(False, 0.0), "decode": rates.get(True, 0.0), "private_bytes": peak}

    return joined([part(workload) for workload in workloads(args, n_prompt)])


def openvino(args, model, threads, n_prompt):
    """The same of OpenVINO GenAI; {unsupported: why} of a file that it cannot read."""
    python = pathlib.Path(args.openvino) / "bin" / "python"
    script = [str(python), str(HERE / "openvino_bench.py"), model]
    out, peak = run(args, threads, [*script, "-p", str(n_prompt), "-n", str(args.n), "-t", str(threads)])
    return json.loads(out.splitlines()[-1]) | {"private_bytes": peak}


def engines_of(args, model, threads, n_prompt):
    """{name: how to measure it once}; without OpenVINO, and with a line on standard error, where it cannot read the file."""
    case = (model, threads, n_prompt)
    engines = {"atta": lambda: atta(args, *case)}
    engines |= {name: lambda path=path: peer(args, path, *case) for name, path in args.peer}
    if args.openvino:
        why = openvino(args, model, threads, 16).get("unsupported")
        if why:
            print(f"{pathlib.Path(model).name}: OpenVINO GenAI is left out, it cannot read the file: {why}", file=sys.stderr)
        else:
            engines["OpenVINO GenAI"] = lambda: openvino(args, *case)
    return engines


def compare(args, model, threads, n_prompt):
    """{model, threads, prompt, depth, engines: {name: {prefill, decode, private_bytes, and for peers how many times as fast
    atta is}}, machine: MACHINE}; depth is that of decode
    """
    engines = engines_of(args, model, threads, n_prompt)
    rounds = [{name: measure() for name, measure in engines.items()} for _ in range(args.r)]
    depth = n_prompt if args.openvino else args.d
    row = {"model": pathlib.Path(model).name, "threads": threads, "prompt": n_prompt, "depth": depth, "engines": {}}
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
        cells = [f"{row['model']:24}", f"{row['threads']:2}", f"{row['prompt']:6}", f"{name:16}"]
        for what in ("prefill", "decode"):
            cells += [f"{seen[what]:7.1f}", f"{seen[f'{what}_ratio']:5.2f}" if f"{what}_ratio" in seen else " " * 5]
        cells.append(f"{seen['private_bytes'] / 1e6:7.0f}")
        print("| " + " | ".join(cells) + " |" if markdown else " ".join(cells), flush=True)
    show_machine(row, markdown)


def show_machine(row, markdown):
    """In the columns of prefill and decode what limits each, and beside it atta's share."""
    seen = row["machine"]
    cells = [f"{row['model']:24}", f"{row['threads']:2}", f"{row['prompt']:6}", f"{'machine':16}"]
    cells += [f"{seen['int8_mac_per_s'] / 1e9:.1f} GMAC/s", f"{seen['prefill_share']:.0%} used"]
    cells += [f"{seen['read_bytes_per_s'] / 1e9:.1f} GB/s", f"{seen['decode_share']:.0%} used", ""]
    print("| " + " | ".join(cells) + " |" if markdown else " ".join(cells).rstrip(), flush=True)


def named_path(text):
    name, _, path = text.partition("=")
    if path == "none":
        return None
    if not path or name == "atta":
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH of a peer")
    return name, path


def numbers(text):
    return [int(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("-p", type=numbers, metavar="N,…", help=f"tokens of the prompt, or a list [512; with --openvino {LONG_PROMPTS}]")
    parser.add_argument("-n", type=int, default=64, help="tokens written")
    parser.add_argument("-d", type=int, default=0, metavar="DEPTH", help="tokens in the context before either starts")
    parser.add_argument("-t", type=numbers, default="1,2", metavar="N,…", help="numbers of threads")
    parser.add_argument("-r", type=int, default=5, help="rounds")
    parser.add_argument("--atta", default="target/release/atta")
    parser.add_argument("--isa", help="instruction set for atta, such as avx512 beside peers that were built without AMX")
    parser.add_argument("--peer", type=named_path, action="append", metavar="NAME=PATH", help="a llama-bench; may be given again; NAME=none leaves all out")
    parser.add_argument("--openvino", metavar="FOLDER", help="a virtual environment with openvino-genai; decode is then behind the prompt")
    parser.add_argument("--cpus", help="CPUs of every engine, such as 0,2 [the first ones, as many as threads]")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", action="store_true", help="one object a line instead of a table")
    args = parser.parse_args()
    args.p = args.p or numbers(LONG_PROMPTS if args.openvino else "512")
    if args.openvino and args.d:
        parser.error("-d and --openvino: OpenVINO writes behind its prompt only")
    default = [("llama.cpp", "target/peers/build/bin/llama-bench")]
    args.peer = [peer for peer in args.peer if peer] if args.peer else default
    if not args.json:
        head = ["model", "threads", "prompt", "engine", "prefill", "atta is … times as fast", "decode", "atta is … times as fast", "private MB"]
        print("| " + " | ".join(head) + " |\n|" + "---|" * len(head) if args.markdown else "  ".join(head), flush=True)
    for model in args.models:
        for threads, n_prompt in itertools.product(args.t, args.p):
            row = compare(args, model, threads, n_prompt)
            print(json.dumps(row), flush=True) if args.json else show(row, args.markdown)


if __name__ == "__main__":
    main()
