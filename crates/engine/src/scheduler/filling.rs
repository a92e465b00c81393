//! Filling a batch: the jobs that have rows in it, and how many.
//!
//! Decoding jobs come first, each with its pending tokens and perhaps a draft behind them, then the
//! rows of prompts that the latency budget allows.

use std::ops::Range;

use atta_model::Want;

use super::{Batcher, job::Running, prefill_budget};
use crate::{SpeculationOff, text::TextInput};

/// The rows of a job in a batch.
pub(super) struct RowSpan {
    pub(super) slot: usize,
    pub(super) rows: Range<usize>,
    /// The tokens of the last rows, which are a draft and not part of the job's text.
    pub(super) draft: Vec<u32>,
    /// Whether they follow a draft that is not judged yet.
    pub(super) is_ahead: bool,
    /// Whether the job wants the hidden states of its rows.
    pub(super) is_tapped: bool,
}

impl RowSpan {
    /// The rows of the job's text.
    pub(super) fn text_rows(&self) -> Range<usize> {
        self.rows.start..self.rows.end - self.draft.len()
    }
}

/// Whether a batch may have drafts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MayDraft {
    Yes,
    No,
}

impl Batcher {
    /// Fills the batch: decoding jobs first (longest-waiting first), then prefill rows within the
    /// latency budget. Decoding leaves a quarter of the batch to prefill. Decoding jobs are spread
    /// over the batches in flight.
    pub(super) fn fill(&mut self, drafts: MayDraft) {
        self.batch.clear();
        self.spans.clear();
        self.drafts.prefills();
        let (decoding, prefilling) = self.slots.by_phase();
        if self.is_encoder {
            self.fill_whole(&prefilling);
            return;
        }
        let n_batch = self.n_batch;
        let mut left = if prefilling.is_empty() {
            n_batch
        } else {
            n_batch - n_batch.div_ceil(4)
        };
        let n_decoding = decoding.len().div_ceil(self.executor.depth());
        let ready = decoding
            .into_iter()
            .filter(|&slot| self.slots.at(slot).n_rest() > 0);
        let ready: Vec<usize> = ready.take(n_decoding).collect();
        if prefilling.is_empty() {
            self.begin_drafts(&ready, drafts);
        }
        for slot in ready {
            left -= self.add_rows(slot, left);
            left -= self.add_draft(slot);
        }
        left = (n_batch - self.batch.rows.len()).min(self.executor.n_chunk());
        if !self.spans.is_empty() {
            left = left.min(self.prefill_budget.rows_beside(self.batch.rows.len()));
        }
        let rests: Vec<usize> = prefilling
            .iter()
            .map(|&slot| self.slots.at(slot).n_rest())
            .collect();
        for (slot, n_rows) in prefilling
            .into_iter()
            .zip(prefill_budget::allot_rows(&rests, left))
        {
            self.add_rows(slot, n_rows);
        }
    }

    /// Fills the batch with whole texts, in queue order, up to the first that does not fit.
    fn fill_whole(&mut self, slots: &[usize]) {
        for &slot in slots {
            let n_rows = self.slots.at(slot).n_rest();
            if n_rows > self.n_batch - self.batch.rows.len() {
                break;
            }
            self.add_rows(slot, n_rows);
        }
    }

    /// Adds up to `max` rows of a job to the batch; returns how many.
    fn add_rows(&mut self, slot: usize, max: usize) -> usize {
        let place = self.slots.at(slot);
        let Some(job) = &place.job else { return 0 };
        let start = self.batch.rows.len();
        let mut n_hidden = self
            .batch
            .rows
            .iter()
            .filter(|row| row.want == Want::Hidden)
            .count();
        for pos in (place.n_submitted()..).take(place.n_rest().min(max)) {
            let want = job.want(pos);
            n_hidden += usize::from(want == Want::Hidden);
            if n_hidden > self.n_hidden {
                break;
            }
            match job.text.input(pos) {
                TextInput::Token(id) => self.batch.push_token(place.seq, pos, id, want),
                TextInput::Embedding(x) => self.batch.push_embedding(place.seq, pos, x, want),
            }
            self.batch.set_adapters(job.text.adapters());
            self.batch.set_segment(job.text.segment(pos));
            if job.wants_checkpoint(pos) {
                self.batch.mark_checkpoint();
            }
        }
        let rows = start..self.batch.rows.len();
        let n_rows = rows.len();
        if n_rows > 0 {
            let is_tapped = job.hidden_sink().is_some();
            if is_tapped && self.batch.taps.is_empty() {
                self.batch.taps.extend_from_slice(self.drafts.taps());
            }
            self.spans.push(RowSpan {
                slot,
                rows,
                draft: Vec::new(),
                is_ahead: false,
                is_tapped,
            });
        }
        n_rows
    }

    /// Keeps memory for the hidden states that a job wants.
    pub(super) fn begin_taps(&mut self, job: &Running) -> Result<(), SpeculationOff> {
        match job.hidden_sink() {
            None => Ok(()),
            Some(_) if !self.executor.can_tap() => Err(SpeculationOff::NoStates),
            Some(sink) => self
                .drafts
                .begin_taps(&self.engine, sink.taps(), self.n_batch),
        }
    }

    /// Makes room for drafts of these decoding jobs, whose rows all fit the batch.
    fn begin_drafts(&mut self, slots: &[usize], drafts: MayDraft) {
        let rows = slots.iter().map(|&slot| self.slots.at(slot).n_rest());
        self.drafts
            .begin_batch(self.n_batch, rows.sum(), slots.len());
        if drafts == MayDraft::No {
            self.drafts.end_batch();
        }
    }

    /// Adds a draft behind the text of a job whose rows are the last ones of the batch; returns how
    /// many rows.
    fn add_draft(&mut self, slot: usize) -> usize {
        let place = self.slots.at_mut(slot);
        let (Some(job), Some(span)) = (&mut place.job, self.spans.last_mut()) else {
            return 0;
        };
        let n_text = job.text.len();
        if span.slot != slot || place.n_done + span.rows.len() != n_text {
            return 0;
        }
        span.draft = self.drafts.propose(&self.engine, job, self.n_ctx);
        for (&id, pos) in span.draft.iter().zip(n_text..) {
            self.batch.push_token(place.seq, pos, id, Want::Logits);
            self.batch.set_adapters(job.text.adapters());
        }
        let n_rows = span.draft.len();
        span.rows.end += n_rows;
        n_rows
    }

    /// Whether the batch has a draft.
    pub(super) fn has_drafts(&self) -> bool {
        self.spans.iter().any(|span| !span.draft.is_empty())
    }
}
