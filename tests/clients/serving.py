"""A running `atta serve`, and what the tests ask of it beside any client."""

import json
import select
import subprocess
import time
from contextlib import contextmanager

import httpx
import openai

START_S = 60
HELLO = [{"role": "user", "content": "Hello!"}]
# A request whose answer cannot be short, for tests that keep the server busy or need a cut.
LONG = {
    "type": "json_schema",
    "json_schema": {"name": "long", "schema": {"type": "array", "items": {"enum": ["red", "blue"]}, "minItems": 900, "maxItems": 900}},
}


class Server:
    """A server of its own, with a free port, until the `with` ends."""

    def __init__(self, atta: str, *flags: str, at=("--port", "0")):
        self.atta = atta
        # A prompt of an earlier run would be found on disk.
        cache = () if "--cache" in flags else ("--no-cache",)
        command = [atta, "serve", *at, *cache, *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.place = self.first_line()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate(timeout=10)

    def first_line(self) -> str:
        """Where it listens, which is all that it says."""
        if not select.select([self.process.stdout], [], [], START_S)[0]:
            self.process.kill()
            raise AssertionError(f"the server said nothing for {START_S} s")
        line = self.process.stdout.readline().strip()
        assert line, f"the server ended with {self.process.wait(10)}"
        return line

    def another(self, *flags: str, **options):
        return Server(self.atta, *flags, **options)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.place.removeprefix("http://").rsplit(":", 1)
        return host, int(port)

    @property
    def api(self) -> str:
        return f"{self.place}/v1"

    def client(self, api_key="none", **options) -> openai.OpenAI:
        return openai.OpenAI(base_url=self.api, api_key=api_key, max_retries=0, timeout=60, **options)

    def async_client(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=self.api, api_key="none", max_retries=0, timeout=60)

    def model(self) -> str:
        return httpx.get(f"{self.api}/models").json()["data"][0]["id"]

    def post(self, path: str, **fields) -> httpx.Response:
        return httpx.post(self.place + path, json=fields, timeout=60)

    def tokens(self, text: str) -> list[int]:
        return self.post("/tokenize", content=text).json()["tokens"]

    def metrics(self) -> dict[str, float]:
        """Numbers of /metrics by name."""
        lines = httpx.get(f"{self.place}/metrics", timeout=10).text.splitlines()
        return {name: float(value) for name, value in (line.split() for line in lines if not line.startswith("#"))}

    def count(self, name: str) -> float:
        return self.metrics()[f"atta_{name}"]


def chat(server: Server, messages=HELLO, **fields):
    """An answer of at most 24 tokens, if nothing else is asked for."""
    fields = {"max_tokens": 24, "seed": 1, **fields}
    return server.client().chat.completions.create(model=server.model(), messages=messages, **fields)


def wait_until(is_so, what: str, seconds=20):
    """Fails with what never came to be."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"after {seconds} s: {what}"
        time.sleep(0.02)


def wait_idle(server: Server):
    """No text is written any more."""
    wait_until(lambda: server.count("jobs_running") + server.count("jobs_waiting") == 0, "jobs are still there")


@contextmanager
def refused(kind, **expected):
    """The block raises this exception of the client, and these are its attributes."""
    try:
        yield
    except kind as error:
        found = {name: getattr(error, name) for name in expected}
        assert found == expected, f"expected {expected}, got {found}: {error}"
        return
    raise AssertionError(f"expected {kind.__name__}, got an answer")


def events(response: httpx.Response) -> list[str]:
    """Data of server-sent events, as it came."""
    return [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]


def is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
