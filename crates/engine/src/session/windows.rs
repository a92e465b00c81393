//! Windows: batches of a text that is being written, some of them ahead of its known tokens.
//!
//! Knows no drafter and no sampler. The one idea: the tokens of a window are no part of the session
//! before it is collected, so that all else is as if windows ahead were not there. A window whose
//! beginning turned out wrong is taken back with all behind it; an executor with a depth computes
//! several at once, and does not wait for those.

use std::{collections::VecDeque, time::Instant};

use atta_model::{Ticket, Want};

use super::{LogitRows, Session, executor};
use crate::{Error, TappedRows};

/// The windows in flight, oldest first.
#[derive(Default)]
pub(super) struct Windows(VecDeque<Window>);

struct Window {
    ticket: Ticket,
    ids: Vec<u32>,
}

impl Windows {
    fn n_tokens(&self) -> usize {
        self.0.iter().map(|window| window.ids.len()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Session {
    /// Maximum number of windows in flight.
    pub(crate) fn n_max_windows(&self) -> usize {
        self.max_in_flight() + 1
    }

    /// Number of windows in flight.
    pub(crate) fn n_windows(&self) -> usize {
        self.windows.0.len()
    }

    /// Number of tokens in all windows in flight.
    pub(crate) fn n_window_tokens(&self) -> usize {
        self.windows.n_tokens()
    }

    /// The tokens of all windows in flight.
    pub(crate) fn window_tokens(&self) -> impl Iterator<Item = u32> + '_ {
        self.windows
            .0
            .iter()
            .flat_map(|window| window.ids.iter().copied())
    }

    /// Number of tokens of the oldest window, if it begins with these.
    pub(crate) fn next_window(&self, begin: &[u32]) -> Option<usize> {
        let ids = &self.windows.0.front()?.ids;
        ids.starts_with(begin).then_some(ids.len())
    }

    /// Submits tokens behind those of the session and of all windows in flight, as one batch. The
    /// first `n_known` of them are part of the text. Logits are computed after the last of these,
    /// and after each token behind them.
    pub(crate) fn submit_window(&mut self, ids: &[u32], n_known: usize) -> Result<(), Error> {
        // Batches of a prompt are no windows.
        self.settle_to(0)?;
        let want = |i| match i + 1 < n_known {
            true => Want::Nothing,
            false => Want::Logits,
        };
        self.fill_batch(ids, want, None);
        let submitted = executor(&self.executor).submit(&self.batch);
        let window = Window {
            ticket: submitted?,
            ids: ids.to_vec(),
        };
        self.windows.0.push_back(window);
        Ok(())
    }

    /// Waits for the oldest window, whose first `n_known` tokens are part of the text, and appends
    /// its tokens to the session, with the logits from the last of these on. Returns how many
    /// tokens behind them are left: those behind which the model computes no numbers are dropped,
    /// and all windows with them.
    pub(crate) fn collect_window(&mut self, n_known: usize) -> Result<usize, Error> {
        let Some(Window { ticket, ids }) = self.windows.0.pop_front() else {
            return Ok(0);
        };
        self.last = None;
        self.rows = LogitRows::default();
        let start = Instant::now();
        let collected = executor(&self.executor).collect(ticket, &mut self.out);
        self.engine.heat_control().rest(start.elapsed());
        if let Err(error) = collected {
            // There is no batch in flight any more.
            self.windows.0.clear();
            return Err(error.into());
        }
        let n_before = self.tokens.len();
        self.tokens.extend_from_slice(&ids);
        if let Some((sink, _)) = &self.sink {
            sink.take(&self.tokens, TappedRows::new(&self.out, 0..ids.len()));
        }
        let bad = self.out.first_not_finite(0..ids.len());
        if let Some(row) = bad.filter(|&row| row < n_known) {
            self.truncate(n_before)?;
            return Err(self.engine.not_finite(n_before + row));
        }
        let end = bad.unwrap_or(ids.len());
        self.rows = LogitRows {
            n_before,
            first: n_known - 1,
            end,
        };
        self.truncate(n_before + end)?;
        self.last = Some(end - 1);
        Ok(end - n_known)
    }

    /// Takes all windows in flight back.
    pub(crate) fn take_windows_back(&mut self) -> Result<(), Error> {
        if self.windows.is_empty() {
            return Ok(());
        }
        let mut executor = executor(&self.executor);
        let n_cached = self.tokens.len() - self.n_evicted;
        // A model whose state cannot return to a token has no windows.
        executor.truncate(self.seq, n_cached)?;
        for Window { ticket, .. } in std::mem::take(&mut self.windows.0) {
            let nothing = &mut atta_model::Output::default();
            executor.collect(ticket, nothing)?;
        }
        Ok(())
    }
}
