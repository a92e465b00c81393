"""Writes all frames that a network device of a namespace sees to a file, until it is told to end.

    capture.py NAMESPACE DEVICE FILE

Prints `ready`. tcpdump is not needed: the kernel copies every frame to a packet socket.
"""

import ctypes
import signal
import socket
import sys

CLONE_NEWNET = 0x40000000
ETH_P_ALL = 3
MAX_FILE = 1 << 30


def main() -> None:
    namespace, device, path = sys.argv[1:4]
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}") as place:
        if libc.setns(place.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns", namespace)
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
    packets.bind((device, 0))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with open(path, "wb") as out:
        print("ready", flush=True)
        n_bytes = 0
        while n_bytes < MAX_FILE:
            frame = packets.recv(1 << 17)
            n_bytes += out.write(frame)


if __name__ == "__main__":
    main()
