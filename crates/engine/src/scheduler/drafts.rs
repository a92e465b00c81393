//! Drafts in batches: how many rows they get, and what steps cost.
//!
//! Drafts join batches of decoding jobs only, and leave a batch that prefills alone. The more jobs
//! decode, the less a draft of each can gain, because the batch has many rows anyway.

use atta_model::spec::Tap;
use atta_store::Reservation;

use super::job::Running;
use crate::{
    Engine, SpeculationOff,
    generation::Verdict,
    session::logits_bytes,
    speculation::{BatchRows, DraftRoom, StepCosts, StepTime},
};

/// Beside more decoding jobs there are no drafts.
const MAX_TEXTS: usize = 4;

/// Batches without drafts after one with drafts has failed.
const PAUSE: usize = 64;

/// The drafts of a batcher.
pub(super) struct DraftRows {
    costs: StepCosts,
    /// Maximum rows of drafts, if the memory plan says; else what memory there is.
    n_planned: Option<usize>,
    /// Maximum rows of a draft that the executor can remove again.
    n_max: usize,
    /// Draft rows with memory for their logits.
    n_reserved: usize,
    memory: Option<Reservation>,
    /// Hidden states that jobs want, with the memory for those of a batch.
    taps: Option<(Vec<Tap>, Reservation)>,
    /// The decoding rows of the batch that is filled; `None`: it prefills, too.
    rows: Option<BatchRows>,
    /// Decoding jobs of that batch.
    n_texts: usize,
    /// Rows that are left in it for drafts.
    n_left: usize,
    /// Batches that have no drafts because one has failed.
    n_paused: usize,
    /// StepSums over the jobs of the batch that was collected.
    sums: StepSums,
}

#[derive(Clone, Copy, Default)]
struct StepSums {
    n_texts: usize,
    n_plain_steps: usize,
    draft_seconds: f64,
}

impl DraftRows {
    /// Drafts of up to `n_planned` rows, or of those that memory is left for.
    pub(super) fn new(n_planned: Option<usize>, n_max: usize) -> Self {
        Self {
            n_planned,
            n_max,
            costs: StepCosts::new(),
            n_reserved: 0,
            memory: None,
            taps: None,
            rows: None,
            n_texts: 0,
            n_left: 0,
            n_paused: 0,
            sums: StepSums::default(),
        }
    }

    /// Times of steps.
    pub(super) fn costs(&self) -> &StepCosts {
        &self.costs
    }

    /// The same, to be told those of earlier processes.
    pub(super) fn costs_mut(&mut self) -> &mut StepCosts {
        &mut self.costs
    }

    /// Begins a batch of `n_batch` rows, `n_plain` of them for `n_texts` decoding jobs.
    pub(super) fn begin_batch(&mut self, n_batch: usize, n_plain: usize, n_texts: usize) {
        self.rows = Some(BatchRows {
            n_plain,
            n_draft: 0,
        });
        self.n_texts = n_texts;
        self.n_left = n_batch.saturating_sub(n_plain);
        if self.n_paused > 0 {
            self.n_paused -= 1;
            self.n_left = 0;
        }
    }

    /// A batch with drafts has failed: the next ones have none.
    pub(super) fn pause(&mut self) {
        self.n_paused = PAUSE;
    }

    /// The batch gets no (more) drafts, because it prefills or because the KV pool is full.
    pub(super) fn end_batch(&mut self) {
        self.n_left = 0;
    }

    /// The batch prefills, so that its time says nothing about decoding.
    pub(super) fn prefills(&mut self) {
        self.rows = None;
        self.end_batch();
    }

    /// The rows of the batch; `None` if it prefills.
    pub(super) fn rows(&self) -> Option<BatchRows> {
        self.rows
    }

