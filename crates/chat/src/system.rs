//! Places system messages where a chat template accepts them.
//!
//! Probes are rendered to find out how a template treats system messages. A message that the
//! template would refuse or drop becomes text of the neighboring user message; all others stay.

use serde_json::{Value, json};

use super::{
    Message, Role, Template,
    message::Conversation,
    repair::{join, join_texts},
};

/// Texts of the probes, which no template contains.
const PROBES: [&str; 5] = [
    "atta7sysone",
    "atta7systwo",
    "atta7user",
    "atta7answer",
    "atta7again",
];

/// The system messages that a template writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SystemSupport {
    /// One at the beginning.
    pub(super) first: bool,
    /// Two in a row at the beginning.
    pub(super) repeated: bool,
    /// One after an answer.
    pub(super) later: bool,
}

impl SystemSupport {
    /// Probes a template without or with tools: it may have another branch, or another template,
    /// for those.
    pub(super) fn of(template: &Template) -> [Self; 2] {
        let plain = Self::probe(template, &[]);
        let tool = json!({ "type": "function", "function": { "name": "atta7tool", "description": "Does it.",
            "parameters": { "type": "object", "properties": {}, "required": [] } } });
        let tools = [tool];
        let takes_tools = shows(template, &tools, &[Message::user(PROBES[2])]);
        [
            plain,
            if takes_tools {
                Self::probe(template, &tools)
            } else {
                plain
            },
        ]
    }

    fn probe(template: &Template, tools: &[Value]) -> Self {
        let [one, two, user, answer, again] = PROBES;
        let system = Message::system(one);
        let user = Message::user(user);
        let first = shows(template, tools, &[system.clone(), user.clone()]);
        let repeated = first
            && shows(
                template,
                tools,
                &[system.clone(), Message::system(two), user.clone()],
            );
        let answer = Message::assistant(answer);
        let again = Message::user(again);
        let alone = [user.clone(), answer.clone(), system.clone(), again.clone()];
        // DeepSeek R1 keeps the last of two system messages only.
        let second = [system, user, answer, Message::system(two), again];
        let later = first && shows(template, tools, &alone) && shows(template, tools, &second);
        Self {
            first,
            repeated,
            later,
        }
    }

    /// Adds `told` at the beginning, and places every system message where the template accepts it:
    /// those at the beginning are joined into one, later ones go to the next user message, or to
    /// the end of the previous one.
    pub(super) fn place(self, told: &Told<'_>, messages: Vec<Message>) -> Vec<Message> {
        let mut messages = told.joined(messages);
        if !self.repeated {
            messages = join(messages, |role| role == Role::System);
        }
        let n_first = messages
            .iter()
            .take_while(|message| message.role == Role::System)
            .count();
        let n_kept = if self.first { n_first } else { 0 };
        if self.later {
            return messages;
        }
        let rest = messages.split_off(n_kept);
        messages.extend(folded(rest));
        messages
    }
}

/// Whether a template writes all texts of a conversation.
fn shows(template: &Template, tools: &[Value], messages: &[Message]) -> bool {
    let conversation = Conversation {
        tools,
        add_generation_prompt: true,
        ..Conversation::probe(messages)
    };
    let text = template.render(&conversation).unwrap_or_default();
    messages
        .iter()
        .all(|message| text.contains(&message.content))
}

/// System text beside the messages.
pub(super) struct Told<'a> {
    /// Before the system message of the conversation.
    pub(super) before: Option<&'a str>,
    /// After it: instructions about tools.
    pub(super) after: Option<&'a str>,
}

impl Told<'_> {
    /// Joins it with the first system message, or adds one.
    fn joined(&self, mut messages: Vec<Message>) -> Vec<Message> {
        let [before, after] = [self.before, self.after].map(Option::unwrap_or_default);
        if before.is_empty() && after.is_empty() {
            return messages;
        }
        match messages
            .first_mut()
            .filter(|first| first.role == Role::System)
        {
            Some(first) => first.content = join_texts(&[before, &first.content, after]),
            None => messages.insert(0, Message::system(join_texts(&[before, after]))),
        }
        messages
    }
}

