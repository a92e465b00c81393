//! Merging neighbouring symbols by priority: the core of both SentencePiece and byte pair encoding.
//!
//! Knows neither texts nor ranks; the caller says which token two symbols merge into. The one idea:
//! a linked list of symbols and a heap of candidate pairs, in which outdated pairs stay until they
//! are popped: O(n log n).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// The id of a symbol whose text is no token.
pub(crate) const NO_TOKEN: u32 = u32::MAX;
const END: u32 = u32::MAX;

/// A part of the text, merged so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    pub(crate) id: u32,
    /// Byte range in the text; empty once the symbol was merged into its left neighbour.
    start: u32,
    end: u32,
    prev: u32,
    next: u32,
}

impl Symbol {
    pub(crate) fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// The merge of two neighbours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Join {
    /// The pair with the lowest order merges first; of equal ones the leftmost.
    pub(crate) order: u32,
    pub(crate) id: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Candidate {
    order: u32,
    left: u32,
    /// Where the merged text ends. The pair is outdated unless its right half still ends here.
    end: u32,
    id: u32,
}

/// Scratch memory for merging, reused for each word.
#[derive(Default, Debug)]
pub(crate) struct Merger {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Reverse<Candidate>>,
}

impl Merger {
    /// Callers split longer texts, because positions are 32 bits wide.
    pub(crate) const MAX_BYTES: usize = 1 << 31;

    /// Appends a symbol that covers `range`, which begins where the last one ends.
    pub(crate) fn push(&mut self, id: u32, range: Range<usize>) {
        let i = self.symbols.len() as u32;
        if let Some(last) = self.symbols.last_mut() {
            last.next = i;
        }
        let start = range.start as u32;
        let end = range.end as u32;
        self.symbols.push(Symbol {
            id,
            start,
            end,
            prev: i.wrapping_sub(1),
            next: END,
        });
    }

    /// Merges the symbols pushed so far, passes the result to `emit` from left to right, and clears
    /// the scratch memory.
    pub(crate) fn finish(
        &mut self,
        join: impl Fn(&Symbol, &Symbol) -> Option<Join>,
        emit: impl FnMut(&Symbol),
    ) {
        self.merge(join);
        self.symbols
            .iter()
            .filter(|symbol| symbol.start < symbol.end)
            .for_each(emit);
        self.symbols.clear();
        self.queue.clear();
    }

    /// Merges neighbours until no pair can be merged.
    fn merge(&mut self, join: impl Fn(&Symbol, &Symbol) -> Option<Join>) {
        for left in 0..self.symbols.len() as u32 {
            self.consider(left, &join);
        }
        while let Some(Reverse(candidate)) = self.queue.pop() {
            if self.is_current(&candidate) {
                let prev = self.apply(&candidate);
                self.consider(prev, &join);
                self.consider(candidate.left, &join);
            }
        }
    }

    /// Queues the pair that begins at `left`, if it can be merged.
    fn consider(&mut self, left: u32, join: &impl Fn(&Symbol, &Symbol) -> Option<Join>) {
        let Some(first) = self.symbols.get(left as usize) else {
            return;
        };
        let Some(second) = self.symbols.get(first.next as usize) else {
            return;
        };
        if let Some(Join { order, id }) = join(first, second) {
            self.queue.push(Reverse(Candidate {
                order,
                left,
                end: second.end,
                id,
            }));
        }
    }

    /// Whether a pair is unchanged since it was queued. A symbol only grows to the right, by
    /// absorbing its neighbour; so it is enough that the left half is alive and that the symbol
    /// next to it ends where the right half did.
    fn is_current(&self, candidate: &Candidate) -> bool {
        let left = self.symbols[candidate.left as usize];
        let right = self.symbols.get(left.next as usize);
        left.start < left.end && right.is_some_and(|right| right.end == candidate.end)
    }

    /// Merges a pair and returns the index of the symbol before it.
    fn apply(&mut self, candidate: &Candidate) -> u32 {
        let left = candidate.left as usize;
        let right = self.symbols[left].next as usize;
        let after = self.symbols[right].next;
        self.symbols[right].end = self.symbols[right].start;
        if let Some(after) = self.symbols.get_mut(after as usize) {
            after.prev = candidate.left;
        }
        let left = &mut self.symbols[left];
        (left.id, left.end, left.next) = (candidate.id, candidate.end, after);
        left.prev
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Merges the characters of `text` where `join` gives an order for the merged text.
    fn merged(text: &str, join: impl Fn(&str) -> Option<u32>) -> Vec<String> {
        let mut merger = Merger::default();
        for i in 0..text.len() {
            merger.push(0, i..i + 1);
        }
        let mut left = Vec::new();
        merger.finish(
            |l, r| join(&text[l.range().start..r.range().end]).map(|order| Join { order, id: 0 }),
            |symbol| left.push(text[symbol.range()].to_owned()),
        );
        left
    }

    #[test]
    fn the_lowest_order_merges_first_and_the_leftmost_among_equals() {
        assert_eq!(
            merged("abc", |t| [("ab", 2), ("bc", 1)]
                .iter()
                .find(|p| p.0 == t)
                .map(|p| p.1)),
            ["a", "bc"]
        );
        assert_eq!(merged("aaa", |t| (t == "aa").then_some(1)), ["aa", "a"]);
        assert_eq!(
            merged("aaaaa", |t| (t.len() == 2 || t.len() == 4).then_some(1)),
            ["aaaa", "a"]
        );
    }

    #[test]
    fn a_pair_whose_half_was_merged_is_outdated() {
        assert_eq!(
            merged("abcd", |t| [("bc", 1), ("ab", 2), ("cd", 2)]
                .iter()
                .find(|p| p.0 == t)
                .map(|p| p.1)),
            ["a", "bc", "d"]
        );
    }
}
