"""A cluster of machines on one: network, homes, keys and nodes, made for a case and torn down after it.

It knows the commands of atta, and no case. Homes stay from case to case, so that speeds are measured and files hashed
once. Everything is undone in the reverse order of its making, after an error and after Ctrl-C too.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import time

from programs import Failure, Machine, Program, cgroup
from lan import Lan, Link

# The machine that asks, and those that work for it.
LEAD = "lap"
PORT = 9990


@dataclasses.dataclass
class Setting:
    """What is the same for all cases of a run of the script."""

    atta: str
    scratch: pathlib.Path
    # Further options of every ring.
    ring_args: list[str] = dataclasses.field(default_factory=list)
    # All that programs have printed, as (who, command, text), for the search for keys.
    printed: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)

    @property
    def token(self) -> str | None:
        """The token of the cluster, once a node has printed it."""
        path = self.scratch / "token"
        return path.read_text() if path.exists() else None


@dataclasses.dataclass
class Run:
    """A command of the coordinator that has ended."""

    program: Program
    stats: dict

    @property
    def code(self) -> int | None:
        return self.program.process.returncode

    @property
    def text(self) -> bytes:
        return self.program.text

    @property
    def said(self) -> str:
        return self.program.said

    @property
    def seconds(self) -> float:
        return (self.program.ended or time.monotonic()) - self.program.began

    @property
    def layers(self) -> dict[str, int]:
        """Layers of each machine in the plan that it printed; empty if it ran alone."""
        found = re.search(r"^atta: ring: (.*?);", self.said, re.MULTILINE)
        parts = [part.split() for part in found[1].split(", ")] if found else []
        return {words[0]: int(words[1]) for words in parts if len(words) > 1 and words[1].isdigit()}

    def number(self, pattern: str) -> float | None:
        """The number of a line on standard error."""
        found = re.search(pattern, self.said)
        return float(found[1]) if found else None

    @property
    def expected_tok_s(self) -> float | None:
        return self.number(r"tokens/s \(expected ([\d.]+)\)")

    @property
    def bytes_per_token(self) -> float | None:
        return self.number(r"; (\d+) bytes between machines for each token")

    def error(self) -> str:
        lines = [line for line in self.said.splitlines() if "error" in line]
        return (lines or self.said.splitlines() or ["it said nothing"])[-1]


class World:
    """The machines of one case."""

    def __init__(self, setting: Setting):
        self.setting = setting
        self.lan = Lan()
        self.machines: dict[str, Machine] = {}
        self.programs: list[Program] = []
        self.groups: list[cgroup.Cgroup] = []
        # Rates of machines that were made to believe others.
        self.measured: dict[str, dict] = {}

    def machine(self, name: str, cpus: str | None = None, memory: int | None = None, link: Link = Link()) -> Machine:
        """A machine with a key; the first one of all makes it."""
        namespace, address = self.lan.connect(name, link)
        home = self.setting.scratch / "homes" / name
        home.mkdir(parents=True, exist_ok=True)
        machine = Machine(name, namespace, address, home, cpus)
        self.machines[name] = machine
        if not (home / "config/atta/cluster/key").exists():
            self.join(machine)
        if memory:
            machine.group = cgroup.make(f"{name}-{os.getpid()}")
            self.groups.append(machine.group)
            machine.group.limit(memory)
        return machine

    def join(self, machine: Machine) -> None:
        """Gives a machine the key of the cluster; without one, a node makes it."""
        if self.setting.token:
            self.check(machine, ["cluster", "join", self.setting.token])
            return
        node = self.start(machine, ["node", "--name", machine.name, "--listen", "eth0", "-j", "1"])
        line = node.line_with("atta1-")
        token = next(word for word in line.split() if word.startswith("atta1-"))
        (self.setting.scratch / "token").write_text(token)
        node.stop()

    def start(self, machine: Machine, args: list[str], more: dict[str, str] | None = None) -> Program:
        """Starts atta on a machine."""
        program = Program(machine, [self.setting.atta, *args], more)
        self.programs.append(program)
        return program

    def node(self, name: str, *options: str, threads: int = 1, models: str | None = None, atta: list[str] | None = None) -> Program:
        """Starts a node and waits until it listens. `models`: the directory of its models; without it, it has none."""
        machine = self.machines[name]
        if models is None:
            models = str(machine.home / "empty")
            pathlib.Path(models).mkdir(exist_ok=True)
        args = ["node", "--name", name, "--listen", f"eth0:{PORT}", "-j", str(threads), "--models", models, *options]
        if atta:
            program = Program(machine, [*atta, *args])
            self.programs.append(program)
        else:
            program = self.start(machine, args)
        program.line_with("listening on", 120)
        return program

    def believe(self, name: str, factor: float) -> None:
        """Has a machine that asks believe to be so many times as fast as it measured, once it has measured."""
        path = self.machines[name].home / "cache/atta/cluster/asker-rates.json"
        if not path.exists():
            self.listed()
        kept = json.loads(path.read_text())
        measured = self.measured.setdefault(name, dict(kept["rates"]))
        for rate in ("read_bytes_per_s", "macs_per_s"):
            kept["rates"][rate] = float(round(measured[rate] * factor))
        path.write_text(json.dumps(kept))

    def peers(self) -> list[str]:
        others = [machine for machine in self.machines.values() if machine.name != LEAD]
        return [word for machine in others for word in ("--peer", f"{machine.address}:{PORT}")]

    def begin(self, args: list[str], ring: list[str] | None = None, stats: pathlib.Path | None = None) -> Program:
        """Starts a command of the coordinator, on a ring if one is given, such as `["--ring=pi1"]`."""
        kept = ["--stats-json", str(stats)] if stats else []
        on_ring = [*ring, *self.setting.ring_args, *self.peers()] if ring else []
        return self.start(self.machines[LEAD], [*args, *kept, *on_ring])

    def run(self, args: list[str], ring: list[str] | None = None, seconds: float = 600) -> Run:
        """A command of the coordinator that succeeds."""
        run = self.attempt(args, ring, seconds)
        if run.code != 0:
            raise Failure(f"{' '.join(args[:2])} {' '.join(ring or [])}: exit {run.code}: {run.error()}")
        return run

    def attempt(self, args: list[str], ring: list[str] | None = None, seconds: float = 600) -> Run:
        """A command of the coordinator, whatever becomes of it; one that hangs is a failure."""
        stats = self.setting.scratch / "stats.json"
        stats.unlink(missing_ok=True)
        program = self.begin(args, ring, stats if args[0] == "run" else None)
        if program.end(seconds) is None:
            program.kill()
            raise Failure(f"{' '.join(args[:2])} {' '.join(ring or [])}: it hangs after {seconds:.0f} s: {program.said[-400:]!r}")
        return Run(program, read_json(stats))

    def check(self, machine: Machine, args: list[str], seconds: float = 60) -> Program:
        """A short command that succeeds."""
        program = self.start(machine, args)
        if program.end(seconds) != 0:
            raise Failure(f"{machine.name}: {' '.join(args[:2])}: exit {program.process.returncode}: {program.said[-400:]}")
        return program

    def listed(self) -> dict[str, dict]:
        """The nodes that `atta cluster ls` finds, by name."""
        found = self.check(self.machines[LEAD], ["cluster", "ls", "--json", *self.peers()])
        return {node["node"]: node for node in json.loads(found.text)["nodes"]}

    def planned(self, model: str, *options: str) -> dict:
        """The plan that `atta cluster plan` makes."""
        found = self.check(self.machines[LEAD], ["cluster", "plan", model, "--json", *options, *self.peers()])
        return json.loads(found.text)

    def zombies(self) -> list[int]:
        """Processes of the machines that have ended and were not waited for, or that nothing here started."""
        ours = {program.pid for program in self.programs if not program.is_over}
        left = []
        for machine in self.machines.values():
            pids = pathlib.Path("/proc").glob("[0-9]*/ns/net")
            place = os.stat(f"/run/netns/{machine.namespace}").st_ino
            for path in pids:
                with contextlib.suppress(OSError):
                    pid = int(path.parts[2])
                    if os.stat(path).st_ino == place and pid not in ours:
                        left.append(pid)
        return left

    def close(self) -> None:
        for name in self.measured:
            self.believe(name, 1)
        for program in reversed(self.programs):
            program.signal(18)
            program.kill()
            self.setting.printed.append((program.machine.name, " ".join(program.argv[1:]), program.said))
            is_text = program.argv[1:2] in (["run"], ["chat"])
            if is_text:
                self.setting.printed.append((program.machine.name, "text", program.text.decode(errors="replace")))
        self.lan.close()
        for group in self.groups:
            group.remove()


@contextlib.contextmanager
def world(setting: Setting):
    """A world for one case."""
    made = World(setting)
    try:
        yield made
    finally:
        made.close()


def read_json(path: pathlib.Path) -> dict:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
