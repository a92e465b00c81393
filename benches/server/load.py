"""Many clients at once: how fast the server writes for them, how evenly, and what it costs.

    python benches/server/load.py ATTA MODEL|- [--clients 1,8] [--seconds 60] [--warm-up 0] [--rounds 1] [--llama-server PATH]
        [-- OPTIONS OF atta serve]

Starts `atta serve` (`-` for MODEL is the built-in one), has N clients ask for streams one after another, each with a
prompt of its own, and prints a line per N: tokens per second of all, the least and the most that a client got, the
median and the 99th percentile of the time between two tokens, answers other than 200, and the private memory of the
server before and after. With --llama-server that program serves the same file in turn, with as many slots as there are
clients and a thread for each processor, and is asked the same. Standard library only.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import socket
import subprocess
import time
import urllib.request
from dataclasses import dataclass, field

WORDS = "the little old red fox house river stone bird tree morning light road friend story apple winter".split()


@dataclass
class Client:
    n_tokens: int = 0
    n_answers: int = 0
    refused: dict = field(default_factory=dict)
    gaps: list = field(default_factory=list)


def private_kib(pid):
    fields = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status") if ":" in line)
    return int(fields["RssAnon"].split()[0])


async def ask(place, body, client, end):
    """One answer, as a stream; every event with text is a token."""
    host, port = place
    reader, writer = await asyncio.open_connection(host, port)
    data = json.dumps(body).encode()
    writer.write(f"POST /v1/completions HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data)
    status = (await reader.readline()).split()[1].decode()
    if status != "200":
        client.refused[status] = client.refused.get(status, 0) + 1
        writer.close()
        await asyncio.sleep(0.5)
        return
    last = None
    while line := await reader.readline():
        if b'"text":"' in line and b'"text":""' not in line:
            now = time.monotonic()
            if last is not None:
                client.gaps.append(now - last)
            last = now
            client.n_tokens += 1
        if time.monotonic() > end:
            break
    client.n_answers += 1
    writer.close()


async def work(place, number, end):
    client, rng = Client(), random.Random(number)
    while time.monotonic() < end:
        prompt = " ".join(rng.choices(WORDS, k=rng.randint(10, 60)))
        body = {"prompt": prompt, "max_tokens": 200, "stream": True, "seed": rng.randrange(1 << 30)}
        await ask(place, body, client, end)
    return client


async def drive(place, numbers, seconds):
    end = time.monotonic() + seconds
    return await asyncio.gather(*(work(place, i, end) for i in numbers))


async def measure(place, n, seconds, pid):
    before = private_kib(pid)
    clients = await drive(place, range(n), seconds)
    tokens = [client.n_tokens for client in clients]
    gaps = sorted(gap for client in clients for gap in client.gaps)
    at = lambda share: 1000 * gaps[min(len(gaps) - 1, int(share * len(gaps)))] if gaps else 0.0
    refused = {status: sum(c.refused.get(status, 0) for c in clients) for c in clients for status in c.refused}
    print(f" {n} | {sum(tokens) / seconds:.1f} | {min(tokens)}–{max(tokens)} | {at(0.5):.1f} | {at(0.99):.1f} | {1000 * gaps[-1] if gaps else 0:.0f} "
          f"| {refused or 'none'} | {before / 1024:.1f} → {private_kib(pid) / 1024:.1f} |", flush=True)


@contextlib.contextmanager
def running(command, **options):
    server = subprocess.Popen(command, text=True, **options)
    try:
        yield server
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@contextlib.contextmanager
def atta(args, more, _n):
    model = [] if args.model == "-" else [args.model]
    command = [args.atta, "serve", *model, "--port", "0", "--no-cache", *(option for option in more if option != "--")]
    with running(command, stdout=subprocess.PIPE) as server:
        host, port = server.stdout.readline().strip().removeprefix("http://").rsplit(":", 1)
        yield (host, int(port)), server.pid


@contextlib.contextmanager
def llama_server(args, _more, n):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [args.llama_server, "-m", args.model, "-np", str(n), "-c", str(2048 * n), "-t", str(len(os.sched_getaffinity(0))), "--port", str(port)]
    with running(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        while server.poll() is None:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
                if answer.status == 200:
                    break
            time.sleep(0.1)
        else:
            raise SystemExit(f"{command[0]} ended with {server.returncode}")
        yield ("127.0.0.1", port), server.pid


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atta")
    parser.add_argument("model")
    parser.add_argument("--clients", default="1,8")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--warm-up", type=float, default=0, help="seconds with the same clients before anything is counted")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--llama-server")
    args, more = parser.parse_known_args()
    if args.llama_server and args.model == "-":
        parser.error("the built-in model is no file that another program could serve")
    print("| server | clients | tokens/s | per client | median gap, ms | p99 | longest | refused | private MiB |\n|---|---|---|---|---|---|---|---|---|")
    for n in (int(n) for _ in range(args.rounds) for n in args.clients.split(",")):
        for serve in [atta, *([llama_server] if args.llama_server else [])]:
            with serve(args, more, n) as (place, pid):
                if args.warm_up:
                    asyncio.run(drive(place, range(1000, 1000 + n), args.warm_up))  # other prompts
                print(f"| {serve.__name__} |", end="")
                asyncio.run(measure(place, n, args.seconds, pid))


if __name__ == "__main__":
    main()
