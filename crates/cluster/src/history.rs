//! What every sequence consists of, so that state that is lost can be computed again.
//!
//! Knows no bytes of keys and values. The one idea: sequences that share a beginning are rebuilt
//! like a tree, each common beginning once, with a fork where they part. The block tables then
//! share at least what they shared before.

use std::{collections::BTreeMap, ops::Range};

/// The items of all sequences, one per position; a sequence is named by a number.
#[derive(Debug)]
pub struct History<I> {
    texts: BTreeMap<u32, Text<I>>,
}

#[derive(Clone, Debug)]
struct Text<I> {
    items: Vec<I>,
    /// Whether the items alone determine the state.
    is_replayable: bool,
}

/// A step of a rebuild.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebuildStep {
    /// Replaces the empty sequence `to` by a copy of `from`.
    Fork {
        /// The original.
        from: u32,
        /// The copy.
        to: u32,
    },
    /// Computes these positions of a sequence.
    Append {
        /// The sequence.
        seq: u32,
        /// Its positions.
        positions: Range<usize>,
    },
}

impl<I> Default for History<I> {
    fn default() -> Self {
        Self {
            texts: BTreeMap::new(),
        }
    }
}

impl<I: Clone + PartialEq> History<I> {
    /// Adds an empty sequence.
    pub fn new_seq(&mut self, seq: u32) {
        let text = Text {
            items: Vec::new(),
            is_replayable: true,
        };
        self.texts.insert(seq, text);
    }

    /// Adds a copy of a sequence.
    pub fn fork(&mut self, from: u32, to: u32) {
        if let Some(text) = self.texts.get(&from) {
            self.texts.insert(to, text.clone());
        }
    }

    /// Removes a sequence.
    pub fn drop_seq(&mut self, seq: u32) {
        self.texts.remove(&seq);
    }

    /// Appends an item.
    pub fn push(&mut self, seq: u32, item: I) {
        if let Some(text) = self.texts.get_mut(&seq) {
            text.items.push(item);
        }
    }

    /// Removes the items from `len` on. An empty sequence can be replayed again.
    pub fn truncate(&mut self, seq: u32, len: usize) {
        if let Some(text) = self.texts.get_mut(&seq) {
            text.items.truncate(len);
            text.is_replayable |= len == 0;
        }
    }

    /// Removes positions from the middle. Later states depend on what they were computed from, so
    /// that the sequence can no longer be replayed.
    pub fn evict(&mut self, seq: u32, positions: Range<usize>) {
        if let Some(text) = self.texts.get_mut(&seq) {
            text.items.drain(positions);
            text.is_replayable = false;
        }
    }

    /// The items of a sequence; empty for one that is not there.
    pub fn items(&self, seq: u32) -> &[I] {
        self.texts.get(&seq).map_or(&[], |text| &text.items)
    }

    /// All sequences.
    pub fn seqs(&self) -> impl Iterator<Item = u32> + '_ {
        self.texts.keys().copied()
    }

    /// Whether its items alone determine the state of a sequence.
    pub fn is_replayable(&self, seq: u32) -> bool {
        self.texts.get(&seq).is_some_and(|text| text.is_replayable)
    }

    /// The sequences that cannot be rebuilt.
    pub fn lost(&self) -> Vec<u32> {
        let lost = self.texts.iter().filter(|(_, text)| !text.is_replayable);
        lost.map(|(&seq, _)| seq).collect()
    }

    /// The steps that rebuild all sequences that can be, from empty ones.
    pub fn rebuild(&self) -> Vec<RebuildStep> {
        let mut steps = Vec::new();
        let texts = self.texts.iter();
        let texts = texts.filter(|(_, text)| text.is_replayable && !text.items.is_empty());
        let group = texts.map(|(&seq, text)| (seq, &text.items[..])).collect();
        build(group, 0, &mut steps);
        steps
    }
}

/// Appends the steps for sequences that are equal up to `start`, where the first one already is.
fn build<I: PartialEq>(group: Vec<(u32, &[I])>, start: usize, steps: &mut Vec<RebuildStep>) {
    let Some(&(leader, items)) = group.first() else {
        return;
    };
    let common = |(_, other): &(u32, &[I])| {
        let both = items[start..].iter().zip(&other[start..]);
        start + both.take_while(|(a, b)| a == b).count()
    };
    let end = group.iter().map(common).min().unwrap_or(start);
    if end > start {
        let seq = leader;
        let positions = start..end;
        steps.push(RebuildStep::Append { seq, positions });
    }
    let (ended, going_on): (Vec<_>, Vec<_>) =
        group.into_iter().partition(|(_, items)| items.len() == end);
    let mut branches: Vec<Vec<(u32, &[I])>> = Vec::new();
    for member in going_on {
        let branch = branches.iter_mut().find(|b| b[0].1[end] == member.1[end]);
        match branch {
            Some(branch) => branch.push(member),
            None => branches.push(vec![member]),
        }
    }
    // Before the leader goes on: the copies are of its state here.
    let heads = branches.iter().map(|branch| branch[0].0);
    let copies = ended.iter().map(|&(seq, _)| seq).chain(heads);
    let copies = copies.filter(|&to| to != leader && end > 0);
    steps.extend(copies.map(|to| RebuildStep::Fork { from: leader, to }));
    for branch in branches {
        build(branch, end, steps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Executes steps naively.
    fn run(history: &History<u8>, steps: &[RebuildStep]) -> (BTreeMap<u32, Vec<u8>>, usize) {
        let mut built: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        let mut n_computed = 0;
        for step in steps {
            match step {
                RebuildStep::Fork { from, to } => {
                    assert!(!built.contains_key(to), "a copy of something computed");
                    let copy = built[from].clone();
                    built.insert(*to, copy);
                }
                RebuildStep::Append { seq, positions } => {
                    let text = built.entry(*seq).or_default();
                    assert_eq!(text.len(), positions.start);
                    text.extend_from_slice(&history.items(*seq)[positions.clone()]);
                    n_computed += positions.len();
                }
            }
        }
        (built, n_computed)
    }

    proptest! {
        #[test]
        fn a_rebuild_makes_every_text_and_no_beginning_twice(
            texts in prop::collection::vec(prop::collection::vec(0_u8..3, 0..6), 0..7),
        ) {
            let mut history = History::default();
            for (seq, text) in (0_u32..).zip(&texts) {
                history.new_seq(seq);
                text.iter().for_each(|&item| history.push(seq, item));
            }
            let (built, n_computed) = run(&history, &history.rebuild());
            let mut beginnings = std::collections::BTreeSet::new();
            for (seq, text) in (0_u32..).zip(&texts) {
                prop_assert_eq!(built.get(&seq).cloned().unwrap_or_default(), text.clone());
                beginnings.extend((1..=text.len()).map(|n| text[..n].to_vec()));
            }
            prop_assert_eq!(n_computed, beginnings.len());
        }
    }

    #[test]
    fn what_was_evicted_cannot_be_replayed_until_the_sequence_is_empty() {
        let mut history = History::default();
        history.new_seq(4);
        (0..9_u8).for_each(|item| history.push(4, item));
        history.evict(4, 2..5);
        assert_eq!(history.items(4), [0, 1, 5, 6, 7, 8]);
        assert_eq!((history.lost(), history.rebuild()), (vec![4], Vec::new()));
        history.truncate(4, 2);
        assert_eq!(history.lost(), [4], "keys of these were moved");
        history.truncate(4, 0);
        history.push(4, 3);
        assert!(history.lost().is_empty() && history.rebuild().len() == 1);
    }
}
