#!/usr/bin/env python3
"""Models bigger than RAM: atta and its peers, each run alone in a memory cgroup that counts the page cache.

    run.py --atta PATH [--llama PATH] [--ik PATH] [--picolm PATH] --models DIR [--markdown | --json]
    run.py --atta PATH model.gguf:256M,128M other.gguf:1/3 …

Before each run the page cache of the model is dropped, which mincore confirms, and the disk is probed; the run has no
swap. Rounds go through the engines in turn, and figures are medians over the rounds. README.md says what the columns
mean and how to build the peers.
"""

import argparse
import dataclasses
import glob
import json
import os
import pathlib
import re
import shlex
import shutil
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import cgroup  # noqa: E402
import disk  # noqa: E402
import engines  # noqa: E402
from watched import Watched, watch  # noqa: E402

CASES = ["tinyllama-1.1b.q4_k_m.gguf:256M,128M,64M", "llama-3-8b.q4_k_m.gguf:2G,1G", "qwen3-30b-a3b*.q4_k_m.gguf:1/3"]
PROMPT = "The ants that cut leaves carry many times their own weight, and a colony of them carries what no single ant could ever"
BUSY = 0.1


def note(line: str) -> None:
    print(f"run.py: {line}", file=sys.stderr, flush=True)


def stop(line: str) -> None:
    sys.exit(f"run.py: {line}")


def files_of(model: str) -> list[str]:
    """The file, or all the files of a split model."""
    split = re.fullmatch(r"(.*)-\d{5}-of-(\d{5})\.gguf", model)
    if not split:
        return [model]
    return [f"{split[1]}-{i:05}-of-{split[2]}.gguf" for i in range(1, int(split[2]) + 1)]


def bytes_of(limit: str, model: str) -> int:
    """`256M`, `1.5G`, or a share of the model's size such as `1/3`; whole pages."""
    if share := re.fullmatch(r"(\d+)/(\d+)", limit):
        n_bytes = sum(map(os.path.getsize, files_of(model))) * int(share[1]) // int(share[2])
    elif size := re.fullmatch(r"(\d+\.?\d*)([MG])", limit):
        n_bytes = int(float(size[1]) * (1 << {"M": 20, "G": 30}[size[2]]))
    else:
        stop(f"{limit}: no limit; write 256M, 1.5G, or a share of the model such as 1/3")
    return n_bytes // disk.PAGE * disk.PAGE


def cases(args: argparse.Namespace) -> list[tuple[str, int]]:
    """Model and limit in bytes of every case whose file is there."""
    found = []
    for case in args.models_and_limits or [f"{args.models}/{case}" for case in CASES]:
        pattern, _, limits = case.rpartition(":")
        models = sorted(glob.glob(pattern)) or [pattern]
        for model in models:
            if all(map(os.path.isfile, files_of(model))) and limits:
                found += [(model, bytes_of(limit, model)) for limit in limits.split(",")]
            else:
                note(f"{case}: skipped, no such file, or no limit behind a colon")
    return found


def peers(args: argparse.Namespace) -> list[engines.Engine]:
    """The engines that were given, ours first."""
    extra = shlex.split(args.llama_args)
    for binary in filter(None, [args.atta, args.llama, args.ik, args.picolm]):
        if not shutil.which(binary):
            stop(f"{binary}: no such program")
    try:
        chosen = [engines.atta(args.atta, args.ram_budget, shlex.split(args.atta_args))] if args.atta else []
        if args.llama:
            chosen.append(engines.llama("llama.cpp", args.llama, extra))
            if "--no-repack" in engines.help_of(args.llama):
                chosen.append(engines.llama("llama.cpp --no-repack", args.llama, ["--no-repack", *extra]))
            else:
                note(f"{args.llama}: knows no --no-repack, so there is one line of it")
        if args.ik:
            chosen.append(engines.llama("ik_llama.cpp", args.ik, shlex.split(args.ik_args)))
    except (OSError, ValueError) as error:
        stop(str(error))
    return chosen + ([engines.picolm(args.picolm, shlex.split(args.picolm_args))] if args.picolm else [])


def drop_caches(engine: engines.Engine, model: str) -> None:
    """The model must come from the disk, and the program's own pages should be charged to its run."""
    for path in files_of(model):
        if left := disk.drop(path):
            why = "is it mapped by another process, or on a tmpfs?" if os.access(path, os.W_OK) else "the kernel tells only who may write to the file"
            stop(f"{path}: {left} bytes stay in the page cache as far as one can see: {why}")
    if os.path.isfile(engine.binary):
        disk.drop(engine.binary)


