"""Kills and freezes at random tokens of random machines, many times on the same nodes.

The seed is printed and decides everything but the times. Texts must be whole, or a beginning and an error; nodes that
live must end without growth, without processes that they left, and with files closed.
"""

import itertools
import os
import random
import signal
import time

from bench import Bench, World
from cases.faults import N, NODES, Outcome, happen, start_nodes, whole_text
from lan import wait_for
from programs import Failure, Program
from report import Row

# How much more private memory a node may have at the end than after its first texts.
GROWTH = 8 << 20


class Rounds:
    """Faults one after another on a world."""

    def __init__(self, bench: Bench, world: World):
        self.bench, self.world = bench, world
        self.rng = random.Random(bench.options.seed)
        self.nodes = start_nodes(bench, world)
        self.whole = whole_text(bench, world)
        self.counts: dict[str, int] = {}
        self.wrong: list[str] = []
        # Private memory and open files of each process, early and now.
        self.first: dict[int, tuple[int, int]] = {}

    def round(self, i: int) -> None:
        what = self.rng.choice(["kill", "freeze", "freeze for good", "pull", "two"])
        at, name = self.rng.randint(1, N - 20), self.rng.choice(NODES)
        done = happen(self.bench, self.world, ",".join(self.rng.sample(NODES, 3)), lambda: self.act(what, name), at)
        is_short = what in ("freeze", "pull")
        wrong = done.wrong(self.whole, "recover" if is_short else self.bench.options.expect)
        if wrong:
            self.wrong.append(f"{i}: {what} {name} at {at}: {wrong}")
        kind = f"{what}: {'whole' if done.code == 0 else 'error'}"
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.mend(what, name)
        self.check_free(i, done)

    def act(self, what: str, name: str) -> None:
        node = self.nodes[name]
        if what == "kill":
            node.signal(signal.SIGKILL)
        elif what == "pull":
            self.world.lan.pull(name)
            time.sleep(self.rng.uniform(0.05, 1.5))
            self.world.lan.plug(name)
        elif what == "two":
            for other in NODES:
                self.nodes[other].signal(signal.SIGSTOP if other != name else signal.SIGKILL)
        else:
            node.signal(signal.SIGSTOP)
            if what == "freeze":
                time.sleep(self.rng.uniform(0.05, 1.5))
                node.signal(signal.SIGCONT)

    def mend(self, what: str, name: str) -> None:
        """Thaws and starts again."""
        for node in self.nodes.values():
            node.signal(signal.SIGCONT)
        if what in ("kill", "two"):
            if self.nodes[name].end(20) is None:
                raise Failure(f"{name} lives after SIGKILL")
            self.nodes[name] = self.world.node(name, models=self.bench.models)

    def check_free(self, i: int, done: Outcome) -> None:
        def are_free() -> bool:
            listed = self.world.listed()
            return all(name in listed and not listed[name]["ring"] for name in NODES)

        if not wait_for(are_free, 90, 0.2):
            raise Failure(f"round {i}: nodes are not free after 90 s ({done}): {self.world.listed()}")

    def look(self) -> None:
        """Notes the memory and the files of nodes that were not seen before."""
        for node in self.nodes.values():
            self.first.setdefault(node.pid, weighed(node))

    def grown(self) -> list[str]:
        """Nodes with more memory or files than at first."""
        lines = []
        for name, node in self.nodes.items():
            bytes_before, files_before = self.first.get(node.pid, weighed(node))
            bytes_now, files_now = weighed(node)
            if bytes_now - bytes_before > GROWTH or files_now - files_before > 8:
                lines.append(f"{name} has grown by {(bytes_now - bytes_before) / 1e6:.1f} MB and {files_now - files_before} files")
        return lines


def weighed(node: Program) -> tuple[int, int]:
    """Private memory and open files of a program."""
    return node.status().get("RssAnon", 0), len(os.listdir(f"/proc/{node.pid}/fd"))


def random_faults(bench: Bench) -> None:
    """As many as `--n` says."""
    n, seed = bench.options.n, bench.options.seed
    with bench.world() as world:
        rounds = Rounds(bench, world)
        began = time.monotonic()
        for i in itertools.count():
            if i == n:
                break
            rounds.round(i)
            if i % 5 == 4:
                rounds.look()
        wrong = rounds.wrong + rounds.grown() + ([f"left processes {world.zombies()}"] if world.zombies() else [])
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(rounds.counts.items()))
        number = f"{kinds}; {time.monotonic() - began:.0f} s" + (f"; WRONG: {'; '.join(wrong)}" if wrong else "")
        bench.report.add(Row("random", f"{n} faults on three nodes, seed {seed}", number, "texts equal or an error, no growth", "", not wrong, numbers={"counts": rounds.counts, "wrong": wrong}))
