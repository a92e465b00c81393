//! Grammars of calls whose parameters stand in tags.

use atta_chat::tools::{CallFormat, ToolChoice, ToolSet};
use serde_json::json;

use super::{
    Random, finished, grammar, n_random_calls, rules, samples::tagged, vocabulary::Vocabulary,
};

/// Tools whose parameters have all forms of values.
pub(crate) fn typed_tools() -> ToolSet {
    let tools = json!([
        {"name": "write", "parameters": {"type": "object", "required": ["path", "lines"], "properties": {
            "path": {"type": "string", "minLength": 2, "maxLength": 9},
            "lines": {"type": "array", "items": {"type": "string"}},
            "mode": {"enum": ["new", "old one"]},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "code": {"type": "string", "pattern": "^[a-c]+$"},
            "at": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/mark"}]}},
            "$defs": {"mark": {"type": "object", "required": ["</parameter>"],
                "properties": {"</parameter>": {"type": "string"}}}}}},
        {"name": "note", "parameters": {"properties": {"text": {"type": "string"}, "is_new": {"type": "boolean"}}}},
    ]);
    ToolSet::parse(&tools.to_string()).unwrap()
}

#[test]
fn values_in_tags_are_raw_text_or_json_as_their_schema_says() {
    let vocabulary = Vocabulary::new();
    let tools = typed_tools();
    let rules = rules(CallFormat::Tagged, &tools, &ToolChoice::Required);
    let lark = grammar(&vocabulary, &rules, false);
    let accepts = |parameters: &[(&str, &str)]| {
        vocabulary.accepts(&lark, &tagged("write", parameters), false)
    };
    let all = [
        ("path", "a\n\n"),
        ("lines", r#"["a", "</parameter>\n</function>"]"#),
        ("mode", "old one"),
        ("note", "\n7 </tool_call> \"\n\n"),
        ("code", "\"abc\""),
        ("at", "{\"</parameter>\": \"\"}"),
    ];
    assert!(accepts(&all), "{lark}");
    let outcome = finished(rules.parser(), &tagged("write", &all));
    let expected = json!({"path": "a\n\n", "lines": ["a", "</parameter>\n</function>"], "mode": "old one",
        "note": "\n7 </tool_call> \"\n\n", "code": "abc", "at": {"</parameter>": ""}});
    assert_eq!(outcome.calls[0].arguments, expected);
    let two = [("path", "12"), ("lines", "[]")];
    assert!(accepts(&two));
    let read = finished(rules.parser(), &tagged("write", &two));
    assert_eq!(read.calls[0].arguments, json!({"path": "12", "lines": []}));
    for wrong in [
        [("path", "a"), ("lines", "[]")],
        [("path", "0123456789"), ("lines", "[]")],
        [("path", "ab"), ("lines", "[7]")],
        [("path", "a</parameter>"), ("lines", "[]")],
        [("lines", "[]"), ("path", "ab")],
        [("path", "ab"), ("mode", "new")],
    ] {
        assert!(!accepts(&wrong), "{wrong:?}");
    }
    for (key, value) in [
        ("mode", "old"),
        ("code", "abc"),
        ("code", "\"d\""),
        ("at", "x"),
    ] {
        assert!(!accepts(&[two[0], two[1], (key, value)]), "{key} {value}");
    }
    assert!(!vocabulary.accepts(&lark, &tagged("note", &[("is_new", "7")]), false));
    assert!(vocabulary.accepts(&lark, &tagged("note", &[("text", "")]), false));
}

#[test]
fn values_in_tags_have_the_type_of_their_schema() {
    let tools = typed_tools();
    let rules = rules(CallFormat::Tagged, &tools, &ToolChoice::Auto);
    let arguments = |name: &str, key: &str, value: &str| {
        let outcome = finished(rules.parser(), &tagged(name, &[(key, value)]));
        outcome.calls[0].arguments[key].clone()
    };
    assert_eq!(arguments("note", "text", "true"), json!("true"));
    assert_eq!(arguments("note", "text", "[1]"), json!("[1]"));
    assert_eq!(arguments("note", "is_new", "True"), json!(true));
    assert_eq!(arguments("write", "note", "null"), json!(null));
    assert_eq!(arguments("write", "note", "7"), json!("7"));
    // Unknown parameters and tools: JSON, if it is.
    assert_eq!(arguments("note", "other", "7"), json!(7));
    assert_eq!(arguments("other", "text", "{\"a\": 1}"), json!({"a": 1}));
    assert_eq!(arguments("other", "text", "a: 1"), json!("a: 1"));
}

#[test]
fn a_parameter_that_no_tag_can_name_is_an_error() {
    let error = |key: &str| {
        let tools = json!([{"name": "f", "parameters": {"properties": {key: {}}}}]);
        let tools = ToolSet::parse(&tools.to_string()).unwrap();
        let error = rules(CallFormat::Tagged, &tools, &ToolChoice::Auto).grammar(&|_| None);
        error.unwrap_err().to_string()
    };
    assert_eq!(
        error("a>b"),
        "tool f: parameters/properties: the name \"a>b\" cannot be written in the model's call format"
    );
}

#[test]
fn raw_values_of_random_calls_match_their_schemas() {
    let tools = typed_tools();
    let mut random = Random(2);
    let mut n_calls = 0;
    for (format, choice) in [
        (CallFormat::Tagged, ToolChoice::Auto),
        (CallFormat::Tagged, ToolChoice::Required),
        (CallFormat::TaggedKeys, ToolChoice::Required),
    ] {
        n_calls += n_random_calls(format, &choice, &tools, 60, &mut random);
    }
    assert!(n_calls > 40, "the walks lead nowhere: {n_calls} calls");
}

#[test]
fn values_behind_tagged_keys_have_no_lines_of_their_own() {
    let vocabulary = Vocabulary::new();
    let tools = typed_tools();
    let rules = rules(CallFormat::TaggedKeys, &tools, &ToolChoice::Required);
    let text = "<tool_call>write\n<arg_key>path</arg_key>\n<arg_value>\na\n</arg_value>\n<arg_key>lines</arg_key>\
                <arg_value>[\"</arg_value>\"]</arg_value><arg_key>note</arg_key><arg_value>null</arg_value></tool_call>";
    let expected = json!({"path": "\na\n", "lines": ["</arg_value>"], "note": null});
    let outcome = finished(rules.parser(), text);
    assert_eq!(outcome.calls[0].arguments, expected);
    let lark = grammar(&vocabulary, &rules, false);
    assert!(vocabulary.accepts(&lark, text, false), "{lark}");
    for control in [false, true] {
        let lark = grammar(&vocabulary, &rules, control);
        let one_line = "<tool_call>note<arg_key>is_new</arg_key><arg_value>true</arg_value></tool_call>\
                        <tool_call>note</tool_call>";
        assert!(vocabulary.accepts(&lark, one_line, control), "{lark}");
        assert_eq!(finished(rules.parser(), one_line).calls.len(), 2);
    }
    for wrong in [
        text.replace("\na\n", "a"),
        text.replace("\na\n", "a</arg_value>"),
        text.replace(">null<", "><").replace("lines", "line"),
    ] {
        assert!(!vocabulary.accepts(&lark, &wrong, false), "{wrong}");
    }
}
