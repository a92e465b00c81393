//! Splitting a text at special tokens, before any other step of encoding.
//!
//! Knows nothing of words or merges. The one idea: match longest tokens first, and for each length
//! from left to right, as llama.cpp does; a window is looked up only if its first and last byte are
//! those of some special token of that length.

use crate::vocab::{TokenKind, Vocab};
use std::ops::Range;

/// Longer special tokens are never matched, so that a hostile vocabulary cannot make the search
/// slow. Real ones stay below 60.
const MAX_BYTES: usize = 128;

/// A part of the input: text still to be encoded, or a special token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fragment {
    Text(Range<usize>),
    Token(u32),
}

/// The special tokens to match.
pub(crate) struct Partition {
    accepts: fn(TokenKind) -> bool,
    /// Longest first.
    lengths: Vec<OfLength>,
}

/// The special tokens of one length.
struct OfLength {
    n_bytes: usize,
    first: ByteSet,
    last: ByteSet,
}

impl OfLength {
    /// The entry for tokens of `n_bytes` in a list that has the longest first.
    fn find_or_insert(lengths: &mut Vec<Self>, n_bytes: usize) -> &mut Self {
        let at = match lengths.binary_search_by(|l| n_bytes.cmp(&l.n_bytes)) {
            Ok(at) => at,
            Err(at) => {
                let new = Self {
                    n_bytes,
                    first: ByteSet::EMPTY,
                    last: ByteSet::EMPTY,
                };
                lengths.insert(at, new);
                at
            }
        };
        &mut lengths[at]
    }
}

/// Ids of tokens that also consume the white space before them (`lstrip`) or after them (`rstrip`),
/// sorted.
#[derive(Default)]
pub(crate) struct Strip {
    pub(crate) left: Vec<u32>,
    pub(crate) right: Vec<u32>,
}

/// The vocabulary that ids are looked up in.
pub(crate) struct Context<'a> {
    pub(crate) vocab: &'a Vocab,
    pub(crate) strip: &'a Strip,
}

impl Partition {
    pub(crate) fn new(vocab: &Vocab, accepts: fn(TokenKind) -> bool) -> Self {
        let mut lengths: Vec<OfLength> = Vec::new();
        for (id, text) in vocab.texts() {
            let (Some(&first), Some(&last)) = (text.first(), text.last()) else {
                continue;
            };
            if !accepts(vocab.kind(id)) || text.len() > MAX_BYTES {
                continue;
            }
            let of_length = OfLength::find_or_insert(&mut lengths, text.len());
            of_length.first.insert(first);
            of_length.last.insert(last);
        }
        Self { accepts, lengths }
    }

    /// Splits `text` at special tokens.
    pub(crate) fn split(&self, context: &Context<'_>, text: &[u8]) -> Vec<Fragment> {
        let mut fragments = Vec::new();
        fragments.extend((!text.is_empty()).then_some(Fragment::Text(0..text.len())));
        for of_length in &self.lengths {
            let mut next = Vec::with_capacity(fragments.len());
            for fragment in fragments {
                match fragment {
                    Fragment::Text(range) => self.split_by_length(
                        of_length,
                        context,
                        &text[..range.end],
                        range,
                        &mut next,
                    ),
                    token @ Fragment::Token(_) => next.push(token),
                }
            }
            fragments = next;
        }
        fragments
    }

    fn split_by_length(
        &self,
        length: &OfLength,
        context: &Context<'_>,
        text: &[u8],
        mut rest: Range<usize>,
        out: &mut Vec<Fragment>,
    ) {
        let find = |rest| {
            let token = |window| {
                context
                    .vocab
                    .id(window)
                    .filter(|&id| (self.accepts)(context.vocab.kind(id)))
            };
            length
                .candidates(text, rest)
                .find_map(|(at, window)| Some((at, token(window)?)))
        };
        while let Some((at, id)) = find(rest.clone()) {
            let left = if holds(&context.strip.left, id) {
                trim_end(text, rest.start..at)
            } else {
                rest.start..at
            };
            rest.start = at + length.n_bytes;
            if holds(&context.strip.right, id) {
                rest = trim_start(text, rest);
            }
            out.extend((!left.is_empty()).then_some(Fragment::Text(left)));
            out.push(Fragment::Token(id));
        }
        out.extend((!rest.is_empty()).then_some(Fragment::Text(rest)));
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.lengths.capacity() * size_of::<OfLength>()
    }
}

impl OfLength {
    /// The windows of `text[range]` that may be a token of this length, with their positions.
    fn candidates<'t>(
        &self,
        text: &'t [u8],
        range: Range<usize>,
    ) -> impl Iterator<Item = (usize, &'t [u8])> {
        let last = self.n_bytes - 1;
        let windows = (range.start..).zip(text[range].windows(self.n_bytes));
        windows
            .filter(move |(_, window)| self.first.holds(window[0]) && self.last.holds(window[last]))
    }
}

fn holds(sorted: &[u32], id: u32) -> bool {
    sorted.binary_search(&id).is_ok()
}

fn trim_end(text: &[u8], range: Range<usize>) -> Range<usize> {
    let n = text[range.clone()]
        .iter()
        .rev()
        .take_while(|byte| is_space(**byte))
        .count();
    range.start..range.end - n
}

fn trim_start(text: &[u8], range: Range<usize>) -> Range<usize> {
    let n = text[range.clone()]
        .iter()
        .take_while(|byte| is_space(**byte))
        .count();
    range.start + n..range.end
}

/// `isspace` of C.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// A set of bytes.
#[derive(Clone, Copy)]
struct ByteSet([u64; 4]);

impl ByteSet {
    const EMPTY: Self = Self([0; 4]);

    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn holds(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }
}
