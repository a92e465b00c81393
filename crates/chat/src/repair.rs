//! Repairs of conversations that a template refuses.
//!
//! A template that answers is left alone. After a refusal each repair is tried alone, then all of
//! them together, and the first success counts. If none helps, the first refusal is the error.
//! Their number depends on the conversation alone, so that a prompt is the same on any machine.

use serde_json::{Value, json};

use super::{Message, Role, TemplateError, calling, template};
use crate::tools::ToolCall;

/// Fuel that all repairs of a conversation may use, if each uses what one rendering may. It is
/// enough for every repair of a thousand messages.
const MAX_FUEL: u64 = 1 << 28;
/// Length of a call id in Mistral's templates.
const ID_CHARS: usize = 9;

type Repair = fn(Vec<Message>) -> Vec<Message>;

/// From the smallest change to the largest.
const REPAIRS: [Repair; 8] = [
    with_object_arguments,
    with_short_ids,
    with_single_calls,
    merged,
    with_user_first,
    with_answers_to_results,
    |messages| merged(in_words(messages, IsInWords::OrphanResults)),
    |messages| merged(with_user_first(in_words(messages, IsInWords::AllCalls))),
];

/// The messages after each repair alone, then after the first few of them together.
fn candidates(messages: &[Message]) -> impl Iterator<Item = Vec<Message>> {
    let alone = REPAIRS.iter().map(|repair| repair(messages.to_vec()));
    let cumulative = REPAIRS.iter().scan(messages.to_vec(), |repaired, repair| {
        *repaired = repair(std::mem::take(repaired));
        Some(repaired.clone())
    });
    alone.chain(cumulative)
}

/// The first rendering that succeeds, of these messages or of repaired ones.
pub(super) fn first_accepted(
    messages: &[Message],
    render: impl Fn(&[Message]) -> Result<String, TemplateError>,
) -> Result<String, TemplateError> {
    let error = match render(messages) {
        Err(error) if error.may_be_repaired() => error,
        result => return result,
    };
    let mut tried = messages.to_vec();
    let mut n_left = n_candidates(messages);
    for candidate in candidates(messages) {
        if candidate == messages || candidate == tried {
            continue;
        }
        if n_left == 0 {
            break;
        }
        if let Ok(text) = render(&candidate) {
            return Ok(text);
        }
        n_left -= 1;
        tried = candidate;
    }
    Err(error)
}

/// Maximum number of repaired conversations that are tried, at least one.
fn n_candidates(messages: &[Message]) -> u64 {
    (MAX_FUEL / template::rendering_fuel(messages)).max(1)
}

/// Wraps arguments that are not an object: templates iterate over them.
fn with_object_arguments(mut messages: Vec<Message>) -> Vec<Message> {
    for call in messages
        .iter_mut()
        .flat_map(|message| &mut message.tool_calls)
    {
        call.arguments = match call.arguments.take() {
            Value::Null => json!({}),
            object @ Value::Object(_) => object,
            other => json!({ "arguments": other }),
        };
    }
    messages
}

/// Replaces call ids by nine letters and digits, the same for the same id.
fn with_short_ids(mut messages: Vec<Message>) -> Vec<Message> {
    for message in &mut messages {
        let calls = message.tool_calls.iter_mut().map(|call| &mut call.id);
        calls
            .chain(&mut message.tool_call_id)
            .for_each(|id| *id = short_id(id));
        if message.role == Role::Tool && message.tool_call_id.is_none() {
            message.tool_call_id = Some(short_id(""));
        }
    }
    messages
}

fn short_id(id: &str) -> String {
    if id.len() == ID_CHARS && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return id.to_owned();
    }
    // FNV-1a, 64 bits.
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let text = format!("{hash:016x}");
    text[text.len() - ID_CHARS..].to_owned()
}

/// Gives each call a message of its own, followed by its result: Llama 3 takes no parallel calls.
pub(super) fn with_single_calls(messages: Vec<Message>) -> Vec<Message> {
    let mut out = Vec::with_capacity(messages.len());
    let mut messages = messages.into_iter().peekable();
    while let Some(mut message) = messages.next() {
        if message.tool_calls.len() < 2 {
            out.push(message);
            continue;
        }
        let mut results = Vec::new();
        while let Some(result) = messages.next_if(|next| next.role == Role::Tool) {
            results.push(result);
        }
        for call in std::mem::take(&mut message.tool_calls) {
            let answers =
                |result: &Message| result.tool_call_id.as_deref() == Some(call.id.as_str());
            let result = results
                .iter()
                .position(answers)
                .map(|at| results.remove(at));
            out.push(Message {
                tool_calls: vec![call],
                ..message.clone()
            });
            message.content.clear();
            message.reasoning = None;
            out.extend(result);
        }
        out.extend(results);
    }
    out
}

