"""Trains the small vocabularies of tests/golden/tokenizer: bpe.gguf, spm.gguf, gemma4.gguf and bert.gguf, some 20 kB each.

    pip install tokenizers==0.23.3 gguf==0.19.0 unicodedata2==15.1.0
    python tests/oracles/tokenizer_text.py TEXT_DIR 400000
    python tests/oracles/tokenizer_vocabs.py TEXT_DIR tests/golden/tokenizer [bpe] [spm] [gemma4] [bert]

Text from another version of the standard library gives other vocabularies, so make only those that you name.
"""

import json
import pathlib
import sys

import gguf
import tokenizer_goldens as goldens
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

text, out = map(pathlib.Path, sys.argv[1:3])
NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6
lines = [line for name in ("code.txt", "scripts.txt") for line in (text / name).read_bytes().decode().splitlines(True)]
# A border that a pre-tokenizer draws shows in the ids only where merges would cross it: so the texts of the goldens are
# what the merges are learned from, without any borders.
borderless = goldens.CASES * 100


def write(name, model, pre, tokens, kinds, scores, merges, more):
    writer = gguf.GGUFWriter(out / name, "llama")
    writer.add_name("small vocabulary for tests")
    writer.add_tokenizer_model(model)
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list([token.encode() for token in tokens])
    writer.add_token_types(kinds)
    if scores:
        writer.add_token_scores(scores)
    if merges:
        writer.add_token_merges(merges)
    more(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def train(tokenizer, special, n, alphabet, lines):
    trainer = trainers.BpeTrainer(vocab_size=n, special_tokens=special, initial_alphabet=alphabet, show_progress=False, max_token_length=24)
    tokenizer.train_from_iterator(lines, trainer)
    data = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(data["vocab"], key=data["vocab"].get)
    return tokens, [m if isinstance(m, str) else " ".join(m) for m in data["merges"]]


def bpe():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    special = ["<|begin|>", "<|endoftext|>", "<|im_end|>", "<user>"]
    tokens, merges = train(tokenizer, special, 1300, pre_tokenizers.ByteLevel.alphabet(), borderless + lines[:200])
    kinds = [CONTROL, CONTROL, CONTROL, USER] + [NORMAL] * (len(tokens) - 4)

    def more(writer):
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(1)

    write("bpe.gguf", "gpt2", "default", tokens, kinds, None, merges, more)


def characters(special):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split("\n", "isolated"), pre_tokenizers.Metaspace(prepend_scheme="never", split=special[0] == "<unk>")])
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    alphabet = [chr(c) for c in range(0x21, 0x7F)] + list("éÉßДд中文한हि▁")
    kept = [line for line in lines if len(set(line)) < 60][:6000]
    kept = ["".join(c if c.isascii() or c in alphabet else "é" for c in line) for line in kept]
    tokens, merges = train(tokenizer, special + bytes_, 1000, alphabet, kept)
    return tokens, merges, [BYTE if t in bytes_ else NORMAL for t in tokens]


def spm():
    tokens, merges, kinds = characters(["<unk>", "<s>", "</s>", "<user>"])
    kinds[:4] = [UNKNOWN, CONTROL, CONTROL, USER]
    rank = {merge.replace(" ", ""): i for i, merge in reversed(list(enumerate(merges)))}
    scores = [-float(rank[t]) if t in rank else (-1e4 if kind == NORMAL else 0.0) for t, kind in zip(tokens, kinds)]

    def more(writer):
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)

    write("spm.gguf", "llama", None, tokens, kinds, scores, None, more)


def gemma4():
    tokens, merges, kinds = characters(["<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>", "<user>", "\n", "\n\n", "▁▁▁▁"])
    kinds[:10] = [CONTROL] * 6 + [USER] + [NORMAL] * 3

    def more(writer):
        writer.add_bos_token_id(2)
        writer.add_eos_token_id(1)
        writer.add_unk_token_id(3)

    write("gemma4.gguf", "gemma4", None, tokens, kinds, None, merges, more)


def bert():
    """Half of the words for a text in lower case and without accents, half for one as it is: either setting is tested."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = dict.fromkeys(special)
    for uncased in (True, False):
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(strip_accents=uncased, lowercase=uncased)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=1100, min_frequency=3, special_tokens=special, show_progress=False)
        tokenizer.train_from_iterator(borderless + lines[:2000], trainer)
        vocabulary = tokenizer.get_vocab()
        tokens |= dict.fromkeys(sorted(vocabulary, key=vocabulary.get))
    kinds = [CONTROL if token in special else NORMAL for token in tokens]
    phantom = [t if t in special else t[2:] if t.startswith("##") and len(t) > 2 else "▁" + t for t in tokens]

    def more(writer):
        writer.add_uint32("tokenizer.ggml.cls_token_id", 2)
        writer.add_sep_token_id(3)
        writer.add_unk_token_id(1)
        writer.add_pad_token_id(0)

    write("bert.gguf", "bert", None, phantom, kinds, None, None, more)


for make in (bpe, spm, gemma4, bert):
    if make.__name__ in sys.argv[3:]:
        make()
