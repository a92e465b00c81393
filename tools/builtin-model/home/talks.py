#!/usr/bin/env python3
"""Long talks with the house: the share of right calls, in the terminal and through the server.

    python tools/builtin-model/home/talks.py ATTA [--talks 10] [--messages 30] [--seed 1] [--show]

A talk is so many commands of test.jsonl in random order: those that want calls, and stand alone. ATTA runs them once as
`atta chat --house` with the lines piped in, and once as `atta serve`, asked as an agent asks: with all messages so far
and the tools of examples/home, whose results come from house.py. A command is right if the calls are exactly the
expected ones. The exit code is 1 below 95 %. Standard library only.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOUSE = HERE.parents[2] / "examples" / "home"
GATE = 0.95
# Answers with calls in a row, since a model may never stop calling.
MAX_ROUNDS = 4


def cases():
    """Commands that stand alone and want calls."""
    lines = (HERE / "test.jsonl").read_text().splitlines()
    all_cases = [json.loads(line) for line in lines]
    return [case for case in all_cases if case["calls"] and not case.get("before") and not case.get("tools")]


def in_terminal(atta, talk, scratch):
    """The calls of each message, from what `/save` writes."""
    saved = scratch / "talk.json"
    lines = [case["user"] for case in talk] + [f"/save {saved}"]
    command = [atta, "chat", "--house", "-t", "0"]
    subprocess.run(command, input="\n".join(lines) + "\n", text=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    made = []
    for message in json.loads(saved.read_text()):
        if message["role"] == "user":
            made.append([])
        elif made:
            made[-1] += [called(call) for call in message.get("tool_calls") or []]
    saved.unlink()
    return made


def called(call):
    arguments = call["function"]["arguments"]
    arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    return {"name": call["function"]["name"], "arguments": arguments}


class Server:
    """`atta serve` with the built-in model, until the `with` ends."""

    def __init__(self, atta, scratch):
        command = [atta, "serve", "--port", "0", "--no-cache", "-t", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        self.tools = json.loads((HOUSE / "tools.json").read_text())
        self.environment = os.environ | {"HOUSE_STATE": str(scratch / "house.json")}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=30)

    def answer(self, messages):
        body = json.dumps({"messages": messages, "tools": [{"type": "function", "function": tool} for tool in self.tools]})
        request = urllib.request.Request(f"{self.url}/v1/chat/completions", body.encode(), {"content-type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=120))["choices"][0]["message"]

    def run(self, call):
        """What the simulated house makes of a call."""
        command = [sys.executable, str(HOUSE / "house.py"), call["name"]]
        done = subprocess.run(command, input=json.dumps(call["arguments"]), text=True, capture_output=True, env=self.environment)
        return done.stdout.strip() or done.stderr.strip()

    def talk(self, talk):
        """The calls of each message."""
        messages, made = [], []
        for case in talk:
            messages.append({"role": "user", "content": case["user"]})
            made.append([])
            for _ in range(MAX_ROUNDS):
                message = self.answer(messages)
                messages.append(message)
                for call in message.get("tool_calls") or []:
                    made[-1].append(called(call))
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": self.run(made[-1][-1])})
                if not message.get("tool_calls"):
                    break
        return made


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("atta")
    parser.add_argument("--talks", type=int, default=10)
    parser.add_argument("--messages", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="print the commands that went wrong")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    talks = [rng.sample(cases(), args.messages) for _ in range(args.talks)]
    failed = False
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        with Server(args.atta, scratch) as server:
            for name, ask in (("terminal", lambda talk: in_terminal(args.atta, talk, scratch)), ("server", server.talk)):
                made = [(i, case, calls) for talk in talks for i, (case, calls) in enumerate(zip(talk, ask(talk), strict=True))]
                right = [calls == case["calls"] for _, case, calls in made]
                late = [is_right for (i, _, _), is_right in zip(made, right, strict=True) if i >= args.messages // 2]
                share = sum(right) / len(right)
                failed |= share < GATE
                print(f"{name}: {sum(right)} of {len(right)} right ({share:.1%}); in the second half {sum(late) / len(late):.1%}")
                for (i, case, calls), is_right in zip(made, right, strict=True):
                    if args.show and not is_right:
                        print(f"  message {i + 1}: {case['user']}\n    not {json.dumps(calls)}\n    but {json.dumps(case['calls'])}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
