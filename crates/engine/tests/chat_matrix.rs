//! Conversations of many shapes, in every template: where the template answers, its answer; where
//! it refuses, one that holds all that the system and the user have said.
//!
//! Templates of others are not ours to copy: they are tried where `../shared/data/chat-templates`
//! is, and in the folder that `ATTA_CHAT_TEMPLATES` names.

#[allow(dead_code, reason = "shared with other tests")]
mod chat_model;

use std::path::{Path, PathBuf};

use atta_engine::{
    Engine, LoadOptions,
    chat::{
        ChatFormat, ChatInput, Conversation, DateTime, Message, Origin, ReplyOptions, Role,
        Template, ToolUse,
    },
    tools::{CallFormat, ToolCall, ToolSet},
};
use chat_model::{CHATML, chat_model};
use serde_json::{Value, json};

/// Templates of our own: one that takes everything, and one for each kind of refusal.
const OURS: [(&str, &str); 6] = [
    (
        "takes all",
        "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}",
    ),
    (
        "drops system",
        "{% for m in messages if m.role != 'system' %}[{{ m.role }}] {{ m.content }}{% endfor %}",
    ),
    (
        "system first only",
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}\
         {{ raise_exception('System message must be at the beginning.') }}{% endif %}{{ m.content }}{% endfor %}",
    ),
    (
        "takes turns",
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}\
         {% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}\
         {{ raise_exception('Conversation roles must alternate') }}{% endif %}{{ m.content }}{% endfor %}",
    ),
    (
        "single calls with objects",
        "{% if tools %}<tool_call>{% endif %}{% for m in messages %}{% for c in m.tool_calls %}\
         {% if not loop.first %}{{ raise_exception('single') }}{% endif %}\
         {% for k, v in c.function.arguments|items %}{{ k }}{% endfor %}{% endfor %}{{ m.content }}{% endfor %}",
    ),
    (
        "ids of nine characters",
        "{% for m in messages %}{% for c in m.tool_calls %}{% if c.id|length != 9 %}{{ raise_exception('id') }}\
         {% endif %}{% endfor %}{{ m.content }}{% endfor %}",
    ),
];

struct Shape {
    name: &'static str,
    messages: Vec<Message>,
    has_tools: bool,
}

fn call(id: &str, arguments: Value) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        name: "weather".to_owned(),
        arguments,
    }
}

fn shapes() -> Vec<Shape> {
    let (system, late) = (
        || Message::system("systemone"),
        || Message::system("systemtwo"),
    );
    let (user, again) = (|| Message::user("userone"), || Message::user("usertwo"));
    let answer = || Message::assistant("answerone");
    let calls = |text: &str| {
        Message::assistant_calling(text, vec![call("call_abc1", json!({ "city": "Bonn" }))])
    };
    let result = || Message::tool("call_abc1", "weather", "resultone");
    let broken = || Message::assistant_calling("", vec![call("call_abc1", json!("{\"city\": "))]);
    let two = [
        call("call_abc1", json!({ "city": "Bonn" })),
        call("call_abc2", json!({ "city": "Rome" })),
    ];
    let parallel = || Message::assistant_calling("", two.to_vec());
    let second = || Message::tool("call_abc2", "weather", "resulttwo");
    let shapes = [
        ("system", vec![system(), user()]),
        ("user", vec![user()]),
        (
            "system in the middle",
            vec![system(), user(), answer(), late(), again()],
        ),
        (
            "system in the middle only",
            vec![user(), answer(), late(), again()],
        ),
        ("two system messages", vec![system(), late(), user()]),
        ("system at the end", vec![user(), late()]),
        ("system alone", vec![system()]),
        ("system and an answer", vec![system(), answer(), user()]),
        ("answer first", vec![answer(), user()]),
        ("two users", vec![user(), again()]),
        (
            "two answers",
            vec![user(), answer(), Message::assistant("answertwo"), again()],
        ),
        (
            "call and result",
            vec![system(), user(), calls(""), result()],
        ),
        (
            "turns with calls",
            vec![system(), user(), calls(""), result(), answer(), again()],
        ),
        (
            "call with text",
            vec![user(), calls("texttoo"), result(), answer(), again()],
        ),
        (
            "user after result",
            vec![user(), calls(""), result(), again()],
        ),
        (
            "system after result",
            vec![user(), calls(""), result(), late(), again()],
        ),
        (
            "parallel calls",
            vec![user(), parallel(), result(), second(), answer(), again()],
        ),
        ("result without call", vec![user(), result(), again()]),
        (
            "broken arguments",
            vec![user(), broken(), result(), answer(), again()],
        ),
    ];
    let with = |has_tools| {
        shapes.clone().map(|(name, messages)| Shape {
            name,
            messages,
            has_tools,
        })
    };
    with(false).into_iter().chain(with(true)).collect()
}

