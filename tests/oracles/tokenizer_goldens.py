"""Writes tests/golden/tokenizer/{cases.txt,bpe.ids,spm.ids,gemma4.ids,bert.ids} with llama.cpp as the oracle, and Hugging Face
`tokenizers` with the published expressions where llama.cpp cannot tell upper from lower case, and for BERT.

    pip install tokenizers==0.23.3 gguf==0.19.0
    python tests/oracles/tokenizer_goldens.py PATH/TO/llama-tokenize tests/golden/tokenizer

cases.txt: texts separated by a line `__atta_case__`. *.ids: a line `[pre]`, then one line of ids per text.
"""

import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import gguf
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

CASES = [
    "Hello, world!", " Hello  World", "  lead", "trail  ", "a", " ", "  ", "\n", "\n\n \n", "\t\tx\n\n\n y\r\n\r\n z",
    "I'm you'Re we'LL THEY'D it's 's 'S 't'x ''s don''t", "1 12 123 1234 12345 1234567 x1y22z333 3.14159 1,000,000",
    "٣٤٥٦ १२३४ ½ Ⅷ ²³ 一二三 𝟘𝟙𝟚𝟛", "if (x == 1) {\n    return y[0];\n\n\n}\n\tend", "!!! ... ??!? -- ___ ==> <= >= != `a` ~b~ |c| $5 +1 ^2",
    "été ÉTÉ ÉtéÉté straßeSTRASSE ПриветМир МИР ΑΒγΔ ǅungla ʰʷ", "हिन्दी में १२ बजे किताबें", "ภาษาไทยง่ายๆ ខ្មែរ မြန်မာ ລາວ",
    "中文字符，测试。「日本語」テスト・カタカナ 한국어 ㄱㄴ ㄅㄆ", "العربية ١٢٣، עברית שָׁלוֹם", "e\u0301 a\u0308\u0301b \u0301\u0301 x\u200dy",
    "👩‍👩‍👧 👍🏽🏳️‍🌈!!\n🙂", "\u00a0x\u3000y\u2028z\u0085w \u200b.", "…。，、！？：；“”‘’—～", "<user> <user>x <|im_end|> <|endoftext|> <s></s>",
    "<0x41> ▁ ▁▁a Ġ Ċ", "http://a.b/c?d=e&f#g user@host.org C:\\dir\\file", "camelCaseWordsAndABCAcronyms snake_case kebab-case",
    "tabs\tand\u000bverticals\u000cfeeds", "   \n   \n  x", "a  b   c    d     e", "x" * 40, " " * 33 + "y", "=" * 20 + "\n" * 9,
    "IMGIMGABCZ <sentinel:12> IMGIMGABCDEZ", "the/and/or a/b\n/c //\n", "\ufffd \ue000 \U000f0000 \u0378", "0x1F600 1e-10 v2.0.1-rc3",
    "ſ'ſ K'K İi ŉ", "I'mx you'rex it'sy 'tis o'dell", " " * 7 + "y" + " " * 12 + "z", "Aſ'ſ ÉÉ'S xé'LLy", "a'b c'd'e x'y's", "a.\nb!\n\nc ;\r\nd", "x \n\n\ny\n \n z", "été\u0301É a\u0301b x\u0301 \u0301y 1\u0301",
    "'", "''", "' s", "don’t", "a\r\nb\rc\n\rd",
]
SEPARATOR = "<user>"
LLAMA = "llama-tokenize"

CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def cased(suffix, numbers):
    words = rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{suffix}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{suffix}"
    return rf"{words}|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}"


YOUTU = "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+"

# As published in the models' tokenizer.json: expressions, each isolated, and whether whole words go before merges.
PUBLISHED = {
    "tekken": ([cased("", r"\p{N}")], True),
    "youtu": ([YOUTU, cased(CONTRACTION, r"\p{N}")], True),
    "gpt-4o": ([cased(CONTRACTION, r"\p{N}{1,3}")], False),
}
PRE = """default gpt-2 starcoder falcon llama-bpe minicpm5 jais-2 qwen2 laguna qwen35 ufakzeka seed-coder bailingmoe exaone-moe
deepseek-llm deepseek-coder deepseek-v3 spark2_5 bloom viking chameleon""".split()


def with_pre(path, pre, target):
    data, key = path.read_bytes(), b"tokenizer.ggml.pre"
    at = data.index(key) + len(key) + 4
    (n,) = struct.unpack("<Q", data[at : at + 8])
    target.write_bytes(data[:at] + struct.pack("<Q", len(pre)) + pre.encode() + data[at + 8 + n :])


def ask_llama(model, cases, separator_id):
    with tempfile.NamedTemporaryFile(suffix=".txt") as file:
        file.write(SEPARATOR.join(cases).encode())
        file.flush()
        flags = ["--ids", "--no-bos", "--no-parse-special", "--no-escape", "--log-disable"]
        answer = subprocess.run([LLAMA, "-m", model, "-f", file.name, *flags], capture_output=True, check=True).stdout
    groups = [[]]
    for i in json.loads(answer[answer.rindex(b"[") :]):
        groups[-1].append(i) if i != separator_id else groups.append([])
    assert len(groups) == len(cases)
    return groups


def ask_hugging_face(path, pre, cases):
    fields = gguf.GGUFReader(path).fields
    tokens, merges = (fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "merges"))
    expressions, whole = PUBLISHED[pre]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m.split(" ")) for m in merges], ignore_merges=whole))
    cuts = [pre_tokenizers.Split(Regex(e), "isolated") for e in expressions]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return [tokenizer.encode(case).ids for case in cases]


# Names of sections: whether letters lose their case, and whether they lose their accents.
NORMALIZERS = {"uncased": (True, True), "cased": (False, False), "lowercase": (True, False)}


def bert(path, lowercase, strip_accents):
    tokens = gguf.GGUFReader(path).fields["tokenizer.ggml.tokens"].contents()
    spelled = {t[1:] if t.startswith("▁") else t if t.startswith("[") and len(t) > 1 else "##" + t: i for i, t in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(spelled, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def ask_bert(path, name, cases):
    tokenizer = bert(path, *NORMALIZERS[name])
    return [tokenizer.encode(case, add_special_tokens=False).ids for case in cases]


def write_ids(path, sections):
    text = "".join(f"[{name}]\n" + "".join(" ".join(map(str, ids)) + "\n" for ids in groups) for name, groups in sections)
    path.write_text(text)


def main(out):
    # The separator splits fragments, so the texts themselves must be free of it for the oracle.
    plain = [case.replace(SEPARATOR, "<other>") for case in CASES]
    (out / "cases.txt").write_bytes("\n__atta_case__\n".join(plain).encode())
    with tempfile.TemporaryDirectory() as scratch:
        file = pathlib.Path(scratch) / "bpe.gguf"
        sections = []
        for pre in PRE:
            with_pre(out / "bpe.gguf", pre, file)
            sections.append((pre, ask_llama(file, plain, 3)))
        sections += [(pre, ask_hugging_face(out / "bpe.gguf", pre, plain)) for pre in PUBLISHED]
    write_ids(out / "bpe.ids", sections)
    write_ids(out / "spm.ids", [("", ask_llama(out / "spm.gguf", plain, 3))])
    write_ids(out / "gemma4.ids", [("", ask_llama(out / "gemma4.gguf", plain, 6))])
    write_ids(out / "bert.ids", [(name, ask_bert(out / "bert.gguf", name, plain)) for name in NORMALIZERS])


if __name__ == "__main__":
    LLAMA = sys.argv[1]
    main(pathlib.Path(sys.argv[2]))
