//! Costs of steps: how long a batch of some rows takes, and the account of seconds that
//! speculation has lost.
//!
//! Knows no clock: all times come from outside. The one idea: nothing is measured on purpose. Times
//! are those of steps that had to be made. Where there are none yet, the ratios of an earlier run
//! take their place ([`StepRatios`]), or a careful guess.

use super::StepRatios;

/// Rows of the largest batch whose time is kept.
pub(super) const MAX_ROWS: usize = 64;
/// Weight of a new time in the moving average.
const NEW: f64 = 0.25;
/// A guess of what a further row costs, in times of one row; measured: 0.2 to 0.5 for the second,
/// 0.1 to 0.2 for others (docs/notes).
const MORE_ROWS: f64 = 0.25;
/// Steps after which a time is forgotten, so that one bad measurement does not count for ever.
const FORGET: u64 = 512;
/// Share of all seconds that speculation may lose.
const MAX_LOSS: f64 = 0.01;
/// In a short text it may lose this share, but not more than [`FIRST_LOSS`] plain steps: else one
/// wrong draft would be the last.
const SHORT_LOSS: f64 = 0.03;
const FIRST_LOSS: f64 = 2.0;
/// Share of all seconds that gains may be credited with, against later losses.
const MAX_CREDIT: f64 = 0.05;
/// Times of a number of rows before a later run is told their average.
#[cfg(feature = "cache")]
const MIN_TIMES: u64 = 3;
/// Times of plain steps before the first draft is evaluated: the first step warms caches up.
const MIN_PLAIN: u64 = 3;

/// The rows of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BatchRows {
    /// Rows that plain decoding would have.
    pub(crate) n_plain: usize,
    /// Rows of drafts.
    pub(crate) n_draft: usize,
}

impl BatchRows {
    /// All rows.
    pub(super) fn n(self) -> usize {
        self.n_plain + self.n_draft
    }
}

/// How a step went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepTime {
    pub(crate) rows: BatchRows,
    /// Plain steps that would have written the same tokens.
    pub(crate) n_plain_steps: f64,
    /// Seconds of the step.
    pub(crate) seconds: f64,
    /// Seconds of drafting before it.
    pub(crate) draft_seconds: f64,
}

/// Times of steps by rows, and the account.
#[derive(Clone, Debug)]
pub(crate) struct StepCosts {
    /// By rows, from 0.
    times: Vec<Average>,
    /// Those of earlier runs, if they were asked for.
    earlier: Option<StepRatios>,
    n_steps: u64,
    n_plain: u64,
    /// Seconds lost; below 0 they are a credit.
    lost: f64,
    /// Seconds of all steps.
    total: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Average {
    seconds: f64,
    /// Times in it.
    n: u64,
    /// Number of the step with the last time; 0: there is none.
    last: u64,
}

impl StepCosts {
    pub(crate) fn new() -> Self {
        Self {
            times: vec![Average::default(); MAX_ROWS + 1],
            earlier: None,
            n_steps: 0,
            n_plain: 0,
            lost: 0.0,
            total: 0.0,
        }
    }

    /// Those of another text on the same executor, which has recorded no step.
    pub(crate) fn of_fork(&self) -> Self {
        Self {
            earlier: self.earlier.clone(),
            ..Self::new()
        }
    }

    /// Whether the times of earlier runs are known.
    #[cfg(feature = "cache")]
    pub(crate) fn has_earlier(&self) -> bool {
        self.earlier.is_some()
    }

    /// Takes times of earlier runs in place of guesses.
    #[cfg(feature = "cache")]
    pub(crate) fn take_earlier(&mut self, ratios: StepRatios) {
        self.earlier = Some(ratios);
    }

    /// The ratios that a later run begins with; `None` if this one has learned none.
    #[cfg(feature = "cache")]
    pub(crate) fn ratios(&self) -> Option<StepRatios> {
        let one = self.known(1)?;
        let measured = |n: usize| {
            let is_enough = self.times.get(n).is_some_and(|time| time.n >= MIN_TIMES);
            self.known(n).filter(|_| is_enough).map(|time| time / one)
        };
        let has_any = (2..=MAX_ROWS).any(|n| measured(n).is_some());
        let earlier = self.earlier.clone().unwrap_or_default();
        has_any.then(|| earlier.followed_by(measured))
    }

    /// Records a step.
    pub(crate) fn record(&mut self, step: &StepTime) {
        self.n_steps += 1;
        if step.rows.n_draft == 0 {
            self.n_plain += 1;
            self.lost += step.draft_seconds;
        } else if let Some(plain) = self.seconds(step.rows.n_plain) {
            let gained = plain * step.n_plain_steps;
            self.lost += step.seconds + step.draft_seconds - gained;
        }
        self.total += step.seconds;
        self.lost = self.lost.max(-MAX_CREDIT * self.total);
        if let Some(average) = self.times.get_mut(step.rows.n()) {
            average.add(step.seconds, self.n_steps);
        }
    }

    /// Whether the account allows drafts.
    pub(crate) fn allows(&self) -> bool {
        let first = FIRST_LOSS * self.seconds(1).unwrap_or_default();
        let short = first.min(SHORT_LOSS * self.total);
        self.n_plain >= MIN_PLAIN && self.lost <= short.max(MAX_LOSS * self.total)
    }

    /// Rows of the largest batch that is tried, if `n` rows are the smallest: twice as many as were
    /// measured, in this run or an earlier one, so that the first trials are cheap.
    pub(super) fn max_trial(&self, n: usize) -> usize {
        let measured = (n..=MAX_ROWS).rev().find(|&n| self.at(n).is_some());
        2 * measured.unwrap_or(n)
    }

