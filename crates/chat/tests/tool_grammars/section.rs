//! Grammars of calls of Kimi K2.

use atta_chat::tools::{CallFormat, ToolChoice};

use super::{grammar, rules, tools, vocabulary::Vocabulary};

#[test]
fn a_call_has_a_name_with_an_index_between_marks() {
    let vocabulary = Vocabulary::new();
    let tools = tools();
    let rules = rules(CallFormat::Section, &tools, &ToolChoice::Auto);
    let section =
        |calls: &str| format!("<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>");
    let call = |head: &str| {
        format!("<|tool_call_begin|>{head}<|tool_call_argument_begin|>{{}}<|tool_call_end|>")
    };
    for control in [false, true] {
        let lark = grammar(&vocabulary, &rules, control);
        let accepts = |text: &str| vocabulary.accepts(&lark, text, control);
        for good in ["functions.now:0", "functions.get:137"] {
            assert!(accepts(&section(&call(good))), "{good}\n{lark}");
        }
        for wrong in [
            "now:0",
            "functions.now",
            "functions.now:",
            "functions.now:a",
            "functions.now:12345",
            "functions.other:0",
        ] {
            assert!(!accepts(&section(&call(wrong))), "{wrong}\n{lark}");
        }
        let now = call("functions.now:0");
        assert!(!accepts(&section("")) && !accepts(&section(&format!("{now} {now}"))));
        let is_text = accepts(&format!("Hm {now}"));
        assert!(
            is_text != control,
            "only the mark of a section begins calls"
        );
    }
}