def busy_s() -> float:
    """CPU time that this machine has spent on anything since it started."""
    user, nice, system, _, _, irq, soft, steal = map(int, pathlib.Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass
class Run:
    """One run: what was seen from outside, what the engine says, what the disk gave before and after."""

    seen: Watched
    said: engines.Said | None
    survived: str
    charged: int | None
    disk: float | None
    others: float

    def row(self) -> dict:
        """Its figures; None is what cannot be said."""
        said, seen = self.said, self.seen
        row = {"survived": self.survived, "exit": seen.code, "peak_anon_bytes": seen.peak_private, "peak_rss_bytes": seen.peak_rss,
               "charged_bytes": self.charged, "disk_bytes_s": self.disk, "others_cpu": self.others, "wall_s": seen.wall_s,
               "read_bytes": seen.reads[-1][1] if seen.reads else None}  # fmt: skip
        if not said:
            return row
        rate, per_token = said.decode_tok_s, self.read_per_token()
        row |= {"prompt_tokens": said.n_prompt, "prefill_tok_s": said.prefill_tok_s, "decode_tok_s": rate, "n_decoded": said.n_decoded,
                "read_bytes_per_token": per_token, "predicted_tok_s": said.predicted_tok_s, "weights": said.weights, "pinned_bytes": said.pinned_bytes}  # fmt: skip
        row["error"] = said.predicted_tok_s / rate - 1 if said.predicted_tok_s and rate else None
        row["share_of_disk"] = rate * per_token / self.disk if rate and per_token is not None and self.disk else None
        return row

    def read_per_token(self) -> float | None:
        """Bytes from the disk while the text was written, which is the last thing before the last output."""
        if not self.said or self.said.n_decoded < 1 or not self.seen.reads:
            return None
        end = self.seen.last_output
        return (self.seen.read_until(end) - self.seen.read_until(end - self.said.decode_s)) / self.said.n_decoded


def outcome(seen: Watched, said: engines.Said | None, n_killed: int) -> str:
    if seen.timed_out:
        return "timeout"
    if n_killed or seen.code == -9:
        return "killed"
    return "failed" if seen.code or not said else "yes"


def probe(model: str, seconds: float) -> float | None:
    return disk.rate(files_of(model)[0], seconds=seconds) if seconds else None


def run(engine: engines.Engine, job: engines.Job, args: argparse.Namespace) -> Run:
    """One engine on one model under one limit."""
    job.stats.unlink(missing_ok=True)
    drop_caches(engine, job.model)
    before = probe(job.model, args.probe)
    busy, start = busy_s(), time.monotonic()
    with cgroup.limited(job.limit) as group:
        seen = watch(group.inside(engine.command(job)), args.timeout, 0.05)
        n_killed, charged = group.n_killed(), group.peak_bytes()
    others = max(0.0, busy_s() - busy - seen.cpu_s) / (time.monotonic() - start) / os.cpu_count()
    after = probe(job.model, args.probe)
    said = engine.said(seen, job)
    result = Run(seen, said, outcome(seen, said, n_killed), charged, before and after and (before + after) / 2, others)
    remark(engine, job, result)
    return result


def remark(engine: engines.Engine, job: engines.Job, result: Run) -> None:
    """Says on standard error what the table has no room for."""
    if result.survived == "failed":
        lines = result.seen.err.strip().splitlines() or ["it printed nothing"]
        errors = [line for line in lines if "error" in line.lower()] or lines
        note(f"{engine.name}, {pathlib.Path(job.model).name}: exit {result.seen.code}: {errors[-1][:200]}")
    if result.others > BUSY:
        note(f"{engine.name}: other processes took {result.others:.0%} of the CPUs meanwhile")


def median(runs: list[dict]) -> dict:
    """The rounds of one line of the table; it survived if all of them did."""
    keys = {key: None for run in runs for key in run}
    row = {}
    for key in keys:
        values = [run[key] for run in runs if run.get(key) is not None]
        numbers = values and all(isinstance(value, (int, float)) for value in values)
        row[key] = statistics.median(values) if numbers else values[0] if values else None
    row["survived"] = next((run["survived"] for run in runs if run["survived"] != "yes"), "yes")
    return row


COLUMNS = [
    ("engine", 21, lambda r: r["engine"]),
    ("model", 32, lambda r: r["model"]),
    ("limit MB", 8, lambda r: number(r, "limit_bytes", ".0f", 1 << 20)),
    ("survived", 8, lambda r: r["survived"]),
    ("prefill tok/s", 13, lambda r: number(r, "prefill_tok_s", ".2f")),
    ("decode tok/s", 12, lambda r: number(r, "decode_tok_s", ".2f")),
    ("read MB/token", 13, lambda r: number(r, "read_bytes_per_token", ".1f", 1e6)),
    ("peak anon MB", 12, lambda r: number(r, "peak_anon_bytes", ".0f", 1 << 20)),
    ("predicted", 9, lambda r: number(r, "predicted_tok_s", ".2f")),
    ("error", 6, lambda r: number(r, "error", "+.0%")),
    ("disk GB/s", 9, lambda r: number(r, "disk_bytes_s", ".2f", 1e9)),
    ("of disk", 7, lambda r: number(r, "share_of_disk", ".0%")),
]


def number(row: dict, key: str, form: str, unit: float = 1) -> str:
    return "–" if row.get(key) is None else format(row[key] / unit, form)


def line(cells: list[str], markdown: bool) -> str:
    """A line of the table: words to the left, numbers to the right."""
    padded = [cell.ljust(width) if i < 2 else cell.rjust(width) for i, (cell, (_, width, _)) in enumerate(zip(cells, COLUMNS))]
    return "| " + " | ".join(padded) + " |" if markdown else " ".join(padded)


def show_head(args: argparse.Namespace) -> None:
    if not args.json:
        print(line([name for name, _, _ in COLUMNS], args.markdown))
    if args.markdown:
        print("|" + "".join("---|" if i < 2 else "--:|" for i in range(len(COLUMNS))))


def show(row: dict, args: argparse.Namespace) -> None:
    print(json.dumps(row) if args.json else line([cell(row) for _, _, cell in COLUMNS], args.markdown), flush=True)


def compare(chosen: list[engines.Engine], model: str, limit: int, args: argparse.Namespace, stats: pathlib.Path) -> None:
    """Every engine on one case, in turn, as many rounds as asked for; an engine that did not survive is not tried again."""
    job = engines.Job(model, limit, args.prompt, args.n, args.c, args.j, stats)
    runs = {engine.name: [] for engine in chosen}
    for rounds_left in reversed(range(args.r)):
        for engine in chosen:
            rows = runs[engine.name]
            if all(row["survived"] == "yes" for row in rows):
                rows.append(run(engine, job, args).row())
            if not rounds_left:
                case = {"engine": engine.name, "model": pathlib.Path(model).name, "limit_bytes": job.limit}
                show(case | {"rounds": len(rows)} | median(rows), args)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models_and_limits", nargs="*", metavar="MODEL:LIMIT,…", help="cases; without any, the usual ones, looked for in --models")
    parser.add_argument("--models", default="target/peers/models", help="directory of the usual models")
    parser.add_argument("--atta", default="target/release/atta", help="ours; '' leaves it out")
    parser.add_argument("--ram-budget", default="auto", help="for atta: auto (no flag), a share of the limit such as 0.85, or a size")
    parser.add_argument("--atta-args", default="", help="further options for it, as in --atta-args='--weights streamed'")
    parser.add_argument("--llama", help="llama-completion of llama.cpp")
    parser.add_argument("--llama-args", default="")
    parser.add_argument("--ik", help="llama-cli of ik_llama.cpp")
    parser.add_argument("--ik-args", default="")
    parser.add_argument("--picolm", help="the original C program")
    parser.add_argument("--picolm-args", default="")
    parser.add_argument("-p", "--prompt", default=PROMPT)
    parser.add_argument("-n", type=int, default=32, help="tokens written")
    parser.add_argument("-c", type=int, default=512, help="context")
    parser.add_argument("-j", type=int, default=len(os.sched_getaffinity(0)), help="threads")
    parser.add_argument("-r", type=int, default=1, help="rounds")
    parser.add_argument("--timeout", type=float, default=600, help="seconds after which a run is given up")
    parser.add_argument("--probe", type=float, default=1, help="seconds of the disk probe before and after each run; 0: none")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", action="store_true", help="one object a line instead of a table")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    chosen, todo = peers(args), cases(args)
    if not chosen or not todo:
        stop("nothing to do: give an engine (--atta, --llama, --ik, --picolm) and a model that is there")
    try:
        cgroup.make().remove()  # fail before the first line of the table if cgroups are missing
        show_head(args)
        with tempfile.TemporaryDirectory() as scratch:
            for model, limit in todo:
                compare(chosen, model, limit, args, pathlib.Path(scratch) / "stats.json")
    except (cgroup.Missing, OSError) as error:
        stop(str(error))


if __name__ == "__main__":
    main()
