//! Tool calls of a model that has never heard of tools: held to the grammar, it calls them rightly
//! all the same.

#![cfg(feature = "chat")]

use std::{ops::ControlFlow, path::Path};

use atta_engine::{
    Constraint, Engine, Error, FinishReason, GenerateOptions, LoadOptions, OnLength, Sampling,
    SessionOptions,
    chat::{CallingReply, Chat, ChatEvent, Message, Role, SpecialTexts, Template, ToolUse},
    tools::{Outcome, Piece, TextEnd, ToolCall, ToolChoice, ToolSet},
};

/// Templates that write calls in each of the forms, as short as can be.
const TEMPLATES: [&str; 7] = [
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}\n<tool_call>\n\
     {{ {'name': c.function.name, 'arguments': c.function.arguments}|tojson }}\n</tool_call>{% endfor %}\n{% endfor %}\
     {% if tools %}{{ tools|tojson }}{% endif %}assistant: ",
    "{% for m in messages %}<|start_header_id|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}\
     {{ '{\"name\": \"' + c.function.name + '\", \"parameters\": ' }}{{ c.function.arguments|tojson }}}{% endfor %}\n\
     {% endfor %}",
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{% if m.tool_calls %}[TOOL_CALLS] [\
     {{ m.tool_calls|tojson }}]{% endif %}\n{% endfor %}",
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}[TOOL_CALLS]\
     {{ c.function.name }}[ARGS]{{ c.function.arguments|tojson }}{% endfor %}\n{% endfor %}",
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{% if m.tool_calls %}<|tool_calls_section_begin|>\
     {% for c in m.tool_calls %}<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>\
     {{ c.function.arguments|tojson }}<|tool_call_end|>{% endfor %}<|tool_calls_section_end|>{% endif %}\n{% endfor %}",
    "{% for m in messages %}{{ m.role }}{% for c in m.tool_calls or [] %} to=functions.{{ c.function.name }}\
     <|channel|>commentary json<|message|>{{ c.function.arguments|tojson }}{% endfor %}{{ m.content }}\n{% endfor %}",
    "{% for m in messages %}{% if m.role == 'tool' or m.tool_calls %}{{ raise_exception('no tools') }}{% endif %}\
     {{ m.role }}: {{ m.content }}\n{% endfor %}",
];

const TOOLS: &str = r#"[
    {"type": "function", "function": {"name": "feed", "description": "Feeds an animal", "parameters": {
        "type": "object", "properties": {"animal": {"enum": ["ant", "owl"]}, "grams": {"type": "integer"}},
        "required": ["animal", "grams"]}}},
    {"type": "function", "function": {"name": "sleep"}}
]"#;

fn chat(template: &str, choice: ToolChoice) -> Chat {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stories.gguf");
    let engine = Engine::open(&path, &LoadOptions::default()).unwrap();
    let session = engine
        .session(&SessionOptions {
            n_ctx: Some(900),
            ..SessionOptions::default()
        })
        .unwrap();
    let template = Template::new(template, SpecialTexts::of(engine.tokenizer())).unwrap();
    let mut chat = Chat::new(session, template);
    chat.set_tools(Some(ToolUse {
        tools: ToolSet::parse(TOOLS).unwrap(),
        choice,
        parallel: true,
    }));
    chat.push(Message::user("Feed the ant."));
    chat
}

fn options(n_predict: usize, seed: u64) -> GenerateOptions {
    GenerateOptions {
        n_predict,
        sampling: Sampling {
            seed,
            temperature: 1.5,
            ..Sampling::default()
        },
        ..Default::default()
    }
}

