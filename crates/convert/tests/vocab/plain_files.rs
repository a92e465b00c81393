//! Vocabularies without a tokenizer.json: tiktoken, tekken, and GPT-2's two files.

use crate::goldens::{assert_ids, converted, golden, metadata, refused, sections, text};
use atta_convert::vocab::{self, VocabOptions};
use atta_tokenizer::{TokenKind, Tokenizer};
use serde_json::{Value, json};
use std::fmt::Write as _;

#[test]
fn ranks_give_the_ids_of_tiktoken() {
    let options = VocabOptions {
        pre: Some("llama-bpe".to_owned()),
    };
    let metadata = metadata(|out| {
        assert_eq!(
            vocab::read(&golden("tiktoken"), 1300, &options, out).unwrap(),
            [""; 0]
        );
    });
    assert_ids(&metadata, &sections("tiktoken/texts.ids")[0].1, "tiktoken");
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    assert_eq!(
        (tokenizer.bos(), tokenizer.add_bos(), tokenizer.add_eos()),
        (Some(1296), true, false)
    );
}

/// A tiktoken file of `n` tokens with arbitrary contents.
fn many_ranks(n: usize) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |i: usize| char::from(DIGITS[i % 64]);
    let line = |text: &mut String, i: usize| {
        writeln!(
            text,
            "{}{}{}{} {i}",
            digit(i / 4096 / 64),
            digit(i / 4096),
            digit(i / 64),
            digit(i)
        )
        .unwrap();
    };
    (0..n).fold(String::new(), |mut text, i| {
        line(&mut text, i);
        text
    })
}

#[test]
fn llama3_and_qwen_are_known_by_the_number_of_their_tokens() {
    let read = |name: &str, n, n_vocab| {
        metadata(|out| {
            drop(crate::goldens::write(&[(name, &many_ranks(n))], n_vocab, out).unwrap())
        })
    };
    let llama3 = read("tokenizer.model", 128_000, 128_256);
    assert_eq!(llama3.str("tokenizer.ggml.pre").unwrap(), Some("llama-bpe"));
    let tokenizer = Tokenizer::from_metadata(&llama3).unwrap();
    assert_eq!(
        (tokenizer.bos(), tokenizer.eos(), tokenizer.eot()),
        (Some(128_000), Some(128_001), Some(128_009))
    );
    assert!(tokenizer.add_bos());
    assert_eq!(
        tokenizer.token_text(128_255),
        b"<|reserved_special_token_247|>"
    );
    let qwen = read("qwen.tiktoken", 151_643, 151_936);
    assert_eq!(qwen.str("tokenizer.ggml.pre").unwrap(), Some("qwen2"));
    let tokenizer = Tokenizer::from_metadata(&qwen).unwrap();
    assert_eq!(
        (tokenizer.eos(), tokenizer.add_bos()),
        (Some(151_643), false)
    );
    assert_eq!(
        (tokenizer.token_text(151_645), tokenizer.kind(151_645)),
        (&b"<|im_end|>"[..], TokenKind::Control)
    );
    assert_eq!(tokenizer.kind(151_935), TokenKind::Unused);
}

#[test]
fn a_line_that_is_no_rank_is_named() {
    let error = |lines: &str| refused(&[("tokenizer.model", lines)], 10);
    assert_eq!(
        error("IQ== 0\nIg 1\n"),
        "tokenizer.model: line 2: 2 characters are no base64"
    );
    assert_eq!(
        error("IQ== 0\n\nIg== x\n"),
        "tokenizer.model: line 3: the rank is no number"
    );
    assert_eq!(
        error("IQ== 0\nIQ== 1"),
        "tokenizer.model: line 2: the token has the rank 0 already"
    );
    assert!(error("IQ== 0\nIg== 0\n").contains("token 0 is "));
    assert!(error("IQ== 99\n").contains("token 99: the embedding has 10 rows"));
    assert!(error("IQ== 0\n").contains("name its pre-tokenizer"));
    assert!(error("").contains("no tokens") && error("not a model\n").contains("line 1"));
}

/// The golden ranks in tekken format.
fn tekken(n: usize, special: &Value) -> String {
    let lines = text("tiktoken/tokenizer.model");
    let entry = |line: &str| {
        let (token, rank) = line.split_once(' ').unwrap();
        json!({"rank": rank.parse::<u32>().unwrap(), "token_bytes": token, "token_str": null})
    };
    let vocab: Vec<Value> = lines.lines().map(entry).collect();
    let config = json!({"default_vocab_size": n, "default_num_special_tokens": 4, "version": "v3"});
    json!({"config": config, "vocab": vocab, "special_tokens": special}).to_string()
}

