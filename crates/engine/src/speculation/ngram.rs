//! Drafts from the text itself: what followed the longest earlier copy of its last tokens.
//!
//! Edits, answers that quote a document, tool calls and agents repeat long parts of their context.
//! An index maps the last three tokens to the newest position behind the same three, and each
//! position to the one before it. Of the newest candidates the one whose match reaches furthest
//! back is continued. That is the gain of suffix trees (Oliaro et al. 2024, "SuffixDecoding")
//! without the tree: 4 bytes per token and a table.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atta_store::Reservation;

use super::{Draft, DraftSource, Drafter};
use crate::{Engine, Error};

/// Tokens of the shortest match.
const MIN_MATCH: usize = 3;
/// Matches are not followed further back.
const MAX_MATCH: usize = 32;
/// Candidates that are compared per draft.
const MAX_CANDIDATES: usize = 64;
/// Positions of the largest index; of a longer text the newest half is indexed anew.
const MAX_INDEXED: usize = 96 << 10;
/// Maximum entries of the table of the newest positions.
const MAX_HEADS: usize = 1 << 16;

/// Drafts from the text, and from earlier answers if it is given any.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ngram;

impl DraftSource for Ngram {
    fn drafter(&self, _: &Engine) -> Result<Box<dyn Drafter>, Error> {
        Ok(Box::new(NgramDrafter {
            index: NgramIndex::default(),
            earlier: None,
        }))
    }
}

/// Answers of earlier texts, from which later ones are drafted; the newest 32 Ki tokens.
///
/// The time of an answer tells whether its text was there before: share them between texts of one
/// user only.
#[derive(Debug)]
pub struct EarlierAnswers {
    answers: Mutex<Answers>,
    _memory: Reservation,
}

/// Maximum tokens of earlier answers.
const MAX_EARLIER: usize = 32 << 10;

/// Bytes of earlier answers: tokens, links and heads.
const EARLIER_BYTES: u64 = 3 * 4 * MAX_EARLIER as u64;

/// Stands between two answers; no model has so many tokens.
const SEPARATOR: u32 = u32::MAX;

#[derive(Debug, Default)]
struct Answers {
    tokens: Vec<u32>,
    index: NgramIndex,
}

impl EarlierAnswers {
    /// Reserves memory for earlier answers.
    ///
    /// # Errors
    /// An exceeded memory budget.
    pub fn new(engine: &Engine) -> Result<Self, Error> {
        let memory = engine.budget().reserve("earlier answers", EARLIER_BYTES)?;
        Ok(Self {
            answers: Mutex::default(),
            _memory: memory,
        })
    }

    /// Adds an answer; the oldest tokens make room for it.
    fn add(&self, answer: &[u32]) {
        let mut answers = self.lock();
        let Answers { tokens, index } = &mut *answers;
        if tokens.len() + answer.len() >= MAX_EARLIER {
            tokens.drain(..tokens.len() / 2);
            *index = NgramIndex::default();
        }
        let answer = &answer[answer.len().saturating_sub(MAX_EARLIER / 2)..];
        tokens.extend_from_slice(answer);
        tokens.push(SEPARATOR);
        index.update(tokens);
    }

