//! The merges of byte pair encoding: which two tokens merge, with which rank, into which token.
//!
//! Knows no text once built. The one idea: one sorted row per left token, eight bytes per merge, so
//! that the 280,000 merges of a 128k vocabulary take 2.8 MB.

use crate::Error;
use crate::merge::{Join, NO_TOKEN, Symbol};
use crate::vocab::{MAX_TOKENS, SPACE_MARK, Vocab};
use atta_formats::{Metadata, StrArray};

const MERGES: &str = "tokenizer.ggml.merges";
const ID_BITS: u32 = MAX_TOKENS.trailing_zeros();
const RANK_BITS: u32 = 64 - 2 * ID_BITS;
const MAX_MERGES: usize = 1 << RANK_BITS;

/// Right token, rank and merged token, from high bits to low, so that merges sort by right token,
/// then by rank.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Merge(u64);

impl Merge {
    /// Fills the slots of unusable merges; sorts after all others and matches no token.
    const VACANT: Self = Self(u64::MAX);

    fn new(right: u32, rank: usize, joined: u32) -> Self {
        Self(u64::from(right) << (64 - ID_BITS) | (rank as u64) << ID_BITS | u64::from(joined))
    }

    fn right(self) -> u32 {
        (self.0 >> (64 - ID_BITS)) as u32
    }

    fn join(self) -> Join {
        let order = (self.0 >> ID_BITS) as u32 & ((1 << RANK_BITS) - 1);
        Join {
            order,
            id: self.0 as u32 & ((1 << ID_BITS) - 1),
        }
    }
}

pub(crate) struct Merges {
    /// Where the row of each left token begins in `entries`, `[n_vocab + 1]`.
    rows: Box<[u32]>,
    /// `[n_merges]`.
    entries: Box<[Merge]>,
    /// Whether some merge produces a token that spans two words.
    pub(crate) join_words: bool,
    /// How many merges can never apply, because a half or the result is no token.
    pub(crate) n_unusable: usize,
}

impl Merges {
    pub(crate) fn new(metadata: &Metadata, vocab: &Vocab) -> Result<Self, Error> {
        let texts = metadata
            .strs(MERGES)?
            .ok_or(Error::Missing { key: MERGES })?;
        if texts.len() > MAX_MERGES {
            return Err(Error::Count {
                key: MERGES,
                max: MAX_MERGES,
                got: texts.len(),
            });
        }
        let mut rows = row_ends(&texts, vocab);
        let n_entries = rows.last().map_or(0, |&n| n as usize);
        let mut entries = vec![Merge::VACANT; n_entries].into_boxed_slice();
        let mut join_words = false;
        let mut n_used = 0;
        let mut joined = Vec::new();
        // Rows are filled backwards from their ends, so that `rows` holds the beginnings at the end
        // of the loop.
        for (rank, (left, right)) in texts.iter().map(halves).enumerate() {
            let Some(left_id) = vocab.id(left) else {
                continue;
            };
            let end = &mut rows[left_id as usize];
            *end -= 1;
            joined.clear();
            joined.extend_from_slice(left);
            joined.extend_from_slice(right);
            let Some((right_id, joined_id)) = vocab.id(right).zip(vocab.id(&joined)) else {
                continue;
            };
            entries[*end as usize] = Merge::new(right_id, rank, joined_id);
            join_words |= right.starts_with(SPACE_MARK) && !left.ends_with(SPACE_MARK);
            n_used += 1;
        }
        for row in rows.windows(2) {
            entries[row[0] as usize..row[1] as usize].sort_unstable();
        }
        Ok(Self {
            rows,
            entries,
            join_words,
            n_unusable: texts.len() - n_used,
        })
    }

    /// The merge of two neighbours. Of several merges of one pair, the first wins.
    pub(crate) fn join(&self, left: &Symbol, right: &Symbol) -> Option<Join> {
        if left.id == NO_TOKEN || right.id == NO_TOKEN {
            return None;
        }
        let row = &self.entries
            [self.rows[left.id as usize] as usize..self.rows[left.id as usize + 1] as usize];
        let at = row.partition_point(|entry| entry.right() < right.id);
        row.get(at)
            .filter(|entry| entry.right() == right.id)
            .map(|entry| entry.join())
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.rows) + size_of_val(&*self.entries)
    }
}

/// Splits a merge `left right` at its first space after the first byte, since `left` may be a space
/// itself. Both halves are empty if there is none.
fn halves(text: &[u8]) -> (&[u8], &[u8]) {
    let space = text
        .iter()
        .skip(1)
        .position(|&byte| byte == b' ')
        .map(|i| i + 1);
    space.map_or((&[], &[]), |space| (&text[..space], &text[space + 1..]))
}

/// Where the row of each left token ends, `[n_vocab + 1]`.
fn row_ends(texts: &StrArray, vocab: &Vocab) -> Box<[u32]> {
    let mut ends = vec![0_u32; vocab.len() + 1].into_boxed_slice();
    for left in texts.iter().filter_map(|text| vocab.id(halves(text).0)) {
        ends[left as usize] += 1;
    }
    let mut total = 0;
    for end in &mut ends {
        total += *end;
        *end = total;
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_keeps_its_three_numbers() {
        let largest = (1 << ID_BITS) - 2;
        for (right, rank, joined) in [
            (0, 0, 0),
            (largest, MAX_MERGES - 1, largest),
            (7, 280_000, 128_000),
        ] {
            let entry = Merge::new(right, rank, joined);
            assert_eq!(
                (entry.right(), entry.join().order as usize, entry.join().id),
                (right, rank, joined)
            );
            assert!(entry < Merge::VACANT);
        }
    }

    #[test]
    fn halves_split_at_the_first_space_after_the_first_byte() {
        assert_eq!(halves(b"ab c"), (&b"ab"[..], &b"c"[..]));
        assert_eq!(halves(b"  a"), (&b" "[..], &b"a"[..]));
        assert_eq!(halves(b"a b c"), (&b"a"[..], &b"b c"[..]));
        assert_eq!(
            (halves(b"abc"), halves(b""), halves(b" ")),
            (
                (&b""[..], &b""[..]),
                (&b""[..], &b""[..]),
                (&b""[..], &b""[..])
            )
        );
    }
}
