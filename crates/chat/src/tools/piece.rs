//! What comes out of a parser while a model writes, and what it was altogether.

use super::ToolCall;

/// Something that a model wrote.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// More of its thoughts, without the tags.
    Reasoning(String),
    /// More of its answer.
    Text(String),
    /// A call of which the arguments begin.
    CallBegin {
        /// Counts the calls that have begun, from 0.
        index: usize,
        /// As in the [`ToolCall`].
        id: String,
        /// As in the [`ToolCall`].
        name: String,
    },
    /// More of the arguments, as they were written.
    CallArguments {
        /// That of the beginning.
        index: usize,
        /// A piece of JSON.
        fragment: String,
    },
    /// A call that is complete.
    Call(ToolCall),
    /// A call that had begun turned out to be none: what there is of it follows as text. So does
    /// its marker, if no call before it has the same one (the later calls of a list).
    CallBroken {
        /// That of the beginning.
        index: usize,
    },
}

/// All that a model wrote.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Its thoughts.
    pub reasoning: String,
    /// Its answer, calls that were none included.
    pub text: String,
    /// Its calls, in their order.
    pub calls: Vec<ToolCall>,
    /// Calls that had begun and were none, or were cut off.
    pub n_broken: usize,
}

/// Collects pieces, and joins those that belong together.
#[derive(Clone, Debug, Default)]
pub(super) struct Pieces {
    list: Vec<Piece>,
    outcome: Outcome,
    n_begun: usize,
}

impl Pieces {
    pub(super) fn text(&mut self, text: &str) {
        self.outcome.text.push_str(text);
        match self.list.last_mut() {
            Some(Piece::Text(last)) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => self.list.push(Piece::Text(text.to_owned())),
        }
    }

    pub(super) fn reasoning(&mut self, text: &str) {
        self.outcome.reasoning.push_str(text);
        match self.list.last_mut() {
            Some(Piece::Reasoning(last)) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => self.list.push(Piece::Reasoning(text.to_owned())),
        }
    }

    /// Whether a thought has been written down.
    pub(super) fn has_reasoning(&self) -> bool {
        !self.outcome.reasoning.is_empty()
    }

    pub(super) fn begin(&mut self, id: String, name: String) {
        self.list.push(Piece::CallBegin {
            index: self.n_begun,
            id,
            name,
        });
        self.n_begun += 1;
    }

    /// More arguments of the call that began last.
    pub(super) fn arguments(&mut self, fragment: &str) {
        if !fragment.is_empty() {
            self.list.push(Piece::CallArguments {
                index: self.n_begun - 1,
                fragment: fragment.to_owned(),
            });
        }
    }

    pub(super) fn call(&mut self, call: ToolCall) {
        self.outcome.calls.push(call.clone());
        self.list.push(Piece::Call(call));
    }

    /// The call that began last is none.
    pub(super) fn broken(&mut self) {
        self.outcome.n_broken += 1;
        self.list.push(Piece::CallBroken {
            index: self.n_begun - 1,
        });
    }

    /// What came since the last time.
    pub(super) fn take(&mut self) -> Vec<Piece> {
        std::mem::take(&mut self.list)
    }

    pub(super) fn finish(self) -> (Vec<Piece>, Outcome) {
        (self.list, self.outcome)
    }
}
