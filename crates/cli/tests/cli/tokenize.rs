//! `atta tokenize`: ids of a text, whatever its bytes.

use crate::program::{atta, atta_with_input, error_of, model, stdout, text_of};

fn ids(args: &[&str]) -> Vec<u32> {
    serde_json::from_str(&stdout(args)).unwrap()
}

#[test]
fn ids_are_printed_as_a_list() {
    let model = model("llama-plain.gguf");
    let text = stdout(&["tokenize", &model, "the king", "--ids"]);
    assert!(
        text.starts_with('[') && text.ends_with("]\n") && text.contains(", "),
        "{text}"
    );
    let with_bos = ids(&["tokenize", &model, "the king", "--ids", "--bos"]);
    assert_eq!(with_bos[0], 1);
    assert_eq!(
        with_bos[1..],
        ids(&["tokenize", &model, "the king", "--ids"])
    );
}

#[test]
fn a_model_by_its_name_leaves_the_text_its_place() {
    let model = model("llama-plain.gguf");
    let expected = ids(&["tokenize", &model, "the king", "--ids"]);
    for args in [
        &["tokenize", "-m", &model, "the king", "--ids"][..],
        &["tokenize", "the king", "--model", &model, "--ids"],
        &["tokenize", "-m", &model, "-p", "the king", "--ids"],
    ] {
        assert_eq!(ids(args), expected, "{args:?}");
    }
    let twice = ["tokenize", "-m", &model, "the king", "-p", "the king"];
    assert!(error_of(&atta(&twice), 2).contains("twice"));
}

#[test]
fn control_tokens_are_recognised_on_request_only() {
    let model = model("llama-plain.gguf");
    assert!(!ids(&["tokenize", &model, "a</s>", "--ids"]).contains(&2));
    assert!(ids(&["tokenize", &model, "a</s>", "--ids", "--special"]).contains(&2));
}

#[test]
fn standard_input_is_taken_byte_for_byte() {
    let model = model("llama-plain.gguf");
    let piped = |args: &[&str], input: &[u8]| {
        text_of(&atta_with_input(
            &[&["tokenize", &model], args].concat(),
            input,
        ))
    };
    assert_eq!(
        piped(&["--ids"], b"a b"),
        stdout(&["tokenize", &model, "a b", "--ids"])
    );
    assert_eq!(piped(&["-", "--ids"], b"a b"), piped(&["--ids"], b"a b"));
    assert_ne!(piped(&["--ids"], b"a b\n"), piped(&["--ids"], b"a b"));
    assert_ne!(piped(&["--ids"], b"\xff\r\n\0"), "[]\n");
}

#[test]
fn empty_input_is_an_empty_list() {
    for name in ["llama-plain.gguf", "qwen2.gguf"] {
        let model = model(name);
        assert_eq!(stdout(&["tokenize", &model, "", "--ids"]), "[]\n");
        assert_eq!(
            text_of(&atta_with_input(&["tokenize", &model, "--ids"], b"")),
            "[]\n"
        );
        assert_eq!(stdout(&["tokenize", &model]), "[]\n");
    }
}

#[test]
fn without_ids_each_token_has_a_line() {
    let model = model("llama-plain.gguf");
    let lines = stdout(&["tokenize", &model, "the king"]);
    let ids = ids(&["tokenize", &model, "the king", "--ids"]);
    let first: Vec<u32> = lines
        .lines()
        .map(|line| line.split_whitespace().next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(first, ids);
}
