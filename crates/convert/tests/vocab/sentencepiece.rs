//! SentencePiece models, in their own format and as converted by Hugging Face.

use crate::goldens::{assert_ids, directory, golden, metadata, refused, sections, text, write};
use atta_convert::vocab::{self, VocabOptions};
use atta_formats::Writer;
use atta_tokenizer::{TokenKind, Tokenizer};
use serde_json::{Value, json};

#[test]
fn a_model_gives_the_ids_of_sentencepiece_with_added_tokens_on_top() {
    let metadata = directory("sentencepiece", 770);
    assert_ids(
        &metadata,
        &sections("sentencepiece/texts.ids")[0].1,
        "sentencepiece",
    );
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    assert_eq!(
        (tokenizer.bos(), tokenizer.eos(), tokenizer.unknown()),
        (Some(1), Some(761), Some(0))
    );
    assert!(tokenizer.add_bos() && !tokenizer.add_eos());
    let kinds = [0, 1, 3, 500, 760, 761, 765].map(|id| tokenizer.kind(id));
    use TokenKind::{Byte, Control, Normal, Unknown, Unused, UserDefined};
    assert_eq!(
        kinds,
        [Unknown, Control, Byte, Normal, UserDefined, Control, Unused]
    );
}

#[test]
fn user_defined_symbols_are_matched_and_no_space_is_added() {
    let metadata = directory("gemma", 760);
    assert_eq!(
        metadata.bool("tokenizer.ggml.add_space_prefix").unwrap(),
        Some(false)
    );
    assert_ids(&metadata, &sections("gemma/texts.ids")[0].1, "gemma");
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    assert_eq!(
        (
            tokenizer.bos(),
            tokenizer.eos(),
            tokenizer.unknown(),
            tokenizer.padding()
        ),
        (Some(2), Some(1), Some(3), Some(0))
    );
}

#[test]
fn a_converted_model_gives_the_ids_of_hugging_face() {
    let metadata = directory("converted", 762);
    assert_ids(
        &metadata,
        &sections("converted/texts.ids")[0].1,
        "converted",
    );
    assert!(Tokenizer::from_metadata(&metadata).unwrap().add_bos());
}

#[test]
fn merges_in_an_order_that_no_scores_give_are_warned_about() {
    let mut json: Value = serde_json::from_str(&text("converted/tokenizer.json")).unwrap();
    let merges = json["model"]["merges"].as_array_mut().unwrap();
    let repeated = (1..merges.len())
        .find(|&i| joined(&merges[i]) == joined(&merges[i - 1]))
        .unwrap();
    let moved = merges.remove(repeated);
    merges.push(moved);
    let warnings = write(
        &[("tokenizer.json", &json.to_string())],
        762,
        &mut Writer::new(),
    )
    .unwrap();
    assert!(
        warnings.len() == 1
            && warnings[0].starts_with("1 tokens are not merged in the order of scores"),
        "{warnings:?}"
    );
}

fn joined(merge: &Value) -> String {
    [merge[0].as_str().unwrap(), merge[1].as_str().unwrap()].concat()
}

#[test]
fn add_space_prefix_is_found_in_every_step() {
    let adds = |normalizer: Value, pre_tokenizer: Value| {
        let mut json: Value = serde_json::from_str(&text("converted/tokenizer.json")).unwrap();
        (json["normalizer"], json["pre_tokenizer"]) = (normalizer, pre_tokenizer);
        let metadata = metadata(|out| {
            drop(write(&[("tokenizer.json", &json.to_string())], 762, out).unwrap())
        });
        metadata
            .bool("tokenizer.ggml.add_space_prefix")
            .unwrap()
            .unwrap()
    };
    let replace = || json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let split = json!({"type": "Split", "pattern": {"String": " "},
        "behavior": "MergedWithPrevious", "invert": false});
    assert!(!adds(replace(), split));
    assert!(adds(
        Value::Null,
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false})
    ));
    assert!(!adds(
        Value::Null,
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"})
    ));
    assert!(adds(
        Value::Null,
        json!({"type": "Sequence",
            "pretokenizers": [{"type": "Metaspace", "add_prefix_space": true}]})
    ));
}

#[test]
fn tokenizer_config_has_the_last_word_on_the_space_in_front_and_a_pre_tokenizer_has_none() {
    let mut files = vocab::VocabFiles::open(&golden("gemma")).unwrap();
    files.insert(
        "tokenizer_config.json",
        br#"{"add_prefix_space": true}"#.to_vec(),
    );
    let write = |options: &VocabOptions, out: &mut Writer| vocab::write(&files, 760, options, out);
    let metadata = metadata(|out| drop(write(&VocabOptions::default(), out).unwrap()));
    assert_eq!(
        metadata.bool("tokenizer.ggml.add_space_prefix").unwrap(),
        Some(true)
    );
    let error = write(
        &VocabOptions {
            pre: Some("qwen2".to_owned()),
        },
        &mut Writer::new(),
    )
    .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the pre-tokenizer qwen2 does not apply")
    );
}

#[test]
fn damaged_and_foreign_models_are_refused_by_name() {
    let model = std::fs::read(golden("sentencepiece/tokenizer.model")).unwrap();
    let error = |bytes: Vec<u8>| {
        let mut files = vocab::VocabFiles::default();
        files.insert("tokenizer.model", bytes);
        vocab::write(&files, 770, &VocabOptions::default(), &mut Writer::new())
            .unwrap_err()
            .to_string()
    };
    assert!(error(model[..model.len() - 1].to_vec()).contains("tokenizer.model: "));
    assert!(
        error(model[..2 + usize::from(model[1])].to_vec()).contains("unigram (UGM)"),
        "without trainer_spec the type is unigram"
    );
    assert!(
        error(vec![0x0A, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F])
            .contains("no field of a SentencePiece model at byte 0")
    );
    assert!(error(vec![0x0A]).contains("at byte 0"));
    assert!(
        refused(
            &[("tokenizer.json", r#"{"model": {"type": "WordLevel"}}"#)],
            9
        )
        .contains("kind WordLevel is not supported")
    );
}

#[test]
fn a_converted_unigram_model_gives_the_ids_of_sentencepiece() {
    let metadata = directory("unigram", 902);
    assert_ids(&metadata, &sections("unigram/texts.ids")[0].1, "unigram");
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    assert_eq!(
        (
            tokenizer.bos(),
            tokenizer.eos(),
            tokenizer.unknown(),
            tokenizer.between_texts()
        ),
        (Some(0), Some(2), Some(3), &[2, 2][..])
    );
    assert!(tokenizer.add_bos() && tokenizer.add_eos() && !tokenizer.is_lossless());
    let ids = tokenizer.encode("e\u{301}\u{3000} x", atta_tokenizer::Special::Plain);
    assert_eq!(tokenizer.decode(&ids), "é x".as_bytes());
}