    /// Seconds of a step of `n` rows: measured, or between the measured neighbours, or guessed from
    /// one; `None` before any step.
    pub(super) fn seconds(&self, n: usize) -> Option<f64> {
        let known = |n: &usize| self.at(*n).is_some();
        let at = |n: usize| self.at(n).unwrap_or_default();
        let below = (1..=n.min(MAX_ROWS)).rev().find(known);
        let above = (n..=MAX_ROWS).find(known);
        match (below, above) {
            (Some(low), Some(high)) if low == high => Some(at(low)),
            (Some(low), Some(high)) => {
                let share = (n - low) as f64 / (high - low) as f64;
                Some(at(low) + share * (at(high) - at(low)))
            }
            (Some(low), None) => {
                let more = MORE_ROWS * (n - low) as f64 / low as f64;
                Some(at(low) * (1.0 + more))
            }
            (None, Some(high)) => Some(at(high) * n as f64 / high as f64),
            (None, None) => None,
        }
    }

    /// The time of `n` rows in this run, or by their ratio in an earlier one.
    fn at(&self, n: usize) -> Option<f64> {
        self.known(n).or_else(|| {
            let ratio = self.earlier.as_ref()?.get(n)?;
            Some(self.known(1)? * ratio)
        })
    }

    /// The average time of `n` rows, unless it is old.
    fn known(&self, n: usize) -> Option<f64> {
        let Average { seconds, last, .. } = *self.times.get(n)?;
        (last > 0 && last + FORGET >= self.n_steps).then_some(seconds)
    }
}

impl Average {
    fn add(&mut self, seconds: f64, n_steps: u64) {
        self.seconds = match self.last {
            0 => seconds,
            _ => self.seconds + NEW * (seconds - self.seconds),
        };
        self.last = n_steps;
        self.n += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(n_draft: usize, n_plain_steps: f64, seconds: f64) -> StepTime {
        StepTime {
            rows: BatchRows {
                n_plain: 1,
                n_draft,
            },
            n_plain_steps,
            seconds,
            draft_seconds: 0.0,
        }
    }

    #[test]
    fn the_time_of_more_rows_is_guessed_until_it_is_measured() {
        let mut costs = StepCosts::new();
        assert_eq!(costs.seconds(5), None);
        costs.record(&step(0, 1.0, 2.0));
        assert_eq!(costs.seconds(5), Some(4.0));
        costs.record(&step(4, 5.0, 3.0));
        assert_eq!((costs.seconds(5), costs.seconds(3)), (Some(3.0), Some(2.5)));
        // An old time is forgotten, the guess is back.
        (0..=FORGET).for_each(|_| costs.record(&step(0, 1.0, 2.0)));
        assert_eq!(costs.seconds(5), Some(4.0));
    }

    #[test]
    #[cfg(feature = "cache")]
    fn a_later_run_begins_with_the_ratios_of_an_earlier_one() {
        let mut first = StepCosts::new();
        (0..3).for_each(|_| first.record(&step(0, 1.0, 2.0)));
        assert_eq!(first.ratios(), None, "one row says nothing of others");
        (0..3).for_each(|_| first.record(&step(4, 5.0, 3.0)));
        first.record(&step(7, 8.0, 90.0));
        let mut second = StepCosts::new();
        second.take_earlier(first.ratios().unwrap());
        assert_eq!(second.seconds(5), None, "the time of one row is unknown");
        second.record(&step(0, 1.0, 1.0));
        assert_eq!(second.seconds(5), Some(1.5));
        assert_eq!(second.max_trial(1), 10);
        assert_eq!(
            second.of_fork().max_trial(1),
            2,
            "it has no time of one row"
        );
        // One time of eight rows was not enough.
        assert!(second.seconds(8).unwrap() < 3.0);
        // A measurement counts more.
        second.record(&step(4, 5.0, 2.5));
        assert_eq!(second.seconds(5), Some(2.5));
    }

    #[test]
    fn above_one_per_cent_of_lost_time_there_are_no_drafts_until_it_is_back() {
        let mut costs = StepCosts::new();
        assert!(!costs.allows(), "no plain step was measured");
        (0..3).for_each(|_| costs.record(&step(0, 1.0, 1.0)));
        assert!(costs.allows());
        costs.record(&step(4, 1.0, 4.0));
        assert!(!costs.allows(), "three seconds of 7 were lost");
        (0..292).for_each(|_| costs.record(&step(0, 1.0, 1.0)));
        assert!(!costs.allows());
        (0..2).for_each(|_| costs.record(&step(0, 1.0, 1.0)));
        assert!(costs.allows());
        // Gains pay back, and are a limited credit for later losses.
        (0..99).for_each(|_| costs.record(&step(4, 5.0, 1.5)));
        costs.record(&step(4, 1.0, 20.0));
        assert!(costs.allows());
        costs.record(&step(4, 1.0, 20.0));
        assert!(!costs.allows());
    }

    #[test]
    fn drafting_without_a_draft_counts_as_lost() {
        let mut costs = StepCosts::new();
        let drafting = StepTime {
            draft_seconds: 0.02,
            ..step(0, 1.0, 1.0)
        };
        (0..9).for_each(|_| costs.record(&drafting));
        assert!(costs.allows(), "the text is short");
        (0..300).for_each(|_| costs.record(&drafting));
        assert!(!costs.allows());
    }
}
