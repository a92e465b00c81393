//! The state of a draft head: how much of a text it has seen, and the hidden states that it has not
//! read yet.
//!
//! Row `i` of the head has token `i + 1` of the text and the hidden state of token `i`, so the last
//! token that the target has evaluated waits for the one behind it. The one idea: rows are
//! evaluated when a draft is asked for, or when many wait, and by then the text is settled. A text
//! that does not continue the one before begins anew where it is, with fewer tokens to look back
//! to; rotations depend on distances only.

use atta_model::{Batch, Executor, Output, SeqId, Want, spec::Tap};

use super::{Draft, draft_model::sure_token, hidden::TappedRows};
use crate::Error;

/// Rows that wait before some are evaluated without a draft.
const MAX_WAITING: usize = 64;
/// Hidden states of evaluated rows that are kept, for texts that go back a little.
const N_KEPT: usize = 32;

/// Rows of a batch of a draft head.
pub(super) const N_BATCH: usize = MAX_WAITING;

/// Hidden states that are kept at most.
pub(super) const MAX_STATES: usize = 2 * MAX_WAITING + 2 * N_KEPT;

/// A draft head that follows a text.
pub(super) struct HeadState {
    executor: Box<dyn Executor>,
    seq: SeqId,
    own_tap: Tap,
    /// Numbers of the target's hidden states of a token.
    d_states: usize,
    /// The place in the text of the first token.
    start: usize,
    /// Tokens from there on that the target has evaluated.
    tokens: Vec<u32>,
    /// Rows that were evaluated.
    n_rows: usize,
    /// Hidden states of the last tokens, `[n, d_states]`.
    states: Vec<f32>,
    batch: Batch,
    out: Output,
}

impl HeadState {
    pub(super) fn new(
        mut executor: Box<dyn Executor>,
        own_tap: Tap,
        d_states: usize,
    ) -> Result<Self, Error> {
        Ok(Self {
            seq: executor.new_seq()?,
            executor,
            own_tap,
            d_states,
            start: 0,
            tokens: Vec::new(),
            n_rows: 0,
            states: Vec::new(),
            batch: Batch::default(),
            out: Output::default(),
        })
    }

    /// Takes hidden states of the last tokens of a text.
    pub(super) fn take(&mut self, text: &[u32], rows: &TappedRows<'_>) -> Result<(), Error> {
        let at = text.len() - rows.n();
        self.follow(&text[..at])?;
        for (i, &token) in text[at..].iter().enumerate() {
            self.tokens.push(token);
            self.states.extend_from_slice(rows.row(i));
            if self.tokens.len() - self.n_rows > 2 * MAX_WAITING {
                self.evaluate()?;
            }
        }
        Ok(())
    }

    /// Drafts what may follow a text, whose last tokens the target has not evaluated; `guessed` are
    /// the tokens of the logits, if they are not those of their indices.
    pub(super) fn draft(
        &mut self,
        text: &[u32],
        n_max: usize,
        guessed: Option<&[u32]>,
        draft: &mut Draft,
    ) -> Result<(), Error> {
        let n_same = self.n_same(text);
        if n_same < self.tokens.len() {
            self.follow(&text[..text.len().min(self.start + n_same)])?;
        }
        let pending = text
            .get(self.start + self.tokens.len()..)
            .unwrap_or_default();
        let is_near = !pending.is_empty() && pending.len() <= MAX_WAITING;
        let n_needed = self.tokens.len() + pending.len() + n_max;
        if self.tokens.is_empty() || !is_near {
            return Ok(());
        }
        if n_needed > self.executor.info().n_ctx {
            return self.restart_behind();
        }
        self.evaluate()?;
        let drafted = self.draft_behind(pending, n_max, guessed, draft);
        self.cut(self.n_rows)?;
        drafted
    }

