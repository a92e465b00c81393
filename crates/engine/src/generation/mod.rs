//! A text while it is written: which token is next, what must follow it, and what of it is certain
//! enough to be said.
//!
//! Knows no session and no executor. The one idea: whoever has the logits after the last token
//! calls [`Writer::go_on`], and evaluates what is [pending](Writer::pending) then; so one text
//! alone and many in one batch are written by the same code.

use std::{ops::ControlFlow, sync::Arc};

use atta_tokenizer::{StreamDecoder, Tokenizer};

pub(crate) mod constraint_state;
pub(crate) mod generate;

pub(crate) mod probe;
mod selector;
pub(crate) mod stop;

use constraint_state::{Rules, TakenBack};
use generate::OnEvent;
use selector::Chooser;
use stop::StopStrings;

use crate::{Engine, Error, Event, FinishReason, GenerateOptions, LogProbs};

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
    speech: Speech,
    n_predict: usize,
    n_generated: usize,
    /// Chosen and not evaluated.
    pending: Vec<u32>,
    /// Not told of yet: a call that may be taken back.
    held: Vec<Held>,
    /// Tokens in front of those that are pending that were evaluated and are no part of the text
    /// any more.
    n_taken_back: usize,
}

/// A token as it is told of.
struct Held {
    /// Which one of the text, from 1.
    n: usize,
    id: u32,
    logprobs: Option<LogProbs>,
}

impl Writer {
    pub(crate) fn new(engine: &Engine, options: &GenerateOptions) -> Result<Self, Error> {
        let tokenizer = engine.tokenizer();
        Ok(Self {
            chooser: Chooser::new(engine, options)?,
            rules: Rules::new(engine, options)?,
            speech: Speech {
                decoder: StreamDecoder::after_prompt(Arc::clone(tokenizer))
                    .with_control(options.control),
                stop: StopStrings::new(options.stop.clone())?.with_tokens_of(tokenizer),
            },
            tokenizer: Arc::clone(tokenizer),
            n_predict: options.n_predict,
            n_generated: 0,
            pending: Vec::new(),
            held: Vec::new(),
            n_taken_back: 0,
        })
    }

    /// The tokens to be evaluated before [`go_on`](Self::go_on), behind those that were not
    /// [cut](Self::cut); none before its first call.
    pub(crate) fn pending(&self) -> &[u32] {
        &self.pending
    }

    pub(crate) fn into_pending(self) -> Vec<u32> {
        self.pending
    }

    /// How many tokens of those that were evaluated have been taken back since this was asked last,
    /// by [`go_on`](Self::go_on) or [`end`](Self::end): the sequence has to be cut by so many,
    /// which nobody was told of.
    pub(crate) fn cut(&mut self) -> usize {
        std::mem::take(&mut self.n_taken_back)
    }

    /// Tokens chosen, one that ended the text included, those that were taken back not.
    pub(crate) fn n_generated(&self) -> usize {
        self.n_generated
    }

    /// The stop string that has ended the text.
    #[cfg(feature = "batch")]
    pub(crate) fn stop_found(&self) -> Option<&str> {
        self.speech.stop.found()
    }

    /// Whether the text is as long as it may be, where so many tokens have a place.
    pub(crate) fn is_at_length(&self, room: usize) -> bool {
        self.n_generated == self.n_predict || self.pending.len() > room
    }

    /// Chooses a token after those that were pending, and says its text, and that of the tokens
    /// that must follow it; a reason if there is nothing to follow.
    pub(crate) fn go_on(
        &mut self,
        past: Past<'_>,
        on_event: &mut OnEvent<'_>,
    ) -> Result<Option<FinishReason>, Error> {
        self.pending.clear();
        let (chosen, room) = self.choose(past)?;
        let Some(token) = chosen else {
            return Ok(Some(FinishReason::Stop));
        };
        if self.tokenizer.is_eog(token) && self.rules.may_end() {
            self.n_generated += 1;
            self.pending.push(token);
            return Ok(Some(FinishReason::Stop));
        }
        let mut finished = self.take(token, Origin::Chosen, on_event);
        let room = room.saturating_sub(self.pending.len());
        let follow = self
            .rules
            .follow(token, room.min(self.n_predict - self.n_generated))?;
        if !self.rules.holds() {
            finished = finished.or_else(|| self.tell_held(on_event));
        }
        for token in follow {
            finished = finished.or_else(|| self.take(token, Origin::Forced, on_event));
        }
        Ok(finished.or_else(|| self.rules.is_complete().then_some(FinishReason::Stop)))
    }

