#!/usr/bin/env python3
"""Cycles per multiplication in the inner loops of kernels for ARM, as llvm-mca predicts them.

Reads assembler text and knows no kernel: of each function it takes the innermost of the loops that
multiply bytes, counts their multiplications of codes by instruction, and asks llvm-mca how many cycles a core
takes for one pass. A weight times one activation is one multiplication, whoever wrote the loop.

    cargo rustc -p atta-kernels --lib --release --target aarch64-unknown-linux-gnu -- --emit asm -C codegen-units=1
    benches/arm/loops.py --atta target/aarch64-unknown-linux-gnu/release/deps/atta_kernels-*.s
    aarch64-linux-gnu-gcc -O3 -mcpu=cortex-a53 … -S ggml/src/ggml-cpu/arch/arm/quants.c -o quants.s
    aarch64-linux-gnu-g++ -O3 -mcpu=cortex-a76 … -S ggml/src/ggml-cpu/arch/arm/repack.cpp -o repack.s
    benches/arm/loops.py --ggml quants.s --ggml repack.s

The models of llvm-mca know no cache: a load is one from the first level.
"""

import argparse
import re
import subprocess
import sys

FORMATS = """F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 IQ4_NL MXFP4 NVFP4 Q1_0 Q2_0 QSF2S QSF2 QSF3 QSF4 QSFT Q2_K Q3_K
Q4_K Q5_K Q6_K IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S IQ4_XS TQ1_0 TQ2_0 T2 T3 T4""".split()
BRANCH = re.compile(r"\t(?:b\.?[a-z]*|cbn?z|tbn?z)\t(?:[^\n]*, *)?(\.L\w+)$")


def lines_of(text):
    """Lines of inline assembly as the compiler writes its own: each label apart and once, encoded instructions by name."""
    inline, seen = False, {}
    for line in text.splitlines():
        if line.strip() in ("#APP", "#NO_APP"):
            inline = line.strip() == "#APP"
        elif not inline:
            yield line
        else:
            line = re.sub(r"^\s*\.inst\s+\w+\s*//", "", line).split("//")[0].strip()
            if match := re.match(r"(\d+):\s*(.*)", line):
                seen[match[1]] = seen.get(match[1], 0) + 1
                yield f".L_{match[1]}_{seen[match[1]]}:"
                line = match[2]
            ahead = {"b": 0, "f": 1}
            line = re.sub(r"\b(\d+)([bf])$", lambda m: f".L_{m[1]}_{seen.get(m[1], 0) + ahead[m[2]]}", line)
            if line:
                yield "\t" + "\t".join(line.split(None, 1))


def functions(text):
    """The lines of each function, by its symbol."""
    found, name = {}, None
    for line in lines_of(text):
        if match := re.match(r"([\w.$]+):", line):
            if not match[1].startswith(".L"):
                name = match[1]
                found[name] = []
                continue
        if name is not None:
            found[name].append(line.split("//")[0].rstrip())
            if line.startswith("\t.size"):
                name = None
    return found


def loops(lines):
    """The loops that multiply and have no other such loop inside, each as its instructions."""
    labels = {line[:-1]: i for i, line in enumerate(lines) if line.startswith(".L") and line.endswith(":")}
    ends = [(labels[m[1]], i) for i, line in enumerate(lines) if (m := BRANCH.match(line)) and labels.get(m[1], i) < i]
    ends = [(a, b) for a, b in ends if multiplications(lines[a:b + 1])]
    inner = [(a, b) for a, b in ends if not any(a <= c and d <= b and (a, b) != (c, d) for c, d in ends)]
    return [[line for line in lines[a:b + 1] if line.startswith("\t") and not line.startswith("\t.")] for a, b in inner]


def multiplications(loop):
    """Those of bytes."""
    n = 0
    for line in loop:
        if re.match(r"\t(su|us|s|u)dot\t", line):
            n += 16
        elif re.match(r"\ts(mull|mlal)2?\tv\d+\.8h", line):
            n += 8
        elif re.match(r"\tsmmla\t", line):
            n += 32
    return n


def cycles(loop, core):
    """Of one pass, many of which follow each other."""
    # Assembler directives inside of functions name the extensions; here all are known.
    done = subprocess.run(
        ["llvm-mca", "-mtriple=aarch64", f"-mcpu={core}", "-mattr=+dotprod,+i8mm", "-iterations=100"],
        input="\n".join(loop), capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return int(re.search(r"Total Cycles: +(\d+)", done.stdout)[1]) / 100


def of_atta(text):
    """The functions of row tiles, named by table and format."""
    found, named = functions(text), {}
    for table in ("NEON", "DOTPROD", "I8MM"):
        for symbol, lines in found.items():
            if re.match(rf"_ZN12atta_kernels5table3arm\d+{table}17h", symbol):
                pointers = [m[1] for line in lines if (m := re.match(r"\t\.xword\t([\w.$]+)$", line))]
                start = next(i for i, p in enumerate(pointers) if "row_tile" in p)
                named |= {f"{table} {f}": found[p] for f, p in zip(FORMATS, pointers[start:]) if p in found}
    return named


def of_ggml(text):
    found = functions(text)
    return {name: lines for name, lines in found.items() if re.match(r"(?:_Z\d+)?ggml_(vec_dot|gemv|gemm)_", name)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--atta", action="append", default=[], metavar="FILE.s")
    parser.add_argument("--ggml", action="append", default=[], metavar="FILE.s")
    parser.add_argument("--cores", default="cortex-a53,cortex-a72,cortex-a76")
    parser.add_argument("--only", default="", help="a regular expression for names")
    args = parser.parse_args()
    cores = args.cores.split(",")
    print("| loop | multiplications | instructions per multiplication |", " | ".join(cores), "|")
    print("|---" * (3 + len(cores)) + "|")
    for files, of in ((args.atta, of_atta), (args.ggml, of_ggml)):
        for path in files:
            with open(path) as file:
                named = of(file.read())
            for name, lines in named.items():
                for loop in loops(lines) if re.search(args.only, name) else []:
                    if n := multiplications(loop):
                        per = [f"{cycles(loop, core) / n:.3f}" for core in cores]
                        print(f"| {name} | {n} | {len(loop) / n:.3f} |", " | ".join(per), "|")


if __name__ == "__main__":
    main()
