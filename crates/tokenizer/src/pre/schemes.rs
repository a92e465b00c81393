//! What each value of `tokenizer.ggml.pre` means: names, expressions and habits, as data.
//!
//! Knows no matching. The one idea: sixty names share a dozen expressions.
//!
//! Source: the `tokenizer.json` of the models and `llm_tokenizer_bpe` in llama.cpp. Where llama.cpp
//! rewrote an expression for `std::regex`, both cut the same (checked on megabytes of text by
//! `tests/oracles/tokenizer_compare.py`), but for one family: it cannot tell upper from lower case
//! beyond ASCII (`tekken`, `gpt-4o` and what resembles them). There we follow the models, which
//! were trained that way.

use super::Pass::{self, Cut, TrailingSpace};

/// How text becomes the characters that the vocabulary is written in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Alphabet {
    /// Each byte is one of 256 visible characters (GPT-2).
    Bytes,
    /// Characters as they are, spaces as U+2581, `<0xXX>` for what is missing (SentencePiece).
    Characters,
}

/// Which words are looked up whole before any merging.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whole {
    None,
    /// `ignore_merges`: a word that is a token needs no merges.
    Words,
    /// Only runs of newlines.
    Newlines,
}

/// A pre-tokenizer with the habits that come with its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scheme {
    passes: &'static [Pass],
    pub(crate) alphabet: Alphabet,
    pub(crate) whole: Whole,
    /// Whether BOS is added when the metadata does not say.
    pub(crate) add_bos: bool,
    /// Whether token 11 is BOS when the metadata does not say.
    pub(crate) default_bos: bool,
}

impl Scheme {
    /// What is used when the name is missing or unknown.
    pub(crate) const DEFAULT: Self = Self::of(DEFAULT);

    const fn of(passes: &'static [Pass]) -> Self {
        Self {
            passes,
            alphabet: Alphabet::Bytes,
            whole: Whole::None,
            add_bos: false,
            default_bos: true,
        }
    }

    const fn whole(self, whole: Whole) -> Self {
        Self { whole, ..self }
    }

    const fn with_bos(self) -> Self {
        Self {
            add_bos: true,
            ..self
        }
    }

    const fn without_default_bos(self) -> Self {
        Self {
            default_bos: false,
            ..self
        }
    }

    const fn characters(self) -> Self {
        Self {
            alphabet: Alphabet::Characters,
            ..self
        }
    }

    pub(super) fn passes(&self) -> &'static [Pass] {
        self.passes
    }

    /// The scheme of a value of `tokenizer.ggml.pre`.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        SCHEMES
            .iter()
            .find(|(names, _)| names.contains(&name))
            .map(|&(_, scheme)| scheme)
    }

    /// Every name that has a scheme.
    #[cfg(test)]
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        SCHEMES.iter().flat_map(|(names, _)| names.iter().copied())
    }
}

/// Every name in use, with what it means.
const SCHEMES: &[(&[&str], Scheme)] = &[
    (&["default"], Scheme::DEFAULT),
    (
        &[
            "llama3",
            "llama-v3",
            "llama-bpe",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        Scheme::of(LLAMA3).whole(Whole::Words).with_bos(),
    ),
    (&["dbrx", "smaug-bpe"], Scheme::of(LLAMA3)),
    (&["chatglm-bpe"], Scheme::of(LLAMA3).without_default_bos()),
    (
        &["glm4", "glm5"],
        Scheme::of(LLAMA3).whole(Whole::Words).without_default_bos(),
    ),
    (&["minicpm5"], Scheme::of(MINICPM5).whole(Whole::Words)),
    (&["jais-2"], Scheme::of(JAIS2)),
    (
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
        ],
        Scheme::of(QWEN2),
    ),
    (&["qwen35"], Scheme::of(QWEN35)),
    (&["laguna"], Scheme::of(LAGUNA)),
    (&["ufakzeka"], Scheme::of(UFAKZEKA)),
    (&["seed-coder"], Scheme::of(SEED_CODER)),
    (
        &["bailingmoe", "bailingmoe2", "llada-moe"],
        Scheme::of(BAILING),
    ),
    (&["exaone-moe"], Scheme::of(EXAONE_MOE)),
    (
        &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "gigachat",
            "jina-v2-es",
            "jina-v2-de",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
            "exaone4",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
        ],
        Scheme::of(GPT2),
    ),
    (
        &[
            "starcoder",
            "refact",
            "command-r",
            "smollm",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        Scheme::of(STARCODER),
    ),
    (&["falcon"], Scheme::of(FALCON)),
    (&["deepseek-llm"], Scheme::of(DEEPSEEK_LLM)),
    (&["deepseek-coder"], Scheme::of(DEEPSEEK_CODER)),
    (
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        Scheme::of(DEEPSEEK3),
    ),
    (&["spark2_5"], Scheme::of(SPARK)),
    (&["youtu"], Scheme::of(YOUTU).whole(Whole::Words)),
    (
        &["tekken"],
        Scheme::of(TEKKEN).whole(Whole::Words).with_bos(),
    ),
    (
        &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        Scheme::of(GPT4O),
    ),
    (
        &["granite-embed-multi-97m"],
        Scheme::of(GPT4O).whole(Whole::Words),
    ),
    (&["poro-chat", "bloom", "gpt3-finnish"], Scheme::of(BLOOM)),
    (&["viking"], Scheme::of(VIKING)),
    (&["chameleon"], Scheme::of(CHAMELEON).with_bos()),
    (
        &["gemma4", "granite-embed-multi-311m"],
        Scheme::of(LINES)
            .characters()
            .whole(Whole::Newlines)
            .with_bos()
            .without_default_bos(),
    ),
    (&["sarvam-moe"], Scheme::of(LINES).characters()),
];

