//! Prefill budget: how many prompt rows a batch may have without making decoding jobs wait too
//! long.
//!
//! The time per row is estimated from the time of whole steps. Small batches read all weights for
//! few rows, so the estimate is too high for them, which errs on the safe side.

use std::time::Duration;

/// Batches of up to this many rows take about as long as one row.
const MIN_ROWS: usize = 16;
/// Weight of a new measurement in the moving average.
const NEW: f64 = 0.2;

pub(super) struct PrefillBudget {
    max_gap: Duration,
    /// Seconds per row of large batches; `None` before the first.
    row_time: Option<f64>,
}

impl PrefillBudget {
    pub(super) fn new(max_gap: Duration) -> Self {
        Self {
            max_gap,
            row_time: None,
        }
    }

    /// Records the time of a step.
    pub(super) fn note(&mut self, time: Duration, n_rows: usize) {
        if n_rows < MIN_ROWS {
            return;
        }
        let time = time.as_secs_f64() / n_rows as f64;
        self.row_time = Some(
            self.row_time
                .map_or(time, |mean| mean + NEW * (time - mean)),
        );
    }

    /// Prefill rows that fit beside `n_decoding` decoding rows.
    pub(super) fn rows_beside(&self, n_decoding: usize) -> usize {
        let Some(row_time) = self.row_time else {
            return MIN_ROWS;
        };
        let rows = self.max_gap.as_secs_f64() / row_time.max(1e-9);
        (rows as usize).saturating_sub(n_decoding).max(MIN_ROWS)
    }
}

/// Allots rows to prompts with `rests` tokens left, in queue order: half to the first, so that a
/// long prompt finishes; the rest to the others, shortest first, so that a short prompt does not
/// wait for a long one.
pub(super) fn allot_rows(rests: &[usize], n_rows: usize) -> Vec<usize> {
    let mut allot_rows = vec![0; rests.len()];
    let Some(&first) = rests.first() else {
        return allot_rows;
    };
    allot_rows[0] = first.min(n_rows.div_ceil(2));
    let mut left = n_rows - allot_rows[0];
    let mut others: Vec<usize> = (1..rests.len()).collect();
    others.sort_by_key(|&i| rests[i]);
    for i in others {
        allot_rows[i] = rests[i].min(left);
        left -= allot_rows[i];
    }
    allot_rows[0] += left.min(first - allot_rows[0]);
    allot_rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_prompt_goes_on_and_short_ones_do_not_wait_for_it() {
        assert!(allot_rows(&[], 10).is_empty());
        assert_eq!(allot_rows(&[100], 10), [10]);
        assert_eq!(allot_rows(&[100, 3], 10), [7, 3]);
        assert_eq!(allot_rows(&[100, 50, 3], 10), [5, 2, 3]);
        assert_eq!(allot_rows(&[2, 50, 3], 10), [2, 5, 3]);
        assert_eq!(allot_rows(&[5, 5], 0), [0, 0]);
        assert_eq!(allot_rows(&[5, 5], 1), [1, 0]);
    }

    #[test]
    fn a_slow_machine_gets_fewer_rows_and_never_none() {
        let mut prefill_budget = PrefillBudget::new(Duration::from_millis(100));
        assert_eq!(prefill_budget.rows_beside(3), MIN_ROWS);
        prefill_budget.row_time = Some(0.001);
        assert_eq!(prefill_budget.rows_beside(0), 100);
        assert_eq!(prefill_budget.rows_beside(20), 80);
        prefill_budget.row_time = Some(1.0);
        assert_eq!(prefill_budget.rows_beside(20), MIN_ROWS);
    }
}
