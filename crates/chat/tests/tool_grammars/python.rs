//! Grammars of calls in Python.

use atta_chat::tools::{CallFormat, ToolChoice, ToolSet};
use serde_json::json;

use super::{
    Judge, Random, check, finished, grammar, rules, tagged::typed_tools, tools,
    vocabulary::Vocabulary, walk,
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
    let vocabulary = Vocabulary::new();
    let mut random = Random(4);
    for tools in [typed_tools(), tools()] {
        let judge = Judge::new(&tools);
        let mut n_calls = 0;
        for choice in [ToolChoice::Auto, ToolChoice::Required] {
            for control in [false, true] {
                let rules = rules(CallFormat::Python, &tools, &choice);
                let lark = grammar(&vocabulary, &rules, control);
                for _ in 0..40 {
                    let (bytes, finished) = walk(&vocabulary, &lark, &mut random);
                    let text = String::from_utf8_lossy(&bytes);
                    n_calls += check(&rules, &judge, &text, finished).calls.len();
                }
            }
        }
        assert!(n_calls > 30, "the walks lead nowhere: {n_calls} calls");
    }
}