// The parts that expressions share.
macro_rules! contraction {
    () => {
        "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
    };
}
macro_rules! spaces {
    () => {
        r"\s*[\r\n]+|\s+(?!\S)|\s+"
    };
}
macro_rules! symbols_and_spaces {
    () => {
        concat!(r" ?[^\s\p{L}\p{N}]+[\r\n]*|", spaces!())
    };
}
macro_rules! gpt2 {
    () => {
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    };
}
macro_rules! deepseek3_words {
    () => {
        concat!(
            r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"##,
            r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"
        )
    };
}
macro_rules! qwen2 {
    () => {
        concat!(
            contraction!(),
            r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|",
            symbols_and_spaces!()
        )
    };
}
// A word in camel case: capitals then small letters, at least one of either.
macro_rules! upper {
    () => {
        r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
    };
}
macro_rules! lower {
    () => {
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    };
}
macro_rules! cased_words {
    ($suffix:expr) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?",
            upper!(),
            "*",
            lower!(),
            "+",
            $suffix,
            r"|[^\r\n\p{L}\p{N}]?",
            upper!(),
            "+",
            lower!(),
            "*",
            $suffix
        )
    };
}
// Published as `(?i:'s|...)`, where ſ is an s; llama.cpp's rewritten expressions, which the others
// follow, leave it out.
macro_rules! gpt4o {
    ($numbers:expr) => {
        concat!(
            cased_words!("(?:'[sSſ]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?"),
            "|",
            $numbers,
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|",
            spaces!()
        )
    };
}

const DEFAULT: &[Pass] = &[
    Cut(r"[\p{P}\$\+<=>\^~\|]+"),
    Cut(gpt2!()),
    Cut(r"\p{N}+"),
    Cut("[0-9][0-9][0-9]"),
];
const GPT2: &[Pass] = &[Cut(gpt2!())];
const STARCODER: &[Pass] = &[Cut(r"\p{N}"), Cut(gpt2!())];
const FALCON: &[Pass] = &[
    Cut(r"[\p{P}\$\+<=>\^~\|`]+"),
    Cut(gpt2!()),
    Cut("[0-9][0-9][0-9]"),
];
const LLAMA3: &[Pass] = &[Cut(concat!(
    contraction!(),
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
    symbols_and_spaces!()
))];
const MINICPM5: &[Pass] = &[
    Cut(r"\p{N}{1,3}"),
    Cut(concat!(
        contraction!(),
        r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+|",
        symbols_and_spaces!()
    )),
];
const JAIS2: &[Pass] = &[Cut(concat!(
    contraction!(),
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
    r"|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)",
    r"|\s{1,2}(?!\S)|\s{1}"
))];
const QWEN2: &[Pass] = &[Cut(qwen2!())];
const LAGUNA: &[Pass] = &[Cut(r"[^\n]+|[\n]+"), Cut(qwen2!())];
const QWEN35: &[Pass] = &[Cut(concat!(
    contraction!(),
    r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|",
    spaces!()
))];
const UFAKZEKA: &[Pass] = &[Cut(concat!(
    r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|",
    symbols_and_spaces!()
))];
const SEED_CODER: &[Pass] = &[Cut(concat!(
    contraction!(),
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|",
    spaces!()
))];
const BAILING: &[Pass] = &[Cut(
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
)];
const EXAONE_MOE: &[Pass] = &[Cut(concat!(
    contraction!(),
    r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
))];
const DEEPSEEK_LLM: &[Pass] = &[
    Cut(r"[\r\n]"),
    Cut(
        r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
    ),
    Cut(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"),
    TrailingSpace,
    Cut("[一-龥ࠀ-一가-퟿]+"),
    Cut(r"\p{N}+"),
];
const DEEPSEEK_CODER: &[Pass] = &[
    Cut(r"[\r\n]"),
    Cut(r"\s?\p{L}+"),
    Cut(r"\s?\p{P}+"),
    Cut("[一-龥ࠀ-一가-퟿]+"),
    Cut(r"\p{N}"),
];
const DEEPSEEK3: &[Pass] = &[
    Cut(r"\p{N}{1,3}"),
    Cut("[一-龥぀-ゟ゠-ヿ]+"),
    Cut(concat!(deepseek3_words!(), r"[\r\n]*|", spaces!())),
];
const SPARK: &[Pass] = &[
    Cut(r"\p{N}{1,3}"),
    Cut("[一-龥぀-ゟ゠-ヿ]+"),
    Cut(concat!(deepseek3_words!(), r"|[\r\n]|\s+(?!\S)|\s+")),
    Cut(r"\p{N}"),
];
const TEKKEN: &[Pass] = &[Cut(concat!(
    cased_words!(""),
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|",
    spaces!()
))];
const GPT4O: &[Pass] = &[Cut(gpt4o!(r"\p{N}{1,3}"))];
const YOUTU: &[Pass] = &[
    Cut("[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+"),
    Cut(gpt4o!(r"\p{N}")),
];
const BLOOM: &[Pass] = &[Cut(r" ?[^(\s|.,!?…。，、।۔،)]+")];
const VIKING: &[Pass] = &[Cut(r" ?[^(\s|.,!?…。，、।۔،)]+"), Cut(r"\p{N}")];
const CHAMELEON: &[Pass] = &[
    Cut("<sentinel:[0-9]+>"),
    Cut("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"),
    Cut(r"([\t\n]|    |  )"),
    Cut(r"\p{N}"),
    Cut(r"[\p{P}!-/:-@\[-`{-~]"),
    Cut(gpt2!()),
];
const LINES: &[Pass] = &[Cut(r"[^\n]+|[\n]+")];
