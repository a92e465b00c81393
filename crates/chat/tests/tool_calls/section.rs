//! Calls of Kimi K2 and of DeepSeek V3.1.

use atta_chat::tools::{CallFormat, Parser, Thinking};
use serde_json::json;

use super::{answer, call, is_text, outcome, read_chunks};

const BEGIN: &str = "<|tool_calls_section_begin|>";
const END: &str = "<|tool_calls_section_end|>";

/// A call as the model writes it.
fn written(head: &str, arguments: &str) -> String {
    format!("<|tool_call_begin|>{head}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>")
}

#[test]
fn calls_of_a_section_have_the_ids_of_the_model() {
    let f = written("functions.a.b-c:0", "{\"a\": [1]}");
    let g = written(" functions.g:12 ", "\n{ }\n");
    let text = format!("<think>hm</think>I look.\n{BEGIN}{f}\n{g}{END}\n");
    let mut expected = answer(
        "I look.",
        &[
            call("functions.a.b-c:0", "a.b-c", json!({"a": [1]})),
            call("functions.g:12", "g", json!({})),
        ],
    );
    expected.reasoning = "hm".into();
    assert_eq!(outcome(CallFormat::Section, &text), expected);
}

#[test]
fn ids_count_on_where_the_model_repeats_one() {
    let parser = Parser::new(CallFormat::Section, Thinking::Never)
        .with_id_seed(7)
        .after_calls(["functions.f:0"]);
    let calls = ["functions.f:0", "functions.f:0", "functions.f:7"].map(|id| written(id, "{}"));
    let read = read_chunks(parser, [BEGIN, &calls.concat(), END]).1;
    let ids: Vec<&str> = read.calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["functions.f:1", "functions.f:2", "functions.f:7"]);
}

#[test]
fn malformed_sections_are_text() {
    for body in [
        "f:0",
        "functions.f",
        "functions.:0",
        "functions.f:",
        "functions.f:a",
        "functions.f:0:",
        "functions.f g:0",
    ] {
        let text = format!("Hm.\n{BEGIN}{}", written(body, "{}"));
        assert!(is_text(CallFormat::Section, &text), "{text}");
    }
    for arguments in ["", "[]", "{a}", "{\"a\": 1"] {
        let text = format!("{BEGIN}{}", written("functions.f:0", arguments));
        assert_eq!(outcome(CallFormat::Section, &text).text, text);
    }
    assert!(is_text(CallFormat::Section, &format!("{BEGIN}Hm.")));
    assert!(is_text(
        CallFormat::Section,
        &written("functions.f:0", "{}")
    ));
}

/// A call of DeepSeek V3.1.
fn named(name: &str, arguments: &str) -> String {
    format!("<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>")
}

#[test]
fn calls_of_a_section_may_have_names_alone() {
    let [f, g] = [named("a.b-c", "{\"a\": [1]}"), named("g", "\n{ }\n")];
    let text = format!("I look.<｜tool▁calls▁begin｜>{f}\n{g}<｜tool▁calls▁end｜>");
    let expected = answer(
        "I look.",
        &[
            call("call_1", "a.b-c", json!({"a": [1]})),
            call("call_2", "g", json!({})),
        ],
    );
    assert_eq!(outcome(CallFormat::NamedSection, &text), expected);
    for body in [named("", "{}"), named("f g", "{}"), named("f", "[]")] {
        let text = format!("Hm.\n<｜tool▁calls▁begin｜>{body}");
        assert!(is_text(CallFormat::NamedSection, &text), "{text}");
    }
}
