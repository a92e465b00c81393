//! Parsing of calls: every format, texts that are no calls, and independence of the cuts.

mod braced;
mod generated;
mod harmony;
mod hostile;
mod python;
mod section;
mod tagged;
mod templates;

use atta_chat::tools::{CallFormat, Outcome, Parser, Piece, TextEnd, Thinking, ToolCall};
use generated::{chunks, output};
use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

/// Joins what belongs together, so that only what came out counts, and not in which pieces.
fn joined(pieces: impl IntoIterator<Item = Piece>) -> Vec<Piece> {
    let mut all: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (all.last_mut(), piece) {
            (Some(Piece::Text(last)), Piece::Text(text)) => last.push_str(&text),
            (Some(Piece::Reasoning(last)), Piece::Reasoning(text)) => last.push_str(&text),
            (
                Some(Piece::CallArguments { fragment: last, .. }),
                Piece::CallArguments { fragment, .. },
            ) => {
                last.push_str(&fragment);
            }
            (_, piece) => all.push(piece),
        }
    }
    all
}

fn read_chunks<'a>(
    parser: Parser,
    chunks: impl IntoIterator<Item = &'a str>,
) -> (Vec<Piece>, Outcome) {
    let mut parser = parser;
    let mut pieces = Vec::new();
    for chunk in chunks {
        pieces.extend(parser.push(chunk));
    }
    let (rest, outcome) = parser.finish(TextEnd::Whole);
    pieces.extend(rest);
    (joined(pieces), outcome)
}

/// Reads a text character by character: no piece has a marker in its middle.
fn read_chars(mut parser: Parser, text: &str) -> (Vec<Piece>, Outcome) {
    let chars = text.chars().map(String::from);
    let mut pieces: Vec<Piece> = chars.flat_map(|c| parser.push(&c)).collect();
    let (rest, outcome) = parser.finish(TextEnd::Whole);
    pieces.extend(rest);
    (pieces, outcome)
}

/// Reads a text whole, and demands the same of it character by character.
fn read(format: CallFormat, text: &str) -> (Vec<Piece>, Outcome) {
    let whole = read_chunks(Parser::new(format, Thinking::Maybe), [text]);
    let chars: Vec<String> = text.chars().map(String::from).collect();
    assert_eq!(
        read_chunks(
            Parser::new(format, Thinking::Maybe),
            chars.iter().map(String::as_str)
        ),
        whole,
        "{text}"
    );
    whole
}

fn call(id: &str, name: &str, arguments: Value) -> ToolCall {
    ToolCall {
        id: id.into(),
        name: name.into(),
        arguments,
    }
}

fn answer(text: &str, calls: &[ToolCall]) -> Outcome {
    Outcome {
        text: text.into(),
        calls: calls.to_vec(),
        ..Outcome::default()
    }
}

fn outcome(format: CallFormat, text: &str) -> Outcome {
    read(format, text).1
}

/// Whether a text comes out as it went in.
fn is_text(format: CallFormat, text: &str) -> bool {
    let outcome = outcome(format, text);
    outcome.text == text && outcome.calls.is_empty() && outcome.reasoning.is_empty()
}

#[test]
fn text_is_text_in_every_format() {
    for format in CallFormat::ALL {
        for text in [
            "",
            "Hello.",
            " \n two lines\n\n",
            "a < b, [1], x; y",
            "日本 <",
            "[TOOL",
            "<tool_cal",
            "{\"a\": 1}",
        ] {
            assert!(is_text(format, text), "{format:?} {text:?}");
        }
    }
}

#[test]
fn a_call_is_told_of_as_it_comes() {
    let text = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\"]}}\n</tool_call>";
    let (pieces, outcome) = read(CallFormat::Hermes, text);
    let arguments = "{\"a\": [1, \"}\"]}".to_owned();
    let expected = [
        Piece::CallBegin {
            index: 0,
            id: "call_1".into(),
            name: "f".into(),
        },
        Piece::CallArguments {
            index: 0,
            fragment: arguments,
        },
        Piece::Call(call("call_1", "f", json!({"a": [1, "}"]}))),
    ];
    assert_eq!(pieces, expected);
    assert_eq!(
        outcome,
        answer("", &[call("call_1", "f", json!({"a": [1, "}"]}))])
    );
}

