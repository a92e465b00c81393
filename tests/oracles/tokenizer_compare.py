"""Compares `atta tokenize` with its oracles on whole files, for a vocabulary under any pre-tokenizer's name.

    python tests/oracles/tokenizer_text.py TEXT_DIR
    python tests/oracles/tokenizer_compare.py PATH/TO/atta PATH/TO/llama-tokenize VOCABULARY.gguf TEXT_DIR [PRE...]

Without PRE, the vocabulary as it is. `tekken`, `gpt-4o` and `youtu` are compared with Hugging Face `tokenizers` and the published
expressions, because llama.cpp does not tell cases beyond ASCII. So are vocabularies of WordPiece, with the setting they have for
PRE: `uncased`, `cased` or `lowercase`; there, differences are to be expected at characters that Unicode got after 2016.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import tokenizer_goldens as goldens

atta, goldens.LLAMA, vocabulary, texts = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), pathlib.Path(sys.argv[4])


def ours(model, text):
    answer = subprocess.run([atta, "tokenize", model, "-", "--ids"], input=text.encode(), capture_output=True, check=True)
    return json.loads(answer.stdout)


def compare(name, model, path, pre):
    text = path.read_bytes().decode()
    if pre in goldens.NORMALIZERS:
        expected = goldens.ask_bert(model, pre, [text])[0]
    elif pre in goldens.PUBLISHED:
        expected = goldens.ask_hugging_face(model, pre, [text])[0]
    else:
        expected = goldens.ask_llama(model, [text], None)[0]
    got = ours(model, text)
    first = next((i for i, (a, b) in enumerate(zip(expected, got)) if a != b), min(len(expected), len(got)))
    same = expected == got
    print(f"{name} {path.name}: {len(expected)} ids, " + ("equal" if same else f"DIFFERENT from {first}: {expected[first:first + 6]} {got[first:first + 6]}"))
    return same


with tempfile.TemporaryDirectory() as scratch:
    results = []
    for pre in sys.argv[5:] or [None]:
        model = vocabulary
        if pre and pre not in goldens.NORMALIZERS:
            model = pathlib.Path(scratch) / "vocabulary.gguf"
            goldens.with_pre(vocabulary, pre, model)
        results += [compare(pre or vocabulary.stem, model, path, pre) for path in sorted(texts.glob("*.txt"))]
sys.exit(not all(results))
