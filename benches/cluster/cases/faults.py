"""A machine that dies, freezes or loses its cable while a text is written, and a coordinator that dies.

Whatever happens, the text is that of one machine, or its beginning and an error: that decides. How long it takes until
the next token or the error is a row of its own. `--expect recover` (or `error`) makes the other outcome a failure.
"""

import dataclasses
import itertools
import signal
import time
from collections.abc import Callable

from bench import LEAD, Bench, World
from lan import wait_for
from programs import Failure, Program
from report import Row

NODES = ["pi1", "pi2", "pi3"]
# Tokens of the text. Not each has letters of its own, so events are placed by bytes: at a fifth of it.
N, AT = 240, 0.2
# A text that says nothing for so long has hung.
HANG_S = 90


@dataclasses.dataclass
class Outcome:
    """What became of a text during which something happened."""

    text: bytes
    code: int | None
    # From the event to the next token, or to the error.
    pause: float
    # The largest pause between two tokens after the event.
    longest: float
    said: str
    error: str

    @property
    def changes(self) -> str:
        """What the coordinator said of the ring behind the plan: who is gone, who has which layers now, how long it took."""
        lines = [line.removeprefix("atta: ") for line in self.said.splitlines() if line.startswith("atta: ring: ")]
        return "".join(f" ({line})" for line in lines[1:])

    def wrong(self, whole: bytes, expect: str) -> str:
        """Why it is not right; empty if it is."""
        if self.code is None:
            return f"it hangs: {len(self.text)} bytes of text, {self.said[-300:]!r}"
        if self.code == 0 and self.text != whole:
            return "another text"
        if not whole.startswith(self.text):
            return "another text before the error"
        if self.code == 0 and expect == "error":
            return "the text went on, where an error was expected"
        if self.code != 0 and expect == "recover":
            return f"it ended: {self.error}"
        if self.code not in (0, 1) or (self.code and not self.error):
            return f"exit {self.code} without an error: {self.said[-300:]!r}"
        return ""

    def __str__(self) -> str:
        if self.code == 0:
            return f"the text went on after {self.longest:.2f} s{self.changes}"
        return f"error after {self.pause:.2f} s: {self.error.removeprefix('atta: ')[:160]}"


@dataclasses.dataclass
class Event:
    """What happens, and behind so many bytes of the text."""

    act: Callable[[], None]
    at: int


def happen(bench: Bench, world: World, ring: str, event: Event) -> Outcome:
    """Writes a text on a ring, acts while it is written, and waits for the end."""
    program = world.begin(bench.text(N), [f"--ring={ring}"])
    program.wait_for_text(event.at)
    began = time.monotonic()
    event.act()
    return outcome(program, began)


def outcome(program: Program, began: float) -> Outcome:
    """Waits for the end of a text at which something happened."""
    hung = False
    while not program.is_over and not hung:
        n = len(program.chunks)
        hung = not program.wait(lambda: len(program.chunks) > n, HANG_S) and not program.is_over
    if hung:
        program.kill()
    ended = program.ended or time.monotonic()
    after = [began, *(at for at, _ in program.chunks if at > began), ended]
    pauses = [b - a for a, b in itertools.pairwise(after)]
    code = None if hung else program.process.returncode
    error = next((line for _, line in reversed(program.lines) if "error" in line), "")
    return Outcome(program.text, code, max(pauses) if code else pauses[0], max(pauses), program.said, error)


def whole_text(bench: Bench, world: World) -> bytes:
    return world.run(bench.text(N)).text


def start_nodes(bench: Bench, world: World, names: list[str] = NODES) -> dict[str, Program]:
    world.machine(LEAD)
    for name in names:
        world.machine(name)
    return {name: world.node(name, models=bench.models) for name in names}


def add_rows(bench: Bench, what: str, done: Outcome, wrong: str, limit: float | None, note: str = "") -> None:
    """A row for the text and one for the time."""
    numbers = {"code": done.code, "pause_s": done.longest, "error": done.error, "said": done.said[-2000:]}
    bench.report.add(Row(bench.case, f"{what}: text", wrong or f"{done}{note}", "equal, or its beginning and an error", "", not wrong, numbers=numbers))
    if not wrong and limit:
        bench.report.add(
            Row(
                bench.case,
                f"{what}: until the next token or the error",
                f"{done.longest:.2f} s",
                f"≤ {limit:g} s to the fence, then the rebuild",
                "Mesh-LLM ~41 s, text lost",
                done.longest <= limit,
                bench.load,
                numbers={"pause_s": done.longest},
            )
        )


