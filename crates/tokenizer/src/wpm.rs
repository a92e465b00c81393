//! WordPiece: greedy longest-match-first encoding of each word.
//!
//! Knows nothing of special tokens. The one idea: in GGUF files, tokens that begin a word have a
//! space mark in front, and continuation tokens have nothing (BERT's `vocab.txt` marks those with
//! `##` instead). So the word with a mark in front is matched like any other text.

use crate::Error;
use crate::vocab::{SPACE_MARK, Vocab};
use crate::words::{Normalizer, Word};
use atta_formats::Metadata;
use std::ops::RangeInclusive;

pub(crate) struct Wpm {
    normalizer: Normalizer,
    unknown: Option<u32>,
}

impl Wpm {
    /// `unknown` is the token of words that tokens do not cover.
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

    /// Appends the tokens of a text without special tokens. Invalid UTF-8 is dropped.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &[u8], out: &mut Vec<u32>) {
        let mut marked = SPACE_MARK.to_vec();
        self.normalizer
            .split(&String::from_utf8_lossy(text), |word| match word {
                Word::Normalized(word) => {
                    marked.truncate(SPACE_MARK.len());
                    marked.extend_from_slice(word.as_bytes());
                    self.encode_word(vocab, &marked, out);
                }
                Word::TooLong => out.extend(self.unknown),
            });
    }

    /// Appends the tokens of a word with its mark, or the unknown token if they do not cover all of
    /// it.
    fn encode_word(&self, vocab: &Vocab, marked: &[u8], out: &mut Vec<u32>) {
        let n_before = out.len();
        let mut at = 0;
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

/// The lengths of tokens to try at byte `at` of a word. The text itself may contain U+2581: inside
/// a word only the token that is nothing but U+2581 matches there, since tokens with more behind it
/// begin a word.
fn possible_lengths(at: usize, rest: &[u8], max_bytes: usize) -> RangeInclusive<usize> {
    let mark = SPACE_MARK.len();
    let longest = rest.len().min(max_bytes);
    match (at, rest.starts_with(SPACE_MARK)) {
        (0, _) => mark + 1..=longest,
        (_, true) => mark..=mark.min(longest),
        (_, false) => 1..=longest,
    }
}

/// The longest token that is a prefix of `text`, and its length.
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
