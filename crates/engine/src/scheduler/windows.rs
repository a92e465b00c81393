//! Windows: drafts of the only running job in batches of their own, behind those in flight.
//!
//! Knows no drafter and no executor's machines. The one idea: a window is a flight whose rows are
//! all a draft. When those in front of it turned out right, its first rows are the pending tokens
//! of the text, and it is judged like any batch with a draft; else it is taken back with all behind
//! it. With several running jobs the batches of an executor with a depth are full anyway.

use atta_model::{Output, Want};

use super::{Batcher, filling::RowSpan};
use crate::speculation::BatchRows;

impl Batcher {
    /// Fills the batch with a window behind all rows in flight; whether it has rows then.
    pub(super) fn fill_window(&mut self) -> bool {
        let Some((slot, n_ahead)) = self.only_speculated() else {
            return false;
        };
        let place = self.slots.at_mut(slot);
        let start = place.n_submitted();
        let Some(job) = &mut place.job else {
            return false;
        };
        let n_max = job.max_draft().saturating_sub(n_ahead);
        let n_max = n_max.min(self.n_ctx - start).min(self.n_batch);
        let in_flight = self.flights.iter().flat_map(|flight| &flight.spans);
        let drafts: Vec<u32> = in_flight.flat_map(|span| &span.draft).copied().collect();
        let tokens = [&job.text.ids()[..start - drafts.len()], &drafts].concat();
        let draft = self.drafts.propose_ahead(&self.engine, job, &tokens, n_max);
        for (&id, pos) in draft.iter().zip(start..) {
            self.batch.push_token(place.seq, pos, id, Want::Logits);
            self.batch.set_adapters(job.text.adapters());
        }
        if !draft.is_empty() {
            self.spans.push(RowSpan::ahead(slot, draft));
        }
        !self.spans.is_empty()
    }

    /// The only running job, if batches with drafts of it are in flight and nothing else, and the
    /// tokens behind its text in them.
    fn only_speculated(&self) -> Option<(usize, usize)> {
        let front = self.flights.front()?.spans.first()?;
        let slot = front.slot;
        let is_other = |span: &RowSpan| span.slot != slot;
        let mut spans = self.flights.iter().flat_map(|flight| &flight.spans);
        let is_alone = self.slots.n_running() == 1 && !spans.any(is_other);
        let place = self.slots.at(slot);
        let job = place.job.as_ref().filter(|_| is_alone)?;
        let has_windows = job.has_drafts() && job.hidden_sink().is_none();
        let is_drafted = has_windows && !front.draft.is_empty();
        let n_ahead = place.n_submitted().checked_sub(job.text.len())?;
        is_drafted.then_some((slot, n_ahead))
    }

    /// The oldest window was computed: its first rows are the pending tokens of its job. Returns
    /// its rows; `None` if the job has ended.
    pub(super) fn begin_window(&mut self, span: &mut RowSpan) -> Option<BatchRows> {
        let place = self.slots.at_mut(span.slot);
        let job = place.job.as_mut()?;
        let n_pending = job.text.len().saturating_sub(place.n_done);
        let n_plain = n_pending.min(span.draft.len());
        job.next_ahead();
        span.draft.drain(..n_plain);
        span.is_ahead = false;
        Some(BatchRows {
            n_plain,
            n_draft: span.draft.len(),
        })
    }

    /// Whether the oldest window goes on where the first `n_verified` tokens of its job end: with
    /// the pending ones, and nothing in front of it was refused.
    pub(super) fn window_goes_on(&self, slot: usize, n_verified: usize) -> bool {
        let place = self.slots.at(slot);
        let windows = self.flights.iter().flat_map(|flight| &flight.spans);
        let windows = windows.take_while(|span| span.slot == slot && span.is_ahead);
        let n_rows: usize = windows.map(|span| span.rows.len()).sum();
        let front = self.flights.front().and_then(|flight| flight.spans.first());
        let text = place.job.as_ref().map(|job| job.text.ids());
        let Some((front, text)) = front.zip(text) else {
            return false;
        };
        let pending = text.get(n_verified..).unwrap_or(&[]);
        let is_next = !pending.is_empty() && front.draft.starts_with(pending);
        n_rows > 0 && n_verified + n_rows == place.n_submitted() && is_next
    }

    /// Removes windows of a slot that the executor has taken back.
    pub(super) fn drop_windows(&mut self, slot: usize) {
        let is_window = |span: &RowSpan| span.slot == slot && span.is_ahead;
        while let Some(flight) = self
            .flights
            .pop_front_if(|flight| flight.spans.iter().any(is_window))
        {
            self.slots.at_mut(slot).collected();
            let nothing = &mut Output::default();
            if self.executor.collect(flight.ticket, nothing).is_err() {
                // The executor has dropped all later batches, too, and tells why with the next one.
                self.flights.clear();
                self.slots.drop_all_in_flight();
            }
        }
    }
}

impl RowSpan {
    /// Rows of a draft alone.
    fn ahead(slot: usize, draft: Vec<u32>) -> Self {
        Self {
            slot,
            rows: 0..draft.len(),
            draft,
            is_ahead: true,
            is_tapped: false,
        }
    }
}
