//! Output of the parser, as deltas and as a whole.

use super::ToolCall;

/// A delta of the answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// More thinking, without the tags.
    Reasoning(String),
    /// More of its answer.
    Text(String),
    /// A call whose arguments begin.
    CallBegin {
        /// Index of the call among those that began, from 0.
        index: usize,
        /// As in the [`ToolCall`].
        id: String,
        /// As in the [`ToolCall`].
        name: String,
    },
    /// More of the arguments, as written where the call format has them in JSON.
    CallArguments {
        /// Index of the call.
        index: usize,
        /// A fragment of JSON.
        fragment: String,
    },
    /// A call that is complete.
    Call(ToolCall),
    /// A call turned out to be malformed: its text follows as text. So does its marker, unless an
    /// earlier call has the same one (later calls of a list).
    CallBroken {
        /// Index of the call.
        index: usize,
    },
}

/// A complete answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Thinking.
    pub reasoning: String,
    /// Text, including malformed calls.
    pub text: String,
    /// Calls, in order.
    pub calls: Vec<ToolCall>,
    /// Calls that began and were malformed or cut off.
    pub n_broken: usize,
}

/// Collects deltas and joins those that belong together.
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

    /// Whether any thinking was emitted.
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

    /// More arguments of the last call.
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

    /// The last call is malformed.
    pub(super) fn broken(&mut self) {
        self.outcome.n_broken += 1;
        self.list.push(Piece::CallBroken {
            index: self.n_begun - 1,
        });
    }

    /// The deltas since the last time.
    pub(super) fn take(&mut self) -> Vec<Piece> {
        std::mem::take(&mut self.list)
    }

    pub(super) fn finish(self) -> (Vec<Piece>, Outcome) {
        (self.list, self.outcome)
    }
}
