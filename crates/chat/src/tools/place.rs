//! What the parser expects between calls: markers, brackets and colons, as a table. A state is left
//! by the first of its texts that is complete; no text of a state is a prefix of another one.

use super::CallFormat;

/// What a parser reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    /// Text, thinking and calls.
    Calls(CallFormat),
    /// Thinking, and text that may be a reply in the form of [`CallFormat::Generic`].
    Reply,
    /// Thinking and text.
    Plain(ThinkTags),
}

impl Syntax {
    /// The tags around thinking.
    pub(super) fn think_tags(self) -> ThinkTags {
        match self {
            Self::Calls(format) => format.think_tags(),
            Self::Reply => ThinkTags::Think,
            Self::Plain(tags) => tags,
        }
    }
}

/// The tags around thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThinkTags {
    /// `<think>…</think>`.
    Think,
    /// `<|channel>thought\n…<channel|>`: Gemma 4.
    Channel,
}

impl ThinkTags {
    /// The tags of a chat template.
    pub(super) fn of_template(source: &str) -> Self {
        match source.contains(CHANNEL_THOUGHT) {
            true => Self::Channel,
            false => Self::Think,
        }
    }

    /// The text that begins thinking.
    pub(super) fn open(self) -> &'static str {
        match self {
            Self::Think => THINK,
            Self::Channel => CHANNEL_THOUGHT,
        }
    }

    /// The part of [`ThinkTags::open`] that may be a token, and the text behind it.
    pub(super) fn open_token(self) -> (&'static str, &'static str) {
        match self {
            Self::Think => (THINK, ""),
            Self::Channel => (CHANNEL, THOUGHT),
        }
    }

    /// The text that ends thinking, which may be a token.
    pub(super) fn close(self) -> &'static str {
        match self {
            Self::Think => THINK_END,
            Self::Channel => CHANNEL_END,
        }
    }
}

/// State of the parser outside text, thinking and calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParserPlace {
    /// At the beginning, perhaps after white space.
    Start,
    /// After thinking.
    Answer,
    /// A call must begin.
    Object,
    /// After a call; its end marker should follow.
    Close,
    /// After calls; more may follow.
    Next,
    /// A list of calls, or the name of one.
    List,
    /// The first or next call of a list.
    Item,
    /// After a call of a list.
    ItemEnd,
    /// The only key of an answer in JSON.
    Key,
    /// The colon before calls.
    CallsColon,
    /// The bracket before calls.
    CallsList,
    /// The colon before a reply.
    ReplyColon,
    /// The quotation mark before a reply.
    ReplyQuote,
    /// The brace at the end of an answer in JSON.
    ObjectEnd,
}

/// A transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// To another state; the text may still turn out to be text.
    To(ParserPlace),
    /// To another state; the text is consumed.
    Done(ParserPlace),
    /// Thinking begins.
    Reasoning,
    /// A call has begun with this text; then that state.
    Call(ParserPlace),
    /// A reply in quotation marks begins.
    Reply,
}

pub(super) const THINK: &str = "<think>";
pub(super) const THINK_END: &str = "</think>";
pub(super) const CHANNEL: &str = "<|channel>";
pub(super) const THOUGHT: &str = "thought";
pub(super) const CHANNEL_THOUGHT: &str = "<|channel>thought";
pub(super) const CHANNEL_END: &str = "<channel|>";
pub(super) const PYTHON_TAG: &str = "<|python_tag|>";
pub(super) const TOOL_CALL: &str = "<tool_call>";
pub(super) const TOOL_CALL_END: &str = "</tool_call>";
pub(super) const TOOL_CALLS: &str = "[TOOL_CALLS]";
pub(super) const ARGS: &str = "[ARGS]";
pub(super) const CALL_ID: &str = "[CALL_ID]";

pub(super) const FUNCTION: &str = "<function=";
pub(super) const FUNCTION_END: &str = "</function>";

/// The tags of a call whose parameters stand in tags.
#[derive(Debug)]
pub(super) struct Tags {
    /// Ends the name; otherwise the first character that no name has.
    pub(super) name_end: Option<char>,
    /// Around a key.
    pub(super) key: &'static str,
    pub(super) key_end: &'static str,
    /// In front of a value, if the tag of the key is not.
    pub(super) value: &'static str,
    pub(super) value_end: &'static str,
    pub(super) call_end: &'static str,
    /// Whether a value has a line break in front of it and one behind it.
    pub(super) has_lines: bool,
}

