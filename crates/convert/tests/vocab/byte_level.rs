//! Byte-level tokenizer.json files.

use crate::goldens::{assert_ids, converted, sections, text};
use atta_tokenizer::Tokenizer;
use serde_json::Value;

fn base() -> Value {
    serde_json::from_str(&text("byte-level/tokenizer.json")).unwrap()
}

#[test]
fn every_published_pre_tokenizer_is_recognized_and_gives_the_ids_of_hugging_face() {
    let pre: Value = serde_json::from_str(&text("byte-level/pre.json")).unwrap();
    let sections = sections("byte-level/pre.ids");
    assert!(sections.len() >= 17);
    for (described, (name, ids)) in pre.as_array().unwrap().iter().zip(&sections) {
        let mut json = base();
        json["pre_tokenizer"] = described["pre_tokenizer"].clone();
        json["model"]["ignore_merges"] = described["ignore_merges"].clone();
        let metadata = converted(&[("tokenizer.json", &json.to_string())], 1300);
        assert_eq!(metadata.str("tokenizer.ggml.pre").unwrap(), Some(&name[..]));
        assert_ids(&metadata, ids, name);
    }
}

#[test]
fn merges_are_read_in_both_forms() {
    let pairs = base();
    let mut texts = base();
    for merge in texts["model"]["merges"].as_array_mut().unwrap() {
        *merge = format!(
            "{} {}",
            merge[0].as_str().unwrap(),
            merge[1].as_str().unwrap()
        )
        .into();
    }
    let merges = |json: Value| {
        let metadata = converted(&[("tokenizer.json", &json.to_string())], 1300);
        let merges = metadata.strs("tokenizer.ggml.merges").unwrap().unwrap();
        merges.iter().map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    assert_eq!(merges(pairs), merges(texts));
}

#[test]
fn a_template_that_begins_with_a_special_token_adds_it_as_bos() {
    let json = base().to_string();
    let config = r#"{"bos_token": "<|begin|>", "eos_token": {"content": "<|im_end|>"}}"#;
    let metadata = converted(
        &[("tokenizer.json", &json), ("tokenizer_config.json", config)],
        1310,
    );
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(0), Some(2)));
    assert!(tokenizer.add_bos() && !tokenizer.add_eos());
    assert_eq!(
        (tokenizer.n_vocab(), tokenizer.token_text(1309)),
        (1310, &b"[PAD1309]"[..])
    );
}
