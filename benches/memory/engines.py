"""How each engine is asked for the same work, and what it says of itself afterwards.

Each continues one prompt greedily, from an empty context of the same size, on the same number of threads. A rate is
what the engine counts: prompt tokens per second from cold, then tokens per second without the first.
"""

import dataclasses
import json
import pathlib
import re
import subprocess
import sys
from typing import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from watched import Watched  # noqa: E402


@dataclasses.dataclass
class Job:
    """What one run is to do."""

    model: str
    limit: int
    prompt: str
    n: int
    ctx: int
    threads: int
    stats: pathlib.Path


@dataclasses.dataclass
class Said:
    """What an engine says of a run; `decode_s` is the time of `n_decoded` tokens, the last thing that it does."""

    n_prompt: int
    prefill_tok_s: float
    n_decoded: int
    decode_s: float
    predicted_tok_s: float | None = None
    weights: str | None = None
    pinned_bytes: int | None = None
    read_bytes: int | None = None

    @property
    def decode_tok_s(self) -> float | None:
        return self.n_decoded / self.decode_s if self.decode_s and self.n_decoded > 0 else None


@dataclasses.dataclass
class Engine:
    """A name for the table, the program, its command line, and the reader of what it printed."""

    name: str
    binary: str
    command: Callable[[Job], list[str]]
    said: Callable[[Watched, Job], Said | None]


def atta(binary: str, budget: str, extra: list[str]) -> Engine:
    """Ours. The budget is `auto` (the flag left out), a size, or a share of the limit such as 0.85."""

    def size(limit: int) -> str:
        return f"{int(limit * float(budget)) >> 20}M" if re.fullmatch(r"[01]?\.\d+", budget) else budget

    def command(job: Job) -> list[str]:
        flag = [] if budget == "auto" else ["--ram-budget", size(job.limit)]
        what = ["run", job.model, "-p", job.prompt, "-n", str(job.n), "-t", "0", "-c", str(job.ctx), "-j", str(job.threads)]
        return [binary, *what, "--stats-json", str(job.stats), *flag, *extra]

    return Engine("atta", binary, command, atta_said)


def atta_said(_: Watched, job: Job) -> Said | None:
    """From the file of --stats-json."""
    try:
        stats = json.loads(job.stats.read_text())
    except (OSError, ValueError):
        return None
    if stats.get("error"):
        return None
    optional = {"predicted_tok_s": "predicted_decode_tok_s", "weights": "weights", "pinned_bytes": "pinned_bytes", "read_bytes": "read_bytes"}
    return Said(
        stats["prompt_tokens"], stats["prefill_tok_s"], stats["generated_tokens"] - 1, stats["decode_s"],
        **{ours: stats.get(key) for ours, key in optional.items()},
    )  # fmt: skip


def help_of(binary: str) -> str:
    """What the program prints of its options; they differ between versions."""
    done = subprocess.run([binary, "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    return done.stdout + done.stderr


def llama(name: str, binary: str, extra: list[str]) -> Engine:
    """llama.cpp's llama-completion, and llama-cli of ik_llama.cpp and of older llama.cpp."""
    known = help_of(binary)
    if "--ignore-eos" not in known:
        raise ValueError(f"{binary}: no --ignore-eos in its --help: llama-completion or llama-cli is wanted")
    wanted = ["--no-warmup", "--ignore-eos", "--no-display-prompt", "-no-cnv", "--perf"]
    flags = [flag for flag in wanted if re.search(rf"(?<!\S){flag}\b", known)]

    def command(job: Job) -> list[str]:
        what = ["-m", job.model, "-p", job.prompt, "-n", str(job.n), "--temp", "0", "-c", str(job.ctx), "-t", str(job.threads)]
        return [binary, *what, *flags, *extra]

    return Engine(name, binary, command, llama_said)


def llama_said(seen: Watched, _: Job) -> Said | None:
    """From the lines `prompt eval time = … ms / 9 tokens` and `eval time = … ms / 31 runs`."""
    pattern = r"{} time\s*=\s*([\d.]+) ms /\s*(\d+) (?:runs|tokens)"
    prompt = re.search(pattern.format("prompt eval"), seen.err + seen.out)
    decode = re.search(pattern.format(r"(?<!prompt )\beval"), seen.err + seen.out)
    if not prompt or not decode:
        return None
    return Said(int(prompt[2]), int(prompt[2]) / max(float(prompt[1]), 1e-3) * 1e3, int(decode[2]), float(decode[1]) / 1e3)


def picolm(binary: str, extra: list[str]) -> Engine:
    """PicoLM, the original C program."""

    def command(job: Job) -> list[str]:
        return [binary, job.model, "-p", job.prompt, "-n", str(job.n), "-t", "0", "-c", str(job.ctx), "-j", str(job.threads), *extra]

    return Engine("PicoLM", binary, command, picolm_said)


def picolm_said(seen: Watched, _: Job) -> Said | None:
    """From the lines `Prefill: 9 tokens in 1.00s` and `Generation: 32 tokens in 9.00s`; the latter counts the first token, not its time."""
    pattern = r"{}: (\d+) tokens in ([\d.]+)s"
    prompt, decode = (re.search(pattern.format(word), seen.err) for word in ("Prefill", "Generation"))
    if not prompt or not decode:
        return None
    return Said(int(prompt[1]), int(prompt[1]) / max(float(prompt[2]), 1e-2), int(decode[1]) - 1, float(decode[2]))
