//! The table of known pre-tokenizers: regular expressions in tokenizer.json files, with their GGUF
//! names.
//!
//! Knows no matching; `atta-tokenizer` implements the names. Of several equivalent names, the table
//! has that of the best known model.
//!
//! Source: the `tokenizer.json` of the models, and the names of `get_vocab_base_pre` in llama.cpp's
//! converter.

use super::pre::KnownPreTokenizer;

/// Replaces all spellings of `'s`, `'t`, `'re`, `'ve`, `'m`, `'ll` and `'d` in either case.
pub(super) const CONTRACTION: &str = "<contraction>";

/// The spellings of contractions in either case. GPT-2 has lower case only.
pub(super) const CONTRACTIONS: &[&str] = &[
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)",
    "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])",
    "'(?i:[sdmt]|ll|ve|re)",
    "'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])",
];

pub(super) const DIGIT: &str = r"\p{N}";
pub(super) const NUMBER: &str = r"\p{N}+";
const THREE_DIGITS: &str = r"\p{N}{1,3}";
pub(super) const GPT2: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const GPT2_SHORT: &str = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

macro_rules! spaces {
    () => {
        r"\s*[\r\n]+|\s+(?!\S)|\s+"
    };
}
macro_rules! words {
    ($numbers:expr) => {
        concat!(
            r"<contraction>|[^\r\n\p{L}\p{N}]?\p{L}+|",
            $numbers,
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|",
            spaces!()
        )
    };
}
macro_rules! cased {
    ($suffix:expr, $numbers:expr) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $suffix,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $suffix,
            "|",
            $numbers,
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|",
            spaces!()
        )
    };
}

const LLAMA3: &str = words!(r"\p{N}{1,3}");
const QWEN2: &str = words!(r"\p{N}");
const QWEN35: &str = concat!(
    r"<contraction>|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|",
    spaces!()
);
const UFAKZEKA: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|",
    spaces!()
);
const JAIS2: &str = concat!(
    r"<contraction>|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
    r"|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)",
    r"|\s{8}(?!\S)|\s{4}(?!\S)",
    r"|\s{1,2}(?!\S)|\s{1}"
);
const SEED_CODER: &str = concat!(
    r"<contraction>|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|",
    spaces!()
);
const BAILING: &str = concat!(
    r"<contraction>|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]",
    r"|\s+(?!\S)|\s+"
);
const EXAONE_MOE: &str = concat!(
    r"<contraction>|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
);
const TEKKEN: &str = cased!("", r"\p{N}");
const GPT4O: &str = cased!("<contraction>?", r"\p{N}{1,3}");
const HAN_AND_KANA: &str = "[一-龥぀-ゟ゠-ヿ]+";
const DEEPSEEK3: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"##,
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|",
    spaces!()
);
const NEWLINE: &str = r"[\r\n]";
const CJK: &str = "[一-龥ࠀ-一가-퟿]+";
const DEEPSEEK_LETTERS: &str = r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
const DEEPSEEK_MARKS: &str = r"\s?[!-/:-~！-／：-～‘-‟　-。]+";
const TRAILING_SPACE: &str = r"\s+$";
const BLOOM: &str = " ?[^(\\s|[.,!?…。，、।۔،])]+";

const fn named(name: &'static str, splits: &'static [&'static str]) -> KnownPreTokenizer {
    KnownPreTokenizer {
        name,
        splits,
        whole: false,
    }
}

const fn whole(name: &'static str, splits: &'static [&'static str]) -> KnownPreTokenizer {
    KnownPreTokenizer {
        name,
        splits,
        whole: true,
    }
}

pub(super) const NAMES: &[KnownPreTokenizer] = &[
    named("gpt-2", &[GPT2]),
    named("gpt-2", &[GPT2_SHORT]),
    named("smollm", &[DIGIT, GPT2]),
    whole("llama-bpe", &[LLAMA3]),
    named("dbrx", &[LLAMA3]),
    named("qwen2", &[QWEN2]),
    named("qwen35", &[QWEN35]),
    named("ufakzeka", &[UFAKZEKA]),
    whole("tekken", &[TEKKEN]),
    named("gpt-4o", &[GPT4O]),
    whole("granite-embed-multi-97m", &[GPT4O]),
    named("deepseek-v3", &[THREE_DIGITS, HAN_AND_KANA, DEEPSEEK3]),
    named(
        "deepseek-coder",
        &[NEWLINE, r"\s?\p{L}+", r"\s?\p{P}+", CJK, DIGIT],
    ),
    // In training, digits were split, so no merge joins them, and both variants give the same
    // tokens.
    named(
        "deepseek-llm",
        &[
            NEWLINE,
            DEEPSEEK_LETTERS,
            DEEPSEEK_MARKS,
            TRAILING_SPACE,
            CJK,
            DIGIT,
        ],
    ),
    named(
        "deepseek-llm",
        &[
            NEWLINE,
            DEEPSEEK_LETTERS,
            DEEPSEEK_MARKS,
            TRAILING_SPACE,
            CJK,
            NUMBER,
        ],
    ),
    named("jais-2", &[JAIS2]),
    named("seed-coder", &[SEED_CODER]),
    named("bailingmoe", &[BAILING]),
    named("exaone-moe", &[EXAONE_MOE]),
    whole("minicpm5", &[THREE_DIGITS, words!(r"\p{N}+")]),
    named("bloom", &[BLOOM]),
    named("viking", &[BLOOM, DIGIT]),
];
