//! Vocabularies to test with: the small ones of the goldens, and ones written on the spot.

use atta_formats::{Gguf, Metadata, Writer};
use atta_tokenizer::Tokenizer;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/tokenizer")
        .join(name)
}

pub(crate) fn metadata_of(file: Vec<u8>) -> Metadata {
    let n_bytes = file.len() as u64;
    Gguf::parse(Arc::new(file), n_bytes).unwrap().metadata
}

pub(crate) fn written(write: impl FnOnce(&mut Writer)) -> Metadata {
    let mut writer = Writer::new();
    write(&mut writer);
    metadata_of(writer.finish().unwrap().header)
}

/// A tokenizer of a golden file with some keys replaced.
pub(crate) fn golden_with(name: &str, replace: impl FnOnce(&mut Writer)) -> Tokenizer {
    let old = metadata_of(std::fs::read(golden(name)).unwrap());
    let new = written(|writer| {
        old.iter()
            .for_each(|(key, value)| writer.set_value(key, value));
        replace(writer);
    });
    Tokenizer::from_metadata(&new).unwrap()
}

pub(crate) fn small(name: &str) -> Tokenizer {
    golden_with(name, |_| ())
}

pub(crate) fn bpe_with_pre(pre: &str) -> Tokenizer {
    golden_with("bpe.gguf", |writer| {
        writer.set_str("tokenizer.ggml.pre", pre)
    })
}

/// A SentencePiece vocabulary: texts with type and score.
pub(crate) fn write_spm(writer: &mut Writer, tokens: &[(&str, i32, f32)]) {
    writer.set_str("tokenizer.ggml.model", "llama");
    writer.set_strs(
        "tokenizer.ggml.tokens",
        &tokens.iter().map(|t| t.0).collect::<Vec<_>>(),
    );
    writer.set_i32s(
        "tokenizer.ggml.token_type",
        &tokens.iter().map(|t| t.1).collect::<Vec<_>>(),
    );
    writer.set_f32s(
        "tokenizer.ggml.scores",
        &tokens.iter().map(|t| t.2).collect::<Vec<_>>(),
    );
}

/// A WordPiece vocabulary: BERT's special tokens, then texts as GGUF files spell them.
pub(crate) fn write_wpm(writer: &mut Writer, texts: &[&str]) {
    let marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
    let kinds: Vec<i32> = std::iter::repeat_n(3, marks.len())
        .chain(texts.iter().map(|_| 1))
        .collect();
    writer.set_str("tokenizer.ggml.model", "bert");
    writer.set_strs("tokenizer.ggml.tokens", &[&marks[..], texts].concat());
    writer.set_i32s("tokenizer.ggml.token_type", &kinds);
    writer.set_u32("tokenizer.ggml.unknown_token_id", 1);
    writer.set_u32("tokenizer.ggml.cls_token_id", 2);
    writer.set_u32("tokenizer.ggml.seperator_token_id", 3);
}

/// A byte-level vocabulary of ASCII letters, some symbols, and merges.
pub(crate) fn write_bpe(writer: &mut Writer, special: &[(&str, i32)], merges: &[&str]) {
    let letters: Vec<String> = ('a'..='z')
        .chain("Ġ<|>_ĊÃ©ðŁĻĤ".chars())
        .map(String::from)
        .collect();
    let joined: Vec<String> = merges.iter().map(|merge| merge.replace(' ', "")).collect();
    let mut tokens: Vec<&str> = special.iter().map(|s| s.0).collect();
    tokens.extend(letters.iter().chain(&joined).map(String::as_str));
    let mut kinds: Vec<i32> = special.iter().map(|s| s.1).collect();
    kinds.resize(tokens.len(), 1);
    writer.set_str("tokenizer.ggml.model", "gpt2");
    writer.set_str("tokenizer.ggml.pre", "gpt-2");
    writer.set_strs("tokenizer.ggml.tokens", &tokens);
    writer.set_i32s("tokenizer.ggml.token_type", &kinds);
    writer.set_strs("tokenizer.ggml.merges", merges);
}

/// The texts of tokens.
pub(crate) fn spelled(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<String> {
    ids.iter()
        .map(|&id| String::from_utf8_lossy(tokenizer.token_text(id)).into_owned())
        .collect()
}
