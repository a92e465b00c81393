//! The messages of gpt-oss ("harmony"): an answer is several of them, each with a header that names
//! its channel.
//!
//! `analysis` is thinking, `commentary` and `final` are text. A call is a message with a recipient,
//! in the header of the channel (`<|channel|>commentary to=functions.NAME <|constrain|>json`) or in
//! front of it (` to=functions.NAME<|channel|>commentary json`).

use super::place::{
    FUNCTIONS, Next,
    ParserPlace::{self, Message},
    Transitions,
};

pub(super) const START: &str = "<|start|>";
pub(crate) const CHANNEL: &str = "<|channel|>";
pub(super) const CONSTRAIN: &str = "<|constrain|>";
pub(super) const MESSAGE: &str = "<|message|>";
pub(super) const END: &str = "<|end|>";
/// Ends a call, and the answer.
pub(super) const CALL: &str = "<|call|>";
/// The header of thinking.
pub(super) const ANALYSIS: &str = "<|channel|>analysis<|message|>";
/// Begins every message of an answer; the first one is in the prompt.
pub(super) const NEXT_MESSAGE: &str = "<|start|>assistant";
pub(super) const TO_FUNCTION: &str = "to=functions.";

/// Whether a chat template writes such messages.
pub(super) fn is_template(source: &str) -> bool {
    source.contains(CHANNEL) && source.contains(MESSAGE)
}

/// Where a header goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderPlace {
    /// Between messages.
    Begin,
    /// After [`NEXT_MESSAGE`].
    Role,
    /// The name of the channel.
    Channel,
    /// After the name of a channel.
    Analysis,
    Commentary,
    Final,
    /// The channel of a call whose recipient stands in front.
    CallChannel,
}

impl HeaderPlace {
    #[cfg(test)]
    pub(super) const ALL: [Self; 7] = [
        Self::Begin,
        Self::Role,
        Self::Channel,
        Self::Analysis,
        Self::Commentary,
        Self::Final,
        Self::CallChannel,
    ];
}

/// After the name of a call.
pub(super) const CALL_HEADER: Transitions = &[
    (CHANNEL, Next::To(Message(HeaderPlace::CallChannel))),
    (CONSTRAIN, Next::To(ParserPlace::Header)),
    ("json", Next::To(ParserPlace::Header)),
    ("code", Next::To(ParserPlace::Header)),
    (MESSAGE, Next::Call(ParserPlace::Close)),
];

/// After the arguments of a call.
pub(super) const CALL_ENDS: Transitions = &[
    (CALL, Next::Done(ParserPlace::Next)),
    (END, Next::Done(ParserPlace::Next)),
];

/// Texts expected in a header, and their transitions. Without calls a recipient is not expected.
pub(super) fn expected(place: HeaderPlace, has_calls: bool) -> Transitions {
    let table: Transitions = match place {
        HeaderPlace::Begin => &[
            (CHANNEL, Next::To(Message(HeaderPlace::Channel))),
            (NEXT_MESSAGE, Next::To(Message(HeaderPlace::Role))),
            (TO_FUNCTION, Next::Name),
        ],
        HeaderPlace::Role => &[
            (CHANNEL, Next::To(Message(HeaderPlace::Channel))),
            (TO_FUNCTION, Next::Name),
        ],
        HeaderPlace::Channel => &[
            ("analysis", Next::To(Message(HeaderPlace::Analysis))),
            ("commentary", Next::To(Message(HeaderPlace::Commentary))),
            ("final", Next::To(Message(HeaderPlace::Final))),
        ],
        HeaderPlace::Analysis => &[(MESSAGE, Next::Reasoning), (TO_FUNCTION, Next::Name)],
        // The small model writes a header of this channel in front of others now and then.
        HeaderPlace::Commentary => &[
            (MESSAGE, Next::Text),
            (CHANNEL, Next::To(Message(HeaderPlace::Channel))),
            ("to=assistant", Next::To(Message(HeaderPlace::Commentary))),
            (TO_FUNCTION, Next::Name),
        ],
        HeaderPlace::Final => &[
            (MESSAGE, Next::Text),
            (CONSTRAIN, Next::To(Message(HeaderPlace::Final))),
            ("json", Next::To(Message(HeaderPlace::Final))),
        ],
        HeaderPlace::CallChannel => &[
            ("commentary", Next::To(ParserPlace::Header)),
            ("analysis", Next::To(ParserPlace::Header)),
        ],
    };
    match table.split_last() {
        Some(((TO_FUNCTION, _), others)) if !has_calls => others,
        _ => table,
    }
}

/// Whether an answer is a call, or may become one: a test of its last header.
pub(super) fn is_call(answer: &str) -> bool {
    let mut rest = answer;
    loop {
        let (before, body) = rest.split_once(MESSAGE).unwrap_or((rest, ""));
        // The answer may begin inside thinking.
        let header = before.rsplit(END).next().unwrap_or_default().trim_start();
        let begins = [CHANNEL, START, TO_FUNCTION];
        if !begins.iter().any(|text| header.starts_with(text)) || header.contains("final") {
            return false;
        }
        if header.contains(FUNCTIONS) {
            return true;
        }
        match body.split_once(END) {
            Some((_, next)) => rest = next,
            None => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_header_tells_a_call() {
        for (answer, expected) in [
            ("", false),
            ("Hi to=functions.f", false),
            ("<|channel|>final<|message|>to=functions.f", false),
            ("<|channel|>commentary<|message|>I look.<|end|>", false),
            ("<|channel|>commentary to=functions.f", true),
            (
                " to=functions.f<|channel|>commentary json<|message|>{",
                true,
            ),
            (
                "<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.f",
                true,
            ),
            (
                "hm to=functions.f<|end|><|start|>assistant<|channel|>final json<|message|>{\"<|end|>\": 1",
                false,
            ),
            (
                "hm<|end|><|start|>assistant<|channel|>commentary to=functions.f",
                true,
            ),
        ] {
            assert_eq!(is_call(answer), expected, "{answer}");
        }
    }
}
