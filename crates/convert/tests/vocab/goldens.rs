//! Goldens of `tests/oracles/convert_vocab.py`, and helpers to compare with them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use atta_convert::vocab::{self, VocabFiles, VocabOptions};
use atta_formats::{Gguf, Metadata, Writer};
use atta_tokenizer::{Special, Tokenizer};

pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/vocab")
        .join(name)
}

pub(crate) fn text(name: &str) -> String {
    std::fs::read_to_string(golden(name)).unwrap()
}

pub(crate) fn texts() -> Vec<String> {
    text("texts.txt")
        .split("\n__atta_case__\n")
        .map(str::to_owned)
        .collect()
}

/// Sections of a golden file: `[name]`, then one line of ids per text.
pub(crate) fn sections(name: &str) -> Vec<(String, Vec<Vec<u32>>)> {
    let ids = |line: &str| {
        line.split_whitespace()
            .map(|id| id.parse().unwrap())
            .collect()
    };
    let text = text(name);
    let sections = text
        .split('[')
        .skip(1)
        .map(|part| part.split_once("]\n").unwrap());
    sections
        .map(|(name, lines)| (name.to_owned(), lines.lines().map(ids).collect()))
        .collect()
}

/// Metadata as a reader of the file sees it.
pub(crate) fn metadata(write: impl FnOnce(&mut Writer)) -> Metadata {
    let mut writer = Writer::new();
    write(&mut writer);
    let header = writer.finish().unwrap().header;
    let n_bytes = header.len() as u64;
    Gguf::parse(Arc::new(header), n_bytes).unwrap().metadata
}

/// The metadata of files that convert without warnings.
pub(crate) fn converted(files: &[(&str, &str)], n_vocab: u64) -> Metadata {
    metadata(|writer| assert_eq!(write(files, n_vocab, writer).unwrap(), [""; 0]))
}

/// The metadata of a golden directory, which converts without warnings.
pub(crate) fn directory(name: &str, n_vocab: u64) -> Metadata {
    let read = |out: &mut Writer| {
        vocab::read(&golden(name), n_vocab, &VocabOptions::default(), out).unwrap()
    };
    metadata(|writer| assert_eq!(read(writer), [""; 0]))
}

/// Converts files. Returns warnings, or the error.
pub(crate) fn write(
    files: &[(&str, &str)],
    n_vocab: u64,
    out: &mut Writer,
) -> Result<Vec<String>, String> {
    let mut all = VocabFiles::default();
    files
        .iter()
        .for_each(|(name, text)| all.insert(name, text.as_bytes().to_vec()));
    vocab::write(&all, n_vocab, &VocabOptions::default(), out).map_err(|error| error.to_string())
}

/// The error of files that are refused.
pub(crate) fn refused(files: &[(&str, &str)], n_vocab: u64) -> String {
    write(files, n_vocab, &mut Writer::new()).unwrap_err()
}

/// Compares the ids of all texts. Special tokens are parsed, as Hugging Face does.
pub(crate) fn assert_ids(metadata: &Metadata, expected: &[Vec<u32>], name: &str) {
    let tokenizer = Tokenizer::from_metadata(metadata).unwrap();
    assert_eq!(tokenizer.warnings(), [""; 0], "{name}");
    let texts = texts();
    assert_eq!(texts.len(), expected.len(), "{name}");
    let got = |text: &String| tokenizer.encode(text, Special::Parse);
    let different: Vec<_> = texts
        .iter()
        .zip(expected)
        .filter(|(text, ids)| got(text) != **ids)
        .collect();
    let first = different.first().map(|(text, ids)| (text, got(text), ids));
    assert!(
        different.is_empty(),
        "{name}: {} of {} texts, first {first:?}",
        different.len(),
        texts.len()
    );
}
