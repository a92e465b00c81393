#!/usr/bin/env python3
"""Speculation on real models: acceptance, tokens per step and speed-up by kind of prompt, as docs/speculation.md has them.

    run.py --atta PATH MODEL… [--prompts 20] [--modes off,auto] [--isa NAME] [--llama DIR] [--json]

Each prompt (prompts.py) is answered once in every mode of `--speculate`, one after the other, in an order that rotates.
Texts must be equal, byte for byte; if one is not, that is said and the exit code is 1. The times compared are those of
decoding: without loading, without the prompt. `--llama` adds llama.cpp's `llama-server`, without drafts and with its
own, on the same file and the same prompts. A text in which eight words stand three times is marked as a loop, since
small models loop and loops accept everything.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass

import llama
from prompts import KINDS, N_EACH, Prompt, prompts

PLAY = pathlib.Path(__file__).resolve().parents[3] / "shared/data/text/tinyshakespeare.txt"
LOOP_WORDS = 8
LOOP_TIMES = 3


@dataclass
class Answer:
    """One text that one engine wrote in one mode."""

    model: str
    kind: str
    prompt: int
    mode: str
    text: str
    n_tokens: int
    seconds: float
    n_drafted: int
    n_accepted: int
    n_steps: int


def note(line: str) -> None:
    print(f"run.py: {line}", file=sys.stderr, flush=True)


def chat_text(architecture: str, said: str) -> str:
    """A turn of the user and the beginning of the answer, in the model's own format."""
    if architecture.startswith("gemma"):
        return f"<start_of_turn>user\n{said}<end_of_turn>\n<start_of_turn>model\n"
    return f"<|im_start|>user\n{said}<|im_end|>\n<|im_start|>assistant\n"


def is_loop(answer: Answer) -> bool:
    """Whether a text repeats itself; calls of one tool do by their form."""
    if answer.kind == "tools":
        return False
    words = re.findall(r"\w+|[^\w\s]", answer.text)
    counts: dict[tuple, int] = {}
    for at in range(len(words) - LOOP_WORDS + 1):
        gram = tuple(words[at : at + LOOP_WORDS])
        counts[gram] = counts.get(gram, 0) + 1
    return max(counts.values(), default=0) >= LOOP_TIMES


