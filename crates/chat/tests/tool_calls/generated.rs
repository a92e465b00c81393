//! Random outputs of models, good and bad.

use proptest::{prelude::*, sample::select};

/// What outputs are made of, good and bad.
pub(crate) fn fragment() -> impl Strategy<Value = String> {
    let markers = vec![
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "</think>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "[CALL_ID]",
        "<|python_tag|>",
        "<tool_",
        "[TOOL",
        "</thi",
        "{\"name\": \"first_tool\", \"arguments\": ",
        "{\"name\":\"second_tool\",\"parameters\":",
        "{\"a\": 1}",
        "{}",
        "}",
        "]",
        "[",
        "{",
        ";",
        ",",
        "\"",
        "\\",
        "\\u00e9",
        "\\ud83d",
        "\"id\": \"abcdefghi\"",
        "f",
        "[TOOL_CALLS]third_tool",
        "[TOOL_CALLS]third_tool[CALL_ID]abcdefghi[ARGS]",
        "\n",
        " ",
        "\n\n",
        "{\"tool_calls\": [",
        "{\"response\": \"",
        "é",
        "日本",
        "1e999",
        "\"name\": \"third_tool\"",
        "\"arguments\": {}",
        "<function=first_tool>",
        "</function>",
        "<parameter=a>",
        "<parameter=b>\n",
        "\n</parameter>",
        "</para",
        "<tool_call>first_tool\n",
        "<arg_key>a</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "<|tool_call>call:first_tool{",
        "<tool_call|>",
        "<|\"|>",
        "<|channel>thought\n",
        "<channel|>",
        "a:",
        "<|tool_call_start|>[first_tool(",
        ")]<|tool_call_end|>",
        ")",
        "a=",
        "'",
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>functions.first_tool:0",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<|tool_calls_section_end|>",
        ":7",
        "<|channel|>",
        "analysis",
        "commentary",
        "final",
        " to=functions.first_tool",
        " to=assistant",
        "<|message|>",
        "<|end|>",
        "<|start|>assistant",
        "<|constrain|>",
        "json",
        "<|call|>",
        "<|chan",
    ];
    prop_oneof![6 => select(markers).prop_map(str::to_owned), 1 => "[ -~]{0,4}", 1 => "\\PC{0,2}"]
}

/// Outputs as models write them.
pub(crate) fn valid() -> impl Strategy<Value = String> {
    select(vec![
        "I look.\n<tool_call>\n{\"name\": \"first_tool\", \"arguments\": {\"a\": {\"b\": \"}</tool_call>\"}}}\n\
         </tool_call>\n<tool_call>\n{\"name\": \"second_tool\", \"arguments\": {}}\n</tool_call>",
        "I look.\n\n<tool_call>\n<function=first_tool>\n<parameter=a>\nx < y\n</parameter>\n<parameter=b>\n\
         [1, \"</parameter>\"]\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=second_tool>\n\
         </function>\n</tool_call>",
        "<|channel>thought\nhm\n<channel|>I look.<|tool_call>call:first_tool{a:<|\"|>x \"<|\"|>,b:[1,{c:null}]}\
         <tool_call|><|tool_call>call:second_tool{}<tool_call|>",
        "<|tool_call_start|>[first_tool(a='x \\' \"', b=[1, {\"c\": None}]), second_tool()]<|tool_call_end|>I look.",
        "<think>\nhm\n</think>\n\n{\"name\": \"first_tool\", \"parameters\": {\"a\": [1, 2]}}; \
         {\"name\": \"second_tool\", \"parameters\": {}}",
        "[TOOL_CALLS] [{\"name\": \"first_tool\", \"arguments\": {\"a\": \"\\u00e9\"}, \
         \"id\": \"abcdef123\"}, {\"name\": \"second_tool\", \"arguments\": {}}]",
        "Hm [TOOL_CALLS]first_tool[CALL_ID]abcdef123[ARGS]{\"a\": 1}[TOOL_CALLS]second_tool[ARGS]{}",
        "Hm.<|tool_calls_section_begin|><|tool_call_begin|>functions.first_tool:0<|tool_call_argument_begin|>\
         {\"a\": 1}<|tool_call_end|><|tool_call_begin|>functions.second_tool:1<|tool_call_argument_begin|>{}\
         <|tool_call_end|><|tool_calls_section_end|>",
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>I look.\
         <|end|><|start|>assistant<|channel|>commentary to=functions.first_tool <|constrain|>json<|message|>\
         {\"a\": 1}<|call|>",
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.first_tool<|channel|>commentary \
         json<|message|>{}",
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>It is <b>so</b>.",
        "{\"tool_calls\": [{\"name\": \"first_tool\", \"arguments\": {\"a\": null}}]}",
        "{\"response\": \"it is \\\"so\\\" \\ud83d\\ude00\"}",
    ])
    .prop_map(str::to_owned)
}

/// A valid output with one piece cut out and another put there.
pub(crate) fn mutated() -> impl Strategy<Value = String> {
    (valid(), any::<prop::sample::Index>(), 0usize..6, fragment()).prop_map(|(text, at, n, new)| {
        let chars: Vec<char> = text.chars().collect();
        let at = at.index(chars.len());
        let before = &chars[..at];
        let after = &chars[(at + n).min(chars.len())..];
        before.iter().collect::<String>() + &new + &after.iter().collect::<String>()
    })
}

pub(crate) fn output() -> impl Strategy<Value = String> {
    let salad = prop::collection::vec(fragment(), 0..24).prop_map(|parts| parts.concat());
    prop_oneof![1 => valid(), 3 => mutated(), 4 => salad]
}

/// `text` cut at characters.
pub(crate) fn chunks<'a>(text: &'a str, cuts: &[prop::sample::Index]) -> Vec<&'a str> {
    let bounds: Vec<usize> = text
        .char_indices()
        .map(|(at, _)| at)
        .chain([text.len()])
        .collect();
    let mut at: Vec<usize> = cuts
        .iter()
        .map(|cut| bounds[cut.index(bounds.len())])
        .chain([0, text.len()])
        .collect();
    at.sort_unstable();
    at.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}
