"""Bytes between machines: for each token, and before the first one."""

import os
import pathlib
import time

from bench import LEAD, Bench, World
from report import Row

NODES = ["pi1", "pi2"]
# Nodes without the model's file.
BARE = ["bare1", "bare2"]
# Bytes that may travel at a start beside weights, rows and the measuring of links: questions and handshakes.
TALK = 256 << 10


def counted(world: World) -> int:
    """Bytes that all machines have sent so far."""
    return sum(world.lan.n_bytes(name)[1] for name in world.machines)


def per_token(bench: Bench) -> None:
    """Bytes of a token on two nodes: of rows, and on the wire with all that belongs to them."""
    few, many = 40, 40 + (bench.options.tokens or 160)
    with bench.world() as world:
        world.machine(LEAD)
        for name in NODES:
            world.machine(name)
            world.node(name, models=bench.models)
        ring = ["--ring=pi1,pi2"]
        world.run(bench.text(8), ring)
        sent = []
        for n in (few, many):
            before = counted(world)
            run = world.run(bench.text(n), ring)
            sent.append(counted(world) - before)
        wire = (sent[1] - sent[0]) / (many - few)
    rows = run.bytes_per_token or 0.0
    # The coordinator's own row to the first stage is not in what stages report.
    d_row = rows / len(NODES)
    all_rows = 3 * d_row
    number, target = f"{wire:.0f}, of them rows {all_rows:.0f}", "≤ 1.05 × rows + 1 KiB"
    is_right = 0 < all_rows < wire <= 1.05 * all_rows + 1024
    numbers = {"row": d_row, "wire": wire}
    bench.report.add(Row("bytes", "bytes of a token on the wire, 3 hops", number, target, "RPC 147 kB, 67 packets", is_right, numbers=numbers))


def start(bench: Bench) -> None:
    """The start of a ring: with the file on the nodes, without it, and with the parts that were fetched then."""
    for what, names, models in [("the file", NODES, bench.models), ("nothing", BARE, None), ("the parts", BARE, None)]:
        with bench.world() as world:
            world.machine(LEAD)
            for name in names:
                world.machine(name)
                world.node(name, models=models)
            # Hashing is done once for a file, and takes no wire.
            if what == "the file":
                world.run(bench.text(2), [f"--ring={','.join(names)}"])
            alone = world.run(bench.text(2))
            started = Started(bench, world, names)
        add_start(bench, what, started, alone.text)


class Started:
    """A ring that was started and wrote two tokens, and the bytes that this took."""

    def __init__(self, bench: Bench, world: World, names: list[str]):
        at_first = counted(world)
        world.planned(bench.options.model, "-j", "1", "--nodes", ",".join(names))
        survey = counted(world)
        # Before a plan the links are measured, by about 1 MiB each: that is the survey, and no weights.
        self.survey = survey - at_first
        began = time.monotonic()
        run = world.run(bench.text(2), [f"--ring={','.join(names)}"])
        self.text = run.text
        # Of a node; the coordinator's own rows to the first stage come to them.
        self.rows = 1.5 * (run.bytes_per_token or 0.0) * (run.stats["prompt_tokens"] + 2)
        self.first_token = run.program.chunks[0][0] - began
        self.sent = counted(world) - survey - self.survey
        self.kept = sum(path.stat().st_blocks * 512 for name in names for path in parts_of(world, name))


def add_start(bench: Bench, what: str, started: Started, alone: bytes) -> None:
    is_fetched = what == "nothing"
    limit = TALK + started.rows + (os.path.getsize(bench.options.model) * 1.1 if is_fetched else 0)
    is_right = started.text == alone and started.sent <= limit and (started.kept > 0) == (what != "the file")
    kept = f", {started.kept / 1e6:.0f} MB kept" if started.kept else ""
    number = f"{started.sent / 1e3:.0f} kB, first token after {started.first_token:.2f} s{kept}; {started.survey / 1e3:.0f} kB to measure links"
    target = "the layers once" if is_fetched else "no weight byte"
    numbers = {"sent": started.sent, "survey": started.survey, "first_token_s": started.first_token, "kept": started.kept}
    bench.report.add(Row("start", f"nodes have {what}", number, target, "RPC 633 MB at each start", is_right, numbers=numbers))


def parts_of(world: World, name: str) -> list[pathlib.Path]:
    return list((world.machines[name].home / "cache/atta/cluster/parts").glob("*"))