#[test]
fn arguments_are_given_out_before_they_end() {
    let mut parser = Parser::new(CallFormat::Hermes, Thinking::Maybe);
    assert_eq!(
        parser.push("Hm <tool_call>{\"name\":\"f\","),
        [Piece::Text("Hm".into())]
    );
    let begin = Piece::CallBegin {
        index: 0,
        id: "call_1".into(),
        name: "f".into(),
    };
    let first = Piece::CallArguments {
        index: 0,
        fragment: "{\"a\":\"é".into(),
    };
    assert_eq!(parser.push("\"arguments\":{\"a\":\"é"), [begin, first]);
    assert_eq!(
        parser.push("x"),
        [Piece::CallArguments {
            index: 0,
            fragment: "x".into()
        }]
    );
}

#[test]
fn hermes_calls_follow_text_and_one_another() {
    let one = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
    let two =
        "<tool_call>{\"arguments\":{\"b\":{\"c\":\"</tool_call>\"}},\"name\":\"g\"}</tool_call>";
    let f = call("call_1", "f", json!({}));
    let g = call("call_2", "g", json!({"b": {"c": "</tool_call>"}}));
    assert_eq!(
        outcome(CallFormat::Hermes, &format!("I look.\n{one}\n{two}\n")),
        answer("I look.", &[f, g])
    );
}

#[test]
fn a_missing_end_marker_does_not_matter() {
    let one = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}";
    let f = call("call_1", "f", json!({}));
    assert_eq!(
        outcome(CallFormat::Hermes, one),
        answer("", std::slice::from_ref(&f))
    );
    assert_eq!(
        outcome(CallFormat::Hermes, &format!("{one}\n and so on")),
        answer("and so on", &[f])
    );
}

#[test]
fn llama_calls_are_the_whole_answer() {
    let one = "{\"name\": \"f\", \"parameters\": {\"a\": \"\\u00e9\\ud83d\\ude00\"}}";
    let f = |id| call(id, "f", json!({"a": "é😀"}));
    assert_eq!(outcome(CallFormat::Bare, one), answer("", &[f("call_1")]));
    assert_eq!(
        outcome(CallFormat::Bare, &format!("<|python_tag|>{one}")),
        answer("", &[f("call_1")])
    );
    assert_eq!(
        outcome(CallFormat::Bare, &format!("\n{one}; {one};{one}")),
        answer("", &[f("call_1"), f("call_2"), f("call_3")])
    );
    assert!(is_text(CallFormat::Bare, &format!("Like this: {one}")));
    assert!(is_text(CallFormat::Bare, "<|python_tag|>print(1)"));
    let typed = "{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}";
    assert_eq!(
        outcome(CallFormat::Bare, typed),
        answer("", &[call("call_1", "f", json!({}))])
    );
}

#[test]
fn an_answer_in_json_is_no_call() {
    for text in [
        "{\"name\": \"Ann\", \"age\": 5}",
        "{\"name\": \"Ann\"}",
        "{\"name\": 5",
        "{\"x\": {\"name\": \"f\"}}",
    ] {
        assert!(is_text(CallFormat::Bare, text), "{text}");
        assert!(is_text(CallFormat::Generic, text), "{text}");
    }
}

#[test]
fn mistral_calls_are_a_list_with_ids_or_a_row_of_names() {
    let list = "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"abcDEF123\"}, \
                {\"name\": \"g\", \"arguments\": {}}]";
    let calls = [
        call("abcDEF123", "f", json!({"a": 1})),
        call("000000002", "g", json!({})),
    ];
    let row = "Well. [TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]abc[ARGS] {}";
    let named = [
        call("000000001", "f", json!({"a": 1})),
        call("000000002", "g", json!({})),
    ];
    for format in [CallFormat::MarkedList, CallFormat::MarkedName] {
        assert_eq!(outcome(format, list), answer("", &calls));
        assert_eq!(outcome(format, row), answer("Well.", &named));
    }
}

#[test]
fn a_generic_answer_is_calls_or_a_reply() {
    let calls = "{\"tool_calls\": [{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {\"a\": \"]\"}}]}";
    let expected = [
        call("call_1", "f", json!({})),
        call("call_2", "g", json!({"a": "]"})),
    ];
    assert_eq!(outcome(CallFormat::Generic, calls), answer("", &expected));
    let reply = "{\"response\": \"a \\\"b\\\"\\n\\u00e9 \\ud83d\\ude00 {\\\"tool_calls\\\": <tool_call>\"}\n";
    assert_eq!(
        outcome(CallFormat::Generic, reply),
        answer("a \"b\"\né 😀 {\"tool_calls\": <tool_call>", &[])
    );
}

