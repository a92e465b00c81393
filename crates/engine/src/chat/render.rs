//! From the pieces of a conversation to ids. Knows which pieces are the template's and which are not, and nothing of
//! their order.
//!
//! The one idea: a marker is a token only where the template has put it. The text between two markers, the template's and
//! the user's together, is encoded at once and as plain text, so that it is cut into tokens as if nobody had put it
//! together, and nothing in it is ever special.

use atta_tokenizer::{Special, TokenKind, Tokenizer};

use super::layout::is_special;

/// Texts of tokens that are found in plain text too, because the file calls them user-defined, and that yet look like what
/// only a template may write: markers of the layout, and whatever reads `<|…|>`. Other user-defined tokens, such as runs
/// of spaces or the tags of HTML, are a way to write text.
pub(super) fn guarded(tokenizer: &Tokenizer, markers: &[&str]) -> Vec<String> {
    let defined = (0..tokenizer.n_vocab() as u32).filter(|&id| tokenizer.kind(id) == TokenKind::UserDefined);
    let texts = defined.filter_map(|id| str::from_utf8(tokenizer.token_text(id)).ok());
    let is_bracketed = |text: &str| (text.starts_with("<|") || text.starts_with("<｜")) && text.ends_with('>');
    texts.filter(|text| is_bracketed(text) || markers.contains(text)).map(str::to_owned).collect()
}

pub(super) struct Ids<'t> {
    tokenizer: &'t Tokenizer,
    markers: &'static [&'static str],
    guarded: &'t [String],
    ids: Vec<u32>,
    /// Text that is not encoded yet.
    text: String,
}

impl<'t> Ids<'t> {
    /// `guarded` is what [`guarded`] found for the same markers.
    pub(super) fn new(tokenizer: &'t Tokenizer, markers: &'static [&'static str], guarded: &'t [String]) -> Self {
        Self { tokenizer, markers, guarded, ids: Vec::new(), text: String::new() }
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
        while let Some((at, _)) = first_of(self.guarded, text) {
            // Encoded in two parts, it is not found.
            let n = at + text[at..].chars().next().map_or(0, char::len_utf8);
            self.text.push_str(&text[..n]);
            self.flush();
            text = &text[n..];
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

/// The first place in `text` of any of `texts`, none of which is empty; of several at one place, the longest.
fn first_of<'a, T: AsRef<str>>(texts: &'a [T], text: &str) -> Option<(usize, &'a str)> {
    let found = texts.iter().map(AsRef::as_ref).filter_map(|one| Some((text.find(one)?, one)));
    found.min_by_key(|(at, one)| (*at, usize::MAX - one.len()))
}
