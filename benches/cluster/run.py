#!/usr/bin/env python3
"""Rings of machines on one machine: what they write, how fast, and what faults do to them.

    run.py --atta PATH --model FILE [--only CASE …] [--list] [--json FILE]

Makes network namespaces and cgroups, starts nodes in them, runs the cases one after another, prints a table and takes
everything down again, after an error and after Ctrl-C too. README.md says what the cases are. Root, Linux.
"""

import argparse
import os
import pathlib
import shlex
import shutil
import signal
import sys
import tempfile
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import lan  # noqa: E402
import report  # noqa: E402
from bench import Bench, Options  # noqa: E402
from cases import CASES  # noqa: E402
from programs import Failure, cgroup  # noqa: E402
from world import Setting  # noqa: E402

ROOT = HERE.parents[1]
HOMES = "atta-cluster-"
# This needs a file that is not in the repository.
ON_REQUEST = ("big",)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the cases")
    parser.add_argument("--only", action="append", choices=[*CASES], metavar="CASE", help="this case; may be repeated")
    parser.add_argument("--atta", default=str(ROOT / "target/release/atta"))
    parser.add_argument("--model", default=str(ROOT / "tests/golden/stories.gguf"), help="GGUF file of the cases")
    parser.add_argument("--big-model", help="GGUF file of `big`, about 5 GB")
    parser.add_argument("--aarch64", help="the program for aarch64, for a node of `mixed`")
    parser.add_argument("--goldens", default=str(ROOT / "tests/golden/models"), help="directory of `goldens`")
    parser.add_argument("-r", "--rounds", type=int, default=5, help="rounds of what is timed")
    parser.add_argument("--n", type=int, default=200, help="faults of `random`")
    parser.add_argument("--seed", type=int, default=1, help="of `random`")
    parser.add_argument("--tokens", type=int, help="tokens of a text, other than the case's own number")
    parser.add_argument("--c4-c8", type=float, help="c(8)/c(4) of the bench `few`, other than what `writers` measures")
    parser.add_argument("--expect", choices=["either", "recover", "error"], default="either", help="what a machine that is gone for good must lead to")
    parser.add_argument("--ring-args", default="", metavar="OPTIONS", help="further options of every ring, as in --ring-args='--lane tcp'")
    parser.add_argument("--keep", metavar="DIR", help="a directory for homes that is not removed afterwards")
    parser.add_argument("--json", metavar="FILE", help="write all rows and figures there; -: objects on standard output in place of the table")
    args = parser.parse_args()
    if args.list:
        for name, case in CASES.items():
            print(f"{name:<12} {(case.__doc__ or '').strip().splitlines()[0]}{' (needs a file)' if name in ON_REQUEST else ''}")
        sys.exit(0)
    for path in (args.atta, args.model):
        if not os.path.isfile(path):
            parser.error(f"{path}: no such file")
    if os.geteuid():
        parser.error("namespaces need root")
    return args


def run(name: str, bench: Bench) -> None:
    """One case; what stops it is a row."""
    bench.case = name
    try:
        CASES[name](bench)
    except (Failure, lan.Missing, cgroup.Missing) as error:
        bench.report.add(report.Row(name, "the case ended early", str(error), ok=False))
    except Exception as error:
        traceback.print_exc()
        bench.report.add(report.Row(name, "the script failed", repr(error), ok=False))


def chosen(args: argparse.Namespace) -> list[str]:
    return args.only or [name for name in CASES if name not in ON_REQUEST or args.big_model]


def sweep() -> None:
    """Removes what runs that were killed have left."""
    lan.sweep()
    for path in pathlib.Path(tempfile.gettempdir()).glob(f"{HOMES}*"):
        if not lan.is_alive(path.name.removeprefix(HOMES).split("-")[0]):
            shutil.rmtree(path, ignore_errors=True)


def stop(*_) -> None:
    raise KeyboardInterrupt


def main() -> None:
    args = arguments()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    sweep()
    scratch = pathlib.Path(args.keep or tempfile.mkdtemp(prefix=f"{HOMES}{os.getpid()}-"))
    scratch.mkdir(parents=True, exist_ok=True)
    about = report.about(args.atta, vars(args))
    table = report.Report(args.json == "-")
    options = Options(
        model=str(pathlib.Path(args.model).resolve()), rounds=args.rounds, n=args.n, seed=args.seed, expect=args.expect,
        big_model=args.big_model and str(pathlib.Path(args.big_model).resolve()), aarch64=args.aarch64, c4_c8=args.c4_c8,
        goldens=str(pathlib.Path(args.goldens).resolve()), tokens=args.tokens,
    )  # fmt: skip
    bench = Bench(Setting(str(pathlib.Path(args.atta).resolve()), scratch, shlex.split(args.ring_args)), table, options)
    is_cut = False
    try:
        for name in chosen(args):
            run(name, bench)
    except KeyboardInterrupt:
        is_cut = True
    finally:
        if args.json not in (None, "-"):
            table.write(pathlib.Path(args.json), about)
        lan.sweep(is_over=True)
        if not args.keep:
            shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(130 if is_cut else int(table.has_failed))


if __name__ == "__main__":
    main()
