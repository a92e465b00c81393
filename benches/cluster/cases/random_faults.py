"""Kills and freezes at random tokens of random machines, many times on the same nodes.

The seed is printed and decides everything but the times. Texts must be whole, or a beginning and an error; nodes that
live must end without growth, without processes that they left, and with files closed.
"""

import os
import random
import signal
import time

from bench import Bench, World
from cases.faults import NODES, Event, Outcome, happen, start_nodes, whole_text
from lan import wait_for
from programs import Failure, Program
from report import Row

# Texts after which memory is weighed, and again; how much more it may be then, and how many files.
TEXTS, GROWTH, FILES = (6, 30), 10 << 20, 4
# `freeze` and `pull` are undone within a second and a half.
KINDS = ["kill", "freeze", "freeze for good", "pull", "two"]


class Rounds:
    """Faults one after another on a world."""

    def __init__(self, bench: Bench, world: World):
        self.bench, self.world = bench, world
        self.rng = random.Random(bench.options.seed)
        self.nodes = start_nodes(bench, world)
        self.whole = whole_text(bench, world)
        self.counts: dict[str, int] = {}
        self.wrong: list[str] = []

    def round(self, i: int) -> None:
        """One fault, its repair, and the wait until all nodes are free."""
        what, name = self.rng.choice(KINDS), self.rng.choice(NODES)
        done = self.round_of(what, name)
        kind = f"{what}: {'whole' if done.code == 0 else 'error'}"
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.mend(what, name)
        self.check_free(i, done)

    def round_of(self, what: str, name: str) -> Outcome:
        """One text during which something happens to a node."""
        at, ring = 1 + int(len(self.whole) * self.rng.uniform(0.0, 0.8)), ",".join(self.rng.sample(NODES, 3))
        done = happen(self.bench, self.world, ring, Event(lambda: self.act(what, name), at))
        wrong = done.wrong(self.whole, "recover" if what in ("freeze", "pull") else self.bench.options.expect)
        if wrong:
            self.wrong.append(f"{what} {name} at byte {at} of {ring}: {wrong}")
        return done

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

    def grow(self) -> str:
        """Writes texts during which a node freezes, and weighs all nodes after some and after many."""
        weights = []
        for n in TEXTS:
            for _ in range(n):
                self.round_of("freeze", self.rng.choice(NODES))
            wait_for(lambda: not any(node["ring"] for node in self.world.listed().values()), 30, 0.2)
            # A node gives memory back a second after its ring.
            time.sleep(3)
            weights.append({name: weighed(node) for name, node in self.nodes.items()})
        for name, (bytes_before, files_before) in weights[0].items():
            more, files = weights[1][name][0] - bytes_before, weights[1][name][1] - files_before
            if more > GROWTH or files > FILES:
                self.wrong.append(f"{name} has grown by {more / 1e6:.1f} MB and {files} files in {TEXTS[1]} texts")
        return ", ".join(f"{name} {before[0] / 1e6:.1f} → {weights[1][name][0] / 1e6:.1f} MB" for name, before in weights[0].items())


def weighed(node: Program) -> tuple[int, int]:
    """Private memory and open files of a program."""
    return node.status().get("RssAnon", 0), len(os.listdir(f"/proc/{node.pid}/fd"))


def random_faults(bench: Bench) -> None:
    """As many as `--n` says, and then texts on the same nodes to see whether these grow."""
    n, seed = bench.options.n, bench.options.seed
    with bench.world() as world:
        rounds = Rounds(bench, world)
        began = time.monotonic()
        for i in range(n):
            rounds.round(i)
        seconds = time.monotonic() - began
        left = [f"left processes {world.zombies()}"] if world.zombies() else []
        weights = rounds.grow()
    wrong = rounds.wrong + left
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(rounds.counts.items()))
    number = f"{kinds}; {seconds:.0f} s; {weights}" + (f"; WRONG: {'; '.join(wrong)}" if wrong else "")
    bench.report.add(
        Row(
            "random",
            f"{n} faults on three nodes, seed {seed}",
            number,
            "texts equal or an error, no growth",
            "",
            not wrong,
            numbers={"counts": rounds.counts, "wrong": wrong},
        )
    )
