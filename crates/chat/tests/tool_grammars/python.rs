//! Grammars of calls in Python.

use atta_chat::tools::{CallFormat, ToolChoice, ToolSet};
use serde_json::json;

use super::{
    Random, finished, grammar, n_random_calls, rules, tagged::typed_tools, tools,
    vocabulary::Vocabulary,
};

fn list(calls: &str) -> String {
    format!("<|tool_call_start|>[{calls}]<|tool_call_end|>")
}

#[test]
fn keyword_arguments_match_their_schemas() {
    let vocabulary = Vocabulary::new();
    let tools = typed_tools();
    let rules = rules(CallFormat::Python, &tools, &ToolChoice::Required);
    let all = r#"write(path="a\n", lines=["\"x\"", ")]"], mode="old one", note=null, code="abc", at={"</parameter>": ""})"#;
    let expected = json!({"path": "a\n", "lines": ["\"x\"", ")]"], "mode": "old one", "note": null,
        "code": "abc", "at": {"</parameter>": ""}});
    let outcome = finished(rules.parser(), &list(all));
    assert_eq!(outcome.calls[0].arguments, expected);
    for control in [false, true] {
        let lark = grammar(&vocabulary, &rules, control);
        let accepts = |calls: &str| vocabulary.accepts(&lark, &list(calls), control);
        for good in [
            all,
            r#"write(path="12",lines=[])"#,
            "note()",
            r#"note(text="")"#,
            "note(is_new=True), note(is_new=False)",
        ] {
            assert!(accepts(good), "{good}\n{lark}");
        }
        for wrong in [
            "",
            r#"write(path="a", lines=[])"#,
            r#"write(path="ab", lines=[7])"#,
            r#"write(lines=[], path="ab")"#,
            r#"write(path="ab")"#,
            r#"write(path="ab", lines=[], code="d")"#,
            "note(is_new=true)",
            "note(text)",
            "note(, is_new=True)",
            "other()",
        ] {
            assert!(!accepts(wrong), "{wrong}\n{lark}");
        }
    }
}

#[test]
fn a_parameter_that_python_cannot_name_is_an_error() {
    let tools = json!([{"name": "f", "parameters": {"properties": {"a b": {}}}}]);
    let tools = ToolSet::parse(&tools.to_string()).unwrap();
    let error = rules(CallFormat::Python, &tools, &ToolChoice::Auto).grammar(&|_| None);
    assert_eq!(
        error.unwrap_err().to_string(),
        "tool f: parameters/properties: the name \"a b\" cannot be written in the model's call format"
    );
}

#[test]
fn random_calls_match_their_schemas() {
    let mut random = Random(4);
    for tools in [typed_tools(), tools()] {
        let n_calls: usize = [ToolChoice::Auto, ToolChoice::Required]
            .iter()
            .map(|choice| n_random_calls(CallFormat::Python, choice, &tools, 40, &mut random))
            .sum();
        assert!(n_calls > 30, "the walks lead nowhere: {n_calls} calls");
    }
}
