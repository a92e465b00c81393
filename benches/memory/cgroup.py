"""A memory cgroup, of version 1 or 2, whichever this machine has: a limit without swap, and what became of those inside.

It knows no engine. A cgroup counts the page cache that its processes brought in, so what survives in one of 256 MB
needs 256 MB, whatever its RSS says.
"""

import contextlib
import os
import pathlib
import time
from typing import Iterator


class Missing(Exception):
    """What this machine lacks, and what would help, in one line."""


class Cgroup:
    """One directory under the memory controller."""

    def __init__(self, path: pathlib.Path, version: int):
        self.path, self.version = path, version

    def write(self, name: str, value: object) -> None:
        try:
            (self.path / name).write_text(str(value))
        except OSError as error:
            raise Missing(f"{self.path / name}: cannot be set to {value}: {error.strerror}") from None

    def read(self, name: str) -> str:
        try:
            return (self.path / name).read_text()
        except OSError:
            return ""

    def limit(self, n_bytes: int) -> None:
        """Sets the limit, and that there is no swap beyond it."""
        if self.version == 1:
            self.write("memory.limit_in_bytes", n_bytes)
            swap = ("memory.memsw.limit_in_bytes", n_bytes)
        else:
            self.write("memory.max", n_bytes)
            swap = ("memory.swap.max", 0)
        if (self.path / swap[0]).exists():
            self.write(*swap)
        elif len(pathlib.Path("/proc/swaps").read_text().splitlines()) > 1:
            raise Missing(f"{self.path}: no {swap[0]}, and swap is on: turn it off (swapoff -a), or boot with swapaccount=1")

    def inside(self, command: list[str]) -> list[str]:
        """The command that enters the cgroup and then becomes the given one, under the same process id."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.path / "cgroup.procs"), *command]

    def n_killed(self) -> int:
        """How many processes the kernel has killed here for want of memory."""
        lines = self.read("memory.oom_control" if self.version == 1 else "memory.events").splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)

    def peak_bytes(self) -> int | None:
        """The most that was ever charged, page cache included; None where the kernel does not say."""
        text = self.read("memory.max_usage_in_bytes" if self.version == 1 else "memory.peak")
        return int(text) if text else None

    def remove(self) -> None:
        """Removes it; the kernel may take a moment to see that the last process has gone."""
        for _ in range(100):
            with contextlib.suppress(OSError):
                return self.path.rmdir()
            time.sleep(0.02)


def mounts() -> Iterator[tuple[str, str, pathlib.Path, str]]:
    """Root, type, place and options of every cgroup mount."""
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ", 1)
        if right.startswith("cgroup"):
            yield left.split()[3], right.split()[0], pathlib.Path(left.split()[4]), right.split()[-1]


def memory_mount() -> tuple[int, str, pathlib.Path]:
    """The version that has the memory controller, the root of its mount, and the place."""
    for root, kind, place, options in mounts():
        if kind == "cgroup" and "memory" in options.split(","):
            return 1, root, place
    for root, kind, place, _ in mounts():
        if kind == "cgroup2" and "memory" in (place / "cgroup.controllers").read_text().split():
            return 2, root, place
    raise Missing("no cgroup mount of this machine has the memory controller (/proc/self/mountinfo)")


def own_path(version: int) -> str:
    """The cgroup that this process is in, as the kernel writes it."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "" if version == 2 else "memory" in controllers.split(","):
            return path
    return "/"


def candidates(version: int, root: str, place: pathlib.Path) -> Iterator[pathlib.Path]:
    """Where a cgroup might be made: in our own, else in those around it, else at the mount's root."""
    path = place / os.path.relpath(own_path(version), root)
    if path.is_dir() and ".." not in path.parts:
        yield from (p for p in [path, *path.parents] if p.is_relative_to(place) and p != place)
    yield place


def hand_on(parent: pathlib.Path) -> None:
    """Has a version 2 cgroup give its children the memory controller."""
    control = parent / "cgroup.subtree_control"
    if "memory" not in control.read_text().split():
        control.write_text("+memory")


def attempt(parent: pathlib.Path, version: int, name: str) -> Cgroup:
    """Makes a child and moves a process into it, which is what a run needs."""
    if version == 2:
        hand_on(parent)
    group = Cgroup(parent / f"atta-memory-{name}", version)
    group.path.mkdir()
    try:
        if os.system(f"echo $$ 2>/dev/null > '{group.path}/cgroup.procs'"):
            raise PermissionError(13, "no process can be moved into it")
    except OSError:
        group.remove()
        raise
    return group


def make(name: str = "") -> Cgroup:
    """A new cgroup without a limit, wherever this user may make one; several of one process have names."""
    name = name or str(os.getpid())
    version, root, place = memory_mount()
    why = []
    for parent in candidates(version, root, place):
        try:
            return attempt(parent, version, name)
        except OSError as error:
            why.append(f"{parent}: {error.strerror}")
    remedy = "run as root" if os.geteuid() else "give the container its cgroup mount writable (docker run --privileged --cgroupns=host)"
    if os.geteuid() and version == 2:
        remedy += ", or under `systemd-run --user --scope -p Delegate=yes`"
    raise Missing(f"no memory cgroup (v{version}) can be made here ({'; '.join(why)}): {remedy}")


@contextlib.contextmanager
def limited(n_bytes: int) -> Iterator[Cgroup]:
    """A fresh cgroup with the limit, for one run."""
    group = make()
    try:
        group.limit(n_bytes)
        yield group
    finally:
        group.remove()
