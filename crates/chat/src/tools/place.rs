//! What the parser expects between calls: markers, brackets and colons, as a table. A state is left
//! by the first of its texts that is complete; no text of a state is a prefix of another one.

use super::Format;

/// What a parser reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    /// Text, thinking and calls.
    Calls(Format),
    /// Thinking, and text that may be a reply in the form of [`Format::Generic`].
    Reply,
    /// Thinking and text.
    Plain,
}

/// State of the parser outside text, thinking and calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
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
    To(Place),
    /// To another state; the text is consumed.
    Done(Place),
    /// Thinking begins.
    Reasoning,
    /// A call has begun with this brace; then that state.
    Call(Place),
    /// A reply in quotation marks begins.
    Reply,
}

pub(super) const THINK: &str = "<think>";
pub(super) const THINK_END: &str = "</think>";
pub(super) const PYTHON_TAG: &str = "<|python_tag|>";
pub(super) const TOOL_CALL: &str = "<tool_call>";
pub(super) const TOOL_CALL_END: &str = "</tool_call>";
pub(super) const TOOL_CALLS: &str = "[TOOL_CALLS]";
pub(super) const ARGS: &str = "[ARGS]";
pub(super) const CALL_ID: &str = "[CALL_ID]";

type Table = &'static [(&'static str, Next)];

const HERMES: Table = &[
    (TOOL_CALL, Next::To(Place::Object)),
    (THINK, Next::Reasoning),
];
const MARKED: Table = &[
    (TOOL_CALLS, Next::To(Place::List)),
    (THINK, Next::Reasoning),
];
const BARE: Table = &[
    ("{", Next::Call(Place::Next)),
    (PYTHON_TAG, Next::To(Place::Object)),
    (THINK, Next::Reasoning),
];
const GENERIC: Table = &[("{", Next::To(Place::Key)), (THINK, Next::Reasoning)];
const PLAIN: Table = &[(THINK, Next::Reasoning)];

impl Place {
    /// Texts expected here, and their transitions.
    pub(super) fn expected(self, syntax: Syntax) -> Table {
        match self {
            Self::Start => openers(syntax),
            // Thinking comes once.
            Self::Answer => without_thoughts(openers(syntax)),
            Self::Object if syntax == Syntax::Calls(Format::Bare) => {
                &[("{", Next::Call(Place::Next))]
            }
            Self::Object => &[("{", Next::Call(Place::Close))],
            Self::Close => &[(TOOL_CALL_END, Next::Done(Place::Next))],
            Self::Next => more(syntax),
            Self::List => &[("[", Next::To(Place::Item))],
            Self::Item => &[("{", Next::Call(Place::ItemEnd))],
            Self::ItemEnd if syntax == Syntax::Calls(Format::Generic) => &[
                (",", Next::To(Place::Item)),
                ("]", Next::Done(Place::ObjectEnd)),
            ],
            Self::ItemEnd => &[(",", Next::To(Place::Item)), ("]", Next::Done(Place::Next))],
            Self::Key if syntax == Syntax::Reply => {
                &[("\"response\"", Next::To(Place::ReplyColon))]
            }
            Self::Key => &[
                ("\"tool_calls\"", Next::To(Place::CallsColon)),
                ("\"response\"", Next::To(Place::ReplyColon)),
            ],
            Self::CallsColon => &[(":", Next::To(Place::CallsList))],
            Self::CallsList => &[("[", Next::To(Place::Item))],
            Self::ReplyColon => &[(":", Next::To(Place::ReplyQuote))],
            Self::ReplyQuote => &[("\"", Next::Reply)],
            Self::ObjectEnd => &[("}", Next::Done(Place::Next))],
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
fn openers(syntax: Syntax) -> Table {
    match syntax {
        Syntax::Calls(Format::Hermes) => HERMES,
        Syntax::Calls(Format::MarkedList | Format::MarkedName) => MARKED,
        Syntax::Calls(Format::Bare) => BARE,
        Syntax::Calls(Format::Generic) | Syntax::Reply => GENERIC,
        Syntax::Plain => PLAIN,
    }
}

fn without_thoughts(table: Table) -> Table {
    &table[..table.len() - 1]
}

/// Continuations after a call.
fn more(syntax: Syntax) -> Table {
    match syntax {
        Syntax::Calls(Format::Hermes | Format::MarkedList | Format::MarkedName) => {
            without_thoughts(openers(syntax))
        }
        Syntax::Calls(Format::Bare) => &[(";", Next::To(Place::Object))],
        Syntax::Calls(Format::Generic) | Syntax::Reply | Syntax::Plain => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_a_place_begins_another_one() {
        use Place::*;
        let places = [
            Start, Answer, Object, Close, Next, List, Item, ItemEnd, Key, CallsColon, CallsList,
            ReplyColon,
        ];
        for syntax in Format::ALL
            .map(Syntax::Calls)
            .into_iter()
            .chain([Syntax::Reply, Syntax::Plain])
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
