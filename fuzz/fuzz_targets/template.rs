//! Arbitrary text as a chat template: it parses or is refused, and renders or fails, in bounded
//! time and memory, without a panic.
#![no_main]

use atta_chat::tools::ToolCall;
use atta_chat::{Conversation, DateTime, Message, SpecialTexts, Template};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

fuzz_target!(|source: &str| {
    let texts = SpecialTexts {
        bos: Some("<s>".to_owned()),
        ..SpecialTexts::default()
    };
    let Ok(template) = Template::new(source, texts) else {
        return;
    };
    let call = ToolCall {
        id: "1".to_owned(),
        name: "f".to_owned(),
        arguments: json!({ "x": [1.5, null, "é"] }),
    };
    let messages = [
        Message::system("be kind"),
        Message::user("a <b> \"c\" 汉"),
        Message::assistant_calling("<think>\nso\n</think>\n\nyes", vec![call]),
        Message::tool("1", "f", "2"),
    ];
    let tools = [json!({
        "type": "function",
        "function": { "name": "f", "parameters": { "type": "object" } }
    })];
    let now = Some(DateTime::from_unix(951_827_696));
    for messages in [&messages[..], &messages[1..2], &[]] {
        let conversation = Conversation {
            messages,
            tools: &tools,
            add_generation_prompt: true,
            now,
            ..Conversation::default()
        };
        if let Ok(text) = template.render(&conversation) {
            assert!(text.len() < 32 << 20, "{} bytes", text.len());
        }
    }
});
