"""Bytes between machines: for each token, and before the first one."""

import os
import pathlib
import time

from bench import LEAD, Bench, World
from report import Row

NODES = ["pi1", "pi2"]
# Bytes that may travel before the first token beside rows: questions, answers and handshakes, for each node.
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
        packets = None
    rows = run.bytes_per_token or 0.0
    # The coordinator's own row to the first stage is not in what stages report.
    d_row = rows / len(NODES)
    all_rows, most = 3 * d_row, 3 * d_row + 1024
    is_right = 0 < all_rows <= most
    bench.report.add(Row("bytes", "application bytes per token, 3 hops", f"{all_rows:.0f}", f"≤ 3 × {d_row:.0f} + 1,024", "RPC 147 kB", is_right, numbers={"row": d_row}))
    bench.report.add(Row("bytes", "wire bytes per token", f"{wire:.0f}", "", "RPC 147 kB, 67 packets", numbers={"wire": wire, "packets": packets}))


def start(bench: Bench) -> None:
    """The start of a ring: with the file on the nodes, without it, and with the parts that were fetched then."""
    size = os.path.getsize(bench.options.model)
    for what, model, is_fetched in [("the file", bench.models, False), ("nothing", None, True), ("the parts", None, False)]:
        with bench.world() as world:
            world.machine(LEAD)
            names = NODES if model else ["bare1", "bare2"]
            for name in names:
                world.machine(name)
                world.node(name, models=model)
            if what == "the file":
                # Hashing is done once for a file, and takes no wire.
                world.run(bench.text(2), [f"--ring={','.join(names)}"])
            alone = world.run(bench.text(2))
            before, began = counted(world), time.monotonic()
            run = world.run(bench.text(2), [f"--ring={','.join(names)}"])
            first = run.program.chunks[0][0] - began
            sent = counted(world) - before
            held = sum(path.stat().st_blocks * 512 for name in names for path in parts_of(world, name))
        limit = size * 1.1 + TALK if is_fetched else TALK * len(names)
        number = f"{sent / 1e3:.0f} kB, first token after {first:.2f} s" + (f", {held / 1e6:.0f} MB kept" if held else "")
        is_right = run.text == alone.text and sent <= limit and (not is_fetched or held > 0)
        target = "the layers once" if is_fetched else "no weight byte"
        bench.report.add(Row("start", f"nodes have {what}", number, target, "RPC 633 MB at each start", is_right, numbers={"sent": sent, "first_token_s": first, "kept": held}))


def parts_of(world: World, name: str) -> list[pathlib.Path]:
    return list((world.machines[name].home / "cache/atta/cluster/parts").glob("*"))