class Atta:
    """atta as a program; a mode is a value of `--speculate`."""

    def __init__(self, args: argparse.Namespace, model: str, scratch: pathlib.Path) -> None:
        self.args, self.model, self.scratch = args, model, scratch
        described = self.call("inspect", model, "--json")
        self.architecture = json.loads(described)["metadata"]["general.architecture"]
        self.modes = args.modes.split(",")

    def call(self, *words: str, prompt: str | None = None) -> str:
        done = subprocess.run([self.args.atta, *words], input=prompt, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"run.py: atta {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def options(self, prompt: Prompt, mode: str) -> list[str]:
        words = ["-n", str(self.args.n_predict), "-c", str(self.args.ctx_size), "-t", str(self.args.temperature), "--speculate", mode]
        words += ["-j", str(self.args.threads)] if self.args.threads else []
        words += ["--isa", self.args.isa] if self.args.isa else []
        if prompt.schema:
            path = self.scratch / "schema.json"
            path.write_text(json.dumps(prompt.schema))
            words += ["--schema", str(path)]
        return [*words, *self.args.more]

    def answer(self, prompt: Prompt, number: int, mode: str) -> Answer:
        path = self.scratch / "stats.json"
        said = chat_text(self.architecture, prompt.text)
        text = self.call("run", self.model, "-f", "-", "--stats-json", str(path), *self.options(prompt, mode), prompt=said)
        stats = json.loads(path.read_text())
        path.unlink()
        n = stats["generated_tokens"]
        drafts = stats["speculation"] or {"drafted_tokens": 0, "accepted_tokens": 0, "steps": n}
        return Answer(
            pathlib.Path(self.model).name, prompt.kind, number, mode, text, n, stats["decode_s"],
            drafts["drafted_tokens"], drafts["accepted_tokens"], drafts["steps"],
        )


class Llama:
    """llama-server, once without drafts and once for each kind of its own."""

    def __init__(self, args: argparse.Namespace, model: str, architecture: str, servers: dict) -> None:
        self.args, self.model, self.architecture, self.servers = args, model, architecture, servers
        self.modes = list(servers)

    def answer(self, prompt: Prompt, number: int, mode: str) -> Answer:
        said = chat_text(self.architecture, prompt.text)
        text, times = self.servers[mode].complete(said, self.args.n_predict, self.args.temperature, prompt.schema)
        n, drafted, accepted = times["predicted_n"], times.get("draft_n", 0), times.get("draft_n_accepted", 0)
        seconds = times["predicted_ms"] / 1000
        return Answer(pathlib.Path(self.model).name, prompt.kind, number, mode, text, n, seconds, drafted, accepted, n - accepted)


def rounds(engine, asked: list[Prompt], n_rounds: int) -> list[Answer]:
    """The answers to prompts in all modes, the fastest of the rounds each."""
    answers = []
    for number, prompt in enumerate(asked):
        best: dict[str, Answer] = {}
        for turn in range(n_rounds):
            at = (number + turn) % len(engine.modes)
            for mode in engine.modes[at:] + engine.modes[:at]:
                new = engine.answer(prompt, number, mode)
                if mode not in best or new.seconds < best[mode].seconds:
                    best[mode] = new
        answers += best.values()
    return answers


def per_token(answer: Answer) -> float:
    return answer.seconds / max(1, answer.n_tokens)


def speed_up(pairs: list[tuple[Answer, Answer]]) -> str:
    """Seconds of all first texts by those of all second ones."""
    if not pairs:
        return "–"
    return f"{sum(plain.seconds for plain, _ in pairs) / sum(fast.seconds for _, fast in pairs):.2f}"


def row(plain: list[Answer], fast: list[Answer]) -> list[str]:
    pairs = list(zip(plain, fast, strict=True))
    n_tokens, n_drafted = (sum(getattr(a, name) for a in fast) for name in ("n_tokens", "n_drafted"))
    n_accepted, n_steps = (sum(getattr(a, name) for a in fast) for name in ("n_accepted", "n_steps"))
    straight = [pair for pair in pairs if not is_loop(pair[1])]
    return [
        fast[0].model, fast[0].kind, fast[0].mode, str(len(fast)), f"{n_tokens / sum(a.seconds for a in plain):.1f}",
        f"{n_drafted}", f"{100 * n_accepted / n_drafted:.0f} %" if n_drafted else "–", f"{n_tokens / max(1, n_steps):.2f}",
        speed_up(pairs), f"{min(per_token(a) / per_token(b) for a, b in pairs):.2f}",
        str(len(pairs) - len(straight)), speed_up(straight), str(sum(a.text == b.text for a, b in pairs)),
    ]


HEADER = ["model", "prompts", "mode", "texts", "plain tok/s", "drafted", "right", "tokens per step",
          "speed-up", "slowest", "loops", "speed-up without loops", "equal texts"]


def table(answers: list[Answer]) -> str:
    groups: dict[tuple, list[Answer]] = {}
    for answer in answers:
        groups.setdefault((answer.model, answer.kind, answer.mode), []).append(answer)
    rows = [HEADER, ["---"] * len(HEADER)]
    for (model, kind, mode), fast in groups.items():
        plain_mode = llama.PLAIN if mode.startswith(llama.PREFIX) else "off"
        plain = groups.get((model, kind, plain_mode))
        if plain and mode != plain_mode:
            rows.append(row(plain, fast))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def unequal(answers: list[Answer]) -> list[str]:
    """Texts of atta that differ from those of its first mode."""
    first: dict[tuple, Answer] = {}
    wrong = []
    for answer in answers:
        if not answer.mode.startswith(llama.PREFIX):
            other = first.setdefault((answer.model, answer.kind, answer.prompt), answer)
            if other.text != answer.text:
                wrong.append(f"{answer.model}: {answer.kind} {answer.prompt}: {answer.mode} wrote another text than {other.mode}")
    return wrong


def measure(args: argparse.Namespace, model: str, asked: dict[str, list[Prompt]], scratch: pathlib.Path) -> list[Answer]:
    engine = Atta(args, model, scratch)
    answers = []
    with llama.servers(args, model) as servers:
        peer = Llama(args, model, engine.architecture, servers)
        for kind in args.kinds.split(","):
            note(f"{model}: {kind}")
            answers += rounds(engine, asked[kind][: args.prompts], args.rounds)
            answers += rounds(peer, asked[kind][: args.prompts], args.rounds) if servers else []
    return answers


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="GGUF files of chat models (ChatML or Gemma's format)")
    parser.add_argument("--atta", required=True, metavar="PATH", help="a release build")
    parser.add_argument("--prompts", type=int, default=N_EACH, metavar="N", help=f"prompts of each kind [default: {N_EACH}]")
    parser.add_argument("--kinds", default=",".join(KINDS), metavar="KIND,…", help=f"[default: {','.join(KINDS)}]")
    parser.add_argument("--modes", default="off,auto", metavar="MODE,…", help="values of --speculate [default: off,auto]")
    parser.add_argument("--rounds", type=int, default=1, help="the fastest of so many answers counts [default: 1]")
    parser.add_argument("-n", "--n-predict", type=int, default=160, metavar="N", help="tokens of an answer [default: 160]")
    parser.add_argument("-c", "--ctx-size", type=int, default=2048)
    parser.add_argument("-t", "--temperature", type=float, default=0.0, help="[default: 0, greedy]")
    parser.add_argument("-j", "--threads", type=int)
    parser.add_argument("--isa", help="instruction set of atta's kernels, such as avx2")
    parser.add_argument("--play", type=pathlib.Path, default=PLAY, metavar="TEXT", help=f"documents are passages of it [default: {PLAY}]")
    parser.add_argument("--llama", type=pathlib.Path, metavar="DIR", help="folder with llama.cpp's llama-server")
    parser.add_argument("--llama-modes", default="ngram-simple", metavar="TYPE,…", help="values of its --spec-type [default: ngram-simple]")
    parser.add_argument("--json", action="store_true", help="print every answer, with its text, in place of the table")
    parser.add_argument("--more", nargs=argparse.REMAINDER, default=[], help="last: further options of atta run")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    asked = prompts(args.play.read_text())
    answers = []
    with tempfile.TemporaryDirectory() as scratch:
        for model in args.models:
            answers += measure(args, model, asked, pathlib.Path(scratch))
    print(json.dumps([asdict(answer) for answer in answers], indent=1) if args.json else table(answers))
    wrong = unequal(answers)
    for line in wrong:
        note(line)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