/// An answer, and its pieces of calls put together: name and arguments.
fn answer(chat: &mut Chat, options: &GenerateOptions) -> (CallingReply, Vec<(String, String)>) {
    let mut calls = Vec::new();
    let reply = chat.answer_calling(options, |heard| {
        match heard {
            ChatEvent::Piece(Piece::CallBegin { index, name, .. }) => {
                assert_eq!(*index, calls.len());
                calls.push((name.clone(), String::new()));
            }
            ChatEvent::Piece(Piece::CallArguments { index, fragment }) => {
                calls[*index].1.push_str(fragment)
            }
            _ => {}
        }
        ControlFlow::Continue(())
    });
    (reply.unwrap(), calls)
}

#[test]
fn required_calls_come_in_every_form_and_match_their_schemas() {
    for template in TEMPLATES {
        for seed in 0..6 {
            let mut chat = chat(template, ToolChoice::Required);
            let (reply, streamed) = answer(&mut chat, &options(400, seed));
            if reply.reply.summary.finish_reason == FinishReason::Length {
                continue;
            }
            let calls = &reply.outcome.calls;
            assert!(
                !calls.is_empty() && reply.outcome.n_broken == 0,
                "{template}: {:?}",
                reply.reply.text
            );
            for (call, (name, arguments)) in calls.iter().zip(&streamed) {
                assert_eq!(
                    (&call.name, &call.arguments),
                    (name, &serde_json::from_str(arguments).unwrap())
                );
                match name.as_str() {
                    "feed" => assert!(
                        call.arguments["animal"].is_string() && call.arguments["grams"].is_i64()
                    ),
                    name => assert_eq!(
                        (name, call.arguments.as_object().unwrap().len()),
                        ("sleep", 0)
                    ),
                }
            }
            assert_eq!(chat.messages().last().unwrap().tool_calls, *calls);
        }
    }
}

#[test]
fn a_named_tool_is_called_once_and_none_never() {
    for template in TEMPLATES {
        let (reply, _) = answer(
            &mut chat(template, ToolChoice::Named("sleep".to_owned())),
            &options(400, 3),
        );
        let names: Vec<&str> = reply
            .outcome
            .calls
            .iter()
            .map(|call| call.name.as_str())
            .collect();
        assert_eq!(names, ["sleep"], "{template}");
        let (reply, streamed) = answer(&mut chat(template, ToolChoice::None), &options(60, 3));
        assert!(
            reply.outcome.calls.is_empty() && streamed.is_empty(),
            "{template}"
        );
    }
}

#[test]
fn where_nothing_can_be_called_an_answer_keeps_to_the_constraint_of_the_options() {
    for template in TEMPLATES {
        let constraint = Some(Constraint::Regex(
            "\\{\"name\": \"[A-Z][a-z]{2}\"\\}".to_owned(),
        ));
        let options = GenerateOptions {
            constraint,
            ..options(60, 3)
        };
        let (reply, streamed) = answer(&mut chat(template, ToolChoice::None), &options);
        let text = reply.outcome.text;
        assert!(
            text.starts_with("{\"name\": \"") && text.ends_with("\"}") && streamed.is_empty(),
            "{text}"
        );
    }
}

#[test]
fn a_constrained_text_stands_in_a_message_of_its_own() {
    let template = "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}\
                    <|start|>assistant{# <|channel|> #}";
    let schema =
        r#"{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}"#;
    for choice in [ToolChoice::None, ToolChoice::Auto] {
        for seed in 0..3 {
            let mut chat = chat(template, choice.clone());
            if choice == ToolChoice::Auto {
                chat.set_tools(None);
            }
            let options = GenerateOptions {
                constraint: Some(Constraint::Schema(schema.to_owned())),
                on_length: OnLength::Close,
                ..options(30, seed)
            };
            let (reply, _) = answer(&mut chat, &options);
            let Outcome {
                text, reasoning, ..
            } = reply.outcome;
            assert!(reply.reply.text.contains("<|channel|>final"));
            assert!(text.starts_with('{') && text.ends_with('}'), "{text}");
            assert!(!reasoning.contains("<|"), "{reasoning}");
        }
    }
}

