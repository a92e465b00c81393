//! A job: what is asked for, how far it is, and what came of it.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use crate::{
    Engine, Error, Event, FinishReason, GenerateOptions,
    writer::{Past, Writer},
};

/// Which job; no two of a batcher have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// A text to be written after a prompt. It is made before it is submitted, since a grammar takes time to make.
pub struct Job {
    pub(super) prompt: Vec<u32>,
    priority: u8,
    writer: Writer,
}

impl Job {
    /// After the tokens of `prompt`.
    ///
    /// # Errors
    /// A sampler setting out of range, a constraint that cannot be kept to, memory that the budget does not grant.
    pub fn new(engine: &Engine, prompt: Vec<u32>, options: &GenerateOptions) -> Result<Self, Error> {
        Ok(Self { prompt, priority: 0, writer: Writer::new(engine, options)? })
    }

    /// Tokens of its prompt.
    pub fn n_prompt(&self) -> usize {
        self.prompt.len()
    }

    /// Lets it go before those of a lower priority while it waits; 0 without this.
    #[must_use]
    pub fn with_priority(self, priority: u8) -> Self {
        Self { priority, ..self }
    }
}

/// How a job went.
#[derive(Clone, Debug)]
pub struct Done {
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// The stop string that ended it, if one did.
    pub stop: Option<String>,
    /// Tokens of the prompt.
    pub n_prompt: usize,
    /// Tokens of the prompt that did not have to be evaluated.
    pub n_cached: usize,
    /// Tokens chosen, one that ended the text included.
    pub n_generated: usize,
    /// Bytes of text behind the last token that nobody has chosen: what made a constrained text complete.
    pub n_closing_bytes: usize,
    /// From the submission until its prompt began to be read.
    pub queue_time: Duration,
    /// From then on to the first token.
    pub prefill_time: Duration,
    /// From the first token to the last.
    pub decode_time: Duration,
}

/// A job under way.
pub(super) struct Running {
    pub(super) id: JobId,
    priority: u8,
    writer: Writer,
    /// Prompt and what was written; all of it has to be evaluated before the next token is chosen.
    pub(super) text: Vec<u32>,
    pub(super) n_prompt: usize,
    n_cached: usize,
    n_closing_bytes: usize,
    submitted: Instant,
    began: Option<Instant>,
    first: Option<Instant>,
}

impl Running {
    pub(super) fn new(id: JobId, job: Job) -> Self {
        Self {
            id,
            priority: job.priority,
            writer: job.writer,
            n_prompt: job.prompt.len(),
            text: job.prompt,
            n_cached: 0,
            n_closing_bytes: 0,
            submitted: Instant::now(),
            began: None,
            first: None,
        }
    }

    /// What comes first in the queue is smaller.
    pub(super) fn order(&self) -> (u8, JobId) {
        (u8::MAX - self.priority, self.id)
    }

    /// Notes that it has a place, with so many tokens evaluated already.
    pub(super) fn begin(&mut self, n_cached: usize) {
        if self.began.is_none() {
            (self.began, self.n_cached) = (Some(Instant::now()), n_cached);
        }
    }

    pub(super) fn is_writing(&self) -> bool {
        self.first.is_some()
    }

    pub(super) fn n_written(&self) -> usize {
        self.writer.n_generated()
    }

    /// Chooses what follows the text; why it has ended, if it has.
    pub(super) fn write(
        &mut self,
        logits: &[f32],
        n_ctx: usize,
        on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Option<FinishReason>, Error> {
        let room = n_ctx - self.text.len();
        let ended = match self.begin_writing(room, on_event) {
            None => self.writer.go_on(Past { logits, tokens: &self.text, room }, on_event)?,
            ended => ended,
        };
        // What is pending now has to have a place, too.
        let Some(reason) = ended.or_else(|| self.writer.is_at_length(room).then_some(FinishReason::Length)) else {
            self.text.extend_from_slice(self.writer.pending());
            return Ok(None);
        };
        self.end(reason, on_event).map(Some)
    }

    /// Notes that the prompt has been read, the first time; a reason if nothing is to be written after it.
    fn begin_writing(
        &mut self,
        room: usize,
        on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Option<FinishReason> {
        if self.is_writing() {
            return None;
        }
        self.first = Some(Instant::now());
        let total = self.n_prompt;
        if on_event(Event::Prompt { done: total, total }).is_break() {
            return Some(FinishReason::Interrupted);
        }
        self.writer.is_at_length(room).then_some(FinishReason::Length)
    }

    /// A constrained text without a short end stays as it is: an error would cost its client all of it.
    pub(super) fn end(
        &mut self,
        reason: FinishReason,
        on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<FinishReason, Error> {
        match self.writer.end(reason, on_event) {
            Ok((reason, n_closing)) => {
                self.n_closing_bytes = n_closing;
                Ok(reason)
            }
            #[cfg(feature = "constrain")]
            Err(Error::Constraint(crate::ConstraintError::Endless { .. })) => Ok(reason),
            Err(error) => Err(error),
        }
    }

    pub(super) fn done(&self, finish_reason: FinishReason) -> Done {
        let between = |from: Option<Instant>, to: Option<Instant>| {
            from.zip(to).map_or(Duration::ZERO, |(from, to)| to.saturating_duration_since(from))
        };
        Done {
            finish_reason,
            stop: self.writer.stop_found().map(str::to_owned),
            n_prompt: self.n_prompt,
            n_cached: self.n_cached,
            n_generated: self.n_written(),
            n_closing_bytes: self.n_closing_bytes,
            queue_time: between(Some(self.submitted), self.began),
            prefill_time: between(self.began, self.first),
            decode_time: between(self.first, Some(Instant::now())),
        }
    }
}
