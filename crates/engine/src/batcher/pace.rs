//! How many rows of prompts a step may have, so that those who write need not wait for long.
//!
//! The one idea: a step's time is measured, and a row's time follows from it. A batch with few rows reads all weights for
//! them, so that its rows look dear, and the next one gets fewer than it could: the estimate is on the safe side.

use std::time::Duration;

/// Fewer rows than this cost a step about as much as one.
const MIN_ROWS: usize = 16;
/// Of a new measurement in the mean.
const NEW: f64 = 0.2;

pub(super) struct Pace {
    max_gap: Duration,
    /// Seconds per row of steps with many rows; `None` before the first.
    row_time: Option<f64>,
}

impl Pace {
    pub(super) fn new(max_gap: Duration) -> Self {
        Self { max_gap, row_time: None }
    }

    /// Notes how long a step took.
    pub(super) fn note(&mut self, time: Duration, n_rows: usize) {
        if n_rows < MIN_ROWS {
            return;
        }
        let time = time.as_secs_f64() / n_rows as f64;
        self.row_time = Some(self.row_time.map_or(time, |mean| mean + NEW * (time - mean)));
    }

    /// Rows of prompts that fit into a step beside so many of those who write.
    pub(super) fn rows_beside(&self, n_writing: usize) -> usize {
        let Some(row_time) = self.row_time else { return MIN_ROWS };
        let rows = self.max_gap.as_secs_f64() / row_time.max(1e-9);
        (rows as usize).saturating_sub(n_writing).max(MIN_ROWS)
    }
}

/// Divides rows among prompts of which `rests` tokens are to be read, in the order of the queue: half of them are the first one's,
/// so that a long prompt comes to its end; the others get theirs shortest first, so that a short one need not wait for a
/// long one.
pub(super) fn portions(rests: &[usize], n_rows: usize) -> Vec<usize> {
    let mut portions = vec![0; rests.len()];
    let Some(&first) = rests.first() else { return portions };
    portions[0] = first.min(n_rows.div_ceil(2));
    let mut left = n_rows - portions[0];
    let mut others: Vec<usize> = (1..rests.len()).collect();
    others.sort_by_key(|&i| rests[i]);
    for i in others {
        portions[i] = rests[i].min(left);
        left -= portions[i];
    }
    portions[0] += left.min(first - portions[0]);
    portions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_prompt_goes_on_and_short_ones_do_not_wait_for_it() {
        assert!(portions(&[], 10).is_empty());
        assert_eq!(portions(&[100], 10), [10]);
        assert_eq!(portions(&[100, 3], 10), [7, 3]);
        assert_eq!(portions(&[100, 50, 3], 10), [5, 2, 3]);
        assert_eq!(portions(&[2, 50, 3], 10), [2, 5, 3]);
        assert_eq!(portions(&[5, 5], 0), [0, 0]);
        assert_eq!(portions(&[5, 5], 1), [1, 0]);
    }

    #[test]
    fn a_slow_machine_gets_fewer_rows_and_never_none() {
        let mut pace = Pace::new(Duration::from_millis(100));
        assert_eq!(pace.rows_beside(3), MIN_ROWS);
        pace.row_time = Some(0.001);
        assert_eq!(pace.rows_beside(0), 100);
        assert_eq!(pace.rows_beside(20), 80);
        pace.row_time = Some(1.0);
        assert_eq!(pace.rows_beside(20), MIN_ROWS);
    }
}
