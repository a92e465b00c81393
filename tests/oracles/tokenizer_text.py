"""Writes hostile and multilingual text for comparing tokenizers, the same for the same seed.

    python tests/oracles/tokenizer_text.py OUT_DIR [BYTES_PER_FILE] [SEED]

scripts.txt  words, numbers and punctuation in the scripts of Unicode 15.1, block by block, with combining marks
fuzz.txt     code points drawn from pools that pre-tokenizers tell apart: letters of each case, marks, numbers, white
             space, contractions, controls, unassigned code points, emoji sequences, spelled special tokens
runs.txt     runs of one character or pair, of all lengths up to a few hundred
code.txt     source code of the Python standard library, tabs and indentation included
"""

import pathlib
import random
import sys
import sysconfig

import unicodedata2 as ucd

out = pathlib.Path(sys.argv[1])
size = int(sys.argv[2]) if len(sys.argv) > 2 else 1_100_000
rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
out.mkdir(parents=True, exist_ok=True)


def write(name, pieces):
    parts, n = [], 0
    for piece in pieces:
        parts.append(piece)
        n += len(piece.encode())
        if n >= size:
            break
    (out / name).write_bytes("".join(parts).encode())


# Special tokens and byte tokens as plain text; NUL is left out because it would end an argument of some oracles.
chars = [chr(c) for c in range(1, 0x32000) if ucd.category(chr(c)) not in ("Cn", "Cs", "Co")]
by_category = {}
for c in chars:
    by_category.setdefault(ucd.category(c), []).append(c)
blocks = [[c for c in chars if ord(c) >> 7 == b] for b in {ord(c) >> 7 for c in chars}]
letters = [[c for c in block if ucd.category(c)[0] in "LM"] for block in blocks]
letters = sorted((block for block in letters if len(block) > 8), key=lambda block: block[0])
white = [c for c in map(chr, range(0x3001)) if c.isspace() and c not in "\x1c\x1d\x1e\x1f"]
SPELLED = ["<s>", "</s>", "<|endoftext|>", "<|im_start|>", "<|eot_id|>", "<0x0A>", "<unk>", "[INST]", "▁", "▁▁", "<|end|>",
           "<bos>", "<pad>", "<fim_prefix>", "<|assistant|>\n", "[PAD]", "<br>", "<table>", "Ġ", "Ċ", "IMGIMGABZ"]
CONTRACTIONS = ["'s", "'S", "'t", "'re", "'RE", "'vE", "'m", "'ll", "'lL", "'d", "'D", "'x", "''s", "ſ", "'ſ", "’s"]


def word(block):
    return "".join(rng.choices(block, k=rng.randint(1, 9)))


def scripts():
    while True:
        block = rng.choice(letters)
        for _ in range(rng.randint(3, 30)):
            yield word(block)
            if rng.random() < 0.1:
                yield "".join(rng.choices(by_category["Nd"] + list("0123456789") * 30, k=rng.randint(1, 8)))
            yield rng.choice([" "] * 12 + [", ", ". ", "-", "\n", "\n\n", "  ", "! ", "。", "、", "'s ", "\u3000", "\t", "… "])


def fuzz():
    pools = list(by_category.values()) + [white] * 6 + [CONTRACTIONS] * 4 + [SPELLED] * 2 + [list("aAzZeEéÉдД09")] * 6
    pools += [[chr(c) for c in range(1, 128)]] * 8 + [["\n", "\r", "\r\n", " ", "  ", "\t"]] * 6
    pools += [[chr(c) for c in (0x378, 0x2FE0, 0x1FFFF, 0x32400, 0xE000, 0xE0100, 0xE01EF, 0xF0000, 0x10FFFF, 0xFFFD)]]
    pools += [["👩‍👩‍👧", "🏳️‍🌈", "👍🏽", "é", "ñ", "ﷺ", "ǅ", "İ", "ß", "Å"]]
    while True:
        pool = rng.choice(pools)
        yield "".join(rng.choices(pool, k=rng.choice([1, 1, 1, 2, 3, 7])))


def runs():
    units = list("aAé中0٣ \n\t\r.'-_=Д\u0301\u3000\xa0!/") + [" a", "a ", "\r\n", " \n", "ab", "aA", "1a", "'s", ". ", "中 ", "👍"]
    while True:
        yield rng.choice(units) * rng.choice([1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 31, 32, 64, 100, 300])


def code():
    paths = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    rng.shuffle(paths)
    for path in paths:
        yield path.read_text(errors="replace")


for generate in (scripts, fuzz, runs, code):
    write(f"{generate.__name__}.txt", generate())
