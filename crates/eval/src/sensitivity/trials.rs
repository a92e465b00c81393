//! Trials of a model in part, beside the whole model on the same text.
//!
//! Knows neither layers nor experts. The one idea: for each chunk of the text, the
//! log-probabilities of the whole model are computed once, and all trials of a round are compared
//! with them.

use std::ops::ControlFlow;

use atta_engine::{Engine, MeasuredStep, ReductionCost, Session, SessionOptions};
use atta_store::Reservation;

use crate::{
    Error,
    perplexity::{Baseline, BaselineHeader, Chunks, PerplexityReport, Scores, write_row},
};

/// A trial that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialProgress {
    /// The round, from 0. The next one has trials of its own.
    pub round: usize,
    /// Trials of the round that are done, counted in every chunk.
    pub n_done: usize,
    /// All trials of the round, counted in every chunk.
    pub n_all: usize,
}

/// A way to run the trials of a round.
pub(super) trait Trials {
    /// Runs all trials on chunk `i`; `to` takes the logits before each token that is scored.
    fn run(&mut self, i: usize, to: &mut Comparison<'_>) -> Result<(), Error>;
}

/// What all rounds share: the whole model, and its log-probabilities of a chunk.
pub(super) struct Rounds<'a> {
    chunks: &'a Chunks,
    whole: Session,
    /// As in a file of saved logits.
    rows: Vec<u8>,
    n_rounds: usize,
    _memory: Reservation,
}

/// Compares the logits of trials with those of the whole model.
pub(super) struct Comparison<'a> {
    rows: &'a [u8],
    baseline: Baseline<&'a [u8]>,
    n_vocab: usize,
    scores: &'a mut [Scores],
    trial: usize,
    at: TrialProgress,
    progress: &'a mut dyn FnMut(TrialProgress) -> ControlFlow<()>,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(
        engine: &Engine,
        chunks: &'a Chunks,
        session: &SessionOptions,
    ) -> Result<Self, Error> {
        let header = BaselineHeader {
            chunks: chunks.clone(),
            n_vocab: engine.spec().n_vocab,
        };
        let n_bytes = header.chunk_bytes();
        Ok(Self {
            chunks,
            whole: engine.session(session)?,
            rows: Vec::with_capacity(n_bytes as usize),
            n_rounds: 0,
            _memory: engine.budget().reserve("logits to compare", n_bytes)?,
        })
    }

    /// The costs of the trials of a round, each named by a number.
    pub(super) fn costs(
        &mut self,
        trials: &mut dyn Trials,
        names: &[usize],
        progress: &mut dyn FnMut(TrialProgress) -> ControlFlow<()>,
    ) -> Result<Vec<MeasuredStep>, Error> {
        let mut scores = self.no_scores(names.len())?;
        let mut at = TrialProgress {
            round: self.n_rounds,
            n_done: 0,
            n_all: names.len() * self.chunks.len(),
        };
        let n_vocab = self.whole.engine().spec().n_vocab;
        for i in (0..self.chunks.len()).filter(|_| !names.is_empty()) {
            self.compute_rows(i)?;
            let mut comparison = Comparison {
                rows: &self.rows,
                baseline: Baseline::new(&self.rows[..], n_vocab),
                n_vocab,
                scores: &mut scores,
                trial: 0,
                at,
                progress: &mut *progress,
            };
            trials.run(i, &mut comparison)?;
            at = comparison.at;
        }
        self.n_rounds += 1;
        let steps = names.iter().zip(&scores);
        Ok(steps.map(|(&to, scores)| step(to, scores)).collect())
    }

    /// Room for the scores of some trials.
    fn no_scores(&self, n_trials: usize) -> Result<Vec<Scores>, Error> {
        let trials = (0..n_trials).map(|_| Scores::compared(self.whole.engine(), self.chunks));
        trials.collect()
    }

    /// Computes the log-probabilities of the whole model before each token of chunk `i` that is
    /// scored.
    fn compute_rows(&mut self, i: usize) -> Result<(), Error> {
        let rows = &mut self.rows;
        rows.clear();
        let each = |logits: &[f32], _: u32| {
            write_row(logits, rows).expect("a vector takes everything");
        };
        let _ = self.chunks.evaluate(i, &mut self.whole, || true, each)?;
        Ok(())
    }
}

impl Comparison<'_> {
    /// Begins a trial, by its index in the round.
    ///
    /// # Errors
    /// [`Error::Cancelled`].
    pub(super) fn begin(&mut self, trial: usize) -> Result<(), Error> {
        if (self.progress)(self.at).is_break() {
            return Err(Error::Cancelled);
        }
        self.at.n_done += 1;
        self.trial = trial;
        self.baseline = Baseline::new(self.rows, self.n_vocab);
        Ok(())
    }

    /// Takes the logits before a token, `[n_vocab]`.
    pub(super) fn push(&mut self, logits: &[f32], token: u32) {
        let row = self.baseline.next_row();
        let row = row.expect("the whole model has scored as many tokens");
        self.scores[self.trial].push_compared(logits, token, row);
    }
}

/// The cost of a trial, from the scores of at least one token.
fn step(to: usize, scores: &Scores) -> MeasuredStep {
    let report = PerplexityReport::new(scores);
    let divergence = report.divergence.expect("the scores were compared");
    // Of equal distributions it is below 0 by the rounding of the rows.
    let kld = match divergence.kld.value.max(0.0) as f32 {
        kld if kld.is_finite() => kld,
        _ => f32::INFINITY,
    };
    let cost = ReductionCost {
        kld,
        ppl_ratio: divergence.ppl_ratio.value as f32,
        same_top: divergence.same_top.value as f32,
    };
    MeasuredStep { to, cost }
}
