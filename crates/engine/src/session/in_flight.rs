//! Batches of a session that an executor computes at the same time.
//!
//! Knows no prompt and no text. The one idea: the tokens of a batch are in the session as soon as
//! it is submitted, and leave it again if the batch, or one before it, fails.

use std::{collections::VecDeque, ops::Range, sync::Arc, time::Instant};

#[cfg(feature = "cache")]
use atta_model::Error as ModelError;
use atta_model::{Ticket, Want};

use super::{LogitRows, Session, executor};
use crate::{Error, TappedRows};

/// A batch in flight.
pub(super) struct InFlight {
    ticket: Ticket,
    /// Its tokens, as indices into those of the session.
    tokens: Range<usize>,
}

/// Takes the tokens of a batch, and of all behind it, out of the session, unless it is told to
/// forget them: after an error, and after a panic.
struct Undo<'a> {
    tokens: &'a mut Vec<u32>,
    in_flight: &'a mut VecDeque<InFlight>,
    n_left: usize,
}

impl Undo<'_> {
    fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        self.in_flight.clear();
        self.tokens.truncate(self.n_left);
    }
}

impl Session {
    /// Submits tokens as one batch, with a checkpoint behind token `checkpoint` of them.
    pub(super) fn submit(
        &mut self,
        ids: &[u32],
        want: impl Fn(usize) -> Want,
        checkpoint: Option<usize>,
    ) -> Result<(), Error> {
        #[cfg(feature = "cache")]
        if self.is_suspended() {
            return Err(ModelError::Suspended.into());
        }
        self.take_windows_back()?;
        self.fill_batch(ids, want, checkpoint);
        self.last = None;
        self.rows = LogitRows::default();
        let submitted = executor(&self.executor).submit(&self.batch);
        let ticket = submitted.inspect_err(|_| self.drain())?;
        let start = self.tokens.len();
        self.tokens.extend_from_slice(ids);
        let tokens = start..self.tokens.len();
        self.in_flight.push_back(InFlight { ticket, tokens });
        Ok(())
    }

    /// Number of batches of a prompt that stay in flight while the next one is prepared. Another
    /// session on the executor must find none, and a shift neither.
    pub(super) fn max_in_flight(&self) -> usize {
        if self.shifts() || Arc::strong_count(&self.executor) > 1 {
            return 0;
        }
        self.executor().depth().saturating_sub(1)
    }

    /// Number of tokens in flight.
    pub(crate) fn n_in_flight(&self) -> usize {
        self.in_flight.iter().map(|batch| batch.tokens.len()).sum()
    }

    /// Waits for all batches in flight. After an error the tokens of the batch that failed, and all
    /// behind them, are no longer in the session. Windows are taken back.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        self.settle_to(0)?;
        self.take_windows_back()
    }

    /// Waits until at most `n` batches are in flight.
    pub(super) fn settle_to(&mut self, n: usize) -> Result<(), Error> {
        while self.in_flight.len() > n {
            let tokens = self.collect()?;
            if let Some(row) = self.out.first_not_finite(0..tokens.len()) {
                // Those behind it go on where numbers are not finite.
                self.drain();
                self.truncate(tokens.start)?;
                return Err(self.engine.not_finite(tokens.start + row));
            }
        }
        Ok(())
    }

    /// Waits for all batches in flight where an error is known already, which counts.
    fn drain(&mut self) {
        while !self.in_flight.is_empty() {
            let _ = self.collect();
        }
    }

    /// Waits for the oldest batch in flight, if there is one, and returns its tokens.
    pub(super) fn collect(&mut self) -> Result<Range<usize>, Error> {
        let Some(InFlight { ticket, tokens }) = self.in_flight.pop_front() else {
            return Ok(0..0);
        };
        let undo = Undo {
            tokens: &mut self.tokens,
            in_flight: &mut self.in_flight,
            n_left: tokens.start,
        };
        let start = Instant::now();
        executor(&self.executor).collect(ticket, &mut self.out)?;
        undo.forget();
        self.engine.heat_control().rest(start.elapsed());
        if let Some((sink, _)) = &self.sink {
            let rows = TappedRows::new(&self.out, 0..tokens.len());
            sink.take(&self.tokens[..tokens.end], rows);
        }
        self.rows = LogitRows {
            n_before: tokens.start,
            first: tokens.len(),
            end: tokens.len(),
        };
        Ok(tokens)
    }
}
