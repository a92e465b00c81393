//! The merges of byte pair encoding: which two tokens join, in which order, to which.
//!
//! Knows no text once built. The one idea: one sorted row per left token, eight bytes per merge, so that the 280,000
//! merges of a 128k vocabulary take 2.8 MB.

use crate::Error;
use crate::merge::{Join, NO_TOKEN, Symbol};
use crate::vocab::{MAX_TOKENS, SPACE_MARK, Vocab};
use atta_formats::{Metadata, StrArray};

const MERGES: &str = "tokenizer.ggml.merges";
const ID_BITS: u32 = MAX_TOKENS.trailing_zeros();
const RANK_BITS: u32 = 64 - 2 * ID_BITS;
const MAX_MERGES: usize = 1 << RANK_BITS;

/// Right token, rank and joined token, from high bits to low: entries sort by right token, then by rank.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry(u64);

impl Entry {
    fn new(right: u32, rank: usize, joined: u32) -> Self {
        Self(u64::from(right) << (64 - ID_BITS) | (rank as u64) << ID_BITS | u64::from(joined))
    }

    fn right(self) -> u32 {
        (self.0 >> (64 - ID_BITS)) as u32
    }

    fn join(self) -> Join {
        let order = (self.0 >> ID_BITS) as u32 & ((1 << RANK_BITS) - 1);
        Join { order, id: self.0 as u32 & ((1 << ID_BITS) - 1) }
    }
}

pub(crate) struct Merges {
    /// Where the row of each token begins in `entries`, `[n_vocab + 1]`.
    rows: Box<[u32]>,
    /// `[n_merges]`.
    entries: Box<[Entry]>,
    /// Whether some merge puts a space mark after something else.
    pub(crate) join_words: bool,
    /// Merges whose halves or result are no tokens; they can never apply.
    pub(crate) n_unusable: usize,
}

impl Merges {
    pub(crate) fn new(metadata: &Metadata, vocab: &Vocab) -> Result<Self, Error> {
        let texts = metadata.strs(MERGES)?.ok_or(Error::Missing { key: MERGES })?;
        if texts.len() > MAX_MERGES {
            return Err(Error::Count { key: MERGES, max: MAX_MERGES, got: texts.len() });
        }
        let mut rows = row_ends(&texts, vocab);
        let n_entries = rows.last().map_or(0, |&n| n as usize);
        let mut entries = vec![Entry(0); n_entries].into_boxed_slice();
        let mut join_words = false;
        // Each row is filled from its end, so that `rows` holds the beginnings when all are full.
        for (rank, text) in texts.iter().enumerate() {
            let Some(merge) = resolve(vocab, text) else { continue };
            let end = &mut rows[merge.left as usize];
            *end -= 1;
            entries[*end as usize] = Entry::new(merge.right, rank, merge.joined);
            join_words |= merge.joins_words;
        }
        for row in rows.windows(2) {
            entries[row[0] as usize..row[1] as usize].sort_unstable();
        }
        Ok(Self { rows, entries, join_words, n_unusable: texts.len() - n_entries })
    }

    /// What two neighbours join to; of equal merges the first counts.
    pub(crate) fn join(&self, left: &Symbol, right: &Symbol) -> Option<Join> {
        if left.id == NO_TOKEN || right.id == NO_TOKEN {
            return None;
        }
        let row = &self.entries[self.rows[left.id as usize] as usize..self.rows[left.id as usize + 1] as usize];
        let at = row.partition_point(|entry| entry.right() < right.id);
        row.get(at).filter(|entry| entry.right() == right.id).map(|entry| entry.join())
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.rows) + size_of_val(&*self.entries)
    }
}

struct Merge {
    left: u32,
    right: u32,
    joined: u32,
    joins_words: bool,
}

/// Reads `left right`. The first character may itself be a space.
fn resolve(vocab: &Vocab, text: &[u8]) -> Option<Merge> {
    let space = 1 + text.get(1..)?.iter().position(|&b| b == b' ')?;
    let (left, right) = (&text[..space], &text[space + 1..]);
    let joined = vocab.id(&[left, right].concat())?;
    let joins_words = right.starts_with(SPACE_MARK) && !left.ends_with(SPACE_MARK);
    Some(Merge { left: vocab.id(left)?, right: vocab.id(right)?, joined, joins_words })
}

/// Where the row of each token ends, `[n_vocab + 1]`.
fn row_ends(texts: &StrArray, vocab: &Vocab) -> Box<[u32]> {
    let mut ends = vec![0_u32; vocab.len() + 1].into_boxed_slice();
    for merge in texts.iter().filter_map(|text| resolve(vocab, text)) {
        ends[merge.left as usize] += 1;
    }
    let mut total = 0;
    for end in &mut ends {
        total += *end;
        *end = total;
    }
    ends
}