/// Joins consecutive messages of one role, except tool results.
fn merged(messages: Vec<Message>) -> Vec<Message> {
    join(messages, |role| role != Role::Tool)
}

/// Joins consecutive messages of the roles to be joined.
pub(super) fn join(messages: Vec<Message>, is_joined: impl Fn(Role) -> bool) -> Vec<Message> {
    let mut out: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages {
        match out
            .last_mut()
            .filter(|last| last.role == message.role && is_joined(message.role))
        {
            Some(last) => {
                last.content = join_texts(&[&last.content, &message.content]);
                last.reasoning = message.reasoning.or(last.reasoning.take());
                last.tool_calls.extend(message.tool_calls);
            }
            None => out.push(message),
        }
    }
    out
}

/// Joins texts with an empty line between them, skipping empty ones.
pub(super) fn join_texts(texts: &[&str]) -> String {
    let texts: Vec<&str> = texts
        .iter()
        .copied()
        .filter(|text| !text.is_empty())
        .collect();
    texts.join("\n\n")
}

/// Inserts an empty user message where the model or a tool speaks first, or where there is only a
/// system message.
fn with_user_first(mut messages: Vec<Message>) -> Vec<Message> {
    let at = messages
        .iter()
        .position(|message| message.role != Role::System)
        .unwrap_or(messages.len());
    if messages
        .get(at)
        .is_none_or(|message| message.role != Role::User)
    {
        messages.insert(at, Message::user(""));
    }
    messages
}

/// Inserts an empty answer between a tool result and the next user message.
fn with_answers_to_results(messages: Vec<Message>) -> Vec<Message> {
    let mut out: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages {
        let is_after_result = out.last().is_some_and(|last| last.role == Role::Tool);
        if message.role == Role::User && is_after_result {
            out.push(Message::assistant(""));
        }
        out.push(message);
    }
    out
}

/// Which tool messages to put into words.
#[derive(Clone, Copy, PartialEq)]
enum IsInWords {
    /// Results without a preceding call.
    OrphanResults,
    /// All calls and their results.
    AllCalls,
}

