//! What the parser expects between calls: markers, brackets and colons, as a table. A state is left
//! by the first of its texts that is complete; no text of a state is a prefix of another one.

use super::{
    CallFormat,
    harmony::{self, HeaderPlace},
};

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
    /// `<|channel|>analysis<|message|>…<|end|>`, perhaps several times: gpt-oss.
    Harmony,
    /// `[THINK]…[/THINK]`: Magistral, Ministral 3.
    Bracket,
    /// `<seed:think>…</seed:think>`: Seed-OSS.
    Seed,
}

impl ThinkTags {
    /// The tags of a chat template.
    pub(super) fn of_template(source: &str) -> Self {
        if harmony::is_template(source) {
            Self::Harmony
        } else if source.contains(CHANNEL_THOUGHT) {
            Self::Channel
        } else if source.contains(SEED_THINK) {
            Self::Seed
        } else if source.contains(BRACKET_THINK) {
            Self::Bracket
        } else {
            Self::Think
        }
    }

    /// The text that begins thinking.
    pub(super) fn open(self) -> &'static str {
        match self {
            Self::Think => THINK,
            Self::Channel => CHANNEL_THOUGHT,
            Self::Harmony => harmony::ANALYSIS,
            Self::Bracket => BRACKET_THINK,
            Self::Seed => SEED_THINK,
        }
    }

    /// The part of [`ThinkTags::open`] that may be a token, and the text behind it.
    pub(super) fn open_token(self) -> (&'static str, &'static str) {
        match self {
            Self::Channel => (CHANNEL, THOUGHT),
            _ => (self.open(), ""),
        }
    }

    /// The text that ends thinking, which may be a token.
    pub(super) fn close(self) -> &'static str {
        match self {
            Self::Think => THINK_END,
            Self::Channel => CHANNEL_END,
            Self::Harmony => harmony::END,
            Self::Bracket => BRACKET_THINK_END,
            Self::Seed => SEED_THINK_END,
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
    /// In front of the name of a call of [`CallFormat::Section`].
    Function,
    /// After the name of a call; its arguments should follow.
    Header,
    /// In a message of [`CallFormat::Harmony`].
    Message(HeaderPlace),
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
    /// A text begins, up to its marker.
    Text,
    /// The name of a call begins.
    Name,
}

pub(super) const THINK: &str = "<think>";
pub(super) const THINK_END: &str = "</think>";
pub(super) const BRACKET_THINK: &str = "[THINK]";
pub(super) const BRACKET_THINK_END: &str = "[/THINK]";
pub(super) const SEED_THINK: &str = "<seed:think>";
pub(super) const SEED_THINK_END: &str = "</seed:think>";
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
    /// Ends the name; if it is empty, the first character that no name has.
    pub(super) name_end: &'static str,
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
    name_end: ">",
    key: "<parameter=",
    key_end: ">",
    value: "",
    value_end: "</parameter>",
    call_end: FUNCTION_END,
    has_lines: true,
};

/// The tags of [`CallFormat::TaggedKeys`].
pub(super) const KEY_TAGS: Tags = Tags {
    name_end: "",
    key: ARG_KEY,
    key_end: "</arg_key>",
    value: "<arg_value>",
    value_end: "</arg_value>",
    call_end: TOOL_CALL_END,
    has_lines: false,
};

/// The tags of [`CallFormat::TaggedInline`].
pub(super) const INLINE_TAGS: Tags = Tags {
    has_lines: false,
    ..TAGS
};

/// The tags of [`CallFormat::Invokes`].
pub(super) const INVOKE_TAGS: Tags = Tags {
    name_end: "\">",
    key: "<parameter name=\"",
    key_end: "\">",
    call_end: INVOKE_END,
    ..INLINE_TAGS
};

pub(super) const INLINE_CALL: &str = "<seed:tool_call>";
pub(super) const INLINE_CALL_END: &str = "</seed:tool_call>";
pub(super) const INVOKES: &str = "<minimax:tool_call>";
pub(super) const INVOKES_END: &str = "</minimax:tool_call>";
pub(super) const INVOKE: &str = "<invoke name=\"";
pub(super) const INVOKE_END: &str = "</invoke>";
pub(super) const ARG_KEY: &str = "<arg_key>";
pub(super) const BRACED_CALL: &str = "<|tool_call>";
pub(super) const BRACED_CALL_END: &str = "<tool_call|>";
/// In front of the name of a call of [`CallFormat::Braced`].
pub(super) const CALL: &str = "call:";
pub(crate) const PYTHON_CALLS: &str = "<|tool_call_start|>";
pub(crate) const PYTHON_CALLS_END: &str = "<|tool_call_end|>";
pub(super) const SECTION: &str = "<|tool_calls_section_begin|>";
pub(super) const SECTION_END: &str = "<|tool_calls_section_end|>";
pub(super) const SECTION_CALL: &str = "<|tool_call_begin|>";
pub(super) const SECTION_ARGS: &str = "<|tool_call_argument_begin|>";
pub(super) const SECTION_CALL_END: &str = "<|tool_call_end|>";
pub(super) const NAMED_SECTION: &str = "<｜tool▁calls▁begin｜>";
pub(super) const NAMED_SECTION_END: &str = "<｜tool▁calls▁end｜>";
pub(super) const NAMED_CALL: &str = "<｜tool▁call▁begin｜>";
pub(super) const NAMED_ARGS: &str = "<｜tool▁sep｜>";
pub(super) const NAMED_CALL_END: &str = "<｜tool▁call▁end｜>";
/// In front of the name of a call of [`CallFormat::Section`] and [`CallFormat::Harmony`].
pub(super) const FUNCTIONS: &str = "functions.";
/// Around strings of [`CallFormat::Braced`].
pub(super) const QUOTE: &str = "<|\"|>";

