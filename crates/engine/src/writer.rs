//! A text while it is written: which token is next, what must follow it, and what of it is certain enough to be said.
//!
//! Knows no session and no executor. The one idea: whoever has the logits after the last token calls [`Writer::go_on`],
//! and evaluates what is [pending](Writer::pending) then; so one text alone and many in one batch are written by the same
//! code.

use std::{ops::ControlFlow, sync::Arc};

use atta_tokenizer::{StreamDecoder, Tokenizer};

use crate::{
    Engine, Error, Event, FinishReason, GenerateOptions, chooser::Chooser, generate::OnEvent, rules::Rules,
    stop::StopStrings,
};

/// What has been written, as its sequence knows it.
#[derive(Clone, Copy)]
pub(crate) struct Past<'a> {
    /// After the last token, `[n_vocab]`.
    pub(crate) logits: &'a [f32],
    /// All tokens that were evaluated.
    pub(crate) tokens: &'a [u32],
    /// How many more have a place.
    pub(crate) room: usize,
}

/// One text under way.
pub(crate) struct Writer {
    tokenizer: Arc<Tokenizer>,
    chooser: Chooser,
    rules: Rules,
    decoder: StreamDecoder<Arc<Tokenizer>>,
    stop: StopStrings,
    n_predict: usize,
    n_generated: usize,
    /// Chosen and not evaluated.
    pending: Vec<u32>,
}

impl Writer {
    pub(crate) fn new(engine: &Engine, options: &GenerateOptions) -> Result<Self, Error> {
        let tokenizer = engine.shared_tokenizer();
        Ok(Self {
            chooser: Chooser::new(engine, options)?,
            rules: Rules::new(engine, options)?,
            decoder: StreamDecoder::after_prompt(Arc::clone(tokenizer)).with_control(options.control),
            tokenizer: Arc::clone(tokenizer),
            stop: StopStrings::new(options.stop.clone())?,
            n_predict: options.n_predict,
            n_generated: 0,
            pending: Vec::new(),
        })
    }

    /// The tokens to be evaluated before [`go_on`](Self::go_on); none before its first call.
    pub(crate) fn pending(&self) -> &[u32] {
        &self.pending
    }

    pub(crate) fn into_pending(self) -> Vec<u32> {
        self.pending
    }

    /// Tokens chosen, one that ended the text included.
    pub(crate) fn n_generated(&self) -> usize {
        self.n_generated
    }

    /// The stop string that has ended the text.
    #[cfg(feature = "batch")]
    pub(crate) fn stop_found(&self) -> Option<&str> {
        self.stop.found()
    }

    /// Whether the text is as long as it may be, where so many tokens have a place.
    pub(crate) fn is_at_length(&self, room: usize) -> bool {
        self.n_generated == self.n_predict || self.pending.len() > room
    }

    /// Chooses a token after those that were pending, and says its text, and that of the tokens that must follow it; a reason if
    /// there is nothing to follow.
    pub(crate) fn go_on(&mut self, past: Past<'_>, on_event: &mut OnEvent<'_>) -> Result<Option<FinishReason>, Error> {
        self.pending.clear();
        let Some(token) = self.chooser.choose(past.logits, past.tokens, &mut self.rules)? else {
            return Ok(Some(FinishReason::Stop));
        };
        if self.tokenizer.is_eog(token) && self.rules.may_end() {
            self.n_generated += 1;
            self.pending.push(token);
            return Ok(Some(FinishReason::Stop));
        }
        let mut finished = self.take(token, Origin::Chosen, on_event);
        let room = past.room.saturating_sub(self.pending.len());
        let follow = self.rules.follow(token, room.min(self.n_predict - self.n_generated))?;
        for token in follow {
            finished = finished.or_else(|| self.take(token, Origin::Forced, on_event));
        }
        Ok(finished.or_else(|| self.rules.is_complete().then_some(FinishReason::Stop)))
    }

    /// Says the text of a token that was chosen or had to be.
    fn take(&mut self, token: u32, origin: Origin, on_event: &mut OnEvent<'_>) -> Option<FinishReason> {
        self.n_generated += 1;
        self.pending.push(token);
        let piece = self.stop.push(&self.decoder.push(token));
        let flow = say(piece.text, on_event);
        let (n, logprobs) = (self.n_generated, self.chooser.logprobs().filter(|_| origin == Origin::Chosen));
        match (piece.stopped, flow.is_continue() && on_event(Event::Token { n, id: token, logprobs }).is_continue()) {
            (true, _) => Some(FinishReason::Stop),
            (false, false) => Some(FinishReason::Interrupted),
            (false, true) => None,
        }
    }

    /// Makes a text complete that has reached its length, and says what was held back; why it has ended, and how many bytes were
    /// added.
    pub(crate) fn end(
        &mut self,
        reason: FinishReason,
        on_event: &mut OnEvent<'_>,
    ) -> Result<(FinishReason, usize), Error> {
        let n_closing = if reason == FinishReason::Length { self.close(on_event)? } else { 0 };
        let flow = self.flush(reason, on_event);
        Ok((if flow.is_break() { FinishReason::Interrupted } else { reason }, n_closing))
    }

    fn close(&mut self, on_event: &mut OnEvent<'_>) -> Result<usize, Error> {
        let text = self.rules.close(&mut self.decoder)?;
        // A generation that has ended cannot be interrupted; nor is what must end it looked through for stop strings.
        let _ = say(self.stop.flush(), on_event);
        let _ = say(&text, on_event);
        Ok(text.len())
    }

    /// Says what was held back; after a stop string that is nothing.
    fn flush(&mut self, reason: FinishReason, on_event: &mut OnEvent<'_>) -> ControlFlow<()> {
        if reason == FinishReason::Interrupted {
            return ControlFlow::Continue(());
        }
        let rest = self.decoder.flush();
        if !self.rules.drops_half_characters() {
            say(self.stop.push(&rest).text, on_event)?;
        }
        say(self.stop.flush(), on_event)
    }
}

/// Who has said that a token is next.
#[derive(Clone, Copy, PartialEq)]
enum Origin {
    /// The model and the sampler.
    Chosen,
    /// A constraint, which left nothing else.
    Forced,
}

/// Hands text to the caller, if there is any.
fn say(text: &str, on_event: &mut OnEvent<'_>) -> ControlFlow<()> {
    if text.is_empty() { ControlFlow::Continue(()) } else { on_event(Event::Text(text)) }
}
