#!/usr/bin/env python3
"""Instructions and cycles per weight of the loops in assembly for RISC-V, as llvm-mca predicts them.

Reads the blocks of assembly in the sources, and takes of each the loop from `2:` to its branch. Operands become
registers, and `vtype` that of vectors of the core's length. A block says nothing of its weights: they are in LOOPS.

    benches/riscv/loops.py --mca llvm-mca-19

The models of llvm-mca know no cache: a load is one from the first level.
"""

import argparse
import pathlib
import re
import subprocess
import sys

SOURCES = pathlib.Path(__file__).parents[2] / "crates/kernels/src"
# Function, file, products of a weight and an activation in a pass.
LOOPS = [
    ("q4_0", "fused/riscv_v/sums.rs", 128),
    ("q8_0", "fused/riscv_v/sums.rs", 128),
    ("q4_k", "fused/riscv_v/sums.rs", 256),
    ("q6_k", "fused/riscv_v/sums.rs", 256),
    ("add_f16", "fused/riscv_v/floats.rs", 16),
    ("panel_sums", "fused/riscv_v/panel.rs", 512),
]
# Core of llvm-mca, whether its vectors are long.
CORES = {"sifive-p670": False, "sifive-x280": True}
# Logarithms of bytes and of registers, as in `isa/rvv.rs`.
TYPES = {
    "BYTES_16": (0, 0), "BYTES_32": (0, 1), "BYTES_64": (0, 2), "HALVES_16": (1, 1), "HALVES_32": (1, 2),
    "WORDS_16": (2, 2), "WORDS_32": (2, 3),
}
REGISTERS = [f"x{i}" for i in range(5, 32)]


def block(file, function):
    """The lines and the operands of the first block of assembly in a function."""
    text = (SOURCES / file).read_text()
    text = text[text.index(f"fn {function}"):]
    text = text[text.index("vector!(") + 8:]
    lines, operands = text[:text.index("\n            );")].split(";\n", 1)
    lines = [line.replace("\\\\", "\\") for line in re.findall(r'^ *"(.*?)",?$', lines, re.M)]
    return lines, re.findall(r"(\w+) = (const Self::(\w+)|\w+\((\w+)\))", operands)


def expanded(lines):
    """Without `.rept` and `.irp`."""
    out = []
    while lines:
        line, lines = lines[0], lines[1:]
        if not line.startswith((".rept", ".irp")):
            out.append(line)
            continue
        end = lines.index(".endr")
        body, lines = lines[:end], lines[end + 1:]
        if line.startswith(".rept"):
            out += body * int(line.split()[1])
        else:
            name, *values = [word.strip() for word in line[4:].split(",")]
            out += [each.replace("\\" + name, value) for value in values for each in body]
    return out


def loop(function, file, is_long):
    lines, operands = block(file, function)
    lines = expanded(lines)
    start = lines.index("2:")
    end = next(i for i, line in enumerate(lines) if line.endswith("2b"))
    free, floats, names = iter(REGISTERS), iter(range(10, 20)), {}
    for name, _, vtype, register in operands:
        if vtype:
            bytes_log, registers_log = TYPES[vtype]
            names[name] = str(64 | bytes_log << 3 | (registers_log - is_long) & 7)
        else:
            names[name] = f"fa{next(floats) - 10}" if register == "freg" else next(free)
    filled = [re.sub(r"\{(\w+)\}", lambda m: names[m[1]], line) for line in lines[start + 1:end]]
    branch = re.sub(r"\{(\w+)\}", lambda m: names[m[1]], lines[end])
    return filled, branch


def cycles(mca, core, filled):
    """Of one pass, many of which follow each other; the branch is not among them."""
    done = subprocess.run([mca, "-mtriple=riscv64", f"-mcpu={core}", "-mattr=+v", "-iterations=100"],
                          input="\n".join(filled), capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return int(re.search(r"Total Cycles: +(\d+)", done.stdout)[1]) / 100


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mca", default="llvm-mca")
    args = parser.parse_args()
    print("| loop | products | instructions per product |", " | ".join(CORES), "|")
    print("|---" * (3 + len(CORES)) + "|")
    for function, file, n in LOOPS:
        per = [f"{cycles(args.mca, core, loop(function, file, long)[0]) / n:.3f}" for core, long in CORES.items()]
        count = len(loop(function, file, False)[0]) + 1
        print(f"| {function} | {n} | {count / n:.3f} |", " | ".join(per), "|")


if __name__ == "__main__":
    main()
