"""Carries frames between two TAP devices in different namespaces, late and not all of them.

    tap.py NAMESPACE DEVICE NAMESPACE DEVICE DELAY_MS JITTER_MS LOSS_PERCENT

Frames may overtake each other within the jitter, as with netem. Prints `ready` when it carries frames; ends with its
standard input or by a signal. Losses are drawn from a fixed seed.
"""

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
CLONE_NEWNET = 0x40000000
MAX_FRAME = 65536
MAX_WAITING = 4096

libc = ctypes.CDLL(None, use_errno=True)


def opened(namespace: str, device: str) -> int:
    """The descriptor of a TAP device; this process is in its namespace afterwards."""
    with open(f"/run/netns/{namespace}") as place:
        if libc.setns(place.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns", namespace)
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH", device.encode(), IFF_TAP | IFF_NO_PI))
    return tap


def carry(ends: list[int], delay: float, jitter: float, loss: float) -> None:
    rng, waiting, n = random.Random(1), [], 0
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for end in select.select(ends, [], [], pause)[0]:
            try:
                frame = os.read(end, MAX_FRAME)
            except OSError:
                continue  # the device is down
            if rng.random() >= loss and len(waiting) < MAX_WAITING:
                n += 1
                due = time.monotonic() + max(0.0, rng.uniform(delay - jitter, delay + jitter))
                heapq.heappush(waiting, (due, n, other[end], frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, end, frame = heapq.heappop(waiting)
            try:
                os.write(end, frame)
            except OSError:
                pass  # a device that is down loses it


def main() -> None:
    first, second = sys.argv[1:3], sys.argv[3:5]
    delay, jitter, loss = map(float, sys.argv[5:8])
    ends = [opened(*first), opened(*second)]
    print("ready", flush=True)
    carry(ends, delay / 1000, jitter / 1000, loss / 100)


if __name__ == "__main__":
    main()