pub(super) type Transitions = &'static [(&'static str, Next)];

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
const MARKED_NAME: Transitions = &[
    (TOOL_CALLS, Next::To(ParserPlace::List)),
    (BRACKET_THINK, Next::Reasoning),
];
const TAGGED_INLINE: Transitions = &[
    (INLINE_CALL, Next::To(ParserPlace::Object)),
    (SEED_THINK, Next::Reasoning),
];
const INVOKED: Transitions = &[
    (INVOKES, Next::To(ParserPlace::Object)),
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
const SECTIONS: Transitions = &[
    (SECTION, Next::To(ParserPlace::List)),
    (THINK, Next::Reasoning),
];
const NAMED_SECTIONS: Transitions = &[
    (NAMED_SECTION, Next::To(ParserPlace::List)),
    (THINK, Next::Reasoning),
];
const MORE_OF_SECTION: Transitions = &[
    (SECTION_CALL, Next::To(ParserPlace::Function)),
    (SECTION_END, Next::Done(ParserPlace::Next)),
    (SECTION, Next::To(ParserPlace::List)),
];
const MORE_OF_NAMED_SECTION: Transitions = &[
    (NAMED_CALL, Next::Name),
    (NAMED_SECTION_END, Next::Done(ParserPlace::Next)),
    (NAMED_SECTION, Next::To(ParserPlace::List)),
];
const MORE_INVOKED: Transitions = &[
    (INVOKE, Next::Call(ParserPlace::Next)),
    (INVOKES_END, Next::Done(ParserPlace::Next)),
    (INVOKES, Next::To(ParserPlace::Object)),
];
const PLAIN: Transitions = &[(THINK, Next::Reasoning)];
const PLAIN_CHANNEL: Transitions = &[(CHANNEL_THOUGHT, Next::Reasoning)];
const PLAIN_BRACKET: Transitions = &[(BRACKET_THINK, Next::Reasoning)];
const PLAIN_SEED: Transitions = &[(SEED_THINK, Next::Reasoning)];

impl ParserPlace {
    /// Texts expected here, and their transitions.
    pub(super) fn expected(self, syntax: Syntax) -> Transitions {
        match self {
            Self::Start => openers(syntax),
            Self::Message(place) => {
                harmony::expected(place, syntax == Syntax::Calls(CallFormat::Harmony))
            }
            Self::Answer if syntax.think_tags() == ThinkTags::Harmony => openers(syntax),
            // Thinking comes once.
            Self::Answer => without_thoughts(openers(syntax)),
            Self::Object => object(syntax),
            Self::Close => close(syntax),
            Self::Next => more(syntax),
            Self::List => list(syntax),
            Self::Function => &[(FUNCTIONS, Next::Name)],
            Self::Header if syntax == Syntax::Calls(CallFormat::Harmony) => harmony::CALL_HEADER,
            Self::Header if syntax == Syntax::Calls(CallFormat::NamedSection) => {
                &[(NAMED_ARGS, Next::Call(ParserPlace::Close))]
            }
            Self::Header => &[(SECTION_ARGS, Next::Call(ParserPlace::Close))],
            Self::Item => &[("{", Next::Call(ParserPlace::ItemEnd))],
            Self::ItemEnd => item_end(syntax),
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

/// Beginnings of a call behind its marker.
fn object(syntax: Syntax) -> Transitions {
    match syntax {
        Syntax::Calls(CallFormat::Bare) => &[("{", Next::Call(ParserPlace::Next))],
        Syntax::Calls(CallFormat::Tagged | CallFormat::TaggedInline) => {
            &[(FUNCTION, Next::Call(ParserPlace::Close))]
        }
        Syntax::Calls(CallFormat::Invokes) => &[(INVOKE, Next::Call(ParserPlace::Next))],
        Syntax::Calls(CallFormat::Braced) => &[(CALL, Next::Call(ParserPlace::Close))],
        _ => &[("{", Next::Call(ParserPlace::Close))],
    }
}

/// End markers of a call.
fn close(syntax: Syntax) -> Transitions {
    match syntax {
        Syntax::Calls(CallFormat::Braced) => &[(BRACED_CALL_END, Next::Done(ParserPlace::Next))],
        Syntax::Calls(CallFormat::Python) => &[(PYTHON_CALLS_END, Next::Done(ParserPlace::Next))],
        Syntax::Calls(CallFormat::Section) => &[(SECTION_CALL_END, Next::Done(ParserPlace::Next))],
        Syntax::Calls(CallFormat::NamedSection) => {
            &[(NAMED_CALL_END, Next::Done(ParserPlace::Next))]
        }
        Syntax::Calls(CallFormat::TaggedInline) => {
            &[(INLINE_CALL_END, Next::Done(ParserPlace::Next))]
        }
        Syntax::Calls(CallFormat::Harmony) => harmony::CALL_ENDS,
        _ => &[(TOOL_CALL_END, Next::Done(ParserPlace::Next))],
    }
}

/// Beginnings of a list of calls.
fn list(syntax: Syntax) -> Transitions {
    match syntax {
        Syntax::Calls(CallFormat::Python) => &[("[", Next::Call(ParserPlace::ItemEnd))],
        Syntax::Calls(CallFormat::Section) => &[(SECTION_CALL, Next::To(ParserPlace::Function))],
        Syntax::Calls(CallFormat::NamedSection) => &[(NAMED_CALL, Next::Name)],
        _ => &[("[", Next::To(ParserPlace::Item))],
    }
}

/// Continuations after a call of a list.
fn item_end(syntax: Syntax) -> Transitions {
    match syntax {
        Syntax::Calls(CallFormat::Python) => &[
            (",", Next::Call(ParserPlace::ItemEnd)),
            ("]", Next::Done(ParserPlace::Close)),
        ],
        Syntax::Calls(CallFormat::Generic) => &[
            (",", Next::To(ParserPlace::Item)),
            ("]", Next::Done(ParserPlace::ObjectEnd)),
        ],
        _ => &[
            (",", Next::To(ParserPlace::Item)),
            ("]", Next::Done(ParserPlace::Next)),
        ],
    }
}

/// Beginnings of calls and replies, thinking last.
fn openers(syntax: Syntax) -> Transitions {
    match syntax {
        Syntax::Calls(CallFormat::Hermes | CallFormat::Tagged) => HERMES,
        Syntax::Calls(CallFormat::TaggedInline) => TAGGED_INLINE,
        Syntax::Calls(CallFormat::Invokes) => INVOKED,
        Syntax::Calls(CallFormat::MarkedList) => MARKED,
        Syntax::Calls(CallFormat::MarkedName) => MARKED_NAME,
        Syntax::Calls(CallFormat::Bare) => BARE,
        Syntax::Calls(CallFormat::Generic) | Syntax::Reply => GENERIC,
        Syntax::Calls(CallFormat::TaggedKeys) => TAGGED_KEYS,
        Syntax::Calls(CallFormat::Braced) => BRACED,
        Syntax::Calls(CallFormat::Python) => PYTHON,
        Syntax::Calls(CallFormat::Section) => SECTIONS,
        Syntax::Calls(CallFormat::NamedSection) => NAMED_SECTIONS,
        Syntax::Plain(ThinkTags::Think) => PLAIN,
        Syntax::Plain(ThinkTags::Channel) => PLAIN_CHANNEL,
        Syntax::Plain(ThinkTags::Bracket) => PLAIN_BRACKET,
        Syntax::Plain(ThinkTags::Seed) => PLAIN_SEED,
        Syntax::Calls(CallFormat::Harmony) => harmony::expected(HeaderPlace::Begin, true),
        Syntax::Plain(ThinkTags::Harmony) => harmony::expected(HeaderPlace::Begin, false),
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
            | CallFormat::TaggedInline
            | CallFormat::Braced
            | CallFormat::Python
            | CallFormat::MarkedList
            | CallFormat::MarkedName,
        ) => without_thoughts(openers(syntax)),
        Syntax::Calls(CallFormat::Harmony) => openers(syntax),
        Syntax::Calls(CallFormat::Bare) => &[(";", Next::To(ParserPlace::Object))],
        Syntax::Calls(CallFormat::Section) => MORE_OF_SECTION,
        Syntax::Calls(CallFormat::NamedSection) => MORE_OF_NAMED_SECTION,
        Syntax::Calls(CallFormat::Invokes) => MORE_INVOKED,
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
            ReplyColon, Function, Header,
        ];
        let places = places.into_iter().chain(HeaderPlace::ALL.map(Message));
        for syntax in CallFormat::ALL
            .map(Syntax::Calls)
            .into_iter()
            .chain([Syntax::Reply, Syntax::Plain(ThinkTags::Think)])
            .chain([ThinkTags::Channel, ThinkTags::Harmony].map(Syntax::Plain))
            .chain([ThinkTags::Bracket, ThinkTags::Seed].map(Syntax::Plain))
        {
            for place in places.clone().chain([ReplyQuote, ObjectEnd]) {
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
