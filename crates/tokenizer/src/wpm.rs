//! WordPiece: each word is the longest token that it begins with, then the longest that goes on,
//! and so on.
//!
//! Knows nothing of special tokens. The one idea: GGUF files have a space mark before tokens that
//! begin a word and nothing before others (where vocabularies of BERT have `##`), so that a word
//! with a mark in front of it is matched like any other text.

use crate::Error;
use crate::vocab::{SPACE_MARK, Vocab};
use crate::words::{Normalizer, Part};
use atta_formats::Metadata;
use std::ops::RangeInclusive;

pub(crate) struct Wpm {
    normalizer: Normalizer,
    unknown: Option<u32>,
}

impl Wpm {
    /// `unknown` stands for words that tokens do not cover.
    pub(crate) fn new(metadata: &Metadata, unknown: Option<u32>) -> Result<Self, Error> {
        let lowercase = metadata
            .bool("tokenizer.ggml.normalizer.lowercase")?
            .unwrap_or(true);
        let strip_accents = metadata
            .bool("tokenizer.ggml.normalizer.strip_accents")?
            .unwrap_or(lowercase);
        Ok(Self {
            normalizer: Normalizer {
                lowercase,
                strip_accents,
            },
            unknown,
        })
    }

    /// Appends the tokens of a text without special tokens. Bytes that belong to no character are
    /// dropped.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &[u8], out: &mut Vec<u32>) {
        let mut marked = SPACE_MARK.to_vec();
        self.normalizer
            .split(&String::from_utf8_lossy(text), |part| match part {
                Part::Word(word) => {
                    marked.truncate(SPACE_MARK.len());
                    marked.extend_from_slice(word.as_bytes());
                    self.encode_word(vocab, &marked, out);
                }
                Part::TooLong => out.extend(self.unknown),
            });
    }

    /// A word, behind its mark, is covered from end to end, or it is unknown.
    fn encode_word(&self, vocab: &Vocab, marked: &[u8], out: &mut Vec<u32>) {
        let (n_before, mut at) = (out.len(), 0);
        while at < marked.len() {
            let rest = &marked[at..];
            let Some((id, n_bytes)) =
                longest(vocab, rest, possible_lengths(at, rest, vocab.max_bytes()))
            else {
                out.truncate(n_before);
                out.extend(self.unknown);
                return;
            };
            out.push(id);
            at += n_bytes;
        }
    }
}

/// How many bytes a token that covers the rest of a word from `at` may have. A text may hold U+2581
/// itself: of the tokens that begin with it, the one that is nothing else goes on with a word, all
/// others begin one.
fn possible_lengths(at: usize, rest: &[u8], max_bytes: usize) -> RangeInclusive<usize> {
    let mark = SPACE_MARK.len();
    let longest = rest.len().min(max_bytes);
    match (at, rest.starts_with(SPACE_MARK)) {
        (0, _) => mark + 1..=longest,
        (_, true) => mark..=mark.min(longest),
        (_, false) => 1..=longest,
    }
}

/// The longest token that a text begins with, and its length.
fn longest(vocab: &Vocab, text: &[u8], lengths: RangeInclusive<usize>) -> Option<(u32, usize)> {
    lengths
        .rev()
        .filter(|&n| is_boundary(text, n))
        .find_map(|n| Some((vocab.id(&text[..n])?, n)))
}

/// Whether a character of valid UTF-8 ends at `at`.
fn is_boundary(text: &[u8], at: usize) -> bool {
    text.get(at).is_none_or(|&byte| byte & 0xC0 != 0x80)
}