    /// Chooses a token, and how many more have a place from there: after the last one, or in front
    /// of a call that is taken back.
    fn choose(&mut self, past: Past<'_>) -> Result<(Option<u32>, usize), Error> {
        let chosen = self
            .chooser
            .choose(past.logits, past.tokens, &mut self.rules)?;
        if let Some(TakenBack { n_tokens, logits }) = self.rules.take_back(self.n_generated)? {
            self.held.clear();
            self.n_generated -= n_tokens;
            self.n_taken_back += n_tokens;
            let tokens = &past.tokens[..past.tokens.len() - n_tokens];
            return Ok((
                self.chooser.choose(&logits, tokens, &mut self.rules)?,
                past.room.saturating_add(n_tokens),
            ));
        }
        if let Some(token) = chosen {
            self.rules.begin(token, past.logits);
        }
        Ok((chosen, past.room))
    }

    /// Says the text of a token that was chosen or had to be, if that is certain.
    fn take(
        &mut self,
        token: u32,
        origin: Origin,
        on_event: &mut OnEvent<'_>,
    ) -> Option<FinishReason> {
        self.n_generated += 1;
        self.pending.push(token);
        let (n, logprobs) = (
            self.n_generated,
            self.chooser.logprobs().filter(|_| origin == Origin::Chosen),
        );
        if self.rules.holds() {
            self.held.push(Held {
                n,
                id: token,
                logprobs: logprobs.cloned(),
            });
            return on_event(Event::Held)
                .is_break()
                .then_some(FinishReason::Interrupted);
        }
        self.speech.tell(n, token, logprobs, on_event)
    }

    /// Takes back what nobody was told of.
    fn drop_held(&mut self) {
        let n_pending = self.pending.len().min(self.held.len());
        self.pending.truncate(self.pending.len() - n_pending);
        self.n_taken_back += self.held.len() - n_pending;
        self.n_generated -= self.held.len();
        self.held.clear();
    }

    /// Says what was held back; if the text ends on the way, what is left of it is taken back.
    fn tell_held(&mut self, on_event: &mut OnEvent<'_>) -> Option<FinishReason> {
        let mut held = std::mem::take(&mut self.held).into_iter();
        let ended = held.find_map(|held| {
            self.speech
                .tell(held.n, held.id, held.logprobs.as_ref(), on_event)
        });
        self.held.extend(held);
        self.drop_held();
        ended
    }

    /// Makes a text complete that has reached its length, and says what was held back; why it has
    /// ended, and how many bytes were added.
    pub(crate) fn end(
        &mut self,
        reason: FinishReason,
        on_event: &mut OnEvent<'_>,
    ) -> Result<(FinishReason, usize), Error> {
        self.rules.settle();
        let reason = match reason {
            FinishReason::Interrupted => {
                self.drop_held();
                reason
            }
            FinishReason::Stop | FinishReason::Length => self.tell_held(on_event).unwrap_or(reason),
        };
        let n_closing = if reason == FinishReason::Length {
            self.close(on_event)?
        } else {
            0
        };
        let flow = self.flush(reason, on_event);
        Ok((
            if flow.is_break() {
                FinishReason::Interrupted
            } else {
                reason
            },
            n_closing,
        ))
    }

    fn close(&mut self, on_event: &mut OnEvent<'_>) -> Result<usize, Error> {
        let text = self.rules.close(&mut self.speech.decoder)?;
        // A generation that has ended cannot be interrupted; nor is what must end it looked through
        // for stop strings.
        let _ = say(self.speech.stop.flush(), on_event);
        let _ = say(&text, on_event);
        Ok(text.len())
    }

    /// Says what was held back; after a stop string that is nothing.
    fn flush(&mut self, reason: FinishReason, on_event: &mut OnEvent<'_>) -> ControlFlow<()> {
        if reason == FinishReason::Interrupted {
            return ControlFlow::Continue(());
        }
        let Speech { decoder, stop } = &mut self.speech;
        let rest = decoder.flush();
        if !self.rules.drops_half_characters() {
            say(stop.push(&rest).text, on_event)?;
        }
        say(stop.flush(), on_event)
    }
}

/// Text out of tokens, as far as it is certain.
struct Speech {
    decoder: StreamDecoder<Arc<Tokenizer>>,
    stop: StopStrings,
}

impl Speech {
    /// Says the text of the `n`th token, and tells of it; a reason if the text ends with it.
    fn tell(
        &mut self,
        n: usize,
        id: u32,
        logprobs: Option<&LogProbs>,
        on_event: &mut OnEvent<'_>,
    ) -> Option<FinishReason> {
        let piece = self.stop.push_token(id, &self.decoder.push(id));
        let flow = say(piece.text, on_event);
        match (
            piece.stopped,
            flow.is_continue() && on_event(Event::Token { n, id, logprobs }).is_continue(),
        ) {
            (true, _) => Some(FinishReason::Stop),
            (false, false) => Some(FinishReason::Interrupted),
            (false, true) => None,
        }
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
    if text.is_empty() {
        ControlFlow::Continue(())
    } else {
        on_event(Event::Text(text))
    }
}
