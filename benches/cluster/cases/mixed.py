"""Rings of different processors: fewer instruction sets than this one has, and a node in qemu-aarch64."""

import os
import shutil

from bench import LEAD, Bench
from programs import Failure
from report import Row

# Instruction sets of x86 in atta.
ISAS = ["scalar", "sse41", "avx2", "avxvnni", "avx512", "avx512seq", "amx"]
IDS = "1,15,33,7,9,2,41"
QEMU = ["qemu-aarch64-static", "-cpu", "max", "-L", "/usr/aarch64-linux-gnu"]


def mixed(bench: Bench) -> None:
    """Texts and logits of rings whose machines compute by different instruction sets."""
    isas(bench)
    if bench.options.aarch64:
        arm(bench, bench.options.aarch64)


def isas(bench: Bench) -> None:
    """A coordinator that uses less than this processor has, and a node that uses all of it."""
    logits = ["logits", bench.options.model, "--tokens", IDS, "-o", "-", "-j", "1"]
    with bench.world() as world:
        world.machine(LEAD)
        world.machine("pi1")
        world.node("pi1", models=bench.models)
        of_node = world.listed()["pi1"]["isa"]
        text, numbers = world.run(bench.text(48)).text, world.run(logits).text
        tried, wrong = [], []
        for isa in ISAS:
            # One that this processor lacks is refused.
            if isa == of_node or world.attempt([*logits, "--isa", isa]).code != 0:
                continue
            tried.append(isa)
            ring = ["--ring=pi1", "--ring-for", "prompt"]
            if world.run(bench.text(48, "--isa", isa), ring).text != text:
                wrong.append(f"text with {isa}")
            if world.run([*logits, "--isa", isa], ring).text != numbers:
                wrong.append(f"logits with {isa}")
    number = f"{', '.join(tried) or 'none'} beside {of_node}: " + (f"differ: {'; '.join(wrong)}" if wrong else "equal")
    what = "coordinator and node with different instruction sets"
    bench.report.add(Row("mixed", what, number, "equal", "nobody promises it", bool(tried) and not wrong))


def arm(bench: Bench, binary: str) -> None:
    """The text and the logits of this machine, though some layers were computed by NEON."""
    if not os.path.isfile(binary):
        raise Failure(f"{binary}: no such file; README.md says how it is built")
    if not shutil.which(QEMU[0]):
        raise Failure(f"{QEMU[0]} is not there: apt-get install qemu-user-static")
    logits = ["logits", bench.options.model, "--tokens", IDS, "-o", "-", "-j", "1"]
    with bench.world() as world:
        world.machine(LEAD)
        world.machine("pi1")
        world.machine("arm")
        world.node("pi1", models=bench.models)
        world.node("arm", models=bench.models, atta=[*QEMU, binary])
        isa = {name: node["isa"] for name, node in world.listed().items()}
        text, numbers = world.run(bench.text(24)).text, world.run(logits).text
        wrong = []
        for names in ("arm", "pi1,arm", "arm,pi1"):
            ring = [f"--ring={names}", "--ring-for", "prompt"]
            run = world.run(bench.text(24), ring, 900)
            if run.text != text:
                wrong.append(f"text with {run.layers}")
            if world.run(logits, ring, 900).text != numbers:
                wrong.append(f"logits with {run.layers}")
    machines = ", ".join(f"{name} {what}" for name, what in isa.items())
    number = f"{machines}: " + (f"differ: {'; '.join(wrong)}" if wrong else "equal")
    numbers = {"isa": isa, "wrong": wrong}
    bench.report.add(Row("mixed", "x86 and aarch64 (qemu) in one ring", number, "equal", "nobody promises it", not wrong, numbers=numbers))