fn in_words(messages: Vec<Message>, what: IsInWords) -> Vec<Message> {
    let mut open: Vec<ToolCall> = Vec::new();
    let mut out = Vec::with_capacity(messages.len());
    for message in messages {
        let has_call = message.role == Role::Tool && !open.is_empty();
        if message.role != Role::Tool {
            open = message.tool_calls.clone();
        }
        out.push(match message.role {
            Role::Tool if what == IsInWords::AllCalls || !has_call => {
                Message::user(calling::result(&message))
            }
            Role::Assistant if what == IsInWords::AllCalls && !message.tool_calls.is_empty() => {
                Message::assistant(calling::answer(&message))
            }
            _ => message,
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::{Conversation, SpecialTexts, Template};
    use super::*;

    fn call(id: &str, arguments: Value) -> ToolCall {
        ToolCall {
            id: id.into(),
            name: "f".into(),
            arguments,
        }
    }

    /// What a template makes of messages, repaired if need be.
    fn rendered(source: &str, messages: &[Message]) -> Result<String, TemplateError> {
        let template = Template::new(source, SpecialTexts::default()).unwrap();
        first_accepted(messages, |messages| {
            template.render(&Conversation {
                messages,
                ..Conversation::default()
            })
        })
    }

    #[test]
    fn messages_that_a_template_takes_stay_as_they_are() {
        let source = "{% for m in messages %}[{{ m.content }}]{% endfor %}";
        let messages = [
            Message::assistant("a"),
            Message::user("b"),
            Message::user("c"),
        ];
        assert_eq!(rendered(source, &messages).unwrap(), "[a][b][c]");
    }

    const ALTERNATING: &str = "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}\
                               {{ raise_exception('alternate') }}{% endif %}[{{ m.content }}]{% endfor %}";

    #[test]
    fn roles_take_turns_where_a_template_insists_on_that() {
        for (messages, want) in [
            (vec![Message::user("a"), Message::user("b")], "[a\n\nb]"),
            (
                vec![Message::assistant("a"), Message::user("b")],
                "[][a][b]",
            ),
            (
                vec![
                    Message::assistant("a"),
                    Message::user("b"),
                    Message::user("c"),
                ],
                "[][a][b\n\nc]",
            ),
        ] {
            assert_eq!(rendered(ALTERNATING, &messages).unwrap(), want);
        }
    }

    #[test]
    fn calls_become_words_where_a_template_takes_none() {
        let source = ALTERNATING.replace("{% if ", "{% if m.role == 'tool' or ");
        let messages = [
            Message::user("a"),
            Message::assistant_calling("", vec![call("1", json!("{"))]),
            Message::tool("1", "f", "x"),
            Message::user("b"),
        ];
        let want =
            "[a][{\"tool_calls\":[{\"name\":\"f\",\"arguments\":\"{\"}]}][Result of f: x\n\nb]";
        assert_eq!(rendered(&source, &messages).unwrap(), want);
    }

    #[test]
    fn arguments_that_are_no_object_become_one_where_a_template_needs_that() {
        let source = "{% for m in messages %}{% for c in m.tool_calls %}{% for k, v in c.function.arguments|items %}\
                      {{ k }}={{ v }}{% endfor %}{% endfor %}{% endfor %}";
        let messages = [Message::assistant_calling(
            "",
            vec![call("1", json!("{\"a\": "))],
        )];
        assert_eq!(rendered(source, &messages).unwrap(), "arguments={\"a\": ");
    }

    #[test]
    fn ids_are_short_and_the_same_for_the_same_id() {
        let messages = vec![
            Message::assistant_calling("", vec![call("call_1", json!({}))]),
            Message::tool("call_1", "f", ""),
        ];
        let short = with_short_ids(messages);
        assert_eq!(
            Some(&short[0].tool_calls[0].id),
            short[1].tool_call_id.as_ref()
        );
        assert_eq!(
            (short_id("abcdefghi"), short_id("call_1").len()),
            ("abcdefghi".to_owned(), ID_CHARS)
        );
        assert_ne!(short_id("call_1"), short_id("call_2"));
    }

    #[test]
    fn parallel_calls_are_split_with_their_results() {
        let calls = vec![call("1", json!({})), call("2", json!({}))];
        let messages = vec![
            Message::assistant_calling("t", calls),
            Message::tool("2", "f", "two"),
            Message::tool("1", "f", "one"),
        ];
        let split = with_single_calls(messages);
        let words: Vec<_> = split
            .iter()
            .map(|m| (m.role.name(), m.content.as_str(), m.tool_calls.len()))
            .collect();
        assert_eq!(
            words,
            [
                ("assistant", "t", 1),
                ("tool", "one", 0),
                ("assistant", "", 1),
                ("tool", "two", 0)
            ]
        );
    }

    #[test]
    fn a_result_without_a_call_is_what_a_user_says() {
        let source = "{% for m in messages %}{% if m.role == 'tool' and not loop.previtem.tool_calls %}\
                      {{ raise_exception('no call') }}{% endif %}[{{ m.content }}]{% endfor %}";
        let messages = [Message::user("a"), Message::tool("1", "f", "x")];
        assert_eq!(
            rendered(source, &messages).unwrap(),
            "[a\n\nResult of f: x]"
        );
    }

    /// How often a template that refuses everything is rendered.
    fn n_renderings(n_messages: usize) -> usize {
        let n = std::cell::Cell::new(0);
        // Each of the repairs changes something.
        let mut messages = vec![
            Message::assistant_calling("", vec![call("1", json!("{")), call("2", json!("{"))]),
            Message::tool("1", "f", "x"),
            Message::user("a"),
        ];
        messages.resize(n_messages, Message::user("b"));
        let refused = first_accepted(&messages, |_| {
            n.set(n.get() + 1);
            Err(TemplateError::Raised(n.get().to_string()))
        });
        assert_eq!(refused, Err(TemplateError::Raised("1".into())));
        n.get()
    }

    #[test]
    fn long_conversations_are_repaired_in_fewer_ways() {
        assert_eq!(n_renderings(10), n_renderings(1000));
        assert!(n_renderings(10) > 10);
        assert!((3..8).contains(&n_renderings(2500)));
        assert_eq!(n_renderings(20_000), 2, "one repair is always tried");
    }

    #[test]
    fn a_refusal_that_no_repair_mends_is_the_first_one() {
        let source = "{{ raise_exception(messages|length) }}";
        let messages = [Message::user("a"), Message::user("b")];
        assert_eq!(
            rendered(source, &messages),
            Err(TemplateError::Raised("2".into()))
        );
    }
}