#[test]
fn a_reply_that_goes_wrong_is_not_lost() {
    let text = |reply: &str| outcome(CallFormat::Generic, reply).text;
    assert_eq!(text("{\"response\": \"cut o"), "cut o");
    assert_eq!(text("{\"response\": \"cut \\u00"), "cut \\u00");
    assert_eq!(
        text("{\"response\": \"half \\ud83d rest\"}"),
        "half \\ud83d rest\"}"
    );
    assert_eq!(text("{\"response\": \"line\nbreak\"}"), "line\nbreak\"}");
    assert_eq!(text("{\"response\": \"a\", \"b\": 1}"), "a, \"b\": 1}");
    assert_eq!(text("{\"respon"), "{\"respon");
}

#[test]
fn thoughts_stand_apart() {
    let call_text = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    let text =
        format!("\n<think>\nWell: {call_text} </thin\n</think>\n\nNow. <think>\n{call_text}");
    let expected = Outcome {
        reasoning: format!("Well: {call_text} </thin"),
        ..answer("Now. <think>", &[call("call_1", "f", json!({}))])
    };
    assert_eq!(outcome(CallFormat::Hermes, &text), expected);
    assert_eq!(
        outcome(CallFormat::Hermes, "<think>\n\n</think>\n\nHi"),
        answer("Hi", &[])
    );
    assert_eq!(
        outcome(CallFormat::Hermes, "<think> no end").reasoning,
        "no end"
    );
}

#[test]
fn thoughts_may_have_been_opened_by_the_prompt() {
    let (_, outcome) = read_chunks(
        Parser::new(CallFormat::Bare, Thinking::Open),
        [
            "\nhm {\n",
            "</th",
            "ink>\n{\"name\":\"f\",\"parameters\":{}}",
        ],
    );
    assert_eq!(
        outcome,
        Outcome {
            reasoning: "hm {".into(),
            ..answer("", &[call("call_1", "f", json!({}))])
        }
    );
}

#[test]
fn malformed_calls_are_text() {
    let beginnings = [
        "",
        "[]",
        "{}",
        "{\"name\": \"f\"}",
        "{\"arguments\": {}}",
        "{\"name\": \"\", \"arguments\": {}}",
    ];
    let more = [
        "{\"name\": \"f\", \"arguments\": []}",
        "{\"name\": \"f g\", \"arguments\": {}}",
        "{\"name\": \"\\u0066\", \"arguments\": {}}",
        "{\"name\": \"f\", \"arguments\": \"{}\"}",
        "{\"name\": \"f\", \"name\": \"g\", \"arguments\": {}}",
        "{\"name\": \"f\", \"arguments\": {}, \"parameters\": {}}",
        "{\"name\": \"f\", \"thought\": \"x\", \"arguments\": {}}",
        "{\"name\": \"f\", \"arguments\": {\"a\": 1e999}}",
        "{\"name\": \"f\", \"arguments\": {\"a\": \"\\ud800\"}}",
        "{\"name\": \"f\", \"arguments\": {\"a\": \"line\nbreak\"}}",
        "{\"name\": \"f\", \"arguments\": {\"a\":}}",
        "{\"name\": \"f\", \"arguments\": {\"a\": 1",
    ];
    for body in beginnings.iter().chain(&more) {
        for text in [
            format!("<tool_call>\n{body}\n</tool_call>"),
            format!("Hm.\n<tool_call>{body}"),
        ] {
            assert!(is_text(CallFormat::Hermes, &text), "{text}");
        }
        assert!(
            is_text(CallFormat::MarkedList, &format!("[TOOL_CALLS] [{body}]")),
            "{body}"
        );
        assert!(
            is_text(
                CallFormat::Generic,
                &format!("{{\"tool_calls\": [{body}]}}")
            ),
            "{body}"
        );
    }
}

#[test]
fn a_good_call_after_a_malformed_one_is_a_call() {
    let good = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
    let f = call("call_1", "f", json!({}));
    for bad in [
        "<tool_call>",
        "<tool_call>{\"name\": \"f",
        "<tool_call>{\"name\": \"f\", oops}</tool_call>",
    ] {
        assert_eq!(
            outcome(CallFormat::Hermes, &format!("{bad}\n{good}")),
            answer(bad, std::slice::from_ref(&f)),
            "{bad}"
        );
    }
    let row = "[TOOL_CALLS]f[TOOL_CALLS]f[ARGS]{}";
    assert_eq!(
        outcome(CallFormat::MarkedName, row),
        answer("[TOOL_CALLS]f", &[call("000000001", "f", json!({}))])
    );
}