    /// Evaluates a draft behind the pending tokens: the first of them has a hidden state of the
    /// target, the others the head's own.
    fn draft_behind(
        &mut self,
        pending: &[u32],
        n_max: usize,
        guessed: Option<&[u32]>,
        draft: &mut Draft,
    ) -> Result<(), Error> {
        let mut pos = self.n_rows;
        self.batch.clear();
        let state = &self.states[self.states.len() - self.d_states..];
        self.batch
            .push_tapped(self.seq, pos, pending[0], state, Want::Logits);
        self.step()?;
        for &token in &pending[1..] {
            pos += 1;
            self.carry(pos, token)?;
        }
        while let Some(next) = sure_token(self.out.logits(0)) {
            let known = guessed.map_or(Some(next), |ids| ids.get(next as usize).copied());
            let Some(token) = known else { break };
            draft.tokens.push(token);
            if draft.tokens.len() == n_max {
                break;
            }
            pos += 1;
            self.carry(pos, token)?;
        }
        Ok(())
    }

    /// Evaluates a token with the head's own hidden state, that of the last row.
    fn carry(&mut self, pos: usize, token: u32) -> Result<(), Error> {
        self.batch.clear();
        let state = self.out.tapped(0);
        self.batch
            .push_carried(self.seq, pos, token, state, Want::Logits);
        self.step()
    }

    /// Evaluates the batch, whose row wants logits.
    fn step(&mut self) -> Result<(), Error> {
        self.batch.taps.push(self.own_tap);
        Ok(self.executor.step(&self.batch, &mut self.out)?)
    }

    /// Evaluates all rows whose tokens are known.
    fn evaluate(&mut self) -> Result<(), Error> {
        while self.n_rows + 1 < self.tokens.len() {
            let n = (self.tokens.len() - 1 - self.n_rows).min(N_BATCH);
            if self.n_rows + n > self.executor.info().n_ctx {
                return self.restart_behind();
            }
            self.batch.clear();
            for pos in self.n_rows..self.n_rows + n {
                let at = (pos - self.first_state()) * self.d_states;
                let state = &self.states[at..at + self.d_states];
                let token = self.tokens[pos + 1];
                self.batch
                    .push_tapped(self.seq, pos, token, state, Want::Nothing);
            }
            self.executor.step(&self.batch, &mut self.out)?;
            self.n_rows += n;
        }
        let n_read = self.n_rows.saturating_sub(self.first_state());
        if n_read >= 2 * N_KEPT {
            self.states.drain(..(n_read - N_KEPT) * self.d_states);
        }
        Ok(())
    }

    /// The first token whose hidden state is kept.
    fn first_state(&self) -> usize {
        self.tokens.len() - self.states.len() / self.d_states
    }

    /// Tokens from the start on that a text has, too.
    fn n_same(&self, text: &[u32]) -> usize {
        let text = text.get(self.start..).unwrap_or_default();
        let pairs = self.tokens.iter().zip(text);
        pairs.take_while(|(a, b)| a == b).count()
    }

    /// Brings the head to the end of a text, or begins anew there.
    fn follow(&mut self, text: &[u32]) -> Result<(), Error> {
        let n = self.n_same(text);
        if self.start + n < text.len() || text.len() < self.start {
            return self.restart(text.len());
        }
        // The row of the last token is not there without the token behind it.
        let n_rows = self.n_rows.min(n.saturating_sub(1));
        if n > 0 && self.first_state() > n_rows {
            return self.restart(text.len());
        }
        let n_states = n - self.first_state().min(n);
        self.states.truncate(n_states * self.d_states);
        self.tokens.truncate(n);
        self.cut(n_rows)
    }

    /// Removes rows.
    fn cut(&mut self, n_rows: usize) -> Result<(), Error> {
        let n_left = self.executor.truncate(self.seq, n_rows)?;
        self.n_rows = n_rows;
        match n_left == n_rows {
            true => Ok(()),
            // Windows have freed what the rows saw.
            false => self.restart(self.start + self.tokens.len()),
        }
    }

    /// Begins anew with the last token, where the context is full.
    fn restart_behind(&mut self) -> Result<(), Error> {
        let last = self.tokens.last().copied();
        let state = self.states.split_off(self.states.len() - self.d_states);
        self.restart(self.start + self.tokens.len() - 1)?;
        self.tokens.extend(last);
        self.states = state;
        Ok(())
    }

    /// Begins anew at a place of the text.
    fn restart(&mut self, start: usize) -> Result<(), Error> {
        self.start = start;
        self.tokens.clear();
        self.states.clear();
        self.n_rows = 0;
        self.executor.truncate(self.seq, 0)?;
        Ok(())
    }
}