/// Turns system messages into text of user messages.
fn folded(messages: Vec<Message>) -> Vec<Message> {
    let mut out: Vec<Message> = Vec::with_capacity(messages.len());
    let mut pending = String::new();
    for mut message in messages {
        match message.role {
            Role::System => pending = join_texts(&[&pending, &message.content]),
            Role::User => {
                message.content = join_texts(&[&std::mem::take(&mut pending), &message.content]);
                out.push(message);
            }
            Role::Assistant | Role::Tool => {
                append(&mut out, std::mem::take(&mut pending));
                out.push(message);
            }
        }
    }
    append(&mut out, pending);
    out
}

/// Appends text to the last user message, or adds one.
fn append(messages: &mut Vec<Message>, text: String) {
    match messages.last_mut().filter(|last| last.role == Role::User) {
        _ if text.is_empty() => {}
        Some(last) => last.content = join_texts(&[&last.content, &text]),
        None => messages.push(Message::user(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::SpecialTexts;
    use super::*;

    const NOTHING: Told<'_> = Told {
        before: None,
        after: None,
    };

    fn support(source: &str) -> SystemSupport {
        SystemSupport::of(&Template::new(source, SpecialTexts::default()).unwrap())[0]
    }

    fn words(messages: &[Message]) -> String {
        let word = |message: &Message| {
            format!(
                "{}:{}",
                message.role.name(),
                message.content.replace("\n\n", "+")
            )
        };
        messages.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn probes_find_the_system_messages_that_a_template_writes() {
        let only_first = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}\
                          {{ raise_exception('must be first') }}{% endif %}{{ m.content }}{% endfor %}";
        let keeps_last = "{% set ns = namespace(s='') %}{% for m in messages if m.role == 'system' %}\
                          {% set ns.s = m.content %}{% endfor %}{{ ns.s }}\
                          {% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}";
        for (source, first, repeated, later) in [
            (
                "{% for m in messages %}{{ m.content }}{% endfor %}",
                true,
                true,
                true,
            ),
            (only_first, true, false, false),
            (
                "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}",
                false,
                false,
                false,
            ),
            (keeps_last, true, false, false),
        ] {
            assert_eq!(
                support(source),
                SystemSupport {
                    first,
                    repeated,
                    later
                },
                "{source}"
            );
        }
    }

    #[test]
    fn a_branch_for_tools_is_probed_on_its_own() {
        let source = "{% for m in messages if not (tools and m.role == 'system') %}{{ m.content }}{% endfor %}";
        let [plain, with_tools] =
            SystemSupport::of(&Template::new(source, SpecialTexts::default()).unwrap());
        assert_eq!((plain.first, with_tools.first), (true, false));
    }

    #[test]
    fn system_text_joins_the_first_system_message() {
        let told = Told {
            before: Some("a"),
            after: Some("c"),
        };
        let support = SystemSupport {
            first: true,
            repeated: true,
            later: true,
        };
        let placed = support.place(&told, vec![Message::system("b"), Message::user("u")]);
        assert_eq!(words(&placed), "system:a+b+c user:u");
        assert_eq!(
            words(&support.place(&told, vec![Message::user("u")])),
            "system:a+c user:u"
        );
    }

    #[test]
    fn system_messages_that_are_refused_become_text_of_users() {
        let said = || {
            let system = Message::system;
            let user = Message::user;
            let answer = Message::assistant;
            vec![
                system("a"),
                system("b"),
                user("u"),
                answer("x"),
                system("c"),
                answer("y"),
                user("v"),
                system("d"),
            ]
        };
        let first_only = SystemSupport {
            first: true,
            repeated: false,
            later: false,
        };
        let want = "system:a+b user:u assistant:x user:c assistant:y user:v+d";
        assert_eq!(words(&first_only.place(&NOTHING, said())), want);
        let none = SystemSupport {
            first: false,
            ..first_only
        };
        let want = "user:a+b+u assistant:x user:c assistant:y user:v+d";
        assert_eq!(words(&none.place(&NOTHING, said())), want);
    }
}
