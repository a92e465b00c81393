#!/usr/bin/env python3
"""Records a talk with the house: `record.py ATTA` writes demo.cast (asciicast v2, for asciinema) and transcript.txt.

Types the lines of commands.txt at a terminal of its own, one when the prompt is there, and notes what comes back and when.
"""

import json
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
COLUMNS, ROWS = 100, 30
PROMPT = "> "
# Seconds between two keys, and of silence before the next line.
TYPING, QUIET = 0.03, 0.8
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")


def take(terminal, events, start):
    """What has come; nothing at the end."""
    try:
        piece = os.read(terminal, 4096).decode(errors="replace")
    except OSError:
        return ""
    events.append([round(time.time() - start, 3), "o", piece])
    return piece


def wait_for_prompt(terminal, events, start):
    """Until the prompt is there and nothing more comes for a moment."""
    seen = ""
    while select.select([terminal], [], [], QUIET if CONTROL.sub("", seen).endswith(PROMPT) else 10)[0]:
        piece = take(terminal, events, start)
        if not piece:
            return
        seen += piece


def type_line(terminal, line, events, start):
    """Key by key, with what the program shows of it."""
    for key in line + "\r":
        os.write(terminal, key.encode())
        if select.select([terminal], [], [], TYPING)[0]:
            take(terminal, events, start)
        time.sleep(TYPING)


def record(atta):
    """The events of the whole talk."""
    terminal, inside = pty.openpty()
    with tempfile.TemporaryDirectory() as directory:
        environment = os.environ | {"HOUSE_STATE": f"{directory}/house.json", "TERM": "xterm", "COLUMNS": str(COLUMNS)}
        command = [atta, "chat", "--tools", "tools.json", "--tool-cmd", "./house.py", "--yes", "-t", "0"]
        program = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, cwd=HERE, env=environment)
        os.close(inside)
        events, start = [], time.time()
        wait_for_prompt(terminal, events, start)
        for line in (HERE / "commands.txt").read_text().splitlines():
            type_line(terminal, line, events, start)
            wait_for_prompt(terminal, events, start)
        os.write(terminal, b"\x04")
        program.wait(5)
    return events


def transcript(events):
    """What a reader sees at the end: the last state of every line."""
    text = CONTROL.sub("", "".join(text for _, _, text in events))
    lines = []
    for line in text.split("\n"):
        # An editor of lines writes its line again for every key.
        lines.append("> " + line.split("> ")[-1] if line.count("> ") > 1 else line)
    return "\n".join(lines).strip("\n> ") + "\n"


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: record.py ATTA")
    events = record(str(Path(sys.argv[1]).resolve()))
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "atta chat --tools, on the built-in model"}
    lines = [json.dumps(line, ensure_ascii=False) for line in [header, *events]]
    (HERE / "demo.cast").write_text("\n".join(lines) + "\n")
    (HERE / "transcript.txt").write_text(transcript(events))


if __name__ == "__main__":
    main()
