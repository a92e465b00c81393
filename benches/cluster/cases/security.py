"""No key in anything that is printed or sent, no text on the wire, and strangers who get nothing and break nothing."""

import base64
import pathlib
import signal
import subprocess
import sys

import lan
from bench import LEAD, PROMPT, Bench, World
from cases.faults import N, whole_text
from programs import Failure
from report import Row

HERE = pathlib.Path(__file__).resolve().parents[1]
NODES = ["pi1", "pi2"]
# What a node may hold for connections that are none.
GROWTH = 16 << 20


def security(bench: Bench) -> None:
    """A capture, strangers, and what was printed."""
    with bench.world() as world:
        capture(bench, world)
    with bench.world() as world:
        strangers(bench, world)
    printed(bench)


class Secret:
    """A key in the forms in which it could appear."""

    def __init__(self, token: str):
        letters = "".join(token.split("-")[1:])
        key = base64.b32decode(letters[:48])  # 30 of its 32 bytes
        self.pieces = [letters[i : i + 12] for i in range(0, 48, 12)]
        self.hex = [key[i : i + 8].hex() for i in range(0, 24, 8)]
        self.raw = [key[i : i + 8] for i in range(0, 24, 8)]

    def in_text(self, text: str) -> bool:
        letters = text.replace("-", "").upper()
        return any(piece in letters for piece in self.pieces) or any(word in text.lower() for word in self.hex)

    def in_bytes(self, data: bytes) -> bool:
        return self.in_text(data.decode("latin-1")) or any(piece in data for piece in self.raw)


def capture(bench: Bench, world: World) -> None:
    """All frames of a ring, from the first question to its end: the names, the prompt and the text are not in them."""
    world.machine(LEAD)
    for name in NODES:
        world.machine(name)
    path = bench.setting.scratch / "frames"
    listener = subprocess.Popen([sys.executable, str(HERE / "capture.py"), world.lan.switch, "br0", str(path)], stdout=subprocess.PIPE, text=True)
    ports = [
        subprocess.Popen([sys.executable, str(HERE / "capture.py"), world.lan.switch, port, f"{path}-{name}"], stdout=subprocess.PIPE, text=True)
        for name, port in world.lan.ports.items()
    ]
    try:
        for process in [listener, *ports]:
            if process.stdout.readline() != "ready\n":
                raise Failure("capture.py has ended")
        for name in NODES:
            world.node(name, models=bench.models)
        run = world.run(bench.text(60), ["--ring=pi1,pi2"])
        log = world.check(world.machines[LEAD], ["cluster", "log", *world.peers()])
    finally:
        for process in [listener, *ports]:
            process.terminate()
            process.wait()
    frames = b"".join(file.read_bytes() for file in bench.setting.scratch.glob("frames*"))
    secret = Secret(bench.setting.token)
    words = {
        "prompt": PROMPT[4:24].encode(),
        "text": run.text[-24:],
        "model": pathlib.Path(bench.options.model).name.encode(),
        "question": b'"version":1',
        "work frame": b"ATR1",
    }
    found = [what for what, word in words.items() if word and word in frames] + (["key"] if secret.in_bytes(frames) else [])
    found += ["key in `cluster log`"] if secret.in_text(log.text.decode()) else []
    number = f"{len(frames) / 1e6:.1f} MB of frames: " + (f"FOUND {', '.join(found)}" if found else "none of them")
    bench.report.add(
        Row(
            "security",
            "key, prompt, text, names, questions, frames on the wire",
            number,
            "none",
            "llama.cpp RPC: all in clear",
            not found and len(frames) > 10000,
        )
    )


def strangers(bench: Bench, world: World) -> None:
    """A machine that knocks while a text is written, and one with another key."""
    world.machine(LEAD)
    nodes = {}
    for name in NODES:
        world.machine(name)
        nodes[name] = world.node(name, models=bench.models)
    outside = world.machine("stranger")
    whole = whole_text(bench, world)
    world.run(bench.text(8), ["--ring=pi1,pi2"])
    before = {name: node.status().get("RssAnon", 0) for name, node in nodes.items()}
    rude = [
        subprocess.Popen(
            lan.inside(outside.namespace, [sys.executable, str(HERE / "hostile.py"), world.machines[name].address, "9990", str(i)]),
            stdout=subprocess.PIPE,
            text=True,
        )
        for i, name in enumerate(NODES)
    ]
    wrong = []
    try:
        for process in rude:
            process.stdout.readline()
        for _ in range(3):
            run = world.attempt(bench.text(N), ["--ring=pi1,pi2"], 180)
            if run.code != 0 or run.text != whole:
                wrong.append(f"exit {run.code} while strangers knock: {run.error()}")
    finally:
        answers = []
        for process in rude:
            process.kill()
            answers += process.communicate()[0].splitlines()
    wrong += answers[:3]
    grown = {name: node.status().get("RssAnon", 0) - before[name] for name, node in nodes.items()}
    wrong += [f"{name} has grown by {n / 1e6:.0f} MB" for name, n in grown.items() if n > GROWTH]
    wrong += [f"{name} has ended" for name, node in nodes.items() if node.is_over]
    wrong += other_key(bench, world)
    for name, node in nodes.items():
        node.signal(signal.SIGTERM)
        if node.end(20) != 0:
            wrong.append(f"{name}: exit {node.process.returncode} after SIGTERM")
    bench.report.add(
        Row(
            "security",
            "noise, 2 GiB lengths, silent connections, another key",
            "; ".join(wrong) or "refused; the text is equal",
            "refused, text equal",
            "",
            not wrong,
            numbers={"grown": grown},
        )
    )


def other_key(bench: Bench, world: World) -> list[str]:
    """A machine with a key of its own uses no node, and tells no key."""
    machine = world.machines["stranger"]
    (machine.home / "config/atta/cluster/key").unlink()
    node = world.start(machine, ["node", "--name", "stranger", "--listen", "eth0", "-j", "1"])
    token = next(word for word in node.line_with("atta1-").split() if word.startswith("atta1-"))
    node.stop()
    program = world.start(machine, [*bench.text(4), "--ring=force", *world.peers()])
    code = program.end(60)
    (machine.home / "config/atta/cluster/key").unlink()
    if code != 1:
        return [f"with another key: exit {code}: {program.said[-200:]}"]
    shown = [key for key in (token, bench.setting.token) if Secret(key).in_text(program.said)]
    return ["a key is in the error"] if shown else []


def printed(bench: Bench) -> None:
    """Everything that programs have printed in this run of the script, but for the token where a first node shows it."""
    secret = Secret(bench.setting.token)
    found = []
    for machine, command, text in bench.setting.printed:
        lines = [line for line in text.splitlines() if "atta node --join atta1-" not in line]
        if secret.in_text("\n".join(lines)):
            found.append(f"{machine}: {command[:60]}")
    number = f"{len(bench.setting.printed)} outputs: " + (f"FOUND in {found}" if found else "none")
    bench.report.add(Row("security", "key in what programs print", number, "none", "", not found))
