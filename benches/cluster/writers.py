"""Clients of `atta serve` that all write at the same time, and what they get."""

import contextlib
import dataclasses
import http.client
import json
import socket
import threading
import time

from programs import Failure
from world import LEAD

WORDS = "the little old red fox house river stone bird tree morning light road friend story apple winter".split()


@dataclasses.dataclass
class Served:
    """What clients got: texts in their order, and tokens per second of all together."""

    texts: list[str]
    tok_s: float


def read_json_text(text: bytes) -> dict:
    """The JSON object on a program's standard output."""
    return json.loads(text[text.index(b"{") :])


def prompt_of(i: int) -> str:
    return " ".join(WORDS[(i * 5 + j * 3) % len(WORDS)] for j in range(16))


class UnixConnection(http.client.HTTPConnection):
    """A connection to a Unix socket, which is the same in every network namespace."""

    def __init__(self, path: str):
        super().__init__("localhost", timeout=600)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


@dataclasses.dataclass
class Client:
    """One text of n tokens, asked for as a stream."""

    number: int
    text: str = ""
    # When the first and the last token came.
    times: list[float] = dataclasses.field(default_factory=list)
    error: str = "it got nothing"

    def ask(self, path: str, n: int) -> None:
        body = {"prompt": prompt_of(self.number), "max_tokens": n, "stream": True, "seed": self.number, "logit_bias": {"2": -100}}
        connection = UnixConnection(path)
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
            self.read(connection.getresponse())
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.error = repr(error)

    def read(self, answer: http.client.HTTPResponse) -> None:
        if answer.status != 200:
            self.error = f"status {answer.status}: {answer.read(300)!r}"
            return
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                self.error = f"error: {event['error']}"
                return
            self.times.append(time.monotonic())
            self.text += "".join(choice.get("text", "") for choice in event.get("choices", []))
        self.error = ""


def all_ask(path: str, n_clients: int, n: int) -> Served:
    """All clients at once. The rate is that of all tokens behind the first of each."""
    clients = [Client(i) for i in range(n_clients)]
    threads = [threading.Thread(target=client.ask, args=(path, n)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        if client.error or not client.times:
            raise Failure(f"client {client.number} of {n_clients}: {client.error}")
    seconds = max(client.times[-1] for client in clients) - min(client.times[0] for client in clients)
    return Served([client.text for client in clients], (n - 1) * n_clients / seconds)


@contextlib.contextmanager
def server(world, model: str, ring: list[str] | None, n_clients: int):
    """`atta serve` on the coordinator; the path of its socket. It ends with the block."""
    path = world.machines[LEAD].home / "serve.sock"
    args = ["serve", model, "--unix", str(path), "--no-cache", "-c", "512", "-j", "1", "--parallel", str(n_clients), "--contexts", str(n_clients)]
    program = world.begin(args, ring)
    if not program.wait(lambda: program.chunks, 120) or program.is_over:
        raise Failure(f"atta serve: {program.said[-400:]}")
    try:
        yield str(path)
    finally:
        code = program.stop()
    if code != 0:
        raise Failure(f"atta serve: exit {code} after SIGTERM (None: it did not end): {program.said[-300:]}")


def serve(bench, world, ring: list[str] | None, n_clients: int, n: int) -> Served:
    """Starts a server, has all clients ask once to warm up, and then counts."""
    with server(world, bench.options.model, ring, n_clients) as path:
        all_ask(path, n_clients, 4)
        return all_ask(path, n_clients, n)
