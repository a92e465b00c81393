//! Runs: rows of a batch that take a recurrent state from one block to another.

use std::ops::Range;

use super::StateStep;

/// Consecutive positions of a sequence in a batch, up to one whose state is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRun {
    /// Its rows, as indices of [`StateRuns::rows`].
    pub rows: Range<usize>,
    /// The block with the state before it; `None`: zeros.
    pub start: Option<u32>,
    /// The block that receives the state behind it.
    pub block: u32,
}

/// The runs of a batch, each behind the one that it continues.
#[derive(Debug, Default)]
pub struct StateRuns {
    rows: Vec<u32>,
    runs: Vec<StateRun>,
    /// For each row the next one of its sequence.
    next: Vec<Option<u32>>,
}

impl StateRuns {
    /// Room for the runs of batches of up to `n_rows`.
    pub fn with_capacity(n_rows: usize) -> Self {
        Self {
            rows: Vec::with_capacity(n_rows),
            runs: Vec::with_capacity(n_rows),
            next: Vec::with_capacity(n_rows),
        }
    }

    /// All runs.
    pub fn iter(&self) -> std::slice::Iter<'_, StateRun> {
        self.runs.iter()
    }

    /// The rows of a run, in order of position.
    pub fn rows(&self, run: &StateRun) -> &[u32] {
        &self.rows[run.rows.clone()]
    }

    /// Finds the runs of a batch from the steps of its rows.
    pub fn find(&mut self, steps: &[StateStep]) {
        self.rows.clear();
        self.runs.clear();
        self.next.clear();
        self.next.resize(steps.len(), None);
        for (row, step) in (0..).zip(steps) {
            if let Some(previous) = step.previous {
                self.next[previous as usize] = Some(row);
            }
        }
        let firsts = (0..).zip(steps).filter(|(_, step)| step.previous.is_none());
        for (first, step) in firsts {
            self.follow(first, step.start, steps);
        }
    }

    /// Adds the runs of a sequence.
    fn follow(&mut self, first: u32, mut start: Option<u32>, steps: &[StateStep]) {
        let mut first_row = self.rows.len();
        let mut row = Some(first);
        while let Some(i) = row {
            self.rows.push(i);
            let step = &steps[i as usize];
            if step.is_kept {
                self.runs.push(StateRun {
                    rows: first_row..self.rows.len(),
                    start,
                    block: step.block,
                });
                start = Some(step.block);
                first_row = self.rows.len();
            }
            row = self.next[i as usize];
        }
    }
}

impl<'a> IntoIterator for &'a StateRuns {
    type Item = &'a StateRun;
    type IntoIter = std::slice::Iter<'a, StateRun>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_where_states_are_kept() {
        let step = |previous, start, block, is_kept| StateStep {
            previous,
            start,
            block,
            is_kept,
        };
        let steps = [
            step(None, Some(4), 5, false),
            step(None, None, 7, true),
            step(Some(0), Some(4), 5, true),
            step(Some(2), Some(4), 6, false),
            step(Some(3), Some(4), 6, true),
        ];
        let mut runs = StateRuns::default();
        for _ in 0..2 {
            runs.find(&steps);
            let found: Vec<_> = runs
                .iter()
                .map(|r| (runs.rows(r), r.start, r.block))
                .collect();
            let expected: [(&[u32], _, _); 3] = [
                (&[0, 2], Some(4), 5),
                (&[3, 4], Some(5), 6),
                (&[1], None, 7),
            ];
            assert_eq!(found, expected);
        }
    }
}