    fn lock(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct NgramDrafter {
    index: NgramIndex,
    earlier: Option<Arc<EarlierAnswers>>,
}

impl Drafter for NgramDrafter {
    fn begin(&mut self, tokens: &[u32]) -> Result<(), Error> {
        self.index.update(tokens);
        Ok(())
    }

    fn draft(&mut self, tokens: &[u32], n_max: usize, draft: &mut Draft) -> Result<(), Error> {
        self.index.update(tokens);
        self.draft_ahead(tokens, n_max, draft)
    }

    /// Drafts that may be wrong are not indexed.
    fn draft_ahead(
        &mut self,
        tokens: &[u32],
        n_max: usize,
        draft: &mut Draft,
    ) -> Result<(), Error> {
        let own = self.index.longest(tokens, tokens);
        let earlier = self.earlier.as_ref().map(|earlier| earlier.lock());
        let other = earlier
            .as_ref()
            .and_then(|answers| answers.index.longest(&answers.tokens, tokens));
        let is_longer = |other: &Match| own.is_none_or(|own| other.len > own.len);
        match (other.filter(is_longer), earlier, own) {
            (Some(found), Some(answers), _) => found.copy(&answers.tokens, n_max, draft),
            (_, _, Some(found)) => found.copy(tokens, n_max, draft),
            _ => {}
        }
        Ok(())
    }

    fn remember(&mut self, earlier: Arc<EarlierAnswers>) {
        self.earlier = Some(earlier);
    }

    fn end(&mut self, tokens: &[u32], n_prompt: usize) {
        if let Some(earlier) = &self.earlier {
            earlier.add(tokens.get(n_prompt..).unwrap_or_default());
        }
    }
}

/// An earlier copy of the last tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Match {
    /// The position behind the copy.
    end: usize,
    /// Tokens that are the same.
    len: usize,
}

impl Match {
    /// Drafts what follows the copy: twice as many tokens as are the same, at most `n_max`. Behind
    /// the end of the text the draft goes on with itself, as in a text that repeats one part.
    fn copy(self, tokens: &[u32], n_max: usize, draft: &mut Draft) {
        let n = n_max.min(2 * self.len);
        for i in self.end..self.end + n {
            let drafted = i.checked_sub(tokens.len());
            let next = drafted
                .map_or_else(|| tokens.get(i), |i| draft.tokens.get(i))
                .copied();
            match next {
                Some(next) if next != SEPARATOR => draft.tokens.push(next),
                _ => break,
            }
        }
        draft.class = match self.len {
            0..5 => 0,
            5..9 => 1,
            9..17 => 2,
            _ => 3,
        };
    }
}

/// The positions of a text by the three tokens in front of them.
#[derive(Debug, Default)]
struct NgramIndex {
    /// By hash: 1 + the newest position, counted from `start`; 0: none.
    heads: Vec<u32>,
    /// By position: 1 + the one before it with the same hash; 0: none.
    links: Vec<u32>,
    /// The first position that is indexed.
    start: usize,
}

impl NgramIndex {
    /// Indexes the positions of `tokens` that are not, up to the last token. A text that became
    /// shorter is indexed anew.
    fn update(&mut self, tokens: &[u32]) {
        let n_indexed = self.start + self.links.len();
        if tokens.len() < n_indexed {
            self.restart(tokens.len().saturating_sub(MAX_INDEXED / 2), tokens.len());
        } else if tokens.len() - self.start > MAX_INDEXED {
            self.restart(tokens.len() - MAX_INDEXED / 2, MAX_INDEXED);
        } else if tokens.len() - self.start > self.heads.len() && self.heads.len() < MAX_HEADS {
            self.restart(self.start, 2 * (tokens.len() - self.start));
        }
        for end in self.start + self.links.len()..tokens.len() {
            self.push(tokens, end);
        }
    }

    /// Forgets everything, and makes room for `n` positions.
    fn restart(&mut self, start: usize, n: usize) {
        let n_heads = n.next_power_of_two().clamp(256, MAX_HEADS);
        self.heads.clear();
        self.heads.resize(n_heads, 0);
        self.links.clear();
        self.start = start;
    }

    /// Adds position `end`, the next one.
    fn push(&mut self, tokens: &[u32], end: usize) {
        let Some(slot) = self.slot(&tokens[..end]) else {
            return self.links.push(0);
        };
        self.links.push(self.heads[slot]);
        self.heads[slot] = self.links.len() as u32;
    }

    /// The entry of the last tokens of a text in `heads`.
    fn slot(&self, text: &[u32]) -> Option<usize> {
        let last: &[u32; MIN_MATCH] = text.last_chunk()?;
        let hash = last.iter().fold(0u32, |hash, &id| {
            (hash ^ id).wrapping_mul(0x9e37_79b1).rotate_left(13)
        });
        let hash = hash.wrapping_mul(0x85eb_ca6b) >> 16;
        (!self.heads.is_empty()).then(|| hash as usize & (self.heads.len() - 1))
    }