fn templates() -> Vec<(String, String)> {
    let ours = OURS.map(|(name, source)| (name.to_owned(), source.to_owned()));
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/chat-templates");
    let folders = [
        Some(shared),
        std::env::var_os("ATTA_CHAT_TEMPLATES").map(PathBuf::from),
    ];
    let entries = folders
        .into_iter()
        .flatten()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    let published = paths.filter(|path| {
        path.extension()
            .is_some_and(|extension| extension == "jinja")
    });
    let read = |path: PathBuf| {
        (
            path.file_name().unwrap().display().to_string(),
            std::fs::read_to_string(path).unwrap(),
        )
    };
    ours.into_iter().chain(published.map(read)).collect()
}

fn tools() -> ToolUse {
    let tool = r#"[{ "name": "weather", "description": "The weather of a city", "parameters": { "type": "object",
        "properties": { "city": { "type": "string", "description": "Which" } }, "required": ["city"] } }]"#;
    ToolUse {
        tools: ToolSet::parse(tool).unwrap(),
        ..ToolUse::default()
    }
}

fn holds(text: &str, messages: &[Message], roles: &[Role]) -> bool {
    messages
        .iter()
        .filter(|message| roles.contains(&message.role))
        .all(|message| text.contains(&message.content))
}

/// The fault in the prompt of a conversation, if there is one.
fn fault(form: &ChatFormat, template: &Template, shape: &Shape) -> Option<String> {
    let tools = tools();
    let now = Some(DateTime::from_unix(1_700_000_000));
    let given = shape.has_tools.then_some(&tools);
    let said = ChatInput {
        messages: &shape.messages,
        tools: given,
        now,
        ..ChatInput::default()
    };
    let got = match form.prompt(&said, ReplyOptions::default()) {
        Ok(asked) => asked.prompt.text,
        Err(error) => return Some(format!("refused: {error}")),
    };
    let definitions = given.map_or(&[][..], |used| used.tools.definitions());
    let conversation = Conversation {
        messages: &shape.messages,
        tools: definitions,
        add_generation_prompt: true,
        now,
        ..Conversation::default()
    };
    let is_rewritten = match CallFormat::of_template(template.source(true)) {
        CallFormat::Generic => shape.has_tools,
        // Calls stand in the text of their message.
        CallFormat::Python => shape.messages.iter().any(|m| !m.tool_calls.is_empty()),
        // Each call has a message of its own.
        CallFormat::Harmony => shape.messages.iter().any(|m| m.tool_calls.len() > 1),
        _ => false,
    };
    let plain = template
        .render(&conversation)
        .ok()
        .filter(|text| holds(text, &shape.messages, &[Role::System]));
    match plain.filter(|_| !has_late_system(shape) || takes_late_system(template)) {
        Some(plain) if !is_rewritten => {
            (plain != got).then(|| format!("want {plain:?}\n got {got:?}"))
        }
        _ => (!holds(&got, &shape.messages, &[Role::System, Role::User]))
            .then(|| format!("dropped text: {got:?}")),
    }
}

/// Whether a system message stands behind another role.
fn has_late_system(shape: &Shape) -> bool {
    shape
        .messages
        .iter()
        .skip_while(|message| message.role == Role::System)
        .any(|message| message.role == Role::System)
}

/// Whether a template writes a system message between an answer and a user. Gemma 2 takes one in
/// the place of an answer, by its count of messages: there it is text of the user all the same, so
/// that the next turn begins as this one did.
fn takes_late_system(template: &Template) -> bool {
    let messages = [
        Message::user("a"),
        Message::assistant("b"),
        Message::system("late"),
        Message::user("c"),
    ];
    let now = Some(DateTime::from_unix(1_700_000_000));
    let conversation = Conversation {
        messages: &messages,
        now,
        ..Conversation::default()
    };
    template
        .render(&conversation)
        .is_ok_and(|text| text.contains("late"))
}

#[test]
fn every_template_writes_every_shape_of_conversation() {
    let mut faults = Vec::new();
    for (name, source) in templates() {
        let bytes = chat_model("llama-plain.gguf", &source, &CHATML).leak();
        let engine = Engine::from_static("chat model", bytes, &LoadOptions::default()).unwrap();
        let (form, origin) = ChatFormat::of_model(&engine.templates())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(origin, Origin::File);
        let (template, _) = Template::of_model(&engine.templates()).unwrap();
        for shape in shapes() {
            let what = format!(
                "{name}: {}{}",
                shape.name,
                if shape.has_tools { " with tools" } else { "" }
            );
            faults.extend(fault(&form, &template, &shape).map(|fault| format!("{what}: {fault}")));
        }
    }
    assert!(
        faults.is_empty(),
        "{}:\n{}",
        faults.len(),
        faults.join("\n")
    );
}
