//! The rule that an architecture's name appears in `crates/model/src/arch/` and nowhere else.
//!
//! It refuses to look at tests and comments, which may name what they like, and at the tokenizer,
//! whose pre-tokenizers are named after models. The one idea: if no other code can name an
//! architecture, no other code can branch on one.

use super::Finding;
use crate::source::{RustFile, RustToken, TokenKind};

const CRATES: [&str; 4] = ["model", "engine", "store", "kernels"];
const HOME: &str = "crates/model/src/arch/";
/// The file that declares the modules of `arch/`, if it is not `arch/mod.rs`.
const HOME_ROOT: &str = "crates/model/src/arch.rs";
/// A word that begins with one of these names a family of models. Names that are also mechanisms
/// (mamba, rwkv) or English (bloom, command) are not here.
const NAMES: [&str; 33] = [
    "llama",
    "tinyllama",
    "codellama",
    "smollm",
    "mistral",
    "mixtral",
    "ministral",
    "qwen",
    "gemma",
    "phi1",
    "phi2",
    "phi3",
    "phi4",
    "falcon",
    "mpt",
    "gpt2",
    "gptj",
    "gptneox",
    "gptoss",
    "starcoder",
    "stablelm",
    "deepseek",
    "granite",
    "olmo",
    "cohere",
    "baichuan",
    "internlm",
    "minicpm",
    "exaone",
    "chatglm",
    "glm4",
    "nemotron",
    "hunyuan",
];

pub(super) fn check(source: &RustFile<'_>) -> Vec<Finding> {
    let at_home = source.path.starts_with(HOME) || source.path == HOME_ROOT;
    if at_home || !source.crate_dir().is_some_and(|dir| CRATES.contains(&dir)) {
        return Vec::new();
    }
    let code = source
        .code
        .iter()
        .enumerate()
        .filter(|(i, _)| !source.in_test(*i))
        .map(|(_, token)| token);
    code.filter_map(|token| named(token).map(|name| finding(source, token, &name)))
        .collect()
}

fn finding(source: &RustFile<'_>, token: &RustToken<'_>, name: &str) -> Finding {
    Finding::new(
        source.path,
        token.line,
        format!("names the architecture `{name}`; only model/src/arch/ may"),
    )
}

/// The architecture that a word or string names, as written in lower case without separators.
fn named(token: &RustToken<'_>) -> Option<String> {
    if !matches!(token.kind, TokenKind::Word | TokenKind::Text) {
        return None;
    }
    let words = words(&token.text.replace("llama.cpp", ""));
    let pairs = words.windows(2).map(|pair| pair.concat());
    words
        .iter()
        .cloned()
        .chain(pairs)
        .find(|word| NAMES.iter().any(|name| word.starts_with(name)))
}

/// Splits `snake_case`, `CamelCase` and prose into lower-case words; digits stay with the letters
/// before them.
fn words(text: &str) -> Vec<String> {
    let mut spaced = String::new();
    let mut after_lower = false;
    for c in text.chars() {
        if after_lower && c.is_ascii_uppercase() {
            spaced.push(' ');
        }
        after_lower = c.is_ascii_lowercase();
        spaced.push(if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            ' '
        });
    }
    spaced.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::*;

    const FORWARD: &str = "crates/model/src/forward.rs";

    #[test]
    fn names_in_code_and_strings_are_found() {
        let bad = [
            "fn qwen2_norm() {}",
            "struct TinyLlama;",
            "f(\"llama.block_count\")",
            "Arch::Phi3",
            "\"gpt-oss\"",
            "LLAMA",
        ];
        for text in bad {
            assert!(
                findings(check, FORWARD, text)[0].starts_with("1: names the architecture"),
                "{text}"
            );
        }
    }

    #[test]
    fn words_that_only_look_alike_are_not() {
        for text in [
            "philox",
            "phi",
            "\"from llama.cpp's table\"",
            "alphi3",
            "sampler",
            "gptq_codes",
            "// llama\nx",
            "command_rows",
        ] {
            assert_eq!(findings(check, FORWARD, text), [""; 0], "{text}");
        }
    }

    #[test]
    fn the_home_of_names_tests_and_other_crates_are_free() {
        for path in [
            "crates/model/src/arch/qwen3.rs",
            "crates/model/src/arch.rs",
            "crates/tokenizer/src/bpe.rs",
            "xtask/src/a.rs",
        ] {
            assert_eq!(findings(check, path, "llama()").len(), 0, "{path}");
        }
        assert_eq!(
            findings(check, FORWARD, "#[cfg(test)] mod tests { fn llama() {} }").len(),
            0
        );
    }

    #[test]
    fn every_guarded_crate_is_guarded() {
        for dir in CRATES {
            assert_eq!(
                findings(check, &format!("crates/{dir}/src/a.rs"), "llama()").len(),
                1,
                "{dir}"
            );
        }
    }
}
