"""Writes cases for `cargo xtask eval-builtin` out of conversations that were not trained on.

    python tools/builtin-model/home/cases.py --count 500 > generated.jsonl
"""

import argparse
import json
import random

import compose

# Far behind the last conversation that train.py reads.
FIRST = 10_000_000


def exchanges(messages):
    """The conversation as turns: what was said, the calls, their results, the reply."""
    turns = []
    for message in messages:
        if message["role"] == "user":
            turns.append({"user": message["content"], "calls": [], "results": [], "reply": ""})
        elif message["role"] == "tool":
            turns[-1]["results"].append(json.loads(message["content"]))
        elif "tool_calls" in message:
            turns[-1]["calls"] = message["tool_calls"]
        else:
            turns[-1]["reply"] = message["content"]
    return turns


def case(n):
    """One exchange of the conversation of that number, with what was said before; None if there is none."""
    tools, messages = compose.conversation(n)
    turns = exchanges(messages)
    if not turns:
        return None
    at = random.Random(n).randrange(len(turns))
    calls = turns[at]["calls"]
    kind = "none" if not calls else "two" if len(calls) > 1 else calls[0]["name"]
    return {"kind": kind, "user": turns[at]["user"], "calls": calls, "tools": tools, "before": turns[:at]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--first", type=int, default=FIRST)
    args = parser.parse_args()
    left, n = args.count, args.first
    while left > 0:
        made = case(n)
        if made:
            print(json.dumps(made, ensure_ascii=False))
            left -= 1
        n += 1


if __name__ == "__main__":
    main()
