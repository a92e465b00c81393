"""A network of namespaces: machines around one switch, over links that are as slow and as bad as wanted.

It knows no program. The switch is a bridge in a namespace of its own, so this machine's own network stays as it is. A
rate is a token bucket on both ends, with packets cut to the MTU as on a wire; delay and loss are netem where the kernel
has it, else a pair of TAP devices with a program between them (tap.py). Linux, root, iproute2.
"""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import subprocess
import sys
import time

# Namespaces of this script; the number of the process that made them follows.
PREFIX = "atta-lan-"
NETWORK = "10.77.0."


class Missing(Exception):
    """What this machine lacks, in one line."""


@dataclasses.dataclass(frozen=True)
class Link:
    """How a machine is connected. No rate: as fast as the kernel copies."""

    rate: str | None = None
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss_percent: float = 0.0

    @property
    def is_bad(self) -> bool:
        return bool(self.delay_ms or self.jitter_ms or self.loss_percent)

    def __str__(self) -> str:
        parts = [self.rate or "as fast as it goes"]
        if self.is_bad:
            parts.append(f"{self.delay_ms:g} ± {self.jitter_ms:g} ms, {self.loss_percent:g} % lost")
        return ", ".join(parts)


def ip(*words: str) -> str:
    return tool("ip", *words)


def tool(*command: str) -> str:
    """The standard output of a command of iproute2."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise Missing(f"{command[0]} is not there: install iproute2") from None
    except subprocess.CalledProcessError as error:
        raise Missing(f"{' '.join(command)}: {error.stderr.strip()}") from None
    return done.stdout


def inside(namespace: str, command: list[str]) -> list[str]:
    """The command that enters a network namespace, and nothing else, under the same process id."""
    return ["nsenter", f"--net=/run/netns/{namespace}", *command]


def is_alive(pid: str) -> bool:
    return pid.isdigit() and pathlib.Path("/proc", pid).exists()


def sweep(is_over: bool = False) -> None:
    """Removes the namespaces of runs that were killed, and the processes in them; if this run is over, its own too."""
    for line in ip("netns", "list").splitlines():
        name = line.split()[0]
        pid = name.removeprefix(PREFIX).split("-")[0]
        if name.startswith(PREFIX) and (not is_alive(pid) or is_over and int(pid) == os.getpid()):
            remove(name)


def remove(namespace: str) -> None:
    """Kills what runs in a namespace and removes it."""
    for pid in ip("netns", "pids", namespace).split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), 9)
    ip("netns", "del", namespace)


class Lan:
    """A switch and the machines at it."""

    def __init__(self):
        self.prefix = f"{PREFIX}{os.getpid()}-"
        self.switch = f"{self.prefix}switch"
        self.ports: dict[str, str] = {}
        self.emulators: list[subprocess.Popen] = []
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self.switch, "link", "set", "br0", "up")

    def connect(self, name: str, link: Link) -> tuple[str, str]:
        """A new machine; its namespace and its address."""
        namespace = self.prefix + name
        address = f"{NETWORK}{len(self.ports) + 1}"
        port = f"p{len(self.ports) + 1}"
        self.ports[name] = port
        ip("netns", "add", namespace)
        # Packets of other protocols would be counted with ours.
        tool(*inside(namespace, ["sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6"]))
        ip("-n", namespace, "link", "set", "lo", "up")
        if link.is_bad and not has_netem():
            self.add_tap(namespace, port, link)
        else:
            ip("link", "add", "eth0", "netns", namespace, "type", "veth", "peer", "name", port, "netns", self.switch)
        for place, device in [(self.switch, port), (namespace, "eth0")]:
            shape(place, device, link)
        ip("-n", self.switch, "link", "set", port, "master", "br0", "up")
        ip("-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0")
        ip("-n", namespace, "link", "set", "eth0", "up")
        return namespace, address

    def add_tap(self, namespace: str, port: str, link: Link) -> None:
        """Two TAP devices and the program between them."""
        for place, device in [(namespace, "eth0"), (self.switch, port)]:
            ip("-n", place, "tuntap", "add", "dev", device, "mode", "tap")
        script = pathlib.Path(__file__).with_name("tap.py")
        numbers = [str(link.delay_ms), str(link.jitter_ms), str(link.loss_percent)]
        command = [sys.executable, str(script), namespace, "eth0", self.switch, port, *numbers]
        emulator = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.emulators.append(emulator)
        if emulator.stdout.readline() != "ready\n":
            raise Missing("tap.py has ended: is /dev/net/tun there?")

    def pull(self, name: str) -> None:
        """Pulls a machine's cable out of the switch."""
        ip("-n", self.switch, "link", "set", self.ports[name], "down")

    def plug(self, name: str) -> None:
        ip("-n", self.switch, "link", "set", self.ports[name], "up")

    def n_bytes(self, name: str) -> tuple[int, int]:
        """Bytes that a machine has received and sent, as its network device counts them."""
        found = json.loads(ip("-n", self.prefix + name, "-s", "-j", "link", "show", "eth0"))
        counts = found[0]["stats64"]
        return counts["rx"]["bytes"], counts["tx"]["bytes"]

    def close(self) -> None:
        for emulator in self.emulators:
            emulator.kill()
            emulator.wait()
        for namespace in [*(self.prefix + name for name in self.ports), self.switch]:
            # One may be missing after an error halfway.
            with contextlib.suppress(Missing):
                remove(namespace)


def shape(namespace: str, device: str, link: Link) -> None:
    """Limits what a device sends. A device of a TAP pair has its delay elsewhere."""
    if link.rate:
        ip("-n", namespace, "link", "set", device, "gso_max_segs", "1")
        bucket = ["tbf", "rate", link.rate, "burst", "64kb", "latency", "200ms"]
        tool("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "handle", "1:", *bucket)
    if link.is_bad and has_netem():
        place = ["parent", "1:"] if link.rate else ["root"]
        tool("tc", "-n", namespace, "qdisc", "add", "dev", device, *place, *netem(link))


def netem(link: Link) -> list[str]:
    return ["netem", "delay", f"{link.delay_ms}ms", f"{link.jitter_ms}ms", "loss", f"{link.loss_percent}%"]


@functools.cache
def has_netem() -> bool:
    """Whether the kernel has netem: tries it in a namespace that is removed again."""
    probe = f"{PREFIX}{os.getpid()}-probe"
    ip("netns", "add", probe)
    try:
        tool("tc", "-n", probe, "qdisc", "add", "dev", "lo", "root", *netem(Link(delay_ms=1)))
    except Missing:
        return False
    finally:
        ip("netns", "del", probe)
    return True


def wait_for(condition, seconds: float, interval: float = 0.02) -> bool:
    """Waits until a condition holds; whether it did in time."""
    end = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < end:
        time.sleep(interval)
    return bool(holds)
