"""What all cases share: the options of the script, worlds, and the texts that are written.

It knows no case. A text is written by sampling with a fixed seed and never ends by itself, so that it has a known
number of tokens and differs after the smallest change of a logit.
"""

import contextlib
import dataclasses
import pathlib
import statistics

from report import Report, busy_cpus
from world import LEAD, Program, Run, Setting, World, world

PROMPT = "The ants that cut leaves carry many times their own weight, and a colony of them carries more than any"


@dataclasses.dataclass
class Options:
    """The options of the script that cases read."""

    model: str
    rounds: int
    n: int
    seed: int
    expect: str
    big_model: str | None
    aarch64: str | None
    c4_c8: float | None
    goldens: str
    tokens: int | None


@dataclasses.dataclass
class Bench:
    """The setting, the report and the options."""

    setting: Setting
    report: Report
    options: Options
    case: str = ""
    # The most that other programs kept busy while nothing of ours ran.
    load: float = 0.0

    @property
    def models(self) -> str:
        """The directory of the model."""
        return str(pathlib.Path(self.options.model).parent)

    @contextlib.contextmanager
    def world(self):
        with world(self.setting) as made:
            yield made

    def text(self, n: int, *more: str, model: str | None = None, n_ctx: int = 1024) -> list[str]:
        """The command that writes n tokens on one thread."""
        what = ["run", model or self.options.model, "-p", PROMPT, "-n", str(n), "--seed", "7", "-c", str(n_ctx), "-j", "1"]
        return [*what, "--logit-bias", "2-100", *more]

    def begin_timing(self) -> None:
        self.load = busy_cpus(2.0)

    def note_load(self) -> None:
        """Looks at what others do between two measurements, when all of ours is idle."""
        self.load = max(self.load, busy_cpus(0.5))

    def rounds(self, measures: dict) -> dict[str, list]:
        """Calls each function in turn, as many rounds as asked for; the values by name."""
        values = {name: [] for name in measures}
        for _ in range(self.options.rounds):
            for name, measure in measures.items():
                self.note_load()
                values[name].append(measure())
        return values


def median_ratio(values: list[float], base: list[float]) -> float:
    """The median of the ratios within each round: a shared machine drifts from minute to minute."""
    return statistics.median(a / b for a, b in zip(values, base))


__all__ = ["LEAD", "PROMPT", "Bench", "Options", "Program", "Run", "World", "median_ratio"]
