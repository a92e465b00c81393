"""Drives `atta serve` with the usual client libraries: python run.py --atta PATH [--only PART] [--slow].

Needs `pip install -r requirements.txt`. What a model says is not foreseen, except where a grammar leaves no choice; the
checks are about form and course. Each test gets the server that all share, and may start others. Exits 1 on failure, and
when a test that is known to fail does not: then it is to be taken out of KNOWN.
"""

import argparse
import inspect
import os
import signal
import sys
import time
import traceback
import warnings

import anthropic_messages
import langchain_chat
import ollama_chat
import openai_chat
import openai_embeddings
import openai_responses
import openai_stream
import operation
import robust
import starting
from serving import Server

TEST_S = 120
FILES = [
    openai_chat,
    openai_stream,
    openai_responses,
    openai_embeddings,
    langchain_chat,
    anthropic_messages,
    ollama_chat,
    operation,
    starting,
    robust,
]
# What the server does not do yet, and why the test is right: name of the test to reason.
KNOWN: dict[str, str] = {}


def tests(part: str, kind: str) -> list:
    """Functions whose names begin so, as they stand in the files."""
    found = [(f"{file.__name__}.{name}", test) for file in FILES for name, test in inspect.getmembers(file, inspect.isfunction)
             if name.startswith(kind) and test.__module__ == file.__name__]
    found.sort(key=lambda pair: (FILES.index(sys.modules[pair[1].__module__]), pair[1].__code__.co_firstlineno))
    return [(name, test) for name, test in found if part in name]


def too_long(*_):
    raise TimeoutError(f"it took more than {TEST_S} s")


def reason_of(error: BaseException) -> str:
    """The error in a line, with the line of the test."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if os.path.dirname(frame.filename) == os.path.dirname(__file__)]
    text = " ".join(str(error).split()) or frames[-1].line
    return f"{type(error).__name__}: {text[:300]} ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})"


def run(test, server: Server) -> str | None:
    """Why it failed, if it did."""
    signal.alarm(TEST_S)
    try:
        test(server)
    except Exception as error:
        return reason_of(error)
    finally:
        signal.alarm(0)
    return None


def verdict(name: str, reason: str | None) -> tuple[bool, str]:
    """Whether that is as it should be, and the line for it."""
    match (reason, KNOWN.get(name)):
        case (None, None):
            return True, f"ok {name}"
        case (None, _):
            return False, f"FAILED {name}: it is in KNOWN, and does not fail"
        case (_, None):
            return False, f"FAILED {name}: {reason}"
        case (_, why):
            return True, f"known {name}: {why}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--atta", required=True, help="the program")
    parser.add_argument("--only", default="", help="part of the names of the tests to run")
    parser.add_argument("--slow", action="store_true", help="run what takes long, and nothing else")
    args = parser.parse_args()
    signal.signal(signal.SIGALRM, too_long)
    # Pydantic's, of the clients' own parsed messages.
    warnings.simplefilter("ignore", UserWarning)
    start, verdicts = time.monotonic(), []
    with Server(os.path.abspath(args.atta), "-c", "4096") as server:
        for name, test in tests(args.only, "slow_" if args.slow else "test_"):
            is_right, line = verdict(name, run(test, server))
            print(line, flush=True)
            verdicts.append(is_right)
    print(f"{len(verdicts)} tests, {verdicts.count(False)} failed, {time.monotonic() - start:.0f} s")
    return 0 if verdicts and all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
