"""Rows of the table, and whether the machine was quiet enough for them to count.

It knows no case. A row that was timed while other programs kept more than 0.3 of a CPU busy is void: its number is
shown, and neither reached nor missed. Rows of texts and bytes count on any machine.
"""

import dataclasses
import json
import os
import pathlib
import platform
import subprocess
import time

QUIET = 0.3


def busy_cpus(seconds: float = 1.0) -> float:
    """CPUs that anything has kept busy for some time from now on, or that were stolen from this machine."""

    def busy_s() -> float:
        user, nice, system, _, _, irq, soft, steal = map(int, pathlib.Path("/proc/stat").read_text().split()[1:9])
        return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")

    before, start = busy_s(), time.monotonic()
    time.sleep(seconds)
    return (busy_s() - before) / (time.monotonic() - start)


@dataclasses.dataclass
class Row:
    """A line of the table. `ok`: whether the target is met; None: there is none."""

    case: str
    what: str
    number: str
    target: str = ""
    beside: str = ""
    ok: bool | None = None
    # The most that others kept busy around the measurement; None: a row that time does not change.
    load: float | None = None
    why: str = ""
    numbers: dict = dataclasses.field(default_factory=dict)

    @property
    def verdict(self) -> str:
        if self.ok is False and self.load is None:
            return "FAILED"
        if self.load is not None and self.load > QUIET:
            return "void"
        return {True: "ok", False: "missed", None: ""}[self.ok]

    def to_json(self) -> dict:
        return {**dataclasses.asdict(self), "verdict": self.verdict}


class Report:
    """All rows so far; each is printed when it comes."""

    def __init__(self, is_json: bool):
        self.rows: list[Row] = []
        self.is_json = is_json
        if not is_json:
            print("| case | what | number | target | beside | |\n|---|---|---|---|---|---|", flush=True)

    def add(self, row: Row) -> None:
        self.rows.append(row)
        if self.is_json:
            print(json.dumps(row.to_json()), flush=True)
        else:
            verdict = f"{row.verdict}: {row.why}" if row.why else row.verdict
            if row.verdict == "void":
                verdict = f"void: load {row.load:.1f}"
            cells = [row.case, row.what, row.number, row.target, row.beside, verdict]
            print("| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |", flush=True)

    @property
    def has_failed(self) -> bool:
        return any(row.verdict == "FAILED" for row in self.rows)

    def write(self, path: pathlib.Path, about: dict) -> None:
        path.write_text(json.dumps({**about, "rows": [row.to_json() for row in self.rows]}, indent=1) + "\n")


def about(atta: str, args: dict) -> dict:
    """The machine, the program and the options of a run of the script."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=pathlib.Path(__file__).parent)
    cpu = [line.partition(":")[2].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "began": time.strftime("%Y-%m-%d %H:%M:%S"), "kernel": platform.release(), "cpu": cpu[:1], "n_cpus": os.cpu_count(),
        "load": os.getloadavg(), "commit": done.stdout.strip(), "atta": atta, "options": args,
    }  # fmt: skip
