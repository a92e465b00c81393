#!/usr/bin/env python3
"""Makes docs/demo.svg, the moving picture of the README: record.py ATTA [MODEL.gguf] [--out FILE].

Types the lines of SESSION into a real shell at a pseudo-terminal and draws what comes back, at the pace at which it came; a
wait of over MAX_WAIT is shortened. With a model there is a chat with it, too. Needs `pip install pyte`, and bash.
"""

import argparse
import os
import pty
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyte

from picture import Frame, draw, spans_of

ROOT = Path(__file__).resolve().parents[2]
COLUMNS, ROWS = 90, 24
# More lines than a session has, so that none scrolls away: the picture scrolls.
ALL_ROWS = 400
# Seconds: between two keys, of silence behind a prompt, of a program without a prompt, of a wait that is shown.
TYPING, QUIET, DEADLINE, MAX_WAIT = 0.04, 0.5, 120, 1.5
# Frames closer to each other than this become one.
FRAME = 0.06
MAX_BYTES = 60_000
SHELL, CHAT = "$", ">"
STORY = [(SHELL, 'atta run -p "Once upon a time"')]
HOUSE = [
    (SHELL, "atta chat --house"),
    (CHAT, "dim the bedroom to 30 percent and wake me at half past six tomorrow"),
    (CHAT, "is it warm outside?"),
    (CHAT, "/exit"),
]


def talk(model: str) -> list[tuple[str, str]]:
    return [(SHELL, f"atta chat {model} -t 0.3 --seed 1"), (CHAT, "Write one sentence about the sea."), (CHAT, "/exit")]


class Terminal:
    """A shell at a pseudo-terminal, its screen, and the frames that were seen on it."""

    def __init__(self, environment: dict, folder: str):
        self.screen = pyte.Screen(COLUMNS, ALL_ROWS)
        self.stream = pyte.ByteStream(self.screen)
        self.frames: list[Frame] = []
        self.now = 0.0
        self.master, inside = pty.openpty()
        os.set_blocking(self.master, False)
        os.system(f"stty rows {ROWS} cols {COLUMNS} < {os.ttyname(inside)}")
        command = ["setsid", "--ctty", "bash", "--norc", "--noprofile", "-i"]
        self.shell = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, env=environment, cwd=folder)
        os.close(inside)

    def take(self, seconds: float) -> bool:
        """Waits for more of the text, so long at most, and looks at the screen; whether there was more."""
        start = time.monotonic()
        if not select.select([self.master], [], [], seconds)[0]:
            self.now += seconds
            return False
        self.now += min(time.monotonic() - start, MAX_WAIT)
        self.stream.feed(os.read(self.master, 65536))
        self.look()
        return True

    def look(self) -> None:
        lines = [spans_of(self.screen.buffer[y], COLUMNS) for y in range(self.screen.cursor.y + 1)]
        frame = Frame(self.now, lines, max(0, self.screen.cursor.y + 1 - ROWS))
        if self.frames and frame.time - self.frames[-1].time < FRAME:
            frame.time = self.frames.pop().time
        self.frames.append(frame)

    def wait_for(self, prompt: str) -> None:
        """Until the last line is the prompt and nothing more comes for a moment."""
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            line = self.screen.display[self.screen.cursor.y].strip()
            if not self.take(QUIET if line == prompt else 5) and line == prompt:
                return
        sys.exit(f"no {prompt!r} for {DEADLINE} s")

    def type(self, line: str) -> None:
        for key in line + "\r":
            os.write(self.master, key.encode())
            end = self.now + TYPING
            while self.now < end and self.take(end - self.now):
                pass


def record(atta: Path, model: Path | None) -> list[Frame]:
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(atta, f"{folder}/atta")
        if model:
            os.symlink(model, f"{folder}/{model.name}")
        Path(folder, "inputrc").write_text("set enable-bracketed-paste off\n")
        environment = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": folder, "TERM": "xterm-256color", "PS1": "$ ",
                       "INPUTRC": f"{folder}/inputrc", "LANG": "C.UTF-8", "HISTFILE": ""}
        terminal = Terminal(environment, folder)
        for prompt, line in STORY + (talk(model.name) if model else []) + HOUSE:
            terminal.wait_for(prompt)
            terminal.type(line)
        terminal.wait_for(SHELL)
        os.write(terminal.master, b"exit\r")
        terminal.shell.wait(10)
    return terminal.frames


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("atta", type=Path)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/demo.svg")
    args = parser.parse_args()
    picture = draw(record(args.atta.resolve(), args.model and args.model.resolve()), COLUMNS, ROWS)
    if len(picture.encode()) > MAX_BYTES:
        sys.exit(f"the picture has {len(picture.encode())} bytes, expected at most {MAX_BYTES}")
    args.out.write_text(picture)


if __name__ == "__main__":
    main()
