//! Merging text that is a sequence of characters, shared by SentencePiece and gemma 4.
//!
//! Knows neither scores nor ranks. The one idea: if no token spans two words, words are merged one
//! by one, which gives the same tokens and keeps the scratch memory small.

use crate::merge::{Join, Merger, NO_TOKEN, Symbol};
use crate::vocab::{SPACE_MARK, Vocab};
use std::ops::Range;

/// A text in which U+2581 stands for spaces.
pub(crate) struct Characters<'a> {
    pub(crate) vocab: &'a Vocab,
    pub(crate) text: &'a [u8],
    /// Whether some token spans two words.
    pub(crate) join_words: bool,
}

impl Characters<'_> {
    /// Merges the characters and passes the resulting symbols to `emit`, from left to right.
    pub(crate) fn merge(
        &self,
        merger: &mut Merger,
        join: impl Fn(&Symbol, &Symbol) -> Option<Join>,
        mut emit: impl FnMut(&Symbol),
    ) {
        let mut after_mark = false;
        for range in characters(self.text) {
            let character = &self.text[range.clone()];
            let is_mark = character == SPACE_MARK;
            if is_mark && !after_mark && !self.join_words {
                merger.finish(&join, &mut emit);
            }
            after_mark = is_mark;
            merger.push(self.vocab.id(character).unwrap_or(NO_TOKEN), range);
        }
        merger.finish(&join, &mut emit);
    }
}

/// Whether a token text spans two words: a space mark follows another character.
pub(crate) fn joins_words(text: &[u8]) -> bool {
    let ends_word = |i: usize| !text[..i].ends_with(SPACE_MARK);
    (1..text.len()).any(|i| text[i..].starts_with(SPACE_MARK) && ends_word(i))
}

/// Splits a text into characters by their first bytes only, as llama.cpp does, so that invalid
/// UTF-8 is split at the same places.
pub(crate) fn characters(text: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let n = match text.get(at)? {
            0..=0xBF => 1,
            0xC0..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xFF => 4,
        };
        let range = at..text.len().min(at + n);
        at = range.end;
        Some(range)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_space_mark_within_a_word_joins_words() {
        assert!(joins_words("a▁b".as_bytes()) && joins_words("▁a▁".as_bytes()));
        assert!(
            !joins_words("▁▁ab".as_bytes()) && !joins_words("▁".as_bytes()) && !joins_words(b"")
        );
    }

    #[test]
    fn characters_follow_first_bytes_even_where_they_lie() {
        let of = |text: &[u8]| characters(text).map(|r| r.len()).collect::<Vec<_>>();
        assert_eq!(of("aé中🙂".as_bytes()), [1, 2, 3, 4]);
        assert_eq!(of(b"\xF0a\x80b\xE2"), [4, 1]);
    }
}
