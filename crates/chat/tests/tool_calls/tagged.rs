//! Calls whose parameters stand in tags.

use atta_chat::tools::{CallFormat, Piece};
use serde_json::json;

use super::{answer, call, is_text, outcome, read};

#[test]
fn parameters_in_tags_are_arguments() {
    let text = "I look.\n\n<tool_call>\n<function=f>\n<parameter=a>\nb \"c\"\n\n</parameter>\n\
                <parameter=n>\n7\n</parameter>\n<parameter=l>\n[\"</parameter>\"]\n</parameter>\n\
                </function>\n</tool_call>\n<tool_call><function=g></function></tool_call>\n";
    let f = json!({"a": "b \"c\"\n", "n": 7, "l": ["</parameter>"]});
    let (pieces, outcome) = read(CallFormat::Tagged, text);
    let g = call("call_2", "g", json!({}));
    assert_eq!(outcome, answer("I look.", &[call("call_1", "f", f), g]));
    let fragment = "{\"a\": \"b \\\"c\\\"\\n\", \"n\": 7, \"l\": [\"</parameter>\"]}".to_owned();
    assert!(pieces.contains(&Piece::CallArguments { index: 0, fragment }));
}

#[test]
fn values_in_tags_that_are_no_json_are_text() {
    let value = |value: &str| {
        let text = format!("<tool_call><function=f><parameter=a>{value}</parameter></function>");
        let outcome = outcome(CallFormat::Tagged, &text);
        outcome
            .calls
            .first()
            .map(|call| call.arguments["a"].clone())
    };
    for (written, expected) in [
        ("", json!("")),
        ("\n", json!("")),
        ("\n\n\n", json!("\n")),
        ("x", json!("x")),
        ("\n{a}\n", json!("{a}")),
        ("\n\"a\" and\n", json!("\"a\" and")),
        ("\n\"a\nb\n", json!("\"a\nb")),
        ("\nnull\n", json!(null)),
        (" True ", json!(true)),
        ("\n01\n", json!("01")),
        ("[1", json!("[1")),
    ] {
        assert_eq!(value(written), Some(expected), "{written:?}");
    }
    assert_eq!(value("\n1e999\n"), None);
    let open = "<tool_call><function=f><parameter=a>\n\"b</parameter>\n</function>";
    assert_eq!(
        outcome(CallFormat::Tagged, open).calls[0].arguments,
        json!({"a": "\"b"})
    );
}

#[test]
fn malformed_tags_are_text() {
    for body in [
        "<function=>",
        "<function=f g>",
        "<function=f></function",
        "<function=f>x</function>",
        "<function=f><parameter=></parameter></function>",
        "<function=f><parameter=a\n></parameter></function>",
        "<function=f><parameter=a>1</parameter><parameter=a>2</parameter></function>",
        "<function=f><parameter=a>\n\"b</parameter> c\n</parameter></function>",
        "<function=f><parameter=a>1",
        "{\"name\": \"f\", \"arguments\": {}}",
    ] {
        let text = format!("Hm.\n<tool_call>{body}");
        assert!(is_text(CallFormat::Tagged, &text), "{text}");
    }
}

#[test]
fn keys_in_tags_of_their_own_are_read() {
    let text = "Hm.\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x < y\n</arg_value>\n<arg_key>n</arg_key>\
                <arg_value>[7]</arg_value></tool_call>\n<tool_call>g</tool_call>";
    let f = json!({"a": "x < y\n", "n": [7]});
    let calls = [call("call_1", "f", f), call("call_2", "g", json!({}))];
    assert_eq!(outcome(CallFormat::TaggedKeys, text), answer("Hm.", &calls));
    for body in [
        "",
        " f\n</tool_call>",
        "f g</tool_call>",
        "f<arg_value>1</arg_value></tool_call>",
        "f<arg_key>a</arg_key></tool_call>",
        "f<arg_key>a</arg_key>1</tool_call>",
        "f<arg_key>a</arg_key><arg_value>1",
    ] {
        let text = format!("Hm.\n<tool_call>{body}");
        assert!(is_text(CallFormat::TaggedKeys, &text), "{text}");
    }
}

#[test]
fn values_may_stand_in_the_line_of_their_tag() {
    let seed = "<seed:think>hm</seed:think>I look.\n<seed:tool_call>\n<function=f>\n\
        <parameter=a>x\ny </parameter>\n<parameter=b>7</parameter>\n</function>\n</seed:tool_call>\n\
        <seed:tool_call><function=g></function></seed:tool_call>";
    let minimax = "<think>hm</think>I look.\n<minimax:tool_call>\n<invoke name=\"f\">\n\
        <parameter name=\"a\">x\ny </parameter>\n<parameter name=\"b\">7</parameter>\n</invoke>\n\
        <invoke name=\"g\"></invoke>\n</minimax:tool_call>";
    let mut expected = answer(
        "I look.",
        &[
            call("call_1", "f", json!({"a": "x\ny ", "b": 7})),
            call("call_2", "g", json!({})),
        ],
    );
    expected.reasoning = "hm".into();
    assert_eq!(outcome(CallFormat::TaggedInline, seed), expected);
    assert_eq!(outcome(CallFormat::Invokes, minimax), expected);
}

#[test]
fn malformed_invocations_are_text() {
    for body in [
        "f\"></invoke>",
        "<invoke name=\"f\"/>",
        "<invoke name=\"\">",
        "<invoke name=\"f g\">",
    ] {
        let text = format!("Hm.\n<minimax:tool_call>\n{body}");
        assert!(is_text(CallFormat::Invokes, &text), "{text}");
    }
}
