//! Special tokens, chat templates, and files that contradict each other or are invalid.

use crate::goldens::{converted, metadata, refused, write};
use atta_convert::vocab::{self, VocabFiles, VocabOptions};
use atta_formats::{Metadata, Writer};
use atta_tokenizer::{TokenKind, Tokenizer};
use serde_json::{Value, json};

const SPECIAL: [&str; 5] = [
    "<|begin|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<|other|>",
];

/// A tokenizer.json of three tokens and five special ones, with some fields replaced.
fn tokenizer_json(replaced: &[(&str, Value)]) -> String {
    let added: Vec<Value> = SPECIAL
        .iter()
        .zip(3..)
        .map(|(text, id)| json!({"id": id, "content": text, "special": true}))
        .collect();
    let mut json = json!({
        "added_tokens": added,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
    });
    replaced
        .iter()
        .for_each(|(key, value)| json[*key] = value.clone());
    json.to_string()
}

fn with(files: &[(&str, &str)]) -> Metadata {
    let json = tokenizer_json(&[]);
    converted(&[&[("tokenizer.json", &json[..])], files].concat(), 8)
}

fn tokenizer(files: &[(&str, &str)]) -> Tokenizer {
    Tokenizer::from_metadata(&with(files)).unwrap()
}

fn id(metadata: &Metadata, name: &str) -> Option<u32> {
    metadata
        .u32(&format!("tokenizer.ggml.{name}_token_id"))
        .unwrap()
}

