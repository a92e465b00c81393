"""A command watched while it runs: what it prints and when it last did, its private memory, what it reads from the disk.

It knows no engine and no table; compare.py and memory/run.py ask it for numbers. Linux only.
"""

import dataclasses
import os
import pathlib
import subprocess
import threading
import time


@dataclasses.dataclass
class Watched:
    """What was seen of a process that has ended. Times are those of time.monotonic(), sizes are bytes."""

    out: str = ""
    err: str = ""
    code: int = 0
    timed_out: bool = False
    peak_private: int = 0
    peak_rss: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    last_output: float = 0.0
    reads: list[tuple[float, int]] = dataclasses.field(default_factory=list)

    def read_until(self, when: float) -> float:
        """Bytes read from the disk until then, between two samples by a straight line."""
        before = (self.reads or [(when, 0)])[0]
        for sample in self.reads:
            if sample[0] >= when:
                width = sample[0] - before[0]
                return before[1] + (sample[1] - before[1]) * ((when - before[0]) / width if width else 0)
            before = sample
        return before[1]


def fields(path: str) -> dict[str, int]:
    """A file of lines such as `RssAnon: 12 kB`, in bytes where it says kB; empty for a process that has ended."""
    try:
        lines = pathlib.Path(path).read_text().splitlines()
    except OSError:
        return {}
    words = [line.replace(":", " ").split() for line in lines]
    return {w[0]: int(w[1]) * (1024 if w[2:] == ["kB"] else 1) for w in words if len(w) > 1 and w[1].isdigit()}


def sample(pid: int, seen: Watched) -> None:
    """Adds what the kernel says of the process now."""
    status, io = fields(f"/proc/{pid}/status"), fields(f"/proc/{pid}/io")
    seen.peak_private = max(seen.peak_private, status.get("RssAnon", 0) + status.get("RssShmem", 0))
    seen.peak_rss = max(seen.peak_rss, status.get("VmHWM", 0))
    if "read_bytes" in io:
        seen.reads.append((time.monotonic(), io["read_bytes"]))


def drain(pid: int, pipe, chunks: list[bytes], seen: Watched) -> threading.Thread:
    """Collects what comes out of a pipe, in a thread of its own; what was read from the disk by then is exact."""

    def collect():
        while chunk := os.read(pipe.fileno(), 1 << 16):
            chunks.append(chunk)
            seen.last_output = time.monotonic()
            sample(pid, seen)

    thread = threading.Thread(target=collect)
    thread.start()
    return thread


def ended(process: subprocess.Popen, seen: Watched) -> bool:
    """Whether it has ended; then its exit status and the time that it computed for are taken down."""
    pid, status, usage = os.wait4(process.pid, os.WNOHANG)
    if pid:
        seen.code = process.returncode = os.waitstatus_to_exitcode(status)
        seen.cpu_s = usage.ru_utime + usage.ru_stime
    return bool(pid)


def watch(command: list[str], timeout: float | None = None, interval: float = 0.02) -> Watched:
    """Runs the command to its end and returns what was seen; after `timeout` seconds it is killed."""
    seen, out, err = Watched(), [], []
    started = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        threads = [drain(process.pid, process.stdout, out, seen), drain(process.pid, process.stderr, err, seen)]
        while not ended(process, seen):
            sample(process.pid, seen)
            if timeout and not seen.timed_out and time.monotonic() - started > timeout:
                seen.timed_out = True
                process.kill()
            time.sleep(interval)
        for thread in threads:
            thread.join()
    seen.wall_s = time.monotonic() - started
    seen.out, seen.err = (b"".join(chunks).decode(errors="replace") for chunks in (out, err))
    return seen
