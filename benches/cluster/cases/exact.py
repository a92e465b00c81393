"""Texts and logits of rings, against those of one machine: every plan, every architecture, every network.

It times nothing. Plans differ by the machines, the aim, and the speed that the coordinator believes to have, which
moves layers between it and the nodes.
"""

import glob
import itertools
import pathlib

from bench import LEAD, Bench, World
from lan import Link
from programs import Failure
from report import Row

NODES = ["pi1", "pi2", "pi3"]
N_TOKENS = 48
# Ids that every vocabulary has.
IDS = ",".join(str(1 + i * 7 % 60) for i in range(70))


def plans() -> list[tuple[str, str, float]]:
    """Machines, aim and speed of the coordinator, in times what it measured."""
    rings = ["pi1", "pi3,pi1", "pi1,pi2", "pi1,pi2,pi3"]
    return [(ring, aim, speed) for ring in rings for aim in ("latency", "prompt") for speed in (0.001, 1, 40)]


def start_nodes(bench: Bench, world: World, names: list[str]) -> None:
    world.machine(LEAD)
    for name in names:
        world.machine(name)
    for name in names:
        world.node(name, models=bench.models)


def bits(bench: Bench) -> None:
    """Texts and logits on many plans, with f16, q8 and q4 KV caches."""
    with bench.world() as world:
        start_nodes(bench, world, NODES)
        logits = ["logits", bench.options.model, "--tokens", IDS, "-o", "-", "-j", "1"]
        alone = {kv: world.run(bench.text(N_TOKENS, "--kv", kv)).text for kv in ("f16", "q8", "q4")}
        alone_logits = world.run(logits).text
        seen, wrong = set(), []
        for i, (ring, aim, speed) in enumerate(plans()):
            world.believe(LEAD, speed)
            options = [f"--ring={ring}", "--ring-for", aim]
            kv = ("f16", "q8", "q4")[i % 3]
            run = world.run(bench.text(N_TOKENS, "--kv", kv, "--batch", str(8 + 24 * (i % 2))), options)
            seen.add(str(run.layers))
            if run.text != alone[kv]:
                wrong.append(f"text with {run.layers}, kv {kv}")
            if world.run(logits, options).text != alone_logits:
                wrong.append(f"logits with {run.layers}")
        world.believe(LEAD, 1)
    number = f"{len(seen)} plans, " + ("all equal" if not wrong else f"differ: {'; '.join(wrong)}")
    bench.report.add(Row("bits", "texts and logits, f32", number, "equal", "nobody", not wrong, numbers={"plans": sorted(seen), "wrong": wrong}))


def goldens(bench: Bench) -> None:
    """Logits of a small model of every architecture."""
    files = sorted(glob.glob(f"{bench.options.goldens}/*.gguf"))
    if not files:
        raise Failure(f"{bench.options.goldens}: no GGUF files")
    equal, wrong, refused = [], [], {}
    with bench.world() as world:
        world.machine(LEAD)
        for name in NODES[:2]:
            world.machine(name)
            world.node(name, models=bench.options.goldens)
        for path in files:
            name = pathlib.Path(path).stem
            command = ["logits", path, "--tokens", IDS.rsplit(",", 50)[0], "-o", "-", "-j", "1"]
            alone = world.attempt(command)
            if alone.code != 0:
                continue  # such as encoders, which have no logits
            run = world.attempt(command, ["--ring=pi1,pi2"])
            if run.code != 0:
                run = world.attempt(command, ["--ring=pi1"])
            if run.code != 0:
                refused[name] = run.error()
            else:
                (equal if run.text == alone.text else wrong).append(name)
    number = f"{len(equal)} models equal, {len(refused)} refused" + (f", differ: {', '.join(wrong)}" if wrong else "")
    numbers = {"equal": equal, "refused": refused, "wrong": wrong}
    bench.report.add(Row("goldens", "logits of every architecture", number, "equal or refused", "", bool(equal) and not wrong, numbers=numbers))


def network(bench: Bench) -> None:
    """Texts over slow and bad links."""
    links = [Link("1gbit"), Link("20mbit"), Link(delay_ms=5, jitter_ms=2), Link(delay_ms=1, jitter_ms=1, loss_percent=2)]
    for link in links:
        with bench.world() as world:
            world.machine(LEAD)
            for name in NODES[:2]:
                world.machine(name, link=link)
                world.node(name, models=bench.models)
            alone = world.run(bench.text(N_TOKENS))
            run = world.run(bench.text(N_TOKENS), ["--ring=pi1,pi2"])
            times = [time for time, _ in run.program.chunks]
            pause = max((b - a for a, b in itertools.pairwise(times)), default=0.0)
            rate = run.stats.get("decode_tok_s", 0.0)
            numbers = {"decode_tok_s": rate, "longest_pause_s": pause, "expected_tok_s": run.expected_tok_s}
            number = f"{rate:.1f} tokens/s, longest pause {pause:.2f} s"
            bench.report.add(Row("network", str(link), number, "equal text", "", run.text == alone.text, numbers=numbers))