#[test]
fn a_text_in_tokenizer_config_is_before_the_ids_of_the_others() {
    let config = r#"{"eos_token": {"content": "<|im_end|>"}, "pad_token": "<|endoftext|>",
        "unk_token": null}"#;
    let ids = r#"{"bos_token_id": 3, "eos_token_id": 5, "pad_token_id": -1}"#;
    let metadata = with(&[("tokenizer_config.json", config), ("config.json", ids)]);
    assert_eq!(
        ["bos", "eos", "padding", "unknown"].map(|name| id(&metadata, name)),
        [Some(3), Some(4), Some(5), None]
    );
    let nested = with(&[("config.json", r#"{"text_config": {"bos_token_id": 3}}"#)]);
    assert_eq!((id(&nested, "bos"), id(&nested, "eos")), (Some(3), None));
}

#[test]
fn of_a_list_of_ends_the_first_is_eos_and_the_others_get_what_their_texts_show() {
    let metadata = with(&[("generation_config.json", r#"{"eos_token_id": [5, 6, 4]}"#)]);
    assert_eq!(
        ["eos", "eot", "eom"].map(|name| id(&metadata, name)),
        [Some(5), Some(4), Some(6)]
    );
    let tokenizer = tokenizer(&[("generation_config.json", r#"{"eos_token_id": [4, 7]}"#)]);
    assert_eq!((tokenizer.eos(), tokenizer.eot()), (Some(4), Some(7)));
    assert!(tokenizer.is_eog(7));
}

#[test]
fn an_id_without_a_token_is_warned_about() {
    let json = tokenizer_json(&[]);
    let files = [
        ("tokenizer.json", &json[..]),
        ("config.json", r#"{"bos_token_id": 8}"#),
    ];
    assert_eq!(
        write(&files, 8, &mut Writer::new()).unwrap(),
        ["bos_token_id is 8: there is no such token"]
    );
}

#[test]
fn flags_of_tokenizer_config_count_where_there_is_no_template() {
    let both = r#"{"bos_token": "<|begin|>", "eos_token": "<|im_end|>", "add_bos_token": true,
        "add_eos_token": true}"#;
    let asked = tokenizer(&[("tokenizer_config.json", both)]);
    assert!(asked.add_bos() && asked.add_eos());
    let silent = tokenizer(&[("config.json", r#"{"bos_token_id": 3, "eos_token_id": 4}"#)]);
    assert!(!silent.add_bos() && !silent.add_eos());
}

fn with_template(single: &Value, config: &str) -> (Metadata, Vec<String>) {
    let processor = json!({"type": "TemplateProcessing", "single": single});
    let json = tokenizer_json(&[("post_processor", processor)]);
    let mut warnings = Vec::new();
    let files = [
        ("tokenizer.json", &json[..]),
        ("tokenizer_config.json", config),
    ];
    let metadata = metadata(|out| warnings = write(&files, 8, out).unwrap());
    (metadata, warnings)
}

#[test]
fn flags_of_tokenizer_config_count_more_than_a_template() {
    let mark = |text: &str| json!({"SpecialToken": {"id": text, "type_id": 0}});
    let around =
        json!([mark("<|begin|>"), {"Sequence": {"id": "A", "type_id": 0}}, mark("<|im_end|>")]);
    for (flags, expected) in [
        ("", true),
        (r#", "add_bos_token": false, "add_eos_token": false"#, false),
    ] {
        let config = format!(r#"{{"bos_token": "<|begin|>", "eos_token": "<|im_end|>"{flags}}}"#);
        let (metadata, _) = with_template(&around, &config);
        for key in [
            "tokenizer.ggml.add_bos_token",
            "tokenizer.ggml.add_eos_token",
        ] {
            assert_eq!(
                metadata.bool(key).unwrap(),
                Some(expected),
                "{key}, {config}"
            );
        }
    }
}

#[test]
fn a_template_sets_the_tokens_around_a_text() {
    let mark = |text: &str| json!({"SpecialToken": {"id": text, "type_id": 0}});
    let text = || json!({"Sequence": {"id": "A", "type_id": 0}});
    let (embedding, warnings) = with_template(
        &json!([text(), mark("<|endoftext|>")]),
        r#"{"eos_token": "<|im_end|>"}"#,
    );
    assert_eq!(
        ["eos", "eot"].map(|name| id(&embedding, name)),
        [Some(5), Some(4)]
    );
    assert_eq!(
        (
            embedding.bool("tokenizer.ggml.add_eos_token").unwrap(),
            warnings
        ),
        (Some(true), vec![])
    );
    let (odd, warnings) = with_template(
        &json!([mark("<|other|>"), text()]),
        r#"{"bos_token": "<|begin|>"}"#,
    );
    assert_eq!(
        odd.bool("tokenizer.ggml.add_bos_token").unwrap(),
        Some(false)
    );
    assert_eq!(
        warnings,
        ["<|other|> will not be added in front of a text, because it is not BOS"]
    );
}

#[test]
fn templates_are_found_in_all_files() {
    let template =
        |files: &[(&str, &str)], key: &str| with(files).str(key).unwrap().map(str::to_owned);
    let main = |files: &[(&str, &str)]| template(files, "tokenizer.chat_template");
    let in_config = ("tokenizer_config.json", r#"{"chat_template": "one"}"#);
    let in_jinja = ("chat_template.jinja", "two {{ é }}\n");
    let in_json = ("chat_template.json", r#"{"chat_template": "three"}"#);
    assert_eq!(main(&[in_config, in_jinja, in_json]).unwrap(), "one");
    assert_eq!(main(&[in_jinja, in_json]).unwrap(), "two {{ é }}\n");
    assert_eq!(main(&[in_json]).unwrap(), "three");
    assert_eq!(main(&[]), None);
}

#[test]
fn templates_with_names_stand_beside_the_default_one() {
    let list = r#"{"chat_template": [{"name": "default", "template": "a"},
        {"name": "tool-use", "template": "b"}]}"#;
    let beside = [
        ("chat_template.jinja", "a"),
        ("additional_chat_templates/tool-use.jinja", "b"),
    ];
    for metadata in [with(&[("tokenizer_config.json", list)]), with(&beside)] {
        assert_eq!(metadata.str("tokenizer.chat_template").unwrap(), Some("a"));
        assert_eq!(
            metadata.str("tokenizer.chat_template.tool_use").unwrap(),
            Some("b")
        );
        let names = metadata.strs("tokenizer.chat_templates").unwrap().unwrap();
        assert_eq!(names.iter().collect::<Vec<_>>(), [b"tool_use"]);
    }
    let json = tokenizer_json(&[]);
    let files = [
        ("tokenizer.json", &json[..]),
        ("tokenizer_config.json", r#"{"chat_template": 1}"#),
    ];
    assert!(refused(&files, 8).contains("chat_template"));
}

#[test]
fn added_tokens_without_a_row_are_left_out_and_learned_ones_are_an_error() {
    let warnings = write(
        &[("tokenizer.json", &tokenizer_json(&[]))],
        7,
        &mut Writer::new(),
    )
    .unwrap();
    assert_eq!(
        warnings,
        ["1 added tokens are left out: the embedding has only 7 rows"]
    );
    assert!(
        refused(&[("tokenizer.json", &tokenizer_json(&[]))], 2)
            .contains("token 2: the embedding has 2 rows")
    );
}

#[test]
fn holes_become_padding_and_special_tokens_keep_their_types() {
    let metadata = with(&[("added_tokens.json", r#"{"<tool>": 7}"#)]);
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    assert_eq!(
        (tokenizer.token_text(7), tokenizer.kind(7)),
        (&b"<|other|>"[..], TokenKind::Control),
        "tokenizer.json wins"
    );
    let json = tokenizer_json(&[(
        "added_tokens",
        json!([{"id": 9, "content": "<tool>"}, {"id": 5, "content": "<|x|>"}]),
    )]);
    let tokenizer = Tokenizer::from_metadata(&converted(&[("tokenizer.json", &json)], 10)).unwrap();
    assert_eq!(
        [3, 5, 9].map(|id| tokenizer.kind(id)),
        [
            TokenKind::Unused,
            TokenKind::Control,
            TokenKind::UserDefined
        ]
    );
    assert_eq!(tokenizer.token_text(4), b"[PAD4]");
}

#[test]
fn invalid_files_are_refused_by_name() {
    let error = |json: &str| refused(&[("tokenizer.json", json)], 8);
    let model = |model: Value| error(&tokenizer_json(&[("model", model)]));
    assert!(error("").starts_with("tokenizer.json: EOF"));
    assert!(error(&"[".repeat(100_000)).starts_with("tokenizer.json: "));
    assert!(
        error(&format!("{{\"added_tokens\": {0}", "[".repeat(100_000)))
            .starts_with("tokenizer.json: ")
    );
    let deep = format!(
        "{{\"model\": {{}}, \"normalizer\": {}{}}}",
        "[".repeat(1000),
        "]".repeat(1000)
    );
    assert!(error(&deep).contains("recursion limit"));
    assert!(
        model(json!({"type": "BPE", "vocab": {"a": 1, "b": 1}, "merges": []}))
            .contains("token 1 is \"a\" and \"b\"")
    );
    assert!(
        model(json!({"type": "BPE", "vocab": {"a": -1}, "merges": []}))
            .contains("vocab: invalid value")
    );
    assert!(
        model(json!({"type": "BPE", "vocab": {"a": 0}, "merges": [["a"]]}))
            .contains("merges: invalid length")
    );
    assert!(
        model(json!({"type": "WordLevel", "vocab": {}}))
            .contains("kind WordLevel is not supported")
    );
    assert!(error(&tokenizer_json(&[]).replace("\"a\"", r#""\ud800""#)).contains("hex escape"));
    let mut files = VocabFiles::default();
    files.insert("tokenizer.json", b"{\"model\": \"\xFF\"}".to_vec());
    let error = vocab::write(&files, 8, &VocabOptions::default(), &mut Writer::new()).unwrap_err();
    assert_eq!(error.to_string(), "tokenizer.json: byte 11 is not UTF-8");
}

#[test]
fn an_unknown_pre_tokenizer_is_shown_with_a_way_out() {
    let split = json!({"type": "Split", "pattern": {"Regex": "x+|\\d"}, "behavior": "Isolated",
        "invert": false});
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false});
    let json = tokenizer_json(&[(
        "pre_tokenizer",
        json!({"type": "Sequence", "pretokenizers": [split, bytes]}),
    )]);
    let error = refused(&[("tokenizer.json", &json)], 8);
    assert!(
        error.contains("splits by `x+|\\d`") && error.contains("name an equivalent one"),
        "{error}"
    );
    let mut files = VocabFiles::default();
    files.insert("tokenizer.json", json.into_bytes());
    let options = VocabOptions {
        pre: Some("smollm".to_owned()),
    };
    let metadata = metadata(|out| drop(vocab::write(&files, 8, &options, out).unwrap()));
    assert_eq!(metadata.str("tokenizer.ggml.pre").unwrap(), Some("smollm"));
}

#[test]
fn ignored_steps_are_warned_about() {
    let prefixed = json!({"type": "ByteLevel", "add_prefix_space": true});
    let json = tokenizer_json(&[
        ("normalizer", json!({"type": "NFC"})),
        ("pre_tokenizer", prefixed),
    ]);
    let warnings = write(&[("tokenizer.json", &json)], 8, &mut Writer::new()).unwrap();
    assert_eq!(warnings[0], "the normalizer NFC will not be applied");
    assert!(warnings[1].contains("add_prefix_space") && warnings.len() == 2);
}

#[test]
fn a_directory_without_a_vocabulary_says_what_is_looked_for() {
    let error = vocab::read(
        &std::env::temp_dir().join("no-such-model"),
        8,
        &VocabOptions::default(),
        &mut Writer::new(),
    );
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("no vocabulary: expected tokenizer.json")
    );
}
