//! How many rows of prompts a step may have, so that those who write need not wait for long.
//!
//! The one idea: a step's time is measured, and a row's time follows from it. A batch with few rows reads all weights for
//! them, so that its rows look dear, and the next one gets fewer than it could: the estimate is on the safe side.

use std::time::{Duration, Instant};

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

    pub(super) fn start(&self) -> Instant {
        Instant::now()
    }

    pub(super) fn stop(&mut self, start: Instant, n_rows: usize) {
        if n_rows < MIN_ROWS {
            return;
        }
        let time = start.elapsed().as_secs_f64() / n_rows as f64;
        self.row_time = Some(self.row_time.map_or(time, |mean| mean + NEW * (time - mean)));
    }

    /// Rows of prompts that fit into a step beside so many of those who write.
    pub(super) fn rows_beside(&self, n_writing: usize) -> usize {
        let Some(row_time) = self.row_time else { return MIN_ROWS };
        let rows = self.max_gap.as_secs_f64() / row_time.max(1e-9);
        (rows as usize).saturating_sub(n_writing).max(MIN_ROWS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
