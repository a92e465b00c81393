//! Calls as the templates of models write them. Templates of other authors cannot be copied; the
//! tests use them where they are installed.

use std::{fs, path::Path};

use atta_chat::{
    Conversation, DateTime, Message, SpecialTexts, Template,
    tools::{CallFormat, Rules, Thinking, ToolCall, ToolChoice, ToolSet},
};
use serde_json::json;

use super::{call, read_chunks};

/// The templates whose calls are no JSON objects.
const TEMPLATES: [(&str, CallFormat, &str); 7] = [
    ("Qwen3-Coder", CallFormat::Tagged, "<tool_call>"),
    ("Qwen3.5-4B", CallFormat::Tagged, "<tool_call>"),
    ("google-gemma-4-31B-it", CallFormat::Braced, "<|tool_call>"),
    (
        "moonshotai-Kimi-K2",
        CallFormat::Section,
        "<|tool_calls_section_begin|>",
    ),
    ("MiniMax-M2", CallFormat::Invokes, "<minimax:tool_call>"),
    (
        "deepseek-ai-DeepSeek-V3.1",
        CallFormat::NamedSection,
        "<｜tool▁calls▁begin｜>",
    ),
    ("openai-gpt-oss-120b", CallFormat::Harmony, " to=functions."),
];

fn tools() -> ToolSet {
    let text = json!({"type": "string"});
    let tools = json!([
        {"name": "write", "parameters": {"type": "object", "properties": {
            "a": text, "b": {"type": "integer"}, "c": {"type": "array", "items": text},
            "d": {"type": "object", "properties": {"x": text, "y": {"type": "number"}}},
            "e": {"type": "boolean"}}}},
        {"name": "now"},
    ]);
    ToolSet::parse(&tools.to_string()).unwrap()
}

fn calls() -> [ToolCall; 2] {
    let arguments = json!({"a": "x < \"y\"\n\n", "b": -7, "c": ["", "7"], "d": {"x": "é", "y": 0.5}, "e": true});
    [
        call("call_1", "write", arguments),
        call("call_2", "now", json!({})),
    ]
}

#[test]
fn calls_of_a_template_are_read_as_those_calls() {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/chat-templates");
    let tools = tools();
    let rules = |format| Rules {
        format,
        tools: &tools,
        choice: &ToolChoice::Auto,
        parallel: true,
        thinking: Thinking::Never,
        reply: None,
    };
    for (name, format, marker) in TEMPLATES {
        let Ok(source) = fs::read_to_string(directory.join(format!("{name}.jinja"))) else {
            continue;
        };
        assert_eq!(CallFormat::of_template(&source), format, "{name}");
        let template = Template::new(&source, SpecialTexts::default()).unwrap();
        let [write, now] = calls().map(|call| Message::assistant_calling("", vec![call]));
        let messages = match format {
            CallFormat::Harmony => vec![Message::user("a"), write, now],
            _ => vec![
                Message::user("a"),
                Message::assistant_calling("", calls().to_vec()),
            ],
        };
        let text = template.render(&Conversation {
            messages: &messages,
            now: Some(DateTime::from_unix(0)),
            ..Conversation::default()
        });
        let text = text.unwrap();
        let answer = &text[text.find(marker).unwrap()..];
        let outcome = read_chunks(rules(format).parser(), [answer]).1;
        let ids = match format {
            CallFormat::Section => ["functions.write:0", "functions.now:1"],
            _ => ["call_1", "call_2"],
        };
        let expected: Vec<ToolCall> = ids
            .into_iter()
            .zip(calls())
            .map(|(id, call)| ToolCall {
                id: id.into(),
                ..call
            })
            .collect();
        assert_eq!(outcome.calls, expected, "{name}: {answer}");
    }
}
