//! Calls in Python.

use atta_chat::tools::CallFormat;
use serde_json::json;

use super::{answer, call, is_text, outcome};

#[test]
fn keyword_arguments_are_arguments() {
    let text = r#"I look. <|tool_call_start|>[f(a='b \'c\' "d"\n', n=-7.5, l=[True, None, {'x': "it\'s"}]),
        g ( ), g(a = {})]<|tool_call_end|> Done."#;
    let text = text.replace("g ( )", "g( )");
    let f = json!({"a": "b 'c' \"d\"\n", "n": -7.5, "l": [true, null, {"x": "it's"}]});
    let calls = [
        call("call_1", "f", f),
        call("call_2", "g", json!({})),
        call("call_3", "g", json!({"a": {}})),
    ];
    assert_eq!(
        outcome(CallFormat::Python, &text),
        answer("I look.Done.", &calls)
    );
}

#[test]
fn malformed_python_is_text() {
    for body in [
        "f()",
        "[]",
        "[f]",
        "[f(1)]",
        "[f(a)]",
        "[f(a=b)]",
        "[f(a:1)]",
        "[f('a'=1)]",
        "[f(a=1,)]",
        "[f(a=[1)]",
        "[f(a={b: 1})]",
        "[f(a='b\n')]",
        "[f(a='\\x41')]",
        "[f(a=1}]",
        "[f(a=1",
    ] {
        let text = format!("Hm.\n<|tool_call_start|>{body}");
        assert!(is_text(CallFormat::Python, &text), "{text}");
    }
}
