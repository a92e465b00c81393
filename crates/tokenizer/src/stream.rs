//! Text while it is being generated, token by token.
//!
//! Knows no vocabulary but through the tokenizer. The one idea: a character may lie in several
//! tokens, so the bytes of one that may still be completed wait here; what can no longer become one
//! is U+FFFD. The pieces together are what decoding all tokens at once gives, read as UTF-8 with
//! replacements.

use std::ops::Deref;

use crate::TokenKind;
use crate::tokenizer::{Place, Tokenizer};

/// Turns tokens into pieces of valid UTF-8. It borrows its tokenizer, or holds it in an `Arc`.
pub struct StreamDecoder<T> {
    tokenizer: T,
    place: Place,
    control: Control,
    /// At most three bytes between calls.
    pending: Vec<u8>,
}

impl<T> std::fmt::Debug for StreamDecoder<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamDecoder")
            .field("control", &self.control)
            .field("pending", &self.pending)
            .finish_non_exhaustive()
    }
}

/// What becomes of control tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Control {
    /// They are no text.
    #[default]
    Hidden,
    /// They are written as the vocabulary spells them, for programs that look for them. Tokens at
    /// which generation ends are not.
    Shown,
}

impl<T: Deref<Target = Tokenizer>> StreamDecoder<T> {
    /// For a text that begins with the first token pushed.
    pub fn new(tokenizer: T) -> Self {
        Self {
            tokenizer,
            place: Place::First,
            control: Control::Hidden,
            pending: Vec::new(),
        }
    }

    /// For a text that goes on after a prompt: the space in front of the first token is part of it.
    pub fn after_prompt(tokenizer: T) -> Self {
        Self {
            tokenizer,
            place: Place::Later,
            control: Control::Hidden,
            pending: Vec::new(),
        }
    }

    /// The same, with something else done about control tokens.
    pub fn with_control(self, control: Control) -> Self {
        Self { control, ..self }
    }

    /// The text that these bytes complete, which no token stands for.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        self.place = Place::Later;
        self.take_complete()
    }

    /// The text that a token completes; empty for control tokens and for parts of characters.
    pub fn push(&mut self, id: u32) -> String {
        let tokenizer = &*self.tokenizer;
        let is_shown = self.control == Control::Shown
            && tokenizer.kind(id) == TokenKind::Control
            && !tokenizer.is_eog(id);
        let bytes = if is_shown {
            tokenizer.token_bytes(id)
        } else {
            tokenizer.visible_bytes(id, self.place)
        };
        self.pending.extend_from_slice(&bytes);
        self.place = Place::Later;
        self.take_complete()
    }

    /// The end of the text: U+FFFD if a character never came to its end, else nothing.
    pub fn flush(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }

    fn take_complete(&mut self) -> String {
        let (mut text, mut n) = (String::new(), 0);
        while let Err(error) = str::from_utf8(&self.pending[n..]) {
            let valid = n + error.valid_up_to();
            text.push_str(
                str::from_utf8(&self.pending[n..valid]).expect("this much was found to be valid"),
            );
            n = valid;
            let Some(invalid) = error.error_len() else {
                self.pending.drain(..n);
                return text;
            };
            text.push(char::REPLACEMENT_CHARACTER);
            n += invalid;
        }
        text.push_str(
            str::from_utf8(&self.pending[n..]).expect("the loop ended because it is valid"),
        );
        self.pending.clear();
        text
    }
}
