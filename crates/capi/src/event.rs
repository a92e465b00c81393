//! Events as C sees them.

use std::ffi::c_char;

/// The kind of an event. A program ignores kinds that it does not know.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttaEventKind {
    /// `n_done` of `n_total` tokens of the prompt are evaluated.
    Prompt = 0,
    /// More text, in whole characters.
    Text = 1,
    /// A token, the `n_done`th of the text, which came before. With `n_probs`, `text` has its
    /// log-probabilities as JSON.
    Token = 2,
    /// A warning for the user, in one line.
    Note = 3,
    /// A response to a request as JSON, or one event of a streamed one.
    Json = 4,
    /// The last event. `text` says how a generation in a session went, as JSON, and is empty
    /// behind a response.
    Done = 5,
}

/// An event of a generation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AttaEvent {
    /// An `atta_event_kind`.
    pub kind: i32,
    /// The token.
    pub token: u32,
    /// The text, which ends with a NUL. Valid until the next call with the same generation; never
    /// NULL.
    pub text: *const c_char,
    /// Bytes of the text.
    pub text_size: usize,
    /// Tokens so far.
    pub n_done: u64,
    /// Tokens in all.
    pub n_total: u64,
}