def after_it(bench: Bench, world: World, left: list[str], whole: bytes) -> str:
    """What is wrong with the machines that are left; empty if they are free and write the text."""

    def are_free() -> bool:
        listed = world.listed()
        return all(name in listed and not listed[name]["ring"] for name in left)

    began = time.monotonic()
    if not wait_for(are_free, 70, 0.5):
        held = {name: node["ring"] for name, node in world.listed().items()}
        return f"nodes are not free after {time.monotonic() - began:.0f} s: {held}"
    run = world.attempt(bench.text(N), [f"--ring={','.join(left)}"], 180)
    if run.code != 0 or run.text != whole:
        return f"a ring of the rest: exit {run.code}: {run.error()}"
    return f"left processes {world.zombies()}" if world.zombies() else ""


def for_good(bench: Bench, act: Callable[[World, dict[str, Program]], None], limit: float) -> None:
    """Something happens to the second of three machines, and is not undone."""
    bench.begin_timing()
    with bench.world() as world:
        nodes = start_nodes(bench, world)
        whole = whole_text(bench, world)
        event = Event(lambda: act(world, nodes), int(len(whole) * AT))
        done = happen(bench, world, ",".join(NODES), event)
        wrong = done.wrong(whole, bench.options.expect)
        began = time.monotonic()
        wrong = wrong or after_it(bench, world, ["pi1", "pi3"], whole)
        note = f"; the rest wrote it again within {time.monotonic() - began:.1f} s"
        add_rows(bench, "for good", done, wrong, limit, note)


def for_a_second(bench: Bench, act: Callable[[World, dict[str, Program]], None], undo: Callable[[World, dict[str, Program]], None]) -> None:
    """Something happens to it and is undone after a second: the text must go on."""
    with bench.world() as world:
        nodes = start_nodes(bench, world)
        whole = whole_text(bench, world)

        def both() -> None:
            act(world, nodes)
            time.sleep(1)
            undo(world, nodes)

        done = happen(bench, world, ",".join(NODES), Event(both, int(len(whole) * AT)))
        wrong = done.wrong(whole, "recover") or after_it(bench, world, NODES, whole)
        add_rows(bench, "for a second", done, wrong, None)


def kill(bench: Bench) -> None:
    """SIGKILL."""
    for_good(bench, lambda world, nodes: nodes["pi2"].signal(signal.SIGKILL), 0.3)


def freeze(bench: Bench) -> None:
    """SIGSTOP, with SIGCONT after a second and without."""
    stop = lambda world, nodes: nodes["pi2"].signal(signal.SIGSTOP)  # noqa: E731
    for_a_second(bench, stop, lambda world, nodes: nodes["pi2"].signal(signal.SIGCONT))
    for_good(bench, stop, 1.2)


def cable(bench: Bench) -> None:
    """A cable that is pulled, and plugged in after a second or not."""
    pull = lambda world, nodes: world.lan.pull("pi2")  # noqa: E731
    for_a_second(bench, pull, lambda world, nodes: world.lan.plug("pi2"))
    for_good(bench, pull, 1.2)


def coordinator(bench: Bench) -> None:
    """The coordinator is killed, and another one wants the nodes."""
    with bench.world() as world:
        start_nodes(bench, world, NODES[:2])
        whole = whole_text(bench, world)
        program = world.begin(bench.text(N), ["--ring=pi1,pi2"])
        program.wait_for_text(int(len(whole) * AT))
        program.kill()
        began = time.monotonic()
        last = ""
        while time.monotonic() - began < 100:
            run = world.attempt(bench.text(N), ["--ring=pi1,pi2"], 180)
            if run.code == 0:
                break
            last = run.error()
            time.sleep(1)
        else:
            raise Failure(f"nodes are not free 100 s after their coordinator was killed: {last}")
        seconds = time.monotonic() - began
        number = f"another one wrote the text {seconds:.0f} s later" + (f"; before: {last}" if last else "")
        is_right = run.text == whole and not world.zombies()
        bench.report.add(
            Row(
                "coordinator",
                "killed; nodes free for another one",
                number,
                "within a minute",
                "",
                is_right and seconds <= 70,
                numbers={"seconds": seconds, "last": last},
            )
        )
