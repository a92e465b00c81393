//! A job: its request, progress and result.

use std::{
    ops::{ControlFlow, Range},
    time::{Duration, Instant},
};

use atta_model::{Output, Want};

use super::Update;
use crate::{
    Engine, Error, Event, FinishReason, GenerateOptions, Pooling,
    generation::{Past, Writer, generate::OnEvent},
    pooling::Pooled,
};

/// Id of a job, unique within its batcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// A generation or embedding request. Created before submission, since compiling a grammar takes
/// time.
pub struct Job {
    pub(super) prompt: Vec<u32>,
    priority: u8,
    work: Work,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("n_prompt", &self.prompt.len())
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

/// What a job produces.
enum Work {
    /// Text.
    Write(Box<Writer>),
    /// An embedding.
    Pool(Pooled),
}

impl Job {
    /// Creates a job that generates text after `prompt`.
    ///
    /// # Errors
    /// A sampling parameter out of range, an unsupported constraint, an exceeded memory budget.
    pub fn new(
        engine: &Engine,
        prompt: Vec<u32>,
        options: &GenerateOptions,
    ) -> Result<Self, Error> {
        Ok(Self {
            prompt,
            priority: 0,
            work: Work::Write(Box::new(Writer::new(engine, options)?)),
        })
    }

    /// Creates a job that embeds `prompt`; the result is one [`Update::Embedding`].
    pub fn embedding(prompt: Vec<u32>, pooling: Pooling) -> Self {
        Self {
            prompt,
            priority: 0,
            work: Work::Pool(Pooled::new(pooling)),
        }
    }

    /// Prompt tokens.
    pub fn n_prompt(&self) -> usize {
        self.prompt.len()
    }

