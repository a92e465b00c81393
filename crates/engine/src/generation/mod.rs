//! Generation: one text while it is written. Selects tokens, keeps to a constraint, rolls back tool
//! calls, ends at stop strings, and emits events.
//!
//! Knows no session and no executor. The one idea: the owner of the sequence evaluates the
//! [input](Generation::take_input), hands the logits to [`advance`](Generation::advance), and takes
//! [events](Generation::next_event); so a session and the scheduler write texts by the same code.

mod constraint_state;
mod drafts;
mod emitter;
mod event;
mod generate;
mod options;
mod probe;
mod selector;
mod stop;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use atta_tokenizer::Tokenizer;

pub use event::{Event, FinishReason, Summary};
pub use generate::Generate;
#[cfg(feature = "cache")]
pub(crate) use generate::Saver;
pub use options::GenerateOptions;
pub use stop::{StopError, StopPiece, StopStrings};

use crate::{Engine, Error, LogProbs};
use constraint_state::{ConstraintState, RolledBack};
use emitter::{IncompleteCharacter, TextEmitter, TextToken};
use selector::{Selected, TokenSelector};

/// The results of a step.
#[derive(Clone, Copy)]
pub(crate) struct StepOutput<'a> {
    /// Logits after the last tokens of the sequence, one row of `[n_vocab]` for each. The last
    /// `logits.len() - 1` tokens are a draft, which no earlier step has selected.
    pub(crate) logits: &'a [&'a [f32]],
    /// All tokens of the sequence, the draft included.
    pub(crate) tokens: &'a [u32],
    /// Positions that are left behind them.
    pub(crate) room: usize,
}

/// What the sequence needs before the next step's logits.
#[derive(Debug, PartialEq)]
pub(crate) struct StepInput<'a> {
    /// Number of tokens to remove from its end.
    pub(crate) rollback: usize,
    /// Tokens to append then.
    pub(crate) tokens: &'a [u32],
}

/// How a step went.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Verdict {
    /// Tokens of the draft that are in the text.
    pub(crate) n_accepted: usize,
    /// Steps that plain decoding would have made for the same tokens.
    pub(crate) n_plain_steps: usize,
    /// Whether a call was rolled back whose tokens are evaluated.
    pub(crate) was_rolled_back: bool,
}

/// A text while it is written.
pub(crate) struct Generation {
    tokenizer: Arc<Tokenizer>,
    selector: TokenSelector,
    constraint: ConstraintState,
    emitter: TextEmitter,
    n_predict: usize,
    n_generated: usize,
    n_closing_bytes: usize,
    /// The last tokens of the text, which are not evaluated.
    pending: Vec<u32>,
    /// Evaluated tokens that are no part of the text: a call that was rolled back, and the rest of
    /// a draft.
    rollback: usize,
    /// The last tokens of the text, if they begin a call that may be rolled back.
    tentative: Vec<TextToken>,
    /// Why the text ended; events may be left.
    finish_reason: Option<FinishReason>,
    /// Whether the events of its end are in the queue.
    is_finished: bool,
}

impl Generation {
    pub(crate) fn new(engine: &Engine, options: &GenerateOptions) -> Result<Self, Error> {
        engine.check_writes()?;
        let tokenizer = engine.tokenizer();
        Ok(Self {
            selector: TokenSelector::new(engine, options)?,
            constraint: ConstraintState::new(engine, options)?,
            emitter: TextEmitter::new(tokenizer, options)?,
            tokenizer: Arc::clone(tokenizer),
            n_predict: options.n_predict,
            n_generated: 0,
            n_closing_bytes: 0,
            pending: Vec::new(),
            rollback: 0,
            tentative: Vec::new(),
            finish_reason: None,
            is_finished: false,
        })
    }

