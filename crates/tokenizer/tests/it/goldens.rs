//! Ids computed by llama.cpp and Hugging Face `tokenizers` (`tests/oracles/tokenizer_goldens.py`).

use crate::vocabularies::{bpe_with_pre, golden, golden_with, metadata_of, small};
use atta_tokenizer::{Special, Tokenizer};
use std::path::PathBuf;

fn cases() -> Vec<String> {
    let text = std::fs::read_to_string(golden("cases.txt")).unwrap();
    text.split("\n__atta_case__\n").map(str::to_owned).collect()
}

fn ids(line: &str) -> Vec<u32> {
    line.split_whitespace()
        .map(|id| id.parse().unwrap())
        .collect()
}

/// Sections of a golden file: `[name]`, then one line of ids per case.
fn sections(name: &str) -> Vec<(String, Vec<Vec<u32>>)> {
    let text = std::fs::read_to_string(golden(name)).unwrap();
    let section = |part: &str| {
        let (name, lines) = part.split_once("]\n").unwrap();
        (name.to_owned(), lines.lines().map(ids).collect())
    };
    text.split('[').skip(1).map(section).collect()
}

fn assert_golden(tokenizer: &Tokenizer, expected: &[Vec<u32>], name: &str) {
    let cases = cases();
    assert_eq!(cases.len(), expected.len(), "{name}");
    for (text, expected) in cases.iter().zip(expected) {
        assert_eq!(
            &tokenizer.encode(text, Special::Plain),
            expected,
            "{name}: {text:?}"
        );
    }
}

#[test]
fn every_pre_tokenizer_gives_the_ids_of_its_oracle() {
    let sections = sections("bpe.ids");
    assert!(sections.len() >= 24);
    for (pre, expected) in sections {
        let tokenizer = bpe_with_pre(&pre);
        assert!(
            tokenizer.warnings().is_empty(),
            "{pre}: {:?}",
            tokenizer.warnings()
        );
        assert_golden(&tokenizer, &expected, &pre);
    }
}

#[test]
fn sentencepiece_gives_the_ids_of_llama_cpp() {
    assert_golden(&small("spm.gguf"), &sections("spm.ids")[0].1, "spm");
}

#[test]
fn gemma4_gives_the_ids_of_llama_cpp() {
    assert_golden(
        &small("gemma4.gguf"),
        &sections("gemma4.ids")[0].1,
        "gemma4",
    );
}

#[test]
fn wordpiece_gives_the_ids_of_bert() {
    let sections = sections("bert.ids");
    assert_eq!(sections.len(), 3);
    for (name, expected) in sections {
        let tokenizer = golden_with("bert.gguf", |writer| {
            writer.set_bool("tokenizer.ggml.normalizer.lowercase", name != "cased");
            writer.set_bool("tokenizer.ggml.normalizer.strip_accents", name == "uncased");
        });
        assert_golden(&tokenizer, &expected, &name);
    }
}

/// The vocabularies of real models; none if the shared data is not there.
fn real_vocabularies() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/vocab");
    let entries = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    entries
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "gguf")
        })
        .collect()
}

#[test]
fn real_vocabularies_give_the_ids_that_come_with_them() {
    for path in real_vocabularies() {
        let tokenizer =
            Tokenizer::from_metadata(&metadata_of(std::fs::read(&path).unwrap())).unwrap();
        let beside = |suffix: &str| std::fs::read_to_string(path.with_extension(suffix)).unwrap();
        let texts = beside("gguf.inp");
        let expected = beside("gguf.out");
        for (text, line) in texts.split("\n__ggml_vocab_test__\n").zip(expected.lines()) {
            assert_eq!(
                tokenizer.encode(text, Special::Plain),
                ids(line),
                "{}: {text:?}",
                path.display()
            );
        }
    }
}

#[test]
fn a_vocabulary_of_128k_takes_less_than_5_mb_of_heap() {
    for path in real_vocabularies()
        .into_iter()
        .filter(|path| path.ends_with("ggml-vocab-llama-bpe.gguf"))
    {
        let tokenizer =
            Tokenizer::from_metadata(&metadata_of(std::fs::read(&path).unwrap())).unwrap();
        assert_eq!(tokenizer.n_vocab(), 128_256);
        assert!(
            tokenizer.heap_bytes() < 5_000_000,
            "{}",
            tokenizer.heap_bytes()
        );
    }
}