/// The tags of [`CallFormat::Tagged`].
pub(super) const TAGS: Tags = Tags {
    name_end: Some('>'),
    key: "<parameter=",
    key_end: ">",
    value: "",
    value_end: "</parameter>",
    call_end: FUNCTION_END,
    has_lines: true,
};

/// The tags of [`CallFormat::TaggedKeys`].
pub(super) const KEY_TAGS: Tags = Tags {
    name_end: None,
    key: ARG_KEY,
    key_end: "</arg_key>",
    value: "<arg_value>",
    value_end: "</arg_value>",
    call_end: TOOL_CALL_END,
    has_lines: false,
};

pub(super) const ARG_KEY: &str = "<arg_key>";
pub(super) const BRACED_CALL: &str = "<|tool_call>";
pub(super) const BRACED_CALL_END: &str = "<tool_call|>";
/// In front of the name of a call of [`CallFormat::Braced`].
pub(super) const CALL: &str = "call:";
pub(crate) const PYTHON_CALLS: &str = "<|tool_call_start|>";
pub(crate) const PYTHON_CALLS_END: &str = "<|tool_call_end|>";
/// Around strings of [`CallFormat::Braced`].
pub(super) const QUOTE: &str = "<|\"|>";

type Transitions = &'static [(&'static str, Next)];

const HERMES: Transitions = &[
    (TOOL_CALL, Next::To(ParserPlace::Object)),
    (THINK, Next::Reasoning),
];
const TAGGED_KEYS: Transitions = &[
    (TOOL_CALL, Next::Call(ParserPlace::Next)),
    (THINK, Next::Reasoning),
];
const MARKED: Transitions = &[
    (TOOL_CALLS, Next::To(ParserPlace::List)),
    (THINK, Next::Reasoning),
];
const BARE: Transitions = &[
    ("{", Next::Call(ParserPlace::Next)),
    (PYTHON_TAG, Next::To(ParserPlace::Object)),
    (THINK, Next::Reasoning),
];
const GENERIC: Transitions = &[("{", Next::To(ParserPlace::Key)), (THINK, Next::Reasoning)];
const BRACED: Transitions = &[
    (BRACED_CALL, Next::To(ParserPlace::Object)),
    (CHANNEL_THOUGHT, Next::Reasoning),
];
const PYTHON: Transitions = &[
    (PYTHON_CALLS, Next::To(ParserPlace::List)),
    (THINK, Next::Reasoning),
];
const PLAIN: Transitions = &[(THINK, Next::Reasoning)];
const PLAIN_CHANNEL: Transitions = &[(CHANNEL_THOUGHT, Next::Reasoning)];

impl ParserPlace {
    /// Texts expected here, and their transitions.
    pub(super) fn expected(self, syntax: Syntax) -> Transitions {
        match self {
            Self::Start => openers(syntax),
            // Thinking comes once.
            Self::Answer => without_thoughts(openers(syntax)),
            Self::Object if syntax == Syntax::Calls(CallFormat::Bare) => {
                &[("{", Next::Call(ParserPlace::Next))]
            }
            Self::Object if syntax == Syntax::Calls(CallFormat::Tagged) => {
                &[(FUNCTION, Next::Call(ParserPlace::Close))]
            }
            Self::Object if syntax == Syntax::Calls(CallFormat::Braced) => {
                &[(CALL, Next::Call(ParserPlace::Close))]
            }
            Self::Object => &[("{", Next::Call(ParserPlace::Close))],
            Self::Close if syntax == Syntax::Calls(CallFormat::Braced) => {
                &[(BRACED_CALL_END, Next::Done(ParserPlace::Next))]
            }
            Self::Close if syntax == Syntax::Calls(CallFormat::Python) => {
                &[(PYTHON_CALLS_END, Next::Done(ParserPlace::Next))]
            }
            Self::Close => &[(TOOL_CALL_END, Next::Done(ParserPlace::Next))],
            Self::Next => more(syntax),
            Self::List if syntax == Syntax::Calls(CallFormat::Python) => {
                &[("[", Next::Call(ParserPlace::ItemEnd))]
            }
            Self::ItemEnd if syntax == Syntax::Calls(CallFormat::Python) => &[
                (",", Next::Call(ParserPlace::ItemEnd)),
                ("]", Next::Done(ParserPlace::Close)),
            ],
            Self::List => &[("[", Next::To(ParserPlace::Item))],
            Self::Item => &[("{", Next::Call(ParserPlace::ItemEnd))],
            Self::ItemEnd if syntax == Syntax::Calls(CallFormat::Generic) => &[
                (",", Next::To(ParserPlace::Item)),
                ("]", Next::Done(ParserPlace::ObjectEnd)),
            ],
            Self::ItemEnd => &[
                (",", Next::To(ParserPlace::Item)),
                ("]", Next::Done(ParserPlace::Next)),
            ],
            Self::Key if syntax == Syntax::Reply => {
                &[("\"response\"", Next::To(ParserPlace::ReplyColon))]
            }
            Self::Key => &[
                ("\"tool_calls\"", Next::To(ParserPlace::CallsColon)),
                ("\"response\"", Next::To(ParserPlace::ReplyColon)),
            ],
            Self::CallsColon => &[(":", Next::To(ParserPlace::CallsList))],
            Self::CallsList => &[("[", Next::To(ParserPlace::Item))],
            Self::ReplyColon => &[(":", Next::To(ParserPlace::ReplyQuote))],
            Self::ReplyQuote => &[("\"", Next::Reply)],
            Self::ObjectEnd => &[("}", Next::Done(ParserPlace::Next))],
        }
    }