    /// Takes the input of the next step. Before the first step it is empty.
    pub(crate) fn take_input(&mut self) -> StepInput<'_> {
        StepInput {
            rollback: std::mem::take(&mut self.rollback),
            tokens: &self.pending,
        }
    }

    pub(crate) fn pending(&self) -> &[u32] {
        &self.pending
    }

    /// Takes the next event.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.emitter.next_event()
    }

    /// Number of tokens of the text, including an end-of-generation token.
    pub(crate) fn n_generated(&self) -> usize {
        self.n_generated
    }

    /// Maximum tokens of a draft that can become part of the text: a step adds another one.
    pub(crate) fn max_draft(&self) -> usize {
        let n_left = self.n_predict.saturating_sub(self.n_generated);
        n_left.saturating_sub(1)
    }

    /// Fits a draft of what follows the pending tokens to the constraint: ends it where plain
    /// decoding selects no such token, and adds those that the constraint forces there, up to `max`
    /// tokens in all. Returns for each token whether a step of plain decoding selects it.
    pub(crate) fn fit_draft(&self, draft: &mut Vec<u32>, max: usize) -> Vec<bool> {
        self.constraint.fit(draft, max)
    }

    /// Bytes behind the last token that complete a constrained text.
    pub(crate) fn n_closing_bytes(&self) -> usize {
        self.n_closing_bytes
    }

    /// Why the text ended; `None` while it goes on.
    pub(crate) fn finish_reason(&self) -> Option<FinishReason> {
        self.finish_reason
    }

    /// The stop string that has ended the text.
    pub(crate) fn stop_found(&self) -> Option<&str> {
        self.emitter.stop_found()
    }

    /// Ends the text if it has its maximum length, or if its pending tokens do not fit; `room` is
    /// the number of positions behind the evaluated tokens.
    pub(crate) fn limit(&mut self, room: usize) {
        let room = room.saturating_add(self.rollback);
        if self.n_generated == self.n_predict || self.pending.len() > room {
            self.cut();
        }
    }

    /// Ends the text as if it had reached its maximum length.
    pub(crate) fn cut(&mut self) {
        self.finish_reason.get_or_insert(FinishReason::Length);
    }

    /// Selects the next token, and the tokens that a constraint forces behind it. Goes on with the
    /// draft as long as it agrees with the selected tokens; the rest of the draft is rolled back.
    ///
    /// The sampler, the constraint and the events see exactly what they see without a draft.
    pub(crate) fn advance(&mut self, output: StepOutput<'_>) -> Result<Verdict, Error> {
        let n_before = output.tokens.len() + 1 - output.logits.len();
        let mut n_verified = n_before;
        let mut verdict = Verdict::default();
        loop {
            verdict.n_plain_steps += 1;
            let (verified, draft) = output.tokens.split_at(n_verified);
            self.rollback = draft.len();
            self.advance_by(
                output.logits[n_verified - n_before],
                verified,
                output.room.saturating_add(draft.len()),
            )?;
            verdict.was_rolled_back = self.rollback > draft.len();
            let is_last = self.finish_reason.is_some() || self.n_generated == self.n_predict;
            if verdict.was_rolled_back || is_last {
                return Ok(verdict);
            }
            let agreed = self.pending.iter().zip(draft).take_while(|(a, b)| a == b);
            let n_agreed = agreed.count();
            self.rollback -= n_agreed;
            verdict.n_accepted += n_agreed;
            if n_agreed < self.pending.len() {
                self.pending.drain(..n_agreed);
                return Ok(verdict);
            }
            n_verified += n_agreed;
        }
    }

    /// Advances by one row of logits, `[n_vocab]`, after `tokens`.
    fn advance_by(&mut self, logits: &[f32], tokens: &[u32], room: usize) -> Result<(), Error> {
        self.pending.clear();
        let n_before = self.rollback;
        let Some(Selected { token, logprobs }) = self.select(logits, tokens)? else {
            self.finish_reason = Some(FinishReason::Stop);
            return Ok(());
        };
        if self.tokenizer.is_eog(token) && self.constraint.may_end() {
            self.n_generated += 1;
            self.pending.push(token);
            self.finish_reason = Some(FinishReason::Stop);
            return Ok(());
        }
        self.accept(token, logprobs);
        let n_rolled_back = self.rollback - n_before;
        let room = room.saturating_add(n_rolled_back).saturating_sub(1);
        let max = room.min(self.n_predict - self.n_generated);
        let forced = self.constraint.accept(token, max)?;
        if !self.constraint.is_tentative() {
            self.emit_tentative();
        }
        for token in forced {
            self.accept(token, None);
        }
        if self.constraint.is_complete() {
            self.finish_reason.get_or_insert(FinishReason::Stop);
        }
        Ok(())
    }

    /// Selects a token: after `tokens`, or in front of a call that is rolled back.
    fn select(&mut self, logits: &[f32], tokens: &[u32]) -> Result<Option<Selected>, Error> {
        let selected = self.selector.select(logits, tokens, &mut self.constraint)?;
        if let Some(RolledBack { n_tokens, logits }) =
            self.constraint.roll_back(self.n_generated)?
        {
            self.tentative.clear();
            self.n_generated -= n_tokens;
            self.rollback += n_tokens;
            let tokens = &tokens[..tokens.len() - n_tokens];
            return self.selector.select(&logits, tokens, &mut self.constraint);
        }
        if let Some(selected) = &selected {
            self.constraint.probe(selected.token, logits);
        }
        Ok(selected)
    }

    /// Appends a token to the text, unless the text has ended.
    fn accept(&mut self, id: u32, logprobs: Option<LogProbs>) {
        if self.finish_reason.is_some() {
            return;
        }
        self.n_generated += 1;
        self.pending.push(id);
        let token = TextToken {
            n: self.n_generated,
            id,
            logprobs,
        };
        if self.constraint.is_tentative() {
            self.tentative.push(token);
            self.emitter.emit_tentative();
        } else if self.emitter.emit(token) {
            self.finish_reason = Some(FinishReason::Stop);
        }
    }

    /// Emits the tentative tokens; those behind a stop string are dropped.
    fn emit_tentative(&mut self) {
        let mut tokens = std::mem::take(&mut self.tentative).into_iter();
        if tokens.any(|token| self.emitter.emit(token)) {
            self.finish_reason = Some(FinishReason::Stop);
        }
        self.drop_tokens(tokens.len());
    }

    /// Drops the last `n` tokens of the text.
    fn drop_tokens(&mut self, n: usize) {
        let n_pending = n.min(self.pending.len());
        self.pending.truncate(self.pending.len() - n_pending);
        self.rollback += n - n_pending;
        self.n_generated -= n;
    }

    /// Emits the rest of a text that has ended, and completes a constrained one that was cut.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.is_finished, true) {
            return Ok(());
        }
        self.constraint.commit();
        self.emit_tentative();
        if self.finish_reason == Some(FinishReason::Length) {
            let closing = self.constraint.close(self.emitter.decoder())?;
            self.n_closing_bytes = closing.len();
            self.emitter.emit_closing(closing, self.n_generated);
        }
        let incomplete = if self.constraint.is_active() {
            IncompleteCharacter::Drop
        } else {
            IncompleteCharacter::Emit
        };
        self.emitter.flush(incomplete, self.n_generated);
        Ok(())
    }

    /// Ends the text at the last event that was taken: tokens without an event are dropped. A text
    /// that has ended there by itself stays as it is.
    pub(crate) fn interrupt(&mut self) {
        if self.is_finished && !self.emitter.has_events() {
            return;
        }
        self.emitter.drop_events();
        let n_dropped = self.n_generated - self.emitter.n_delivered();
        if n_dropped > 0 || self.stop_found().is_none() {
            self.tentative.clear();
            self.drop_tokens(n_dropped);
            self.n_closing_bytes = 0;
            self.finish_reason = Some(FinishReason::Interrupted);
        }
        self.is_finished = true;
    }
}
