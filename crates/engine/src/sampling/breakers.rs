//! Sequence breakers: the tokens at which DRY ends a repetition. Knows texts and vocabularies, no
//! logits.
//!
//! The one idea, llama.cpp's: a breaker text may begin anywhere in a token and continue in others.
//! So a breaker is a *head*, the token in which it begins, and a *tail*, the tokens of the rest;
//! most have no tail.

use atta_tokenizer::{Special, Tokenizer};

/// Maximum tokens of a tail, which bounds the time of a search.
const MAX_TAIL: usize = 20;

/// Token sequences that end a repetition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Breakers {
    /// Heads and tails, sorted.
    sequences: Vec<(u32, Vec<u32>)>,
}

impl Breakers {
    /// Finds all encodings of `texts` in a vocabulary, with tails of at most 20 tokens.
    pub fn find(tokenizer: &Tokenizer, texts: &[String]) -> Self {
        let mut sequences = Vec::new();
        for id in 0..tokenizer.n_vocab() as u32 {
            let word = tokenizer.token_bytes(id);
            for text in texts.iter().filter(|text| !text.is_empty()) {
                let rests = rests(&word, text.as_bytes());
                sequences.extend(rests.map(|rest| (id, tail(tokenizer, rest))));
            }
        }
        Self::new(sequences)
    }

    fn new(mut sequences: Vec<(u32, Vec<u32>)>) -> Self {
        sequences.sort_unstable();
        sequences.dedup();
        Self { sequences }
    }

    /// Tails of the breakers with this head.
    fn tails(&self, head: u32) -> impl Iterator<Item = &[u32]> {
        let start = self.sequences.partition_point(|(id, _)| *id < head);
        self.sequences[start..]
            .iter()
            .take_while(move |(id, _)| *id == head)
            .map(|(_, tail)| tail.as_slice())
    }

    /// Whether a token alone is a breaker.
    pub(super) fn is_whole(&self, id: u32) -> bool {
        self.tails(id).any(<[u32]>::is_empty)
    }

    /// Number of tokens of `window` behind its last breaker; all without one. The last breaker is
    /// the one whose head comes last, and of several with that head the longest.
    pub(super) fn n_after_last(&self, window: &[u32]) -> usize {
        for (at, &head) in window.iter().enumerate().rev() {
            let after = &window[at + 1..];
            if let Some(n) = self
                .tails(head)
                .filter(|tail| after.starts_with(tail))
                .map(<[u32]>::len)
                .max()
            {
                return after.len() - n;
            }
        }
        window.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let tails: usize = self.sequences.iter().map(|(_, tail)| tail.capacity()).sum();
        self.sequences.capacity() * size_of::<(u32, Vec<u32>)>() + tails * size_of::<u32>()
    }
}

/// For each position of `word` at which `text` may begin, the rest of `text` behind `word`; empty
/// if `word` contains all of `text`.
fn rests<'a>(word: &'a [u8], text: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let holds_all = word.windows(text.len()).any(|part| part == text);
    let ends = (1..text.len().min(word.len() + 1))
        .filter(move |&n| !holds_all && word.ends_with(&text[..n]));
    holds_all
        .then_some(&text[text.len()..])
        .into_iter()
        .chain(ends.map(|n| &text[n..]))
}

fn tail(tokenizer: &Tokenizer, rest: &[u8]) -> Vec<u32> {
    let mut tail = tokenizer.encode(rest, Special::Plain);
    tail.truncate(MAX_TAIL);
    tail.shrink_to_fit();
    tail
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Breakers from their tokens.
    pub(in super::super) fn breakers(sequences: &[&[u32]]) -> Breakers {
        Breakers::new(sequences.iter().map(|s| (s[0], s[1..].to_vec())).collect())
    }

    #[test]
    fn a_text_may_begin_at_any_end_of_a_word() {
        let rests = |word: &'static str, text: &'static str| -> Vec<&str> {
            rests(word.as_bytes(), text.as_bytes())
                .map(|rest| str::from_utf8(rest).unwrap())
                .collect()
        };
        assert_eq!(rests("a\nb", "\n"), [""]);
        assert_eq!(rests("xaa", "aaab"), ["aab", "ab"]);
        assert_eq!(rests("###", "##"), [""]);
        assert!(rests("abc", "bd").is_empty() && rests("", "x").is_empty());
    }

    #[test]
    fn the_last_head_counts_and_its_longest_tail() {
        let breakers = breakers(&[&[7], &[3, 4], &[3, 4, 5], &[9, 9]]);
        assert_eq!(breakers.n_after_last(&[1, 2, 1]), 3);
        assert_eq!(breakers.n_after_last(&[1, 7, 1, 2]), 2);
        assert_eq!(breakers.n_after_last(&[3, 4, 5, 6]), 1);
        assert_eq!(breakers.n_after_last(&[3, 4, 6, 6]), 2);
        assert_eq!(breakers.n_after_last(&[7, 3, 5, 6]), 3);
        assert_eq!(breakers.n_after_last(&[1, 9]), 2);
        assert!(breakers.is_whole(7) && !breakers.is_whole(3) && !breakers.is_whole(8));
    }
}
