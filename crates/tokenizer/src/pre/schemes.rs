//! The table of pre-tokenizers: for each value of `tokenizer.ggml.pre`, its regular expressions and
//! its defaults.
//!
//! Knows no matching. The one idea: eighty names share thirty schemes.
//!
//! Source: the `tokenizer.json` of the models and `llm_tokenizer_bpe` in llama.cpp. Where llama.cpp
//! rewrote an expression for `std::regex`, both split in the same places (checked on megabytes of
//! text by `tests/oracles/tokenizer_compare.py`), with one exception: llama.cpp cannot tell upper
//! from lower case beyond ASCII (`tekken`, `gpt-4o` and similar ones). There we follow the
//! `tokenizer.json` that the models were trained with.

use super::Pass::{self, Split, TrailingSpace};

/// The characters that token texts are written in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Alphabet {
    /// Each byte is written as one of 256 visible characters (GPT-2's `bytes_to_unicode`).
    Bytes,
    /// Characters as they are, spaces as U+2581, byte tokens `<0xXX>` as fallback (SentencePiece).
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

/// A pre-tokenizer with the defaults that llama.cpp ties to its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scheme {
    passes: &'static [Pass],
    pub(crate) alphabet: Alphabet,
    pub(crate) whole: Whole,
    /// Whether BOS is added if the metadata has no `add_bos_token`.
    pub(crate) add_bos: bool,
    /// Whether token 11 is BOS if the metadata has no `bos_token_id`.
    pub(crate) default_bos: bool,
}

impl Scheme {
    /// The scheme for a missing or unknown name.
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

/// The values of `tokenizer.ggml.pre` and their schemes.
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
    (&["kimi-k2"], Scheme::of(KIMI).whole(Whole::Words)),
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
// Published as `(?i:'s|...)`, which matches ſ as an s. The expressions that llama.cpp rewrote leave
// ſ out, and so do ours for them.
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

// The script Han of Unicode 16 (Scripts.txt), as ranges of a class.
macro_rules! han {
    () => {
        concat!(
            "\u{2E80}-\u{2E99}\u{2E9B}-\u{2EF3}\u{2F00}-\u{2FD5}\u{3005}\u{3007}\u{3021}-\u{3029}",
            "\u{3038}-\u{303B}\u{3400}-\u{4DBF}\u{4E00}-\u{9FFF}\u{F900}-\u{FA6D}\u{FA70}-\u{FAD9}",
            "\u{16FE2}\u{16FE3}\u{16FF0}\u{16FF1}\u{20000}-\u{2A6DF}\u{2A700}-\u{2B739}",
            "\u{2B740}-\u{2B81D}\u{2B820}-\u{2CEA1}\u{2CEB0}-\u{2EBE0}\u{2EBF0}-\u{2EE5D}",
            "\u{2F800}-\u{2FA1D}\u{30000}-\u{3134A}\u{31350}-\u{323AF}"
        )
    };
}

const DEFAULT: &[Pass] = &[
    Split(r"[\p{P}\$\+<=>\^~\|]+"),
    Split(gpt2!()),
    Split(r"\p{N}+"),
    Split("[0-9][0-9][0-9]"),
];
const GPT2: &[Pass] = &[Split(gpt2!())];
const STARCODER: &[Pass] = &[Split(r"\p{N}"), Split(gpt2!())];
const FALCON: &[Pass] = &[
    Split(r"[\p{P}\$\+<=>\^~\|`]+"),
    Split(gpt2!()),
    Split("[0-9][0-9][0-9]"),
];
const LLAMA3: &[Pass] = &[Split(concat!(
    contraction!(),
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
    symbols_and_spaces!()
))];
const MINICPM5: &[Pass] = &[
    Split(r"\p{N}{1,3}"),
    Split(concat!(
        contraction!(),
        r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+|",
        symbols_and_spaces!()
    )),
];
const JAIS2: &[Pass] = &[Split(concat!(
    contraction!(),
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
    r"|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)",
    r"|\s{8}(?!\S)|\s{4}(?!\S)",
    r"|\s{1,2}(?!\S)|\s{1}"
))];
const QWEN2: &[Pass] = &[Split(qwen2!())];
const LAGUNA: &[Pass] = &[Split(r"[^\n]+|[\n]+"), Split(qwen2!())];
const QWEN35: &[Pass] = &[Split(concat!(
    contraction!(),
    r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|",
    spaces!()
))];
const UFAKZEKA: &[Pass] = &[Split(concat!(
    r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|",
    symbols_and_spaces!()
))];
const SEED_CODER: &[Pass] = &[Split(concat!(
    contraction!(),
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|",
    spaces!()
))];
const BAILING: &[Pass] = &[Split(concat!(
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
))];
const EXAONE_MOE: &[Pass] = &[Split(concat!(
    contraction!(),
    r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?",
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
))];
const DEEPSEEK_LLM: &[Pass] = &[
    Split(r"[\r\n]"),
    Split(
        r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
    ),
    Split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"),
    TrailingSpace,
    Split("[一-龥ࠀ-一가-퟿]+"),
    Split(r"\p{N}+"),
];
const DEEPSEEK_CODER: &[Pass] = &[
    Split(r"[\r\n]"),
    Split(r"\s?\p{L}+"),
    Split(r"\s?\p{P}+"),
    Split("[一-龥ࠀ-一가-퟿]+"),
    Split(r"\p{N}"),
];
const DEEPSEEK3: &[Pass] = &[
    Split(r"\p{N}{1,3}"),
    Split("[一-龥぀-ゟ゠-ヿ]+"),
    Split(concat!(deepseek3_words!(), r"[\r\n]*|", spaces!())),
];
const SPARK: &[Pass] = &[
    Split(r"\p{N}{1,3}"),
    Split("[一-龥぀-ゟ゠-ヿ]+"),
    Split(concat!(deepseek3_words!(), r"|[\r\n]|\s+(?!\S)|\s+")),
    Split(r"\p{N}"),
];
const TEKKEN: &[Pass] = &[Split(concat!(
    cased_words!(""),
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|",
    spaces!()
))];
const GPT4O: &[Pass] = &[Split(gpt4o!(r"\p{N}{1,3}"))];
const KIMI: &[Pass] = &[Split(concat!(
    "[",
    han!(),
    r"]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^",
    han!(),
    r"]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^",
    han!(),
    r"]]+(?:'[sSſ]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^",
    han!(),
    r"]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^",
    han!(),
    r"]]*(?:'[sSſ]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}|",
    symbols_and_spaces!()
))];
const YOUTU: &[Pass] = &[
    Split("[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+"),
    Split(gpt4o!(r"\p{N}")),
];
const BLOOM: &[Pass] = &[Split(r" ?[^(\s|.,!?…。，、।۔،)]+")];
const VIKING: &[Pass] = &[Split(r" ?[^(\s|.,!?…。，、।۔،)]+"), Split(r"\p{N}")];
const CHAMELEON: &[Pass] = &[
    Split("<sentinel:[0-9]+>"),
    Split("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"),
    Split(r"([\t\n]|    |  )"),
    Split(r"\p{N}"),
    Split(r"[\p{P}!-/:-@\[-`{-~]"),
    Split(gpt2!()),
];
const LINES: &[Pass] = &[Split(r"[^\n]+|[\n]+")];
