"""Writes tests/golden/vocab: small vocabularies as they lie in directories of models, and the ids that Hugging Face `tokenizers`,
`sentencepiece` and `tiktoken` give with them.

    pip install tokenizers==0.23.3 gguf==0.19.0 sentencepiece==0.2.3 tiktoken==0.14.0 transformers==5.23.0
    python tests/oracles/convert_vocab.py tests/golden/tokenizer tests/golden/vocab tinyshakespeare.txt [byte_level] [...]

texts.txt: texts separated by a line `__atta_case__`. byte-level/: one tokenizer.json, and in pre.json the descriptions of
pre-tokenizers that models publish, with names, of which each takes its turn in it. *.ids: as in tests/golden/tokenizer.
"""

import base64
import io
import json
import pathlib
import re
import sys

import gguf
import sentencepiece as spm
import tiktoken
import tokenizer_goldens as goldens
from tokenizers import Tokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode

source, out, SHAKESPEARE = map(pathlib.Path, sys.argv[1:4])

# `(?i:'s)` of Hugging Face matches 'ſ too, which no reader of GGUF does but for the gpt-4o family; U+3000 in a range is left
# out by llama.cpp, whose ids ours are; `</s>` is an end mark for readers of GGUF wherever it is a token. U+2581 in a text is a
# space for SentencePiece and a character for readers of GGUF. Known, and not ours to test here.
TEXTS = [case for case in goldens.CASES if "ſ" not in case and "\u3000" not in case and "</s>" not in case and "▁" not in case] + [
    "<|begin|>Hello<|im_end|>\n<user> x<|endoftext|>", "a<user>b <user> c", "naïve café — “quoted”, 3½ €5", "x\n\n\n\n  y\t\tz",
    "Ünïcödé ΣΑΣ Ελληνικά ქართული հայերեն தமிழ் 日本語123 한국어 🇩🇪", "    def f(x):\n        return x ** 2  # 12345\n", "[INST] hi [/INST]",
]


def isolated(*expressions):
    return [{"type": "Split", "pattern": {"Regex": e}, "behavior": "Isolated", "invert": False} for e in expressions]


def chain(*links):
    return {"type": "Sequence", "pretokenizers": list(links)}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
