//! Streaming detokenization: text while it is being generated, token by token.
//!
//! Knows the vocabulary only through the tokenizer. The one idea: a character may be split over
//! several tokens, so an incomplete character is held back until its last byte arrives; bytes that
//! cannot become a character are U+FFFD. The concatenated pieces equal decoding all tokens at once
//! as UTF-8 with replacements.

use std::ops::Deref;

use crate::TokenKind;
use crate::tokenizer::{TextPosition, Tokenizer};

/// Turns tokens into pieces of valid UTF-8. `T` is a reference or an `Arc` of the tokenizer.
pub struct StreamDecoder<T> {
    tokenizer: T,
    position: TextPosition,
    control: Control,
    /// The bytes of an incomplete character; at most three between calls.
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

/// Whether control tokens are part of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Control {
    /// Control tokens are left out.
    #[default]
    Hidden,
    /// Control tokens are written as the vocabulary spells them, for parsers of the output.
    /// End-of-generation tokens are left out.
    Shown,
}

impl<T: Deref<Target = Tokenizer>> StreamDecoder<T> {
    /// A decoder of a text that begins with the first token pushed.
    pub fn new(tokenizer: T) -> Self {
        Self {
            tokenizer,
            position: TextPosition::First,
            control: Control::Hidden,
            pending: Vec::new(),
        }
    }

    /// A decoder of a text that continues a prompt: a space in front of the first token is kept.
    pub fn after_prompt(tokenizer: T) -> Self {
        Self {
            tokenizer,
            position: TextPosition::Later,
            control: Control::Hidden,
            pending: Vec::new(),
        }
    }

    /// Sets how control tokens are treated.
    pub fn with_control(self, control: Control) -> Self {
        Self { control, ..self }
    }

    /// Appends bytes that no token stands for. Returns the text that is complete now.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        self.position = TextPosition::Later;
        self.take_complete()
    }

    /// Appends a token. Returns the text that is complete now: none for hidden control tokens and
    /// for incomplete characters.
    pub fn push(&mut self, id: u32) -> String {
        let tokenizer = &*self.tokenizer;
        let is_shown = self.control == Control::Shown
            && tokenizer.kind(id) == TokenKind::Control
            && !tokenizer.is_eog(id);
        let bytes = if is_shown {
            tokenizer.token_bytes(id)
        } else {
            tokenizer.visible_bytes(id, self.position)
        };
        self.pending.extend_from_slice(&bytes);
        self.position = TextPosition::Later;
        self.take_complete()
    }

    /// Ends the text. Returns U+FFFD if a character is incomplete, else nothing.
    pub fn flush(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }

    fn take_complete(&mut self) -> String {
        let mut text = String::new();
        let mut n = 0;
        while let Err(error) = str::from_utf8(&self.pending[n..]) {
            let valid = n + error.valid_up_to();
            text.push_str(str::from_utf8(&self.pending[n..valid]).expect("valid_up_to says so"));
            n = valid;
            let Some(invalid) = error.error_len() else {
                self.pending.drain(..n);
                return text;
            };
            text.push(char::REPLACEMENT_CHARACTER);
            n += invalid;
        }
        text.push_str(
            str::from_utf8(&self.pending[n..]).expect("the loop ended because the rest is valid"),
        );
        self.pending.clear();
        text
    }
}