    /// The longest of the newest copies of the last tokens of `text` in `tokens`, the newest of
    /// equal ones.
    fn longest(&self, tokens: &[u32], text: &[u32]) -> Option<Match> {
        let mut next = self.heads[self.slot(text)?];
        let mut best: Option<Match> = None;
        for _ in 0..MAX_CANDIDATES {
            let Some(i) = (next as usize).checked_sub(1) else {
                break;
            };
            next = self.links[i];
            let end = self.start + i;
            let len = n_same_end(&tokens[..end], text);
            if len >= MIN_MATCH && best.is_none_or(|best| len > best.len) {
                best = Some(Match { end, len });
            }
        }
        best
    }
}

/// Tokens at the ends of two texts that are the same, at most [`MAX_MATCH`].
fn n_same_end(a: &[u32], b: &[u32]) -> usize {
    let pairs = a.iter().rev().zip(b.iter().rev()).take(MAX_MATCH);
    pairs.take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drafter(earlier: Option<Arc<EarlierAnswers>>) -> NgramDrafter {
        NgramDrafter {
            index: NgramIndex::default(),
            earlier,
        }
    }

    fn earlier() -> EarlierAnswers {
        EarlierAnswers {
            answers: Mutex::default(),
            _memory: atta_store::Budget::unlimited()
                .reserve("earlier answers", 0)
                .unwrap(),
        }
    }

    fn draft(drafter: &mut NgramDrafter, tokens: &[u32], n_max: usize) -> Draft {
        let mut draft = Draft::default();
        drafter.draft(tokens, n_max, &mut draft).unwrap();
        draft
    }

    #[test]
    fn the_longest_copy_is_continued_and_the_newest_of_equal_ones() {
        let text = [9, 1, 2, 3, 4, 40, 1, 2, 3, 4, 41, 7, 9, 1, 2, 3, 4];
        assert_eq!(draft(&mut drafter(None), &text, 3).tokens, [40, 1, 2]);
        let text = [1, 2, 3, 50, 1, 2, 3, 60, 1, 2, 3];
        assert_eq!(draft(&mut drafter(None), &text, 2).tokens, [60, 1]);
        assert!(
            draft(&mut drafter(None), &[1, 2, 3, 4], 2)
                .tokens
                .is_empty()
        );
        assert!(draft(&mut drafter(None), &[], 2).tokens.is_empty());
    }

    #[test]
    fn a_short_match_makes_a_short_draft_and_a_repetition_goes_on() {
        let text: Vec<u32> = [1, 2, 3]
            .into_iter()
            .chain(10..40)
            .chain([1, 2, 3])
            .collect();
        let short = draft(&mut drafter(None), &text, 16);
        assert_eq!((short.tokens.len(), short.class), (6, 0));
        let turns = [5, 6, 5, 6, 5, 6, 5, 6];
        let turning = draft(&mut drafter(None), &turns, 7);
        assert_eq!(turning.tokens, [5, 6, 5, 6, 5, 6, 5]);
    }

    #[test]
    fn a_text_that_is_rolled_back_is_searched_as_if_it_were_new() {
        let mut old = drafter(None);
        let mut text: Vec<u32> = (0..600).map(|i| i * 7 % 50).collect();
        draft(&mut old, &text, 8);
        text.truncate(570);
        text.extend([3, 3, 3]);
        draft(&mut old, &text[..571], 8);
        assert_eq!(
            draft(&mut old, &text, 8),
            draft(&mut drafter(None), &text, 8)
        );
        text.extend([3, 8]);
        assert_eq!(
            draft(&mut old, &text, 8),
            draft(&mut drafter(None), &text, 8)
        );
    }

    #[test]
    fn earlier_answers_are_continued_and_end_where_they_ended() {
        let earlier = Arc::new(earlier());
        drafter(Some(Arc::clone(&earlier))).end(&[8, 8, 1, 2, 3, 4, 5], 2);
        drafter(Some(Arc::clone(&earlier))).end(&[9, 9], 0);
        let mut next = drafter(Some(Arc::clone(&earlier)));
        assert_eq!(draft(&mut next, &[7, 1, 2, 3], 8).tokens, [4, 5]);
        // The prompt of an earlier text is no answer.
        assert!(draft(&mut next, &[8, 8, 1], 8).tokens.is_empty());
        assert!(
            draft(&mut drafter(None), &[7, 1, 2, 3], 8)
                .tokens
                .is_empty()
        );
    }

    #[test]
    fn memory_is_bounded_however_long_texts_are() {
        let earlier = earlier();
        let long: Vec<u32> = (0..100_000).collect();
        (0..4).for_each(|_| earlier.add(&long));
        assert!(earlier.lock().tokens.len() <= MAX_EARLIER);
        let mut index = NgramIndex::default();
        let text: Vec<u32> = (0..300_000).collect();
        for n in (0..=text.len()).step_by(30_000) {
            index.update(&text[..n]);
            assert!(index.links.len() <= MAX_INDEXED && index.heads.len() <= MAX_HEADS);
        }
        assert_eq!(index.start + index.links.len(), text.len());
    }
}
