//! Messages of gpt-oss.

use atta_chat::tools::{CallFormat, Outcome, Parser, Rules, Thinking, ToolChoice, ToolSet};
use serde_json::json;

use super::{answer, call, is_text, outcome, read_chunks};

const NEXT: &str = "<|end|><|start|>assistant";
const ANALYSIS: &str = "<|channel|>analysis<|message|>";

#[test]
fn channels_are_thinking_and_text() {
    let text = format!(
        "{ANALYSIS}\nhm <think>{NEXT}<|channel|>commentary<|message|>I look.{NEXT}{ANALYSIS} So.{NEXT}\
         <|channel|>final<|message|> It is\n<|channel|>."
    );
    let expected = Outcome {
        reasoning: "hm <think> So.".into(),
        ..answer("I look. It is\n<|channel|>.", &[])
    };
    assert_eq!(outcome(CallFormat::Harmony, &text), expected);
    let open = Parser::new(CallFormat::Harmony, Thinking::Open);
    let rest = [
        "hm<|en",
        "d|><|start|>assistant<|channel|>final<|message|>Hi",
    ];
    let read = read_chunks(open, rest).1;
    assert_eq!((read.reasoning.as_str(), read.text.as_str()), ("hm", "Hi"));
}

#[test]
fn a_recipient_makes_a_message_a_call() {
    let f = call("call_1", "a.b-c", json!({"a": [1]}));
    for header in [
        "<|channel|>commentary to=functions.a.b-c <|constrain|>json",
        "<|channel|>commentary to=functions.a.b-c<|constrain|>json",
        "<|channel|>commentary to=functions.a.b-c json",
        "<|channel|>commentary to=functions.a.b-c",
        "<|channel|>analysis to=functions.a.b-c code",
        " to=functions.a.b-c<|channel|>commentary <|constrain|>json",
        " to=functions.a.b-c<|channel|>analysis json",
    ] {
        let said = format!("{header}<|message|>{{\"a\": [1]}}");
        let expected = answer("", std::slice::from_ref(&f));
        assert_eq!(outcome(CallFormat::Harmony, &said), expected, "{header}");
        let after = format!("{ANALYSIS}hm{NEXT}{said}<|call|>");
        let expected = Outcome {
            reasoning: "hm".into(),
            ..expected
        };
        assert_eq!(outcome(CallFormat::Harmony, &after), expected, "{header}");
    }
}

#[test]
fn a_stray_header_stands_in_front_of_another_one() {
    for stray in [
        "<|channel|>commentary",
        "<|channel|>commentary to=assistant",
    ] {
        let text = format!("{stray}{ANALYSIS}hm{NEXT}{stray}<|channel|>final<|message|>Hi");
        let expected = Outcome {
            reasoning: "hm".into(),
            ..answer("Hi", &[])
        };
        assert_eq!(outcome(CallFormat::Harmony, &text), expected);
    }
}

#[test]
fn malformed_messages_are_text() {
    for text in [
        "<|channel|>other<|message|>Hi",
        "<|channel|>analysis to=python code<|message|>print(1)",
        "<|channel|>commentary to=functions.<|message|>{}",
        "<|channel|>commentary to=functions.f g<|message|>{}",
        "<|channel|>commentary to=functions.f<|message|>Hi",
        "<|channel|>commentary to=functions.f<|message|>[]",
        "<|channel|>commentary to=functions.f<|message|>{\"a\": 1",
        "<|channel|>final to=functions.f<|message|>{}",
        "<|start|>user<|message|>Hi",
        "to=functions",
        "It is <|channel|>commentary to=functions.f<|message|>{}",
    ] {
        assert!(is_text(CallFormat::Harmony, text), "{text}");
    }
}

#[test]
fn where_nothing_can_be_called_messages_are_read_all_the_same() {
    let tools = ToolSet::default();
    let rules = Rules {
        format: CallFormat::Harmony,
        tools: &tools,
        choice: &ToolChoice::Auto,
        parallel: true,
        thinking: Thinking::Maybe,
        reply: None,
    };
    let read = |text: &str| read_chunks(rules.parser(), [text]).1;
    let said = format!("{ANALYSIS}hm{NEXT}<|channel|>final<|message|>Hi");
    let expected = Outcome {
        reasoning: "hm".into(),
        ..answer("Hi", &[])
    };
    assert_eq!(read(&said), expected);
    let called = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}";
    assert_eq!(read(called), answer(called, &[]));
}
