//! Grammars of calls of Gemma 4.

use atta_chat::tools::{CallFormat, ToolChoice};
use serde_json::json;

use super::{
    Random, finished, grammar, n_random_calls, rules, tagged::typed_tools, tools,
    vocabulary::Vocabulary,
};

fn braced(call: &str) -> String {
    format!(
        "<|tool_call>call:{}<tool_call|>",
        call.replace('\'', "<|\"|>")
    )
}

#[test]
fn strings_stand_between_marks_and_keys_are_bare() {
    let vocabulary = Vocabulary::new();
    let tools = typed_tools();
    let rules = rules(CallFormat::Braced, &tools, &ToolChoice::Required);
    let all = "write{path:'a\n',lines:['\"x\"',''],mode:'old one',note:'null',code:\"abc\",at:{\"</parameter>\": \"\"}}";
    let expected = json!({"path": "a\n", "lines": ["\"x\"", ""], "mode": "old one", "note": "null",
        "code": "abc", "at": {"</parameter>": ""}});
    let outcome = finished(rules.parser(), &braced(all));
    assert_eq!(outcome.calls[0].arguments, expected);
    for control in [false, true] {
        let lark = grammar(&vocabulary, &rules, control);
        let accepts = |call: &str| vocabulary.accepts(&lark, &braced(call), control);
        for good in [
            all,
            "write{path:'12',lines:[]}",
            "write{path:'ab',lines:[],note:null}",
            "write{path:'ab',lines:[],at:7}",
            "note{}",
            "note{text:''}",
            "note{is_new:true}",
            "note{text:'a',is_new:false}",
        ] {
            assert!(accepts(good), "{good}\n{lark}");
        }
        for wrong in [
            "write{path:'a',lines:[]}",
            "write{path:'0123456789',lines:[]}",
            "write{path:'ab',lines:[7]}",
            "write{path:ab,lines:[]}",
            "write{lines:[],path:'ab'}",
            "write{path:'ab'}",
            "write{path:'ab',lines:[],mode:'old'}",
            "write{path:'ab',lines:[],code:\"d\"}",
            "write{path:'ab',lines:[],}",
            "note{,is_new:true}",
            "note{is_new:7}",
            "other{}",
        ] {
            assert!(!accepts(wrong), "{wrong}\n{lark}");
        }
    }
}

#[test]
fn random_calls_match_their_schemas() {
    let mut random = Random(3);
    for tools in [typed_tools(), tools()] {
        let n_calls: usize = [ToolChoice::Auto, ToolChoice::Required]
            .iter()
            .map(|choice| n_random_calls(CallFormat::Braced, choice, &tools, 40, &mut random))
            .sum();
        assert!(n_calls > 30, "the walks lead nowhere: {n_calls} calls");
    }
}