    /// Keeps memory for the hidden states of batches of `n_batch` rows that a job wants.
    pub(super) fn begin_taps(
        &mut self,
        engine: &Engine,
        taps: &[Tap],
        n_batch: usize,
    ) -> Result<(), SpeculationOff> {
        match &self.taps {
            Some((known, _)) if known == taps => Ok(()),
            Some(_) => Err(SpeculationOff::NoStates),
            None => {
                let n_bytes = 4 * (n_batch * taps.len() * engine.spec().d_model) as u64;
                let memory = engine.budget().reserve("hidden states", n_bytes);
                let memory = memory.map_err(|_| SpeculationOff::NoRoom)?;
                self.taps = Some((taps.to_vec(), memory));
                Ok(())
            }
        }
    }

    /// The hidden states that jobs want.
    pub(super) fn taps(&self) -> &[Tap] {
        self.taps.as_ref().map_or(&[], |(taps, _)| taps)
    }

    /// Whether there is memory for a draft.
    pub(super) fn has_room(&mut self, engine: &Engine) -> bool {
        self.reserved(engine, 1) > 0
    }

    /// A draft for a job whose rows are all in the batch, behind its text; mostly empty. `n_ctx`
    /// positions are all that a text may have.
    pub(super) fn propose(&mut self, engine: &Engine, job: &mut Running, n_ctx: usize) -> Vec<u32> {
        let (Some(rows), Some(n_max)) = (self.rows, job.n_max_draft()) else {
            return Vec::new();
        };
        let n_max = match self.n_texts {
            n if n <= MAX_TEXTS => n_max / n.max(1),
            _ => 0,
        };
        let n_reserved = self.reserved(engine, n_max * self.n_texts);
        let n_reserved = n_reserved.saturating_sub(rows.n_draft);
        let n_max = n_max.min(self.n_left).min(n_reserved).min(self.n_max);
        let room = DraftRoom {
            rows,
            n_texts: self.n_texts,
            n_max: n_max.min(n_ctx - job.text.len()),
        };
        let draft = job.propose(room, &self.costs);
        self.n_left -= draft.len();
        self.rows = Some(BatchRows {
            n_draft: rows.n_draft + draft.len(),
            ..rows
        });
        draft
    }

    /// A draft behind `tokens`, which end with drafts of a job that are not judged yet; at most
    /// `n_max` tokens.
    pub(super) fn propose_ahead(
        &mut self,
        engine: &Engine,
        job: &mut Running,
        tokens: &[u32],
        n_max: usize,
    ) -> Vec<u32> {
        let n_max = match self.n_paused {
            0 => n_max.min(self.reserved(engine, n_max)).min(self.n_max),
            _ => 0,
        };
        let draft = job.propose_ahead(tokens, n_max, &self.costs);
        self.rows = Some(BatchRows {
            n_plain: 0,
            n_draft: draft.len(),
        });
        draft
    }

    /// Reserves memory for the logits of `n_wanted` rows of drafts, and returns for how many there
    /// is some.
    fn reserved(&mut self, engine: &Engine, n_wanted: usize) -> usize {
        let row_bytes = logits_bytes(engine.spec());
        let n_free = self.n_reserved + (engine.budget().left() / row_bytes) as usize;
        let n = n_wanted.min(n_free).min(self.n_planned.unwrap_or(n_wanted));
        if n > self.n_reserved {
            self.memory = None;
            self.memory = engine.budget().reserve("logits", n as u64 * row_bytes).ok();
            self.n_reserved = self.memory.as_ref().map_or(0, |_| n);
        }
        self.n_reserved
    }

    /// Learns how the step of a job went.
    pub(super) fn judged(&mut self, verdict: Verdict, draft_seconds: f64) {
        self.sums.n_texts += 1;
        self.sums.n_plain_steps += verdict.n_plain_steps;
        self.sums.draft_seconds += draft_seconds;
    }

    /// Learns how long a batch took whose jobs were [judged](Self::judged).
    pub(super) fn collected(&mut self, rows: Option<BatchRows>, seconds: f64) {
        let StepSums {
            n_texts,
            n_plain_steps,
            draft_seconds,
        } = std::mem::take(&mut self.sums);
        if let Some(rows) = rows.filter(|_| n_texts > 0) {
            self.costs.record(&StepTime {
                rows,
                n_plain_steps: n_plain_steps as f64 / n_texts as f64,
                seconds,
                draft_seconds,
            });
        }
    }
}
