"""Memory of nodes: beside their share, in a cgroup of their own, and a model that fits into no single one.

In a cgroup the page cache counts, and a page is charged to the program that touched it first: so each node has a copy
of the model with inodes of its own, out of the page cache.
"""

import os
import pathlib
import shutil
import sys

from bench import LEAD, Bench, Run, World
from programs import Failure
from report import Row

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "memory"))
import disk  # noqa: E402

# Beside scratch and frames, as plans count it.
NODE_BYTES = 12 << 20
PLAN = ["-c", "1024", "-j", "1"]


def machine_of(plan: dict, name: str) -> dict:
    return next(machine for machine in plan["machines"] if machine["node"] == name)


def own(bench: Bench) -> None:
    """Private memory of a node beyond its weights and KV cache."""
    with bench.world() as world:
        world.machine(LEAD)
        world.machine("pi1")
        node = world.node("pi1", models=bench.models)
        idle = node.status().get("RssAnon", 0)
        plan = world.planned(bench.options.model, "--nodes", "pi1", "--for", "prompt", *PLAN)
        node.watch_memory()
        run = world.run(bench.text(200), ["--ring=pi1", "--ring-for", "prompt"])
        load = machine_of(plan, "pi1")
    # Mapped weights are no private memory.
    beside = node.peak_private - load["kv_bytes"]
    limit = load["ram_bytes"] - load["resident_bytes"] - load["kv_bytes"]
    number = f"{beside / 1e6:.1f} MB ({idle / 1e6:.1f} MB idle); {split(run.layers)}"
    target = f"≤ {limit / 1e6:.1f} MB = 12 MiB + scratch + 6 frames"
    numbers = {"peak": node.peak_private, "kv": load["kv_bytes"], "idle": idle, "limit": limit}
    bench.report.add(Row("own-memory", "RssAnon of a node beyond its KV cache", number, target, "Zenoh 9 MB", beside <= limit, numbers=numbers))


def split(layers: dict[str, int]) -> str:
    return "layers " + " + ".join(str(n) for n in layers.values())


def own_copy(bench: Bench, name: str, model: str) -> str:
    """A directory with a copy of the model that nothing has in memory."""
    folder = bench.setting.scratch / "copies" / name
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / pathlib.Path(model).name
    shutil.copyfile(model, copy)
    if left := disk.drop(str(copy)):
        raise Failure(f"{copy}: {left} bytes stay in the page cache: is it on a tmpfs?")
    return str(folder)


def cgroups(bench: Bench) -> None:
    """Two nodes, each in a cgroup as large as its plan and 5 % more."""
    names = ["pi1", "pi2"]
    with bench.world() as world:
        world.machine(LEAD)
        for name in names:
            world.machine(name)
            world.node(name, models=bench.models)
        plan = world.planned(bench.options.model, "--nodes", ",".join(names), "--for", "prompt", *PLAN)
        # Not the hashing of the file, which happens once, but the ring is measured.
        alone = world.run(bench.text(100))
    limits = {name: int(machine_of(plan, name)["ram_bytes"] * 1.05) for name in names}
    with bench.world() as world:
        world.machine(LEAD)
        nodes = {}
        for name in names:
            world.machine(name, memory=limits[name])
            # The program's own pages are charged too, to the first who touches them.
            nodes[name] = world.node(name, models=own_copy(bench, name, bench.options.model))
            nodes[name].watch_memory()
        run = world.attempt(bench.text(100), [f"--ring={','.join(names)}", "--ring-for", "prompt"])
        killed = sum(machine.group.n_killed() for machine in world.machines.values() if machine.group)
        charged = {name: world.machines[name].group.peak_bytes() for name in names}
        shutil.rmtree(bench.setting.scratch / "copies")
    is_right = run.code == 0 and run.text == alone.text and not killed
    parts = [
        f"{name}: {nodes[name].peak_private / 1e6:.0f} MB private, {(charged[name] or 0) / 1e6:.0f} of {limits[name] / 1e6:.0f} MB charged" for name in names
    ]
    number = "; ".join(parts) + ("" if run.code == 0 else f"; exit {run.code}: {run.error()}") + (f"; {killed} killed" if killed else "")
    bench.report.add(
        Row("cgroup", "two nodes in cgroups of their plans + 5 %", number, "survived, text equal", "", is_right, numbers={"limits": limits, "charged": charged})
    )


def big(bench: Bench) -> None:
    """A model of 8B, on a coordinator and three nodes with 2 GB each."""
    model, limit = bench.options.big_model, 2 << 30
    if not model or not os.path.isfile(model):
        raise Failure("give the file by --big-model; README.md says how it is made")
    n = bench.options.tokens or 16
    names = ["pi1", "pi2", "pi3"]
    free = shutil.disk_usage(bench.setting.scratch).free
    if free < 4 * os.path.getsize(model):
        raise Failure(f"three copies of {model} need more disk than the {free / 1e9:.0f} GB that are free")
    with bench.world() as world:
        world.machine(LEAD)
        alone = world.run(bench.text(n, model=model, n_ctx=512))
    try:
        with bench.world() as world:
            run, charged = run_big(bench, world, names, limit, n)
    finally:
        shutil.rmtree(bench.setting.scratch / "copies", ignore_errors=True)
    peaks = ", ".join(f"{name} {(peak or 0) / 1e9:.2f}" for name, peak in charged.items())
    rate = run.stats.get("decode_tok_s") or 0.0
    number = f"{rate:.2f} tokens/s; {split(run.layers)}; GB charged: {peaks}" if run.code == 0 else f"exit {run.code}: {run.error()}"
    is_right = run.code == 0 and run.text == alone.text
    bench.report.add(
        Row(
            "big",
            "8B over three nodes of 2 GB, coordinator of 2 GB",
            number,
            "survived, text equal",
            "one of 2 GB streams",
            is_right,
            numbers={"tok_s": rate, "charged": charged},
        )
    )


def run_big(bench: Bench, world: World, names: list[str], limit: int, n: int) -> tuple[Run, dict]:
    model = bench.options.big_model
    budget = ["--ram-budget", f"{int(limit * 0.9)}B"]
    world.machine(LEAD, memory=limit)
    for name in names:
        world.machine(name, memory=limit)
        world.node(name, *budget, models=own_copy(bench, name, model))
    disk.drop(model)
    run = world.attempt(bench.text(n, *budget, model=model, n_ctx=512), [f"--ring={','.join(names)}"], 3000)
    charged = {name: machine.group.peak_bytes() for name, machine in world.machines.items()}
    return run, charged
