//! SentencePiece: neighbouring symbols merge into the token that they spell, best score first.
//!
//! Knows nothing of special tokens. The one idea: a pair merges if its text is a token, so the
//! vocabulary itself is the list of merges.

use crate::characters::{Characters, joins_words};
use crate::merge::{Join, Merger, NO_TOKEN, Symbol};
use crate::vocab::{SPACE_MARK, Vocab};

pub(crate) struct Spm {
    /// Whether a space is added in front of a text.
    pub(crate) add_space_prefix: bool,
    /// Whether some token spans two words; if none does, words are merged one by one.
    join_words: bool,
    /// The token of each byte, or `NO_TOKEN`.
    byte_ids: Box<[u32; 256]>,
}

impl Spm {
    /// `unknown` is the token of bytes that have no token of their own.
    pub(crate) fn new(vocab: &Vocab, unknown: Option<u32>, add_space_prefix: bool) -> Self {
        let mut byte_ids = Box::new([NO_TOKEN; 256]);
        for (byte, id) in (0..=255).zip(byte_ids.iter_mut()) {
            *id = vocab
                .byte_id(byte)
                .or_else(|| vocab.id(&[byte]))
                .or(unknown)
                .unwrap_or(NO_TOKEN);
        }
        let join_words = vocab.texts().any(|(_, text)| joins_words(text));
        Self {
            add_space_prefix,
            join_words,
            byte_ids,
        }
    }

    /// Appends the tokens of a text without special tokens. Characters without a token and invalid
    /// UTF-8 become byte tokens.
    pub(crate) fn encode(
        &self,
        vocab: &Vocab,
        text: &[u8],
        after_special: bool,
        out: &mut Vec<u32>,
    ) {
        let mut escaped = Vec::with_capacity(text.len() + text.len() / 2 + 4);
        if self.add_space_prefix && after_special {
            escaped.extend_from_slice(SPACE_MARK);
        }
        for &byte in text {
            match byte {
                b' ' => escaped.extend_from_slice(SPACE_MARK),
                _ => escaped.push(byte),
            }
        }
        let mut merger = Merger::default();
        let join = |part: &[u8], left: &Symbol, right: &Symbol| {
            let id = vocab.id(&part[left.range().start..right.range().end])?;
            Some(Join {
                order: best_first(vocab.score(id)),
                id,
            })
        };
        for text in escaped.chunks(Merger::MAX_BYTES) {
            let characters = Characters {
                vocab,
                text,
                join_words: self.join_words,
            };
            let emit = |symbol: &Symbol| self.append(symbol, text, out);
            characters.merge(&mut merger, |left, right| join(text, left, right), emit);
        }
    }

    /// Appends the token of a symbol, or the byte tokens of its text.
    fn append(&self, symbol: &Symbol, text: &[u8], out: &mut Vec<u32>) {
        if symbol.id != NO_TOKEN {
            return out.push(symbol.id);
        }
        let ids = text[symbol.range()]
            .iter()
            .map(|&byte| self.byte_ids[usize::from(byte)]);
        out.extend(ids.filter(|&id| id != NO_TOKEN));
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.byte_ids)
    }
}

/// Maps a score to a number that is lower for higher scores. Both zeros map to the same number.
fn best_first(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits();
    if bits >> 31 == 1 {
        bits
    } else {
        !bits & 0x7FFF_FFFF
    }
}

#[cfg(test)]
mod tests {
    use super::best_first;

    #[test]
    fn better_scores_come_first() {
        let scores = [
            f32::INFINITY,
            3.5,
            1e-30,
            0.0,
            -1e-30,
            -2.0,
            -10.0,
            f32::NEG_INFINITY,
        ];
        assert!(
            scores
                .windows(2)
                .all(|pair| best_first(pair[0]) < best_first(pair[1]))
        );
        assert_eq!(best_first(0.0), best_first(-0.0));
    }
}
