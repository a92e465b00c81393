//! Templates against Hugging Face transformers, byte for byte, errors as errors.

use std::path::{Path, PathBuf};

use atta_chat::{Conversation, DateTime, Message, SpecialTexts, Template, TemplateError};
use serde_json::{Map, Value};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/chat")
}

/// One of our templates, or a published one, which may be absent.
fn template(name: &str) -> Option<String> {
    let ours = golden().join("templates").join(name);
    let published = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data/chat-templates")
        .join(name);
    std::fs::read_to_string(ours)
        .or_else(|_| std::fs::read_to_string(published))
        .ok()
}

/// The input of a rendering, in the words of the goldens.
struct Case<'a> {
    messages: Vec<Message>,
    tools: Vec<Value>,
    given: &'a Map<String, Value>,
}

impl<'a> Case<'a> {
    fn new(given: &'a Value) -> Self {
        let list = |key: &str| given[key].as_array().cloned().unwrap_or_default();
        let messages = list("messages")
            .iter()
            .map(|message| Message::from_json(message).unwrap())
            .collect();
        Self {
            messages,
            tools: list("tools"),
            given: given.as_object().unwrap(),
        }
    }

    fn conversation(&self, now: DateTime) -> Conversation<'_> {
        let named = ["messages", "tools", "add_generation_prompt"];
        let extra = self
            .given
            .iter()
            .filter(|(key, _)| !named.contains(&key.as_str()));
        Conversation {
            messages: &self.messages,
            tools: &self.tools,
            add_generation_prompt: self
                .given
                .get("add_generation_prompt")
                .is_none_or(|value| value == true),
            now: Some(now),
            extra: extra
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
        }
    }
}

/// The difference between a result and the golden.
fn difference(want: &Value, got: &Result<String, TemplateError>) -> Option<String> {
    match (&want["text"], &want["raises"], got) {
        (Value::String(want), _, Ok(got)) if want == got => None,
        (Value::String(want), _, Ok(got)) => {
            let at = want
                .chars()
                .zip(got.chars())
                .take_while(|(a, b)| a == b)
                .count();
            let near = |text: &str| {
                text.chars()
                    .skip(at.saturating_sub(30))
                    .take(70)
                    .collect::<String>()
            };
            Some(format!(
                "at {at}: want {:?} got {:?}",
                near(want),
                near(got)
            ))
        }
        (Value::String(_), _, Err(error)) => Some(format!("failed: {error}")),
        (_, Value::String(message), Err(TemplateError::Raised(got))) if message == got => None,
        (_, Value::Null, Err(TemplateError::Failed(_) | TemplateError::Syntax(_))) => None,
        (_, message, got) => Some(format!("want {message}, got {got:?}")),
    }
}

#[test]
fn templates_write_what_transformers_writes() {
    let goldens: Value =
        serde_json::from_slice(&std::fs::read(golden().join("goldens.json")).unwrap()).unwrap();
    let now = DateTime::from_unix(goldens["now"].as_u64().unwrap());
    let text = |key: &str| goldens[key].as_str().map(str::to_owned);
    let texts = SpecialTexts {
        bos: text("bos_token"),
        eos: text("eos_token"),
        ..SpecialTexts::default()
    };
    let mut n_compared = 0;
    let mut wrong = Vec::new();
    for case in goldens["cases"].as_array().unwrap() {
        let [name, conversation] =
            ["template", "conversation"].map(|key| case[key].as_str().unwrap());
        let Some(source) = template(name) else {
            continue;
        };
        let given = Case::new(&goldens["conversations"][conversation]);
        let got =
            Template::new(&source, texts.clone()).and_then(|t| t.render(&given.conversation(now)));
        n_compared += 1;
        wrong.extend(difference(case, &got).map(|what| format!("{name}, {conversation}: {what}")));
    }
    assert!(
        wrong.is_empty(),
        "{} of {n_compared}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(
        n_compared >= 30,
        "our own templates are always there, but {n_compared} were compared"
    );
}

#[test]
fn a_long_conversation_is_no_attack() {
    let turn = |i: usize| {
        if i.is_multiple_of(2) {
            Message::user(format!("question {i}"))
        } else {
            Message::assistant("yes")
        }
    };
    let messages: Vec<Message> = (0..4001).map(turn).collect();
    let conversation = Conversation {
        messages: &messages,
        add_generation_prompt: true,
        ..Conversation::default()
    };
    let ours = Template::chatml(SpecialTexts::default());
    assert_eq!(
        ours.render(&conversation)
            .unwrap()
            .matches("<|im_start|>")
            .count(),
        4002
    );
    // Templates of other authors cannot be copied; the test uses them where they are installed.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/chat-templates");
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        let template = Template::new(
            &std::fs::read_to_string(&path).unwrap(),
            SpecialTexts::default(),
        )
        .unwrap();
        let now = DateTime::from_unix(1_700_000_000);
        let tools = [
            serde_json::json!({ "type": "function", "function": { "name": "f", "description": "does it",
            "parameters": { "type": "object", "properties": {}, "required": [] } } }),
        ];
        let rendered = template.render(&Conversation {
            now: Some(now),
            tools: &tools,
            ..conversation.clone()
        });
        let text = rendered.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(text.contains("question 4000"), "{}", path.display());
    }
}
