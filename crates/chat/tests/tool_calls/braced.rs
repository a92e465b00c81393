//! Calls of Gemma 4.

use atta_chat::tools::{CallFormat, Parser, Piece, Thinking};
use serde_json::json;

use super::{answer, call, is_text, outcome, read, read_chunks};

#[test]
fn parameters_in_braces_are_arguments() {
    let text = "I look.\n<|tool_call>call:f{a:<|\"|>b \"c\"\n<|\"|>,n:-7.5,l:[true,null,{x:<|\"|><|\"|>}]}\
                <tool_call|><|tool_call>call:g{}<tool_call|>\n";
    let f = json!({"a": "b \"c\"\n", "n": -7.5, "l": [true, null, {"x": ""}]});
    let (pieces, outcome) = read(CallFormat::Braced, text);
    let g = call("call_2", "g", json!({}));
    assert_eq!(outcome, answer("I look.", &[call("call_1", "f", f), g]));
    let fragment = r#"{"a": "b \"c\"\n", "n": -7.5, "l": [true, null, {"x": ""}]}"#.to_owned();
    assert!(pieces.contains(&Piece::CallArguments { index: 0, fragment }));
}

#[test]
fn keys_and_strings_may_be_json() {
    let text = "<|tool_call>call:f{ \"a\" : \"b\\n\", <|\"|>c d<|\"|>: [ 1 , None ], e : True }<tool_call|>";
    let f = json!({"a": "b\n", "c d": [1, null], "e": true});
    assert_eq!(
        outcome(CallFormat::Braced, text),
        answer("", &[call("call_1", "f", f)])
    );
}

#[test]
fn malformed_braces_are_text() {
    for body in [
        "f{}",
        "call:{}",
        "call:f g{}",
        "call:f{a}",
        "call:f{a:}",
        "call:f{a:b}",
        "call:f{a:1,}",
        "call:f{,a:1}",
        "call:f{a:[1}",
        "call:f{a:01}",
        "call:f{a:<|\"|>b}",
        "call:f{a:\"\\x\"}",
        "call:f{a:1",
    ] {
        let text = format!("Hm.\n<|tool_call>{body}");
        assert!(is_text(CallFormat::Braced, &text), "{text}");
    }
}

#[test]
fn thinking_stands_in_a_channel() {
    let text = "<|channel>thought\nhm <think>\n<channel|>Hi";
    let read = outcome(CallFormat::Braced, text);
    assert_eq!(
        (read.reasoning.as_str(), read.text.as_str()),
        ("hm <think>", "Hi")
    );
    let open = Parser::new(CallFormat::Braced, Thinking::Open);
    let read = read_chunks(open, ["hm<channel|>", "Hi"]).1;
    assert_eq!((read.reasoning.as_str(), read.text.as_str()), ("hm", "Hi"));
    assert!(is_text(CallFormat::Braced, "<|channel>other\n<channel|>Hi"));
}
