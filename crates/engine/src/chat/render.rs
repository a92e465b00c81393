//! From the pieces of a conversation to ids. Knows which pieces are the template's and which are not, and nothing of
//! their order.
//!
//! The one idea: a marker is a token only where the template has put it. The text between two markers, the template's and
//! the user's together, is encoded at once and as plain text, so that it is cut into tokens as if nobody had put it
//! together, and nothing in it is ever special.

use atta_tokenizer::{Special, TokenKind, Tokenizer};

use super::layout::is_special;

pub(super) struct Ids<'t> {
    tokenizer: &'t Tokenizer,
    markers: &'static [&'static str],
    /// Markers that the tokenizer finds in plain text too, since the file calls them user-defined.
    always: Vec<&'static str>,
    ids: Vec<u32>,
    /// Text that is not encoded yet.
    text: String,
}

impl<'t> Ids<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer, markers: &'static [&'static str]) -> Self {
        let kind = |marker: &&str| tokenizer.token_id(marker).map(|id| tokenizer.kind(id));
        let always = markers.iter().copied().filter(|m| kind(m) == Some(TokenKind::UserDefined)).collect();
        Self { tokenizer, markers, always, ids: Vec::new(), text: String::new() }
    }

    /// Begin of text, where the vocabulary wants it.
    pub(super) fn begin(&mut self) {
        self.ids.extend(self.tokenizer.bos().filter(|_| self.tokenizer.add_bos()));
    }

    /// Text of the template, in which markers are tokens.
    pub(super) fn trusted(&mut self, mut text: &str) {
        while let Some((at, marker)) = first_of(self.markers, text) {
            self.text.push_str(&text[..at]);
            match self.tokenizer.token_id(marker).filter(|&id| is_special(self.tokenizer.kind(id))) {
                Some(id) => self.tokens(&[id]),
                None => self.text.push_str(marker),
            }
            text = &text[at + marker.len()..];
        }
        self.text.push_str(text);
    }

    /// Text of somebody else, in which nothing is a token of its own.
    pub(super) fn foreign(&mut self, mut text: &str) {
        while let Some((at, marker)) = first_of(&self.always, text) {
            // Encoded in two parts the marker is not found. A byte is a character here: markers are ASCII.
            self.text.push_str(&text[..at + 1]);
            self.flush();
            text = &text[at + 1..];
            debug_assert!(marker.is_ascii());
        }
        self.text.push_str(text);
    }

    /// Tokens as they are.
    pub(super) fn tokens(&mut self, ids: &[u32]) {
        self.flush();
        self.ids.extend_from_slice(ids);
    }

    pub(super) fn finish(mut self) -> Vec<u32> {
        self.flush();
        self.ids
    }

    fn flush(&mut self) {
        if !self.text.is_empty() {
            self.ids.extend(self.tokenizer.encode(&self.text, Special::Plain));
            self.text.clear();
        }
    }
}

/// The first place in `text` of any of `markers`; of several at one place, the longest.
fn first_of(markers: &[&'static str], text: &str) -> Option<(usize, &'static str)> {
    let found = markers.iter().filter_map(|marker| Some((text.find(marker)?, *marker)));
    found.min_by_key(|(at, marker)| (*at, usize::MAX - marker.len()))
}
