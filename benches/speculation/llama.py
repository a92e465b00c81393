"""llama.cpp's `llama-server` beside atta: without drafts, and with its own.

Knows no prompts and no tables. The one idea: one server per mode, all idle but the one that is asked.
"""

import argparse
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

PREFIX = "llama.cpp"
PLAIN = f"{PREFIX} off"
START_SECONDS = 120


class Server:
    def __init__(self, port: int) -> None:
        self.place = f"http://127.0.0.1:{port}"

    def ask(self, path: str, body: dict | None) -> dict:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.place + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)

    def complete(self, text: str, n: int, temperature: float, schema: dict | None) -> tuple[str, dict]:
        """The text that continues a prompt, and the server's own times."""
        body = {"prompt": text, "n_predict": n, "temperature": temperature, "seed": 42, "cache_prompt": False}
        if schema:
            body["json_schema"] = schema
        answer = self.ask("/completion", body)
        return answer["content"], answer["timings"]

    def wait(self, process: subprocess.Popen) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and process.poll() is None:
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                self.ask("/health", None)
                return
            time.sleep(0.2)
        sys.exit("run.py: llama-server did not start")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextlib.contextmanager
def running(program: pathlib.Path, args: argparse.Namespace, model: str, spec_type: str):
    port = free_port()
    threads = args.threads or len(os.sched_getaffinity(0))
    command = [str(program), "-m", model, "-np", "1", "-c", str(args.ctx_size), "-t", str(threads), "--port", str(port), "--no-webui"]
    command += ["--spec-type", spec_type] if spec_type != "off" else []
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        server = Server(port)
        server.wait(process)
        yield server
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def servers(args: argparse.Namespace, model: str):
    """Servers by mode; none without `--llama`."""
    with contextlib.ExitStack() as stack:
        found = {}
        if args.llama:
            program = args.llama / "llama-server"
            if not program.exists():
                sys.exit(f"run.py: {program} does not exist; README.md says how to build it")
            for spec_type in ["off", *args.llama_modes.split(",")]:
                found[f"{PREFIX} {spec_type}"] = stack.enter_context(running(program, args, model, spec_type))
        yield found