#[test]
fn a_conversation_goes_on_with_the_results() {
    for template in TEMPLATES {
        let mut chat = chat(template, ToolChoice::Named("feed".to_owned()));
        for round in 0..3 {
            let (reply, _) = answer(&mut chat, &options(400, round));
            let call = &reply.outcome.calls[0];
            let ids = chat
                .messages()
                .iter()
                .flat_map(|message| &message.tool_calls)
                .filter(|other| other.id == call.id);
            assert_eq!(ids.count(), 1, "ids are unique");
            chat.push(Message::tool(
                &call.id,
                &call.name,
                "The ant says <tool_call> thanks",
            ));
        }
        assert!(
            chat.messages()
                .iter()
                .filter(|message| message.role == Role::Tool)
                .count()
                == 3
        );
        chat.prompt().unwrap();
    }
}

#[test]
fn a_call_that_is_cut_is_dropped() {
    for template in TEMPLATES {
        for n in 1..24 {
            let (reply, _) = answer(&mut chat(template, ToolChoice::Required), &options(n, 1));
            if reply.reply.summary.finish_reason == FinishReason::Length {
                let whole = reply
                    .outcome
                    .calls
                    .iter()
                    .all(|call| call.name == "sleep" || call.arguments["grams"].is_i64());
                assert!(whole, "{:?}", reply.outcome);
                assert_eq!(reply.reply.summary.text_end(), TextEnd::Cut);
                assert_eq!(reply.outcome.text.trim(), "");
                assert!(n < 4 || !reply.reply.text.is_empty());
            }
        }
    }
}

#[test]
fn a_tool_that_cannot_be_called_is_named() {
    // A template that does not write the definitions down, so that the prompt is short.
    let mut chat = chat(TEMPLATES[1], ToolChoice::Auto);
    let properties: Vec<String> = (0..4000)
        .map(|i| format!(r#""p{i}": {{"type": "array"}}"#))
        .collect();
    let parameters = format!(
        r#"{{"type": "object", "properties": {{{}}}}}"#,
        properties.join(", ")
    );
    let tools = format!(r#"[{{"name": "good"}}, {{"name": "bad", "parameters": {parameters}}}]"#);
    chat.set_tools(Some(ToolUse {
        tools: ToolSet::parse(&tools).unwrap(),
        ..ToolUse::default()
    }));
    let failed = chat
        .answer_calling(&options(9, 1), |_| ControlFlow::Continue(()))
        .unwrap_err();
    assert!(
        matches!(failed, Error::Tools(_)) && failed.to_string().starts_with("bad: "),
        "{failed}"
    );
    assert_eq!(chat.messages().len(), 1);
}

#[test]
fn a_call_that_begins_like_what_ends_an_answer_is_whole() {
    let template = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n\
                    {{ {'name': c.function.name, 'arguments': c.function.arguments}|tojson }}\n</tool_call>\
                    {% endfor %}{% if m.role == 'assistant' %}<tool_call>\n{% endif %}{% endfor %}";
    let mut chat = chat(template, ToolChoice::Named("sleep".to_owned()));
    let (reply, _) = answer(&mut chat, &options(400, 1));
    assert_eq!(reply.outcome.calls.len(), 1, "{:?}", reply.reply.text);
}

#[test]
fn no_call_gets_the_id_of_one_that_was_restored() {
    let mut chat = chat(TEMPLATES[0], ToolChoice::Named("sleep".to_owned()));
    let old = ToolCall {
        id: "call_2".into(),
        name: "sleep".into(),
        arguments: serde_json::json!({}),
    };
    let said = [
        Message::user("a"),
        Message::assistant_calling("", vec![old]),
        Message::tool("call_2", "sleep", "b"),
    ];
    chat.restore(said.to_vec());
    let (reply, _) = answer(&mut chat, &options(400, 1));
    assert_eq!(reply.outcome.calls[0].id, "call_3");
}
