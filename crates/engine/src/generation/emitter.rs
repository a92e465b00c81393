//! Text emission: events out of the tokens of a text.
//!
//! Text leaves the decoder in whole characters and passes the stop strings, which hold back what
//! may be the beginning of one. Events wait in a queue until the caller takes them; the emitter
//! counts the tokens that the caller knows of.

use std::{collections::VecDeque, sync::Arc};

use atta_tokenizer::{StreamDecoder, Tokenizer};

use super::{Event, GenerateOptions, stop::StopStrings};
use crate::{Error, LogProbs};

/// Turns tokens into events.
pub(super) struct TextEmitter {
    decoder: StreamDecoder<Arc<Tokenizer>>,
    stop: StopStrings,
    queue: VecDeque<Queued>,
    n_delivered: usize,
}

/// An event that the caller has not taken.
struct Queued {
    event: Event,
    /// Tokens of the text that the caller knows of once it has this event.
    n_tokens: usize,
}

/// A token of the text.
pub(super) struct TextToken {
    /// Its number, from 1.
    pub(super) n: usize,
    pub(super) id: u32,
    pub(super) logprobs: Option<LogProbs>,
}

impl TextEmitter {
    pub(super) fn new(
        tokenizer: &Arc<Tokenizer>,
        options: &GenerateOptions,
    ) -> Result<Self, Error> {
        Ok(Self {
            decoder: StreamDecoder::after_prompt(Arc::clone(tokenizer))
                .with_control(options.control),
            stop: StopStrings::new(options.stop.clone())?.with_tokens_of(tokenizer),
            queue: VecDeque::new(),
            n_delivered: 0,
        })
    }

    /// Queues the text of a token and its event; `true` if a stop string is complete.
    pub(super) fn emit(&mut self, TextToken { n, id, logprobs }: TextToken) -> bool {
        let piece = self.stop.push_token(id, self.decoder.push(id));
        self.push_text(piece.text, n);
        self.push(Event::Token { n, id, logprobs }, n);
        piece.stopped
    }

    /// Queues the event of a tentative token.
    pub(super) fn emit_tentative(&mut self) {
        self.push(Event::Tentative, 0);
    }

    /// Queues the text that completes a constrained text of `n_tokens`. It is not searched for stop
    /// strings.
    pub(super) fn emit_closing(&mut self, closing: String, n_tokens: usize) {
        let held = self.stop.flush();
        self.push_text(held, n_tokens);
        self.push_text(closing, n_tokens);
    }

    /// Queues the held-back text at the end of a text of `n_tokens`; none after a stop string.
    pub(super) fn flush(&mut self, incomplete: IncompleteCharacter, n_tokens: usize) {
        let rest = self.decoder.flush();
        if incomplete == IncompleteCharacter::Emit {
            let piece = self.stop.push(rest);
            self.push_text(piece.text, n_tokens);
        }
        let held = self.stop.flush();
        self.push_text(held, n_tokens);
    }

    /// The decoder, for text that no token of the model stands for.
    pub(super) fn decoder(&mut self) -> &mut StreamDecoder<Arc<Tokenizer>> {
        &mut self.decoder
    }

    /// The stop string that has ended the text.
    pub(super) fn stop_found(&self) -> Option<&str> {
        self.stop.found()
    }

    /// Takes the next event.
    pub(super) fn next_event(&mut self) -> Option<Event> {
        let Queued { event, n_tokens } = self.queue.pop_front()?;
        self.n_delivered = self.n_delivered.max(n_tokens);
        Some(event)
    }

    pub(super) fn has_events(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Drops all events that were not taken.
    pub(super) fn drop_events(&mut self) {
        self.queue.clear();
    }

    /// Number of tokens with an event that the caller has taken.
    pub(super) fn n_delivered(&self) -> usize {
        self.n_delivered
    }

    fn push_text(&mut self, text: String, n_tokens: usize) {
        if !text.is_empty() {
            self.push(Event::Text(text), n_tokens);
        }
    }

    fn push(&mut self, event: Event, n_tokens: usize) {
        self.queue.push_back(Queued { event, n_tokens });
    }
}

/// What becomes of an incomplete character at the end of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IncompleteCharacter {
    /// It is emitted as U+FFFD.
    Emit,
    /// It is dropped: a constrained text that was cut is the beginning of a valid one.
    Drop,
}