#[test]
fn a_call_that_was_told_of_too_early_is_taken_back() {
    let text = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": x}}";
    let (pieces, outcome) = read(CallFormat::Hermes, text);
    let expected = [
        Piece::CallBegin {
            index: 0,
            id: "call_1".into(),
            name: "f".into(),
        },
        Piece::CallArguments {
            index: 0,
            fragment: "{\"a\": ".into(),
        },
        Piece::CallBroken { index: 0 },
        Piece::Text(text.into()),
    ];
    assert_eq!(pieces, expected);
    assert_eq!(
        outcome,
        Outcome {
            n_broken: 1,
            ..answer(text, &[])
        }
    );
}

/// What a parser says of a text that the length limit has cut.
fn read_cut(format: CallFormat, text: &str) -> (Vec<Piece>, Outcome) {
    let mut parser = Parser::new(format, Thinking::Never);
    let mut pieces = parser.push(text);
    let (last, outcome) = parser.finish(TextEnd::Cut);
    pieces.extend(last);
    (pieces, outcome)
}

#[test]
fn a_call_that_is_cut_is_no_text() {
    for (format, head, call) in [
        (
            CallFormat::Hermes,
            "I look. ",
            "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"a\": \"b c\"}}\n</tool_call>",
        ),
        (
            CallFormat::Tagged,
            "I look. ",
            "<tool_call>\n<function=find>\n<parameter=a>\nb c\n</parameter>\n</function>\n</tool_call>",
        ),
        (
            CallFormat::Braced,
            "I look. ",
            "<|tool_call>call:find{a:<|\"|>b c<|\"|>}<tool_call|>",
        ),
        (
            CallFormat::TaggedKeys,
            "I look. ",
            "<tool_call>find\n<arg_key>a</arg_key>\n<arg_value>b c</arg_value>\n</tool_call>",
        ),
        (
            CallFormat::TaggedInline,
            "I look. ",
            "<seed:tool_call>\n<function=find>\n<parameter=a>b c</parameter>\n</function>\n</seed:tool_call>",
        ),
        (
            CallFormat::Invokes,
            "I look. ",
            "<minimax:tool_call>\n<invoke name=\"find\">\n<parameter name=\"a\">b c</parameter>\n</invoke>\n\
             </minimax:tool_call>",
        ),
        (
            CallFormat::NamedSection,
            "I look. ",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>find<｜tool▁sep｜>{\"a\": \"b c\"}<｜tool▁call▁end｜>\
             <｜tool▁calls▁end｜>",
        ),
        (
            CallFormat::Python,
            "I look. ",
            "<|tool_call_start|>[find(a=\"b c\")]<|tool_call_end|>",
        ),
        (
            CallFormat::MarkedList,
            "I look. ",
            "[TOOL_CALLS][{\"name\": \"find\", \"arguments\": {\"a\": \"b c\"}}]",
        ),
        (
            CallFormat::MarkedName,
            "I look. ",
            "[TOOL_CALLS]find[CALL_ID]abcDEF123[ARGS]{\"a\": \"b c\"}",
        ),
        (
            CallFormat::Section,
            "I look. ",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.find:0<|tool_call_argument_begin|>\
             {\"a\": \"b c\"}<|tool_call_end|><|tool_calls_section_end|>",
        ),
        (
            CallFormat::Harmony,
            "<|channel|>commentary<|message|>I look.<|end|>",
            "<|start|>assistant<|channel|>commentary to=functions.find <|constrain|>json<|message|>\
             {\"a\": \"b c\"}<|call|>",
        ),
        (
            CallFormat::Bare,
            "",
            "{\"name\": \"find\", \"parameters\": {\"a\": \"b c\"}}",
        ),
        (
            CallFormat::Generic,
            "",
            "{\"tool_calls\": [{\"name\": \"find\", \"arguments\": {\"a\": \"b c\"}}]}",
        ),
    ] {
        for n_bytes in (2..call.len()).filter(|&n| call.is_char_boundary(n)) {
            let (pieces, outcome) = read_cut(format, &format!("{head}{}", &call[..n_bytes]));
            assert_eq!(
                outcome.text.trim_end(),
                if head.is_empty() { "" } else { "I look." },
                "{format:?}, {}",
                &call[..n_bytes]
            );
            let n_begun = pieces
                .iter()
                .filter(|piece| matches!(piece, Piece::CallBegin { .. }))
                .count();
            assert_eq!(
                n_begun,
                outcome.n_broken + outcome.calls.len(),
                "{format:?}, {}",
                &call[..n_bytes]
            );
        }
    }
}

#[test]
fn a_text_that_is_cut_is_there_to_its_end() {
    for text in ["a <", "a\n", "a < b", "[TOOL"] {
        assert_eq!(read_cut(CallFormat::Hermes, text).1.text, text);
    }
}

#[test]
fn ids_go_on_from_those_of_the_conversation_and_never_repeat() {
    let hermes =
        Parser::new(CallFormat::Hermes, Thinking::Maybe).after_calls(["call_1", "x", "call_4"]);
    let two = "<tool_call>{\"name\": \"f\", \"arguments\": {}}".repeat(2);
    let ids = |(_, outcome): (Vec<Piece>, Outcome)| -> Vec<String> {
        outcome.calls.into_iter().map(|call| call.id).collect()
    };
    assert_eq!(
        ids(read_chunks(hermes, [two.as_str()])),
        ["call_5", "call_6"]
    );
    let row = ["abcDEF123", "abcDEF123", "000000004", "abc", "old456789"]
        .map(|id| format!("[TOOL_CALLS]f[CALL_ID]{id}[ARGS]{{}}"))
        .concat();
    let marked = Parser::new(CallFormat::MarkedName, Thinking::Maybe).after_calls(["old456789"]);
    let expected = [
        "abcDEF123",
        "000000003",
        "000000004",
        "000000005",
        "000000006",
    ];
    assert_eq!(ids(read_chunks(marked, [row.as_str()])), expected);
}

#[test]
fn a_row_of_calls_has_names_and_ids_that_are_some() {
    for head in [
        "f[CALL_ID]a[CALL_ID]b",
        "f[CALL_ID]a[CALL_ID]",
        &"f".repeat(129),
        &format!("f[CALL_ID]{}", "i".repeat(129)),
    ] {
        assert!(
            is_text(
                CallFormat::MarkedName,
                &format!("[TOOL_CALLS]{head}[ARGS]{{}}")
            ),
            "{head}"
        );
    }
    let longest = format!(
        "[TOOL_CALLS]{}[CALL_ID]{}[ARGS]{{}}",
        "f".repeat(128),
        "i".repeat(128)
    );
    assert_eq!(
        outcome(CallFormat::MarkedName, &longest).calls[0]
            .name
            .len(),
        128
    );
    assert_eq!(
        outcome(CallFormat::MarkedName, "[TOOL_CALLS]f[CALL_ID][ARGS]{}").calls[0].id,
        "000000001"
    );
}

#[test]
fn a_later_call_that_is_broken_leaves_its_marker_to_those_before_it() {
    let list = "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\"}]";
    let expected = answer(", {\"name\": \"g\"}]", &[call("000000001", "f", json!({}))]);
    assert_eq!(outcome(CallFormat::MarkedList, list), expected);
}

#[test]
fn thoughts_that_nobody_expected_are_thoughts() {
    let (_, outcome) = read_chunks(
        Parser::new(CallFormat::Hermes, Thinking::Never),
        ["<think>hm</think>Hi"],
    );
    assert_eq!(
        (outcome.reasoning.as_str(), outcome.text.as_str()),
        ("hm", "Hi")
    );
}

fn is_name(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

/// Whether a text is an id of a call, perhaps with an index.
fn is_id(text: &str) -> bool {
    let (name, index) = text.split_once(':').unwrap_or((text, "0"));
    is_name(name) && index.bytes().all(|byte| byte.is_ascii_digit())
}

/// The characters of a text that are not JSON's white space.
fn solid(text: &str) -> String {
    text.chars().filter(|c| !" \t\r\n".contains(*c)).collect()
}

/// Whether pieces stand in a text in their order, with nothing around them but markers, frames of
/// calls and white space.
fn is_accounted_for(text: &str, pieces: &[Piece], calls: &[ToolCall]) -> bool {
    let broken = |i: usize| {
        pieces
            .iter()
            .any(|piece| *piece == Piece::CallBroken { index: i })
    };
    let given: Vec<String> = pieces
        .iter()
        .filter_map(|piece| match piece {
            Piece::Text(text) | Piece::Reasoning(text) => Some(solid(text)),
            Piece::CallArguments { index, fragment } if !broken(*index) => Some(solid(fragment)),
            _ => None,
        })
        .filter(|text| !text.is_empty())
        .collect();
    let text = solid(text);
    stand(&text, &given, &frame_words(&text, calls))
}

/// Whether texts stand in another one with nothing but `words` around them.
fn stand(rest: &str, given: &[String], words: &[String]) -> bool {
    let is_frame = |text: &str| {
        words
            .iter()
            .fold(text.to_owned(), |left, word| left.replace(word, ""))
            .is_empty()
    };
    let Some((first, more)) = given.split_first() else {
        return is_frame(rest);
    };
    let mut places = rest
        .char_indices()
        .map(|(at, _)| at)
        .filter(|&at| rest[at..].starts_with(first));
    places.any(|at| is_frame(&rest[..at]) && stand(&rest[at + first.len()..], more, words))
}

/// What the model wanted as ids; a call may have got another one.
fn wanted_ids(text: &str) -> impl Iterator<Item = String> {
    let behind = ["[CALL_ID]", "\"id\":\""]
        .into_iter()
        .flat_map(|mark| text.split(mark).skip(1));
    behind
        .map(|rest| {
            rest.chars()
                .take_while(|&c| is_name(&c.to_string()))
                .collect()
        })
        .filter(|id: &String| !id.is_empty())
}

/// What may stand around in a text, longest first.
fn frame_words(text: &str, calls: &[ToolCall]) -> Vec<String> {
    let markers = CallFormat::ALL
        .iter()
        .flat_map(|format| format.markers())
        .map(|marker| marker.to_string());
    let names = calls
        .iter()
        .map(|call| call.name.clone())
        .chain(wanted_ids(text));
    let keys = [
        "arguments",
        "parameters",
        "type",
        "function",
        "name",
        "id",
        "tool_calls",
        "functions.",
        "assistant",
        "analysis",
        "commentary",
        "final",
        "to=",
        "json",
        "code",
    ]
    .map(str::to_owned);
    let digits = "0123456789".chars().map(String::from);
    let brackets = "{}[],:;\"".chars().map(String::from);
    let mut words: Vec<String> = markers
        .chain(names)
        .chain(keys)
        .chain(brackets)
        .chain(digits)
        .map(|word| solid(&word))
        .collect();
    words.sort_by_key(|word| std::cmp::Reverse(word.len()));
    words
}

/// The formats whose arguments are given out as the model writes them.
fn in_json() -> Vec<CallFormat> {
    let is_json = |format: &CallFormat| {
        !matches!(
            format,
            CallFormat::Tagged
                | CallFormat::TaggedKeys
                | CallFormat::TaggedInline
                | CallFormat::Invokes
                | CallFormat::Braced
                | CallFormat::Python
        )
    };
    CallFormat::ALL.into_iter().filter(is_json).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 10_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn what_comes_out_does_not_depend_on_how_the_text_was_cut(
        text in output(),
        format in select(CallFormat::ALL.to_vec()),
        open in any::<bool>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let thinking = if open { Thinking::Open } else { Thinking::Maybe };
        let parser = || Parser::new(format, thinking).after_calls(["call_2"]);
        let whole = read_chunks(parser(), [text.as_str()]);
        for call in &whole.1.calls {
            prop_assert!(is_name(&call.name) && is_id(&call.id) && call.id != "call_2");
            prop_assert_eq!(whole.1.calls.iter().filter(|other| other.id == call.id).count(), 1);
        }
        prop_assert_eq!(&read_chunks(parser(), chunks(&text, &cuts)), &whole);
        let chars: Vec<String> = text.chars().map(String::from).collect();
        prop_assert_eq!(&read_chunks(parser(), chars.iter().map(String::as_str)), &whole);
    }

    #[test]
    fn nothing_is_lost_but_replies_whose_escapes_are_decoded(
        text in output(),
        format in select(in_json()),
        open in any::<bool>(),
    ) {
        prop_assume!(format != CallFormat::Generic || !text.contains("response"));
        let thinking = if open { Thinking::Open } else { Thinking::Maybe };
        let (pieces, outcome) = read_chars(Parser::new(format, thinking), &text);
        prop_assert!(is_accounted_for(&text, &pieces, &outcome.calls), "{:?} {:?}", text, pieces);
    }
}
