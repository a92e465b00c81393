"""An agent whose prompt changes near its front every turn: what each turn has to read.

    python benches/server/agent.py ATTA MODEL [--tokens 20000] [--turns 4] [--reuse 256] [-- OPTIONS OF atta serve]
    python benches/server/agent.py --write FILE [--tokens 2000]

The prompt has rules, tools, files and a conversation of so many tokens in all; its second line has the time of day, as
agents write it. Prints for each turn how many tokens were cached, how many of them approximately, how many were read,
and the seconds until the first token: first with exact reuse only, then with `--cache-reuse`. Then the server is
started anew, and is asked the last exact prompt again, whose state is on disk. --write writes the prompt to a file, for
the example `reuse_loss`. Standard library only.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
import urllib.request

WORDS = "file list read write open user page test build error line name value time path code data task plan step note".split()
RULES = "Answer in short sentences. Call a tool when one fits. Never invent the content of a file."
# Tokens of a word of this prompt, roughly; the first answer tells the real number.
TOKENS_PER_WORD = 2.2


def tool(rng, i):
    names = rng.sample(WORDS, 3)
    properties = {name: {"type": rng.choice(["string", "integer", "boolean"]), "description": f"the {name} of the {names[0]}"} for name in names}
    return json.dumps({"name": f"{names[0]}_{names[1]}_{i}", "description": " ".join(rng.choices(WORDS, k=12)), "parameters": properties})


def sentence(rng):
    words = rng.choices(WORDS, k=rng.randint(5, 14))
    return f"The {words[0]} {' '.join(words[1:-1])} is in the {words[-1]}."


def rest(n_words):
    """All behind the second line: the same for a number of words, and longer ones begin alike."""
    rng = random.Random(7)
    parts = [RULES, "Tools:", *(tool(rng, i) for i in range(12)), "Files and notes:"]
    n = sum(len(part.split()) for part in parts)
    while n < n_words:
        parts.append(sentence(rng))
        n += len(parts[-1].split())
    return "\n".join(parts)


def prompt(n_words, turn, said):
    """Lengths of the second line differ, as those of dates and counters do."""
    now = f"Now: Sunday {turn + 1}:{17 * turn % 60:02}" + (" in the morning" if turn % 2 else "")
    return f"You are an agent that works on files.\n{now}, message {turn + 1}.\n{rest(n_words)}\n{said}"


class Server:
    def __init__(self, args, *flags):
        n_ctx = str(args.tokens + 2048)
        command = [args.atta, "serve", args.model, "--port", "0", "-c", n_ctx, "--parallel", "1", "--contexts", "2", *flags, *args.more]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(120)

    def ask(self, text):
        body = json.dumps({"prompt": text, "n_predict": 8, "temperature": 0}).encode()
        request = urllib.request.Request(f"{self.url}/completion", body, {"content-type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=7200))


def report(name, turn, answer, seconds):
    timings = answer["timings"]
    cached, approximate, read = (timings[key] for key in ("cache_n", "cache_approximate_n", "prompt_n"))
    share = cached / (cached + read)
    print(f"{name:8} turn {turn + 1}: {cached:6} cached ({share:.1%}), {approximate:6} approximately; {read:6} read; {seconds:7.2f} s", flush=True)


def turns(args, name, server):
    """Asks all turns; returns the last prompt."""
    said = ""
    for turn in range(args.turns):
        said += f"User: read me note {turn}.\nAgent:"
        text = prompt(args.n_words, turn, said)
        start = time.monotonic()
        answer = server.ask(text)
        report(name, turn, answer, time.monotonic() - start)
        said += answer["content"] + "\n"
    return text


def main():
    own, more = sys.argv[1:], []
    if "--" in own:
        at = own.index("--")
        own, more = own[:at], own[at + 1 :]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("atta", nargs="?")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--tokens", type=int, default=20000)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--reuse", type=int, default=256)
    parser.add_argument("--write")
    args = parser.parse_args(own)
    args.more = more
    args.n_words = int(args.tokens / TOKENS_PER_WORD)
    if args.write:
        with open(args.write, "w") as file:
            file.write(prompt(args.n_words, 0, "User: read me note 0.\nAgent:"))
        return
    with tempfile.TemporaryDirectory() as directory:
        with Server(args, "--cache", directory) as server:
            last = turns(args, "exact", server)
        with Server(args, "--cache", directory) as server:
            start = time.monotonic()
            report("restart", args.turns - 1, server.ask(last), time.monotonic() - start)
    with Server(args, "--no-cache", "--cache-reuse", str(args.reuse)) as server:
        turns(args, "reuse", server)


if __name__ == "__main__":
    main()