    /// Sets the priority in the queue (default 0; higher goes first).
    #[must_use]
    pub fn with_priority(self, priority: u8) -> Self {
        Self { priority, ..self }
    }
}

/// Result of a finished job.
#[derive(Clone, Debug)]
pub struct Done {
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// The stop string that ended it, if any.
    pub stop: Option<String>,
    /// Prompt tokens.
    pub n_prompt: usize,
    /// Prompt tokens reused from a cached prefix.
    pub n_cached: usize,
    /// Generated tokens, including an end-of-text token.
    pub n_generated: usize,
    /// Bytes appended after the last token to complete a constrained text.
    pub n_closing_bytes: usize,
    /// Time in the queue.
    pub queue_time: Duration,
    /// Time from then to the first token.
    pub prefill_time: Duration,
    /// Time from the first token to the last.
    pub decode_time: Duration,
}

/// A queued or running job.
pub(super) struct Running {
    pub(super) id: JobId,
    priority: u8,
    work: Work,
    /// Prompt and generated tokens; all must be evaluated before the next token is sampled.
    pub(super) text: Vec<u32>,
    pub(super) n_prompt: usize,
    /// Evaluated tokens that the last step rolled back.
    pub(super) n_cut: usize,
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
            work: job.work,
            n_prompt: job.prompt.len(),
            text: job.prompt,
            n_cut: 0,
            n_cached: 0,
            n_closing_bytes: 0,
            submitted: Instant::now(),
            began: None,
            first: None,
        }
    }

    /// Queue order; smaller goes first.
    pub(super) fn order(&self) -> (u8, JobId) {
        (u8::MAX - self.priority, self.id)
    }

    /// Records that the job got a slot with `n_cached` tokens evaluated.
    pub(super) fn begin(&mut self, n_cached: usize) {
        if let Work::Pool(pooled) = &mut self.work {
            pooled.restart();
        }
        if self.began.is_none() {
            (self.began, self.n_cached) = (Some(Instant::now()), n_cached);
        }
    }

    pub(super) fn is_writing(&self) -> bool {
        self.first.is_some()
    }

    pub(super) fn n_written(&self) -> usize {
        match &self.work {
            Work::Write(writer) => writer.n_generated(),
            Work::Pool(_) => 0,
        }
    }

    fn stop_found(&self) -> Option<&str> {
        match &self.work {
            Work::Write(writer) => writer.stop_found(),
            Work::Pool(_) => None,
        }
    }

    /// Whether it is an embedding request.
    pub(super) fn is_only_read(&self) -> bool {
        matches!(self.work, Work::Pool(_))
    }

    /// Whether it may start from a cached prefix.
    pub(super) fn may_share(&self) -> bool {
        match &self.work {
            Work::Write(_) => true,
            Work::Pool(pooled) => pooled.may_share(),
        }
    }

    /// The result wanted from the row at this position.
    pub(super) fn want(&self, pos: usize) -> Want {
        let n = self.text.len();
        match &self.work {
            Work::Write(_) if pos + 1 == n => Want::Logits,
            Work::Pool(pooled) if pooled.wants(pos, n) => Want::Hidden,
            _ => Want::Nothing,
        }
    }

    /// Pools the hidden states of evaluated rows, of which the first is at `pos` of the text.
    pub(super) fn take_in(
        &mut self,
        engine: &Engine,
        out: &Output,
        rows: Range<usize>,
        pos: usize,
    ) {
        let n = self.text.len();
        let Work::Pool(pooled) = &mut self.work else {
            return;
        };
        for (row, pos) in rows.zip(pos..) {
            if pooled.wants(pos, n) {
                pooled.add(engine, out.hidden(row));
            }
        }
    }

    /// Samples the next token from row `row` of `out`, or reports the embedding. Returns the finish
    /// reason, if any.
    pub(super) fn go_on(
        &mut self,
        out: &Output,
        row: usize,
        n_ctx: usize,
        on_update: &mut dyn FnMut(Update<'_>) -> ControlFlow<()>,
    ) -> Result<Option<FinishReason>, Error> {
        let was_reading = !self.is_writing();
        self.first.get_or_insert_with(Instant::now);
        let writer = match &mut self.work {
            Work::Write(writer) => writer,
            Work::Pool(pooled) => {
                let flow = on_update(Update::Embedding(&pooled.vector()));
                return Ok(Some(if flow.is_break() {
                    FinishReason::Interrupted
                } else {
                    FinishReason::Stop
                }));
            }
        };
        let mut on_event = |event: Event<'_>| on_update(Update::Event(event));
        let (n_prompt, room) = (self.n_prompt, n_ctx - self.text.len());
        let begun = if was_reading {
            begin_writing(writer, n_prompt, room, &mut on_event)
        } else {
            None
        };
        let ended = match begun {
            None => writer.go_on(
                Past {
                    logits: out.logits(row),
                    tokens: &self.text,
                    room,
                },
                &mut on_event,
            ),
            ended => Ok(ended),
        };
        self.n_cut = writer.cut();
        self.text.truncate(self.text.len() - self.n_cut);
        let (ended, room) = (ended?, n_ctx - self.text.len());
        // Pending tokens need positions, too.
        let Some(reason) =
            ended.or_else(|| writer.is_at_length(room).then_some(FinishReason::Length))
        else {
            self.text.extend_from_slice(writer.pending());
            return Ok(None);
        };
        self.end(reason, &mut on_event).map(Some)
    }

    /// Ends the text. A constrained text without a short end stays cut: an error would lose all of
    /// it.
    pub(super) fn end(
        &mut self,
        reason: FinishReason,
        on_event: &mut OnEvent<'_>,
    ) -> Result<FinishReason, Error> {
        let Work::Write(writer) = &mut self.work else {
            return Ok(reason);
        };
        match writer.end(reason, on_event) {
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
            from.zip(to).map_or(Duration::ZERO, |(from, to)| {
                to.saturating_duration_since(from)
            })
        };
        Done {
            finish_reason,
            stop: self.stop_found().map(str::to_owned),
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

/// Reports the end of prefill. Returns a finish reason if nothing is to be generated.
fn begin_writing(
    writer: &Writer,
    n_prompt: usize,
    room: usize,
    on_event: &mut OnEvent<'_>,
) -> Option<FinishReason> {
    if on_event(Event::Prompt {
        done: n_prompt,
        total: n_prompt,
    })
    .is_break()
    {
        return Some(FinishReason::Interrupted);
    }
    writer.is_at_length(room).then_some(FinishReason::Length)
}