#[test]
fn tekken_gives_the_ids_of_hugging_face_and_leaves_out_what_does_not_fit() {
    let special: Vec<Value> = ["<|begin|>", "<|endoftext|>", "<|im_end|>", "<user>"]
        .iter()
        .enumerate()
        .map(|(rank, text)| json!({"rank": rank, "token_str": text, "is_control": true}))
        .collect();
    let read = |json: &str| converted(&[("tekken.json", json)], 1300);
    let sections = sections("byte-level/pre.ids");
    let (_, ids) = sections.iter().find(|(name, _)| name == "tekken").unwrap();
    assert_ids(&read(&tekken(1300, &json!(special))), ids, "tekken");
    let tokenizer = Tokenizer::from_metadata(&read(&tekken(1000, &json!([])))).unwrap();
    assert_eq!(
        (tokenizer.bos(), tokenizer.eos(), tokenizer.unknown()),
        (Some(1), Some(2), Some(0))
    );
    assert!(tokenizer.add_bos() && !tokenizer.add_eos());
    assert_eq!(
        [999, 1000].map(|id| tokenizer.kind(id)),
        [TokenKind::Normal, TokenKind::Unused]
    );
    let error = |json: &str| refused(&[("tekken.json", json)], 3);
    assert!(
        error(&tekken(1300, &json!([]))).contains("4 special tokens: the embedding has 3 rows")
    );
    assert!(error("{}").contains("no config"));
    let broken = tekken(1300, &json!([])).replace("\"rank\":7,", "");
    assert!(refused(&[("tekken.json", &broken)], 1300).contains("vocab: entry 7: no rank"));
}

/// vocab.json and merges.txt of the golden vocabulary.
fn two_files() -> (String, String) {
    let json: Value = serde_json::from_str(&text("byte-level/tokenizer.json")).unwrap();
    let merges = json["model"]["merges"].as_array().unwrap().iter();
    let lines = merges.map(|merge| {
        format!(
            "{} {}\n",
            merge[0].as_str().unwrap(),
            merge[1].as_str().unwrap()
        )
    });
    (
        json["model"]["vocab"].to_string(),
        "#version: 0.2\n".to_owned() + &lines.collect::<String>(),
    )
}

#[test]
fn vocab_and_merges_give_the_ids_of_hugging_face() {
    let (vocab, merges) = two_files();
    let decoder = json!({"added_tokens_decoder": {
        "0": {"content": "<|begin|>", "special": true},
        "1": {"content": "<|endoftext|>", "special": true},
        "2": {"content": "<|im_end|>", "special": true},
        "3": {"content": "<user>", "special": false}
    }});
    let decoder = decoder.to_string();
    let files = |config| {
        [
            ("vocab.json", &vocab[..]),
            ("merges.txt", &merges[..]),
            ("tokenizer_config.json", config),
        ]
    };
    let metadata = converted(&files(&decoder), 1300);
    assert_eq!(metadata.str("tokenizer.ggml.pre").unwrap(), Some("gpt-2"));
    assert_ids(&metadata, &sections("byte-level/pre.ids")[0].1, "gpt-2");
    let qwen2 = converted(&files(r#"{"tokenizer_class": "Qwen2TokenizerFast"}"#), 1300);
    assert_eq!(qwen2.str("tokenizer.ggml.pre").unwrap(), Some("qwen2"));
    assert!(
        refused(&files(r#"{"tokenizer_class": "OtherTokenizer"}"#), 1300)
            .contains("OtherTokenizer")
    );
}

#[test]
fn the_end_of_text_is_hidden_though_vocab_json_has_no_kinds() {
    let files = [
        (
            "vocab.json",
            r#"{"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}"#,
        ),
        ("merges.txt", "a b\n"),
        ("config.json", r#"{"bos_token_id": 3, "eos_token_id": [3]}"#),
    ];
    let tokenizer = Tokenizer::from_metadata(&converted(&files, 4)).unwrap();
    assert_eq!(
        (tokenizer.bos(), tokenizer.eos(), tokenizer.kind(3)),
        (Some(3), Some(3), TokenKind::Control)
    );
    assert!(!tokenizer.add_bos());
}

#[test]
fn a_line_that_is_no_merge_is_named() {
    let error = |merges| refused(&[("vocab.json", r#"{"a": 0}"#), ("merges.txt", merges)], 1);
    assert_eq!(
        error("#version: 0.2\na b\na b c\n"),
        "merges.txt: line 3: expected two halves of a merge"
    );
    assert!(error("a\n").contains("line 1"));
}
