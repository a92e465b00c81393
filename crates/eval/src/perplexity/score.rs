//! The score of every token: how surprised the model was, and how far its opinion is from the
//! baseline's.
//!
//! All of them are kept, since medians need them, and since a measurement that was interrupted goes
//! on from them: the same scores give the same figures, to the last bit.

use atta_kernels::math;
use atta_store::Reservation;

use crate::Error;
use atta_engine::{Engine, log_sum_exp};

use super::{Chunks, baseline::LogprobRow};

/// Scores of the tokens so far, in order.
#[derive(Debug)]
pub struct Scores {
    /// −ln p of each token, in nats, `[n]`.
    pub nll: Vec<f32>,
    /// The comparison with a baseline, if there is one.
    pub base: Option<BaseScores>,
    _memory: Reservation,
}

/// The comparison with a baseline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BaseScores {
    /// −ln p of each token by the baseline, in nats, `[n]`.
    pub nll: Vec<f32>,
    /// `Σ p ln(p / q)` over the vocabulary before each token, `p` the baseline's, in nats, `[n]`.
    pub kld: Vec<f32>,
    /// Whether both find the same token most probable, `[n]`.
    pub same_top: Vec<bool>,
}

/// Bytes of a score with and without a comparison.
const COMPARED_BYTES: usize = 13;
const PLAIN_BYTES: usize = 4;

impl Scores {
    /// None yet, with room for a text.
    ///
    /// # Errors
    /// Memory that the budget does not grant.
    pub fn new(engine: &Engine, chunks: &Chunks) -> Result<Self, Error> {
        let n = chunks.len() * chunks.n_scored();
        let memory = engine
            .budget()
            .reserve("scores", (n * PLAIN_BYTES) as u64)?;
        Ok(Self {
            nll: Vec::with_capacity(n),
            base: None,
            _memory: memory,
        })
    }

    /// The same, to be compared with a baseline.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn compared(engine: &Engine, chunks: &Chunks) -> Result<Self, Error> {
        let n = chunks.len() * chunks.n_scored();
        let memory = engine
            .budget()
            .reserve("scores", (n * COMPARED_BYTES) as u64)?;
        let nll = Vec::with_capacity(n);
        let kld = Vec::with_capacity(n);
        let same_top = Vec::with_capacity(n);
        Ok(Self {
            nll: Vec::with_capacity(n),
            base: Some(BaseScores { nll, kld, same_top }),
            _memory: memory,
        })
    }

    /// Scores a token from the logits before it, `[n_vocab]`.
    pub fn push(&mut self, logits: &[f32], token: u32) {
        self.nll
            .push((log_sum_exp(logits) - f64::from(logits[token as usize])) as f32);
    }

    /// Scores a token and compares the logits before it, `[n_vocab]`, with those of the baseline.
    pub fn push_compared(&mut self, logits: &[f32], token: u32, row: LogprobRow<'_>) {
        let log_total = log_sum_exp(logits);
        self.nll
            .push((log_total - f64::from(logits[token as usize])) as f32);
        let base = self.base.get_or_insert_default();
        base.nll.push(-row.log_prob(token as usize));
        let (kld, same_top) = compare(logits, log_total, row);
        base.kld.push(kld as f32);
        base.same_top.push(same_top);
    }

    /// Forgets all but the first `n`, as after a chunk that was given up halfway.
    pub fn truncate(&mut self, n: usize) {
        self.nll.truncate(n);
        if let Some(BaseScores { nll, kld, same_top }) = &mut self.base {
            nll.truncate(n);
            kld.truncate(n);
            same_top.truncate(n);
        }
    }
}

/// Below this the baseline's log-probabilities are not told apart; such tokens do not count.
const NEGLIGIBLE: f32 = -16.0;

/// The divergence of `logits`, `[n_vocab]`, from the baseline, and whether the greatest is at the
/// same place, the first of equals.
fn compare(logits: &[f32], log_total: f64, row: LogprobRow<'_>) -> (f64, bool) {
    let mut sum = 0.0;
    let mut top = 0;
    let mut top_base = 0;
    let mut greatest_base = row.log_prob(0);
    for (i, &logit) in logits.iter().enumerate() {
        let log_p = row.log_prob(i);
        if logit > logits[top] {
            top = i;
        }
        if log_p > greatest_base {
            (greatest_base, top_base) = (log_p, i);
        }
        if log_p > NEGLIGIBLE {
            sum +=
                f64::from(math::exp(log_p)) * (f64::from(log_p) - (f64::from(logit) - log_total));
        }
    }
    (sum, top == top_base)
}
