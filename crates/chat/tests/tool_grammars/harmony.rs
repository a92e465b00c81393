//! Grammars of the messages of gpt-oss.

use atta_chat::tools::{CallFormat, Outcome, Rules, Thinking, ToolChoice, ToolSet};
use atta_constrain::Constraint;

use super::{Judge, Random, check, finished, grammar, rules, tools, vocabulary::Vocabulary, walk};

const NEXT: &str = "<|end|><|start|>assistant";

fn thinking_rules<'a>(tools: &'a ToolSet, choice: &'a ToolChoice) -> Rules<'a> {
    Rules {
        thinking: Thinking::Maybe,
        ..rules(CallFormat::Harmony, tools, choice)
    }
}

fn message(channel: &str, text: &str) -> String {
    format!("<|channel|>{channel}<|message|>{text}")
}

#[test]
fn messages_are_thinking_and_text_and_then_a_call_or_a_final_text() {
    let vocabulary = Vocabulary::new();
    let tools = tools();
    let think = message("analysis", "hm") + NEXT;
    let preamble = message("commentary", "I look.") + NEXT;
    let last = message("final", "Hi <|channel|>");
    let call = message("commentary to=functions.now json", "{}");
    let from_role = format!(" to=functions.now{}", message("commentary", "{}"));
    let from_role_alone = " to=functions.now<|constrain|>json<|message|>{}".to_owned();
    let calls = [&call, &from_role, &from_role_alone];
    for control in [false, true] {
        let accepts = |choice: &ToolChoice, text: &str| {
            let lark = grammar(&vocabulary, &thinking_rules(&tools, choice), control);
            vocabulary.accepts(&lark, text, control)
        };
        for lead in ["", &think, &preamble, &(think.clone() + &preamble + &think)] {
            for call in calls {
                assert!(accepts(&ToolChoice::Auto, &format!("{lead}{call}")));
                let is_text = lead.contains("I look.");
                let may_come = accepts(&ToolChoice::Required, &format!("{lead}{call}"));
                assert!(may_come != is_text, "{lead}{call}");
            }
            let text = format!("{lead}{}", message("final", "Hi"));
            assert!(accepts(&ToolChoice::Auto, &text) && !accepts(&ToolChoice::Required, &text));
        }
        assert!(accepts(&ToolChoice::Auto, &last) != control);
        for wrong in [
            "Hi".to_owned(),
            message("other", "Hi"),
            message("final", &format!("Hi{NEXT}{call}")),
            message("commentary", "Hi"),
            message("analysis", "Hi"),
            message("analysis to=functions.now", "{}"),
            message("commentary to=functions.other", "{}"),
            message("commentary to=functions.nowjson", "{}"),
            message("final", "Hi<|end|>"),
            format!("{call}{NEXT}{call}"),
        ] {
            assert!(!accepts(&ToolChoice::Auto, &wrong), "{wrong}");
        }
    }
}

#[test]
fn a_prompt_that_ends_inside_a_message_goes_on_with_its_text() {
    let vocabulary = Vocabulary::new();
    let tools = tools();
    let lark = |thinking, control| {
        let rules = Rules {
            thinking,
            ..rules(CallFormat::Harmony, &tools, &ToolChoice::Auto)
        };
        grammar(&vocabulary, &rules, control)
    };
    for control in [false, true] {
        assert!(vocabulary.accepts(&lark(Thinking::Never, control), " warm.", control));
        let rest = format!("m{NEXT}{}", message("final", "Hi"));
        assert!(vocabulary.accepts(&lark(Thinking::Open, control), &rest, control));
    }
}

#[test]
fn a_constrained_text_is_the_final_one_also_without_tools() {
    let vocabulary = Vocabulary::new();
    let none = ToolSet::default();
    let some = tools();
    let json = Constraint::JsonObject;
    let text = r#"{"a": "<|end|><|start|>assistant to=functions.now"}"#;
    for (tools, choice) in [
        (&none, ToolChoice::Auto),
        (&none, ToolChoice::None),
        (&some, ToolChoice::None),
    ] {
        let rules = Rules {
            reply: Some(&json),
            ..thinking_rules(tools, &choice)
        };
        for control in [false, true] {
            let lark = grammar(&vocabulary, &rules, control);
            let accepts = |text: &str| vocabulary.accepts(&lark, text, control);
            for header in ["final", "final json", "final <|constrain|>json"] {
                let last = message(header, r#"{"a": 1}"#);
                let whole = message("analysis", "hm") + NEXT + &last;
                assert!(accepts(&last) && accepts(&whole), "{whole}\n{lark}");
                let said = message("analysis", "hm") + NEXT + &message(header, text);
                let expected = Outcome {
                    reasoning: "hm".into(),
                    text: text.into(),
                    ..Outcome::default()
                };
                assert_eq!(finished(rules.parser(), &said), expected);
            }
            for wrong in [
                r#"{"a": 1}"#.to_owned(),
                message("final", "Hi"),
                message("commentary to=functions.now json", "{}"),
                message("commentary", "Hi") + NEXT + &message("final", "{}"),
            ] {
                assert!(!accepts(&wrong), "{wrong}\n{lark}");
            }
        }
    }
    let regex = Constraint::Regex("a".into());
    let rules = Rules {
        reply: Some(&regex),
        ..thinking_rules(&none, &ToolChoice::Auto)
    };
    assert_eq!(rules.grammar(&|_| None), Ok(None));
}

/// Thinking and text of a whole answer, whose last message is a call or the final text.
fn split(answer: &str) -> [String; 2] {
    let mut channels = [String::new(), String::new()];
    let mut rest = answer;
    loop {
        let (header, body) = rest.split_once("<|message|>").unwrap();
        if header.contains("to=functions.") {
            return channels;
        }
        if header.contains("final") {
            channels[1].push_str(body);
            return channels;
        }
        let (text, next) = body.split_once(NEXT).unwrap();
        let is_text = header.ends_with("commentary");
        channels[usize::from(is_text)].push_str(text);
        rest = next;
    }
}

#[test]
fn random_messages_are_read_as_they_were_written() {
    let tools = tools();
    let vocabulary = Vocabulary::new();
    let judge = Judge::new(&tools);
    let mut random = Random(5);
    let mut n_read = [0, 0, 0];
    let solid = |text: &str| text.split_ascii_whitespace().collect::<String>();
    for choice in [ToolChoice::Auto, ToolChoice::Required] {
        let rules = thinking_rules(&tools, &choice);
        for control in [false, true] {
            let lark = grammar(&vocabulary, &rules, control);
            for _ in 0..250 {
                let (bytes, is_whole) = walk(&vocabulary, &lark, &mut random);
                let text = String::from_utf8_lossy(&bytes);
                let outcome = check(&rules, &judge, &text, is_whole);
                if !is_whole {
                    continue;
                }
                let read = [&outcome.reasoning, &outcome.text].map(|text| solid(text));
                assert_eq!(read, split(&text).map(|text| solid(&text)), "{text:?}");
                n_read[0] += usize::from(!outcome.reasoning.is_empty());
                n_read[1] += usize::from(!outcome.text.is_empty());
                n_read[2] += outcome.calls.len();
            }
        }
    }
    assert!(
        n_read.iter().all(|&n| n > 20),
        "the walks lead nowhere: {n_read:?}"
    );
}
