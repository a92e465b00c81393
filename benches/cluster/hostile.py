"""A machine of the network without the key: knocks at a node in every rude way, over and over, until it is killed.

    hostile.py HOST PORT SEED

It sends noise, truncated and oversized TLS records, the beginnings of our own protocols with lengths of 2 GiB, and holds
connections open without a word. It prints what came back, if any of it was not TLS.
"""

import random
import socket
import struct
import sys
import time

MOST_HELD = 200


def knocks(rng: random.Random) -> list[bytes]:
    """What is sent, each on a connection of its own."""
    noise = rng.randbytes(rng.randint(1, 4000))
    huge = struct.pack("<I", 2**31 - 1)
    return [
        noise,
        b"\x16\x03\x01\x40\x00" + rng.randbytes(100),  # a TLS record that announces more than comes
        b"\x16\x03\x01\xff\xff" + rng.randbytes(1000),  # a longer one than TLS has
        b"\x16\x03\x01\x00\x2f\x01\xff\xff\xff" + rng.randbytes(40),  # a hello of 16 MiB
        b"ATQ1" + huge + b"{}",
        b"ATP1" + huge,
        b"ATL1" + rng.randbytes(64),
        b"ATR1" + rng.randbytes(60),
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"",
    ]


def knock(address: tuple[str, int], data: bytes) -> tuple[socket.socket | None, bytes]:
    """Sends it, and what comes back within a moment."""
    try:
        connection = socket.create_connection(address, 2)
    except OSError:
        return None, b""
    connection.settimeout(0.05)
    try:
        connection.sendall(data)
        return connection, connection.recv(4096)
    except OSError:
        return connection, b""


def main() -> None:
    address, rng = (sys.argv[1], int(sys.argv[2])), random.Random(int(sys.argv[3]))
    held, n = [], 0
    print("ready", flush=True)
    while True:
        for data in knocks(rng):
            connection, answer = knock(address, data)
            n += 1
            # An alert (21) or a handshake message (22) of TLS is all that may come.
            if answer and answer[0] not in (21, 22):
                print(f"not TLS: {answer[:100]!r}", flush=True)
            if connection and rng.random() < 0.5 and len(held) < MOST_HELD:
                held.append(connection)
            elif connection:
                connection.close()
        if len(held) >= MOST_HELD and rng.random() < 0.05:
            for connection in held:
                connection.close()
            held = []
        time.sleep(0.001)


if __name__ == "__main__":
    main()
