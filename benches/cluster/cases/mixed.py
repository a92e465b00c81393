"""A ring of two kinds of processors: a node in qemu-aarch64 beside one of this machine."""

import os
import shutil

from bench import LEAD, Bench
from programs import Failure
from report import Row

QEMU = ["qemu-aarch64-static", "-cpu", "max", "-L", "/usr/aarch64-linux-gnu"]


def mixed(bench: Bench) -> None:
    """The text and the logits of this machine, though half of the layers were computed by NEON."""
    binary = bench.options.aarch64
    if not binary or not os.path.isfile(binary):
        raise Failure("give the program for aarch64 by --aarch64; README.md says how it is built")
    if not shutil.which(QEMU[0]):
        raise Failure(f"{QEMU[0]} is not there: apt-get install qemu-user-static")
    logits = ["logits", bench.options.model, "--tokens", "1,15,33,7,9,2,41", "-o", "-", "-j", "1"]
    with bench.world() as world:
        world.machine(LEAD)
        world.machine("pi1")
        world.machine("arm")
        world.node("pi1", models=bench.models)
        world.node("arm", models=bench.models, atta=[*QEMU, binary])
        isa = {name: node["isa"] for name, node in world.listed().items()}
        wrong = []
        for ring in ("arm", "pi1,arm", "arm,pi1"):
            options = [f"--ring={ring}", "--ring-for", "prompt"]
            run = world.run(bench.text(24), options, 900)
            if run.text != world.run(bench.text(24)).text:
                wrong.append(f"text with {run.layers}")
            if world.run(logits, options, 900).text != world.run(logits).text:
                wrong.append(f"logits with {run.layers}")
    number = f"{', '.join(f'{name} {what}' for name, what in isa.items())}: " + ("equal" if not wrong else f"differ: {'; '.join(wrong)}")
    bench.report.add(Row("mixed", "x86 and aarch64 (qemu) in one ring", number, "equal", "nobody promises it", not wrong, numbers={"isa": isa, "wrong": wrong}))
