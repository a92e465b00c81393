"""A machine of the network, and a program on it that is watched while it runs.

It knows no command of atta. What a program prints is kept with the time at which it came, so that a case can act at a
token and say afterwards how long the next one took.
"""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "memory"))
import cgroup  # noqa: E402
import lan  # noqa: E402
import watched  # noqa: E402


class Failure(Exception):
    """A case cannot go on; one line says why."""


@dataclasses.dataclass
class Machine:
    """A namespace with a home of its own, some of the CPUs, and perhaps a limit of memory."""

    name: str
    namespace: str
    address: str
    home: pathlib.Path
    cpus: str | None = None
    group: cgroup.Cgroup | None = None

    def command(self, argv: list[str]) -> list[str]:
        pinned = ["taskset", "-c", self.cpus, *argv] if self.cpus else argv
        entered = lan.inside(self.namespace, pinned)
        return self.group.inside(entered) if self.group else entered

    def environment(self) -> dict[str, str]:
        places = {"XDG_CONFIG_HOME": "config", "XDG_CACHE_HOME": "cache", "XDG_STATE_HOME": "state"}
        own = {variable: str(self.home / folder) for variable, folder in places.items()}
        return {**os.environ, "HOME": str(self.home), **own}


class Program:
    """A program on a machine."""

    def __init__(self, machine: Machine, argv: list[str], more: dict[str, str] | None = None):
        self.machine = machine
        self.argv = argv
        self.began = time.monotonic()
        # What came on standard output, and the lines of standard error, each with its time.
        self.chunks: list[tuple[float, bytes]] = []
        self.lines: list[tuple[float, str]] = []
        self.ended: float | None = None
        self.peak_private = 0
        self.usage = None
        self.news = threading.Condition()
        self.process = subprocess.Popen(
            machine.command(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=machine.home, env={**machine.environment(), **(more or {})}, start_new_session=True,
        )  # fmt: skip
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self.read_text, self.read_lines)]
        for thread in self.threads:
            thread.start()
        self.waiter = threading.Thread(target=self.reap, daemon=True)
        self.waiter.start()

    def read_text(self) -> None:
        while chunk := os.read(self.process.stdout.fileno(), 1 << 16):
            with self.news:
                self.chunks.append((time.monotonic(), chunk))
                self.news.notify_all()

    def read_lines(self) -> None:
        for line in self.process.stderr:
            with self.news:
                self.lines.append((time.monotonic(), line.decode(errors="replace").rstrip("\n")))
                self.news.notify_all()

    def reap(self) -> None:
        """Waits for the end, for all who ask; the time that it computed is taken down."""
        _, status, self.usage = os.wait4(self.process.pid, 0)
        for thread in self.threads:
            thread.join()
        with self.news:
            self.process.returncode = os.waitstatus_to_exitcode(status)
            self.ended = time.monotonic()
            self.news.notify_all()
        self.process.stdout.close()
        self.process.stderr.close()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_over(self) -> bool:
        return self.ended is not None

    @property
    def text(self) -> bytes:
        return b"".join(chunk for _, chunk in self.chunks)

    @property
    def said(self) -> str:
        return "\n".join(line for _, line in self.lines)

    def wait(self, condition, seconds: float) -> bool:
        """Waits until a condition on what was printed holds, or the program has ended; whether it holds."""
        with self.news:
            self.news.wait_for(lambda: condition() or self.is_over, seconds)
            return bool(condition())

    def line_with(self, text: str, seconds: float = 60) -> str:
        """The first line of standard error with a text in it."""

        def found() -> str | None:
            return next((line for _, line in self.lines if text in line), None)

        if not self.wait(found, seconds):
            raise Failure(f"{self.machine.name}: no {text!r} in what it says: {self.said[-600:]!r}")
        return found()

    def wait_for_text(self, n_bytes: int, seconds: float = 120) -> None:
        """Waits until so much text has come."""
        if not self.wait(lambda: len(self.text) >= n_bytes, seconds):
            raise Failure(f"{self.machine.name}: {len(self.text)} bytes of text, not {n_bytes}: {self.said[-600:]!r}")

    def end(self, seconds: float) -> int | None:
        """Waits for the end; the exit code, or None if it still runs."""
        with self.news:
            self.news.wait_for(lambda: self.is_over, seconds)
        return self.process.returncode

    def signal(self, number: int) -> None:
        if not self.is_over:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def stop(self, seconds: float = 20) -> int | None:
        """Asks it to end as a user would; kills it if it does not. None: it had to be killed."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        code = self.end(seconds)
        if code is None:
            self.kill()
        return code

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.end(20)

    def status(self) -> dict[str, int]:
        """What the kernel says of it now, in bytes."""
        return watched.fields(f"/proc/{self.pid}/status")

    def mapped(self, suffix: str) -> int:
        """Resident bytes of mapped files whose names end so."""
        try:
            lines = pathlib.Path(f"/proc/{self.pid}/smaps").read_text().splitlines()
        except OSError:
            return 0
        total, is_it = 0, False
        for line in lines:
            if line[:1].islower() or line[:1].isdigit():
                is_it = line.endswith(suffix)
            elif is_it and line.startswith("Rss:"):
                total += int(line.split()[1]) * 1024
        return total

    def sample(self) -> None:
        now = self.status()
        self.peak_private = max(self.peak_private, now.get("RssAnon", 0) + now.get("RssShmem", 0))

    def watch_memory(self, interval: float = 0.05) -> None:
        """Samples its private memory from now on."""

        def work() -> None:
            while not self.is_over:
                self.sample()
                time.sleep(interval)

        threading.Thread(target=work, daemon=True).start()