BYTES_CUT = BYTES | {"use_regex": True}
DIGITS = {"type": "Digits", "individual_digits": True}
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LETTERS, REST = r"[^\r\n\p{L}\p{N}]?\p{L}+", r" ?[^\s\p{L}\p{N}]+[\r\n]*"
CL100K = rf"{CONTRACTION}|{LETTERS}|\p{{N}}{{1,3}}|{REST}|{TAIL}"
QWEN2 = rf"{CONTRACTION}|{LETTERS}|\p{{N}}|{REST}|{TAIL}"
O200K = goldens.cased(CONTRACTION + "?", r"\p{N}{1,3}")
DEEPSEEK3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^""" + "\r\n" + r"""\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+["""
             + "\r\n" + r"]*|\s*[" + "\r\n" + r"]+|\s+(?!\S)|\s+")
JAIS2 = "|".join(rf"\s{{{2 ** i}}}(?!\S)" for i in range(9, 1, -1)) + r"|\s{1,2}(?!\S)|\s{1}"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
CJK = "[一-龥ࠀ-一가-퟿]+"

# As in the tokenizer.json of the models: name in GGUF, description, ignore_merges.
PRE = [
    ("gpt-2", BYTES_CUT, False),
    ("smollm", chain(DIGITS, BYTES_CUT), False),
    ("llama-bpe", chain(*isolated(CL100K), BYTES), True),
    ("dbrx", chain({"type": "Split", "pattern": {"Regex": CL100K}, "behavior": "Removed", "invert": True}, BYTES), False),
    ("qwen2", chain(*isolated(QWEN2), BYTES), False),
    ("qwen35", chain(*isolated(QWEN2.replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"[^\s\p{L}", r"[^\s\p{L}\p{M}")), BYTES), False),
    ("tekken", chain(*isolated(goldens.cased("", r"\p{N}")), BYTES), True),
    ("gpt-4o", chain(*isolated(O200K), BYTES), False),
    ("granite-embed-multi-97m", chain(*isolated(O200K), BYTES), True),
    ("deepseek-v3", chain(*isolated(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3), BYTES), False),
    ("deepseek-coder", chain(*isolated("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK), DIGITS, BYTES), False),
    ("seed-coder", chain(*isolated(rf"{CONTRACTION}|[^{chr(13)}{chr(10)}\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}{chr(13)}{chr(10)}]+|\s*[{chr(13)}{chr(10)}]+|\s+(?!\S)|\s+"), BYTES), False),
    ("bailingmoe", chain(*isolated(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"), BYTES), False),
    ("jais-2", chain(*isolated(rf"{CONTRACTION}|{LETTERS}|\p{{N}}{{1,3}}|{REST}|\s*[\r\n]+|{JAIS2}"), BYTES), False),
    ("minicpm5", chain(*isolated(r"\p{N}{1,3}", rf"{CONTRACTION}|{LETTERS}|\p{{N}}+|{REST}|{TAIL}"), BYTES), True),
    ("bloom", chain(*isolated(BLOOM), BYTES), False),
    ("viking", chain(*isolated(BLOOM), DIGITS, BYTES), False),
]


def special(i, text, special=True):
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": i, "content": text} | flags | {"special": special}


def template(first, i):
    mark, text = {"SpecialToken": {"id": first, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [mark, text], "pair": [mark, text, mark, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {first: {"id": first, "ids": [i], "tokens": [first]}}}


def bpe(vocab, merges, **more):
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": merges}
    return model | more


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def encode(tokenizer_json):
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_json))
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]


def read_bpe():
    fields = gguf.GGUFReader(source / "bpe.gguf").fields
    return [fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "merges")]


def byte_level_json():
    tokens, merges = read_bpe()
    special_texts = tokens[:4]
    vocab = {token: i for i, token in enumerate(tokens)}
    added = [special(i, text, text != "<user>") for i, text in enumerate(special_texts)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": BYTES_CUT,
            "post_processor": {"type": "Sequence", "processors": [BYTES, template("<|begin|>", 0)]}, "decoder": BYTES,
            "model": bpe(vocab, [merge.split(" ") for merge in merges])}


def byte_level():
    base = byte_level_json()
    write_json(out / "byte-level/tokenizer.json", base)
    write_json(out / "byte-level/pre.json", [{"name": n, "pre_tokenizer": p, "ignore_merges": w} for n, p, w in PRE])
    turns = [base | {"pre_tokenizer": p, "model": base["model"] | {"ignore_merges": w}} for _, p, w in PRE]
    goldens.write_ids(out / "byte-level/pre.ids", [(n, encode(turn)) for (n, _, _), turn in zip(PRE, turns)])


def train_spm(**more):
    text = [text for text in TEXTS for _ in range(20)] + pathlib.Path(SHAKESPEARE).read_text().splitlines()[:8000]
    settings = dict(model_type="bpe", vocab_size=760, byte_fallback=True, split_digits=True, normalization_rule_name="identity",
                    allow_whitespace_only_pieces=True, remove_extra_whitespaces=False, character_coverage=0.999, minloglevel=2, num_threads=1)
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(sentence_iterator=iter(text), model_writer=model, **(settings | more))
    return model.getvalue()


def ids_between(processor, marks):
    """Marks are cut out first, and each text between them is one of its own."""
    def ids(text):
        parts = re.split("(" + "|".join(map(re.escape, marks)) + ")", text)
        return [i for part in parts if part for i in ([marks[part]] if part in marks else processor.encode(part))]
    return [ids(text) for text in TEXTS]


def sentencepiece():
    """As Llama 2 has it, with tokens on top in two files."""
    folder = out / "sentencepiece"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(train_spm())
    processor = spm.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    marks = {"<s>": 1, "</s>": 2, "<user>": 760, "<|im_end|>": 761, "[INST]": 762}
    write_json(folder / "added_tokens.json", {text: marks[text] for text in ("<user>", "<|im_end|>")})
    decoder = {str(marks[text]): {k: v for k, v in special(0, text).items() if k != "id"} for text in ("<|im_end|>", "[INST]")}
    write_json(folder / "tokenizer_config.json", {"add_bos_token": True, "add_eos_token": False, "added_tokens_decoder": decoder,
               "bos_token": {"__type": "AddedToken", "content": "<s>"}, "eos_token": "<|im_end|>", "pad_token": None})
    goldens.write_ids(folder / "texts.ids", [("", ids_between(processor, marks))])


def gemma():
    """Without a space in front, with pieces that the trainer was told."""
    folder = out / "gemma"
    folder.mkdir(parents=True, exist_ok=True)
    symbols = ["<start_of_turn>", "<user>", "\n\n", "\n\n\n", "▁▁", "▁▁▁▁"]
    model = train_spm(add_dummy_prefix=False, user_defined_symbols=symbols, pad_id=0, eos_id=1, bos_id=2, unk_id=3, bos_piece="<bos>", eos_piece="<eos>")
    (folder / "tokenizer.model").write_bytes(model)
    processor = spm.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    goldens.write_ids(folder / "texts.ids", [("", [processor.encode(text) for text in TEXTS])])


def converted():
    """The model of `sentencepiece` as transformers converts it: every way to halve a piece is a merge, the best pieces first."""
    processor = spm.SentencePieceProcessor(model_file=str(out / "sentencepiece/tokenizer.model"))
    pieces = {processor.id_to_piece(i): i for i in range(processor.get_piece_size())}
    halves = [(processor.get_score(i), l, r) for piece, i in pieces.items() for l, r in
              sorted(((piece[:n], piece[n:]) for n in range(1, len(piece)) if piece[:n] in pieces and piece[n:] in pieces), key=lambda h: (pieces[h[0]], pieces[h[1]]))]
    merges = [[l, r] for _, l, r in sorted(halves, key=lambda half: -half[0])]
    normalizer = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    added = [special(i, text) for i, text in enumerate(("<unk>", "<s>", "</s>"))] + [special(760, "<user>", False), special(761, "<|im_end|>")]
    model = bpe(pieces, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    value = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer, "pre_tokenizer": None,
             "post_processor": template("<s>", 1), "decoder": None, "model": model}
    write_json(out / "converted/tokenizer.json", value)
    goldens.write_ids(out / "converted/texts.ids", [("", encode(value))])


def ranks():
    """As Meta has it: tokens and ranks in a file, an expression in code, special tokens behind."""
    tokens, _ = read_bpe()
    letters = {c: b for b, c in bytes_to_unicode().items()}
    mergeable = {bytes(letters[c] for c in token): i for i, token in enumerate(tokens[4:])}
    marks = {text: len(mergeable) + i for i, text in enumerate(tokens[:4])}
    folder = out / "tiktoken"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [base64.b64encode(token) + b" %d\n" % i for token, i in mergeable.items()]
    (folder / "tokenizer.model").write_bytes(b"".join(lines))
    decoder = {str(i): {"content": text, "special": text != "<user>"} for text, i in marks.items()}
    write_json(folder / "tokenizer_config.json", {"added_tokens_decoder": decoder, "bos_token": "<|begin|>", "add_bos_token": True})
    encoding = tiktoken.Encoding("small", pat_str=CL100K, mergeable_ranks=mergeable, special_tokens=marks)
    goldens.write_ids(folder / "texts.ids", [("", [encoding.encode(text, allowed_special="all") for text in TEXTS])])


# Replacements of a normalizer that SentencePiece compiles, from and to in hexadecimal; those of its own are a thousand times as many.
REPLACEMENTS = {**{chr(c + 0xFEE0): chr(c) for c in range(0x21, 0x7F)}, **{c: " " for c in "\t\n\r\u00a0\u2028\u0085\u000b\u000c\u3000"},
                "…": "...", "½": "1/2", "²": "2", "³": "3", "Ⅷ": "VIII", "e\u0301": "é", "E\u0301": "É", "a\u0308": "ä", "ǅ": "Dž", "\u200b": "", "\u200d": ""}


def unigram():
    """As XLM-RoBERTa has it: a unigram model with a compiled normalizer, several spaces as one."""
    folder = out / "unigram"
    folder.mkdir(parents=True, exist_ok=True)
    rules = folder / "rules.tsv"
    hexadecimal = lambda text: " ".join(f"{ord(c):X}" for c in text)
    rules.write_text("".join(f"{hexadecimal(a)}\t{hexadecimal(b)}\n" for a, b in REPLACEMENTS.items()))
    model = train_spm(model_type="unigram", vocab_size=900, byte_fallback=False, normalization_rule_name="", normalization_rule_tsv=str(rules),
                      remove_extra_whitespaces=True, allow_whitespace_only_pieces=False, split_digits=False, character_coverage=0.995)
    rules.unlink()
    from sentencepiece import sentencepiece_model_pb2
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    charsmap = base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()
    pieces = [["<s>", 0.0], ["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0]] + [[p.piece, p.score] for p in proto.pieces[3:]] + [["<mask>", 0.0]]
    space = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    added = [special(i, text) for i, text in enumerate(("<s>", "<pad>", "</s>", "<unk>"))] + [special(len(pieces) - 1, "<mask>")]
    single = [{"SpecialToken": {"id": t, "type_id": 0}} if t else {"Sequence": {"id": "A", "type_id": 0}} for t in ("<s>", None, "</s>")]
    pair = single + [{"SpecialToken": {"id": "</s>", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}]
    marks = {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in (("<s>", 0), ("</s>", 2))}
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    value = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
             "normalizer": {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": charsmap}, space]},
             "pre_tokenizer": chain({"type": "WhitespaceSplit"}, metaspace),
             "post_processor": {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": marks}, "decoder": metaspace,
             "model": {"type": "Unigram", "unk_id": 3, "vocab": pieces, "byte_fallback": False}}
    write_json(folder / "tokenizer.json", value)
    ids = encode(value)
    processor = spm.SentencePieceProcessor(model_proto=model)
    own = [[3 if i == 0 else i + 1 for i in processor.encode(text)] for text in TEXTS]
    for text, a, b in zip(TEXTS, ids, own):
        if a != b:
            print("Hugging Face and SentencePiece differ:", ascii(text), a, b)
    goldens.write_ids(folder / "texts.ids", [("", own)])       # Hugging Face replaces whole graphemes of less than six bytes


if __name__ == "__main__":
    out.mkdir(parents=True, exist_ok=True)
    (out / "texts.txt").write_bytes("\n__atta_case__\n".join(TEXTS).encode())
    for make in (byte_level, sentencepiece, gemma, converted, ranks, unigram):
        if make.__name__ in sys.argv[4:] or not sys.argv[4:]:
            make()