    /// Whether white space here belongs to the preceding marker, not to the answer.
    pub(super) fn follows_marker(self) -> bool {
        matches!(
            self,
            Self::Answer | Self::Close | Self::Next | Self::ItemEnd | Self::ObjectEnd
        )
    }
}

/// Beginnings of calls and replies, thinking last.
fn openers(syntax: Syntax) -> Transitions {
    match syntax {
        Syntax::Calls(CallFormat::Hermes | CallFormat::Tagged) => HERMES,
        Syntax::Calls(CallFormat::MarkedList | CallFormat::MarkedName) => MARKED,
        Syntax::Calls(CallFormat::Bare) => BARE,
        Syntax::Calls(CallFormat::Generic) | Syntax::Reply => GENERIC,
        Syntax::Calls(CallFormat::TaggedKeys) => TAGGED_KEYS,
        Syntax::Calls(CallFormat::Braced) => BRACED,
        Syntax::Calls(CallFormat::Python) => PYTHON,
        Syntax::Plain(ThinkTags::Think) => PLAIN,
        Syntax::Plain(ThinkTags::Channel) => PLAIN_CHANNEL,
    }
}

fn without_thoughts(table: Transitions) -> Transitions {
    &table[..table.len() - 1]
}

/// Continuations after a call.
fn more(syntax: Syntax) -> Transitions {
    match syntax {
        Syntax::Calls(
            CallFormat::Hermes
            | CallFormat::Tagged
            | CallFormat::TaggedKeys
            | CallFormat::Braced
            | CallFormat::Python
            | CallFormat::MarkedList
            | CallFormat::MarkedName,
        ) => without_thoughts(openers(syntax)),
        Syntax::Calls(CallFormat::Bare) => &[(";", Next::To(ParserPlace::Object))],
        Syntax::Calls(CallFormat::Generic) | Syntax::Reply | Syntax::Plain(_) => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_a_place_begins_another_one() {
        use ParserPlace::*;
        let places = [
            Start, Answer, Object, Close, Next, List, Item, ItemEnd, Key, CallsColon, CallsList,
            ReplyColon,
        ];
        for syntax in CallFormat::ALL
            .map(Syntax::Calls)
            .into_iter()
            .chain([Syntax::Reply, Syntax::Plain(ThinkTags::Think)])
            .chain([Syntax::Plain(ThinkTags::Channel)])
        {
            for place in places.into_iter().chain([ReplyQuote, ObjectEnd]) {
                let texts: Vec<&str> = place
                    .expected(syntax)
                    .iter()
                    .map(|(text, _)| *text)
                    .collect();
                let clashes = |a: &str| texts.iter().filter(|b| b.starts_with(a)).count() > 1;
                assert!(!texts.iter().any(|a| clashes(a)), "{syntax:?} {place:?}");
            }
        }
    }
}
