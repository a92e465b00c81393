//! A job: its request, progress and result.

use std::{
    ops::{ControlFlow, Range},
    sync::Arc,
    time::{Duration, Instant},
};

use atta_model::{AdapterSet, Output, Want};

use super::{Update, borders::Borders};
use crate::{
    EarlierAnswers, Engine, Error, Event, FinishReason, GenerateOptions, Pooling, SpeculationOff,
    SpeculationStats, TappedRows,
    generation::{Generation, StepInput, StepOutput, Verdict},
    pooling::Pooled,
    speculation::{DraftRoom, HiddenSink, Speculator, StepCosts},
    text::Text,
};

/// Callback for events; `Break` ends the generation.
type OnEvent<'a> = dyn FnMut(Event) -> ControlFlow<()> + 'a;

/// Id of a job, unique within its batcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// A generation or embedding request. Created before submission, since compiling a grammar takes
/// time.
pub struct Job {
    pub(super) prompt: Text,
    /// `None`: those that the engine has by default.
    adapters: Option<AdapterSet>,
    priority: u8,
    /// The least length of a cached part that is moved; `None`: the state is exact.
    cache_reuse: Option<usize>,
    /// A place where other prompts are likely to part from this one.
    border: Option<usize>,
    task: Task,
    speculator: Option<Box<Speculator>>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("n_prompt", &self.prompt.len())
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

/// The task of a job.
enum Task {
    /// A decoding request: text.
    Generate(Box<Generation>),
    /// An embedding request.
    Embed(Pooled),
}

impl Job {
    /// Creates a job that generates text after `prompt`.
    ///
    /// # Errors
    /// A sampling parameter out of range, an unsupported constraint, an exceeded memory budget, a
    /// source of drafts that does not fit the model.
    pub fn new(
        engine: &Engine,
        prompt: impl Into<Text>,
        options: &GenerateOptions,
    ) -> Result<Self, Error> {
        let speculation = options.speculation.as_ref();
        let speculator = speculation.map(|speculation| Speculator::new(engine, speculation));
        Ok(Self {
            prompt: prompt.into(),
            adapters: None,
            priority: 0,
            cache_reuse: None,
            border: None,
            task: Task::Generate(Box::new(Generation::new(engine, options)?)),
            speculator: speculator.transpose()?.map(Box::new),
        })
    }

    /// Creates a job that embeds `prompt`, or scores it by [`Pooling::Rank`]; the result is one
    /// [`Update::Embedding`].
    pub fn embedding(prompt: impl Into<Text>, pooling: Pooling) -> Self {
        Self {
            prompt: prompt.into(),
            adapters: None,
            priority: 0,
            cache_reuse: None,
            border: None,
            task: Task::Embed(Pooled::new(pooling)),
            speculator: None,
        }
    }

    /// Prepares for a model.
    pub(super) fn of_model(&mut self, engine: &Engine) {
        let adapters = self.adapters.unwrap_or(engine.default_adapters());
        self.prompt.set_adapters(adapters);
        if let Task::Embed(pooled) = &mut self.task {
            pooled.of_model(engine);
        }
    }

    /// Prompt tokens.
    pub fn n_prompt(&self) -> usize {
        self.prompt.len()
    }

    /// Drafts from earlier answers, too, and adds this one to them, if the text is speculated from
    /// its own tokens.
    #[must_use]
    pub fn with_earlier_answers(mut self, earlier: &Arc<EarlierAnswers>) -> Self {
        if let Some(speculator) = &mut self.speculator {
            speculator.remember(Arc::clone(earlier));
        }
        self
    }

    /// Sets the adapters of the text, in place of those that the engine has by default.
    #[must_use]
    pub fn with_adapters(self, adapters: AdapterSet) -> Self {
        Self {
            adapters: Some(adapters),
            ..self
        }
    }

    /// Allows parts of at least `n_min` tokens that a cached text has, too, at other positions, to
    /// be taken from there with their keys rotated (values below [`MIN_CACHE_REUSE`] mean that).
    /// The state, and so the text, is approximate from the first of them on: keys and values were
    /// computed behind other tokens. Not for embeddings, which stay exact, as does a text of a
    /// model that [cannot](super::Batcher::check_cache_reuse).
    #[must_use]
    pub fn with_cache_reuse(self, n_min: usize) -> Self {
        Self {
            cache_reuse: Some(n_min),
            ..self
        }
    }

    /// Names a place where other prompts are likely to part from this one, such as the end of the
    /// part in front of its tools: a model with recurrent layers keeps its state there. Those
    /// behind the first part of a conversation and in front of its last turn are found without.
    #[must_use]
    pub fn with_border(self, n_tokens: usize) -> Self {
        Self {
            border: Some(n_tokens),
            ..self
        }
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
    /// Prompt tokens reused from a cached prefix, and those whose keys were moved.
    pub n_cached: usize,
    /// Those of them whose state is approximate.
    pub n_approximate: usize,
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
    /// How drafts went, if the text was speculated.
    pub speculation: Option<SpeculationStats>,
}

/// A queued or running job.
pub(super) struct Running {
    pub(super) id: JobId,
    priority: u8,
    task: Task,
    speculator: Option<Box<Speculator>>,
    /// How the last step went.
    pub(super) verdict: Verdict,
    /// Prompt and generated tokens; all must be evaluated before the next token is sampled.
    pub(super) text: Text,
    pub(super) n_prompt: usize,
    /// Evaluated tokens that the last step rolled back.
    pub(super) n_rolled_back: usize,
    n_cached: usize,
    n_approximate: usize,
    cache_reuse: Option<usize>,
    borders: Borders,
    /// Whether it was preempted, so that its prompt was counted before.
    is_again: bool,
    submitted: Instant,
    began: Option<Instant>,
    first: Option<Instant>,
}

impl Running {
    pub(super) fn new(id: JobId, job: Job) -> Self {
        Self {
            id,
            priority: job.priority,
            task: job.task,
            speculator: job.speculator,
            verdict: Verdict::default(),
            n_prompt: job.prompt.len(),
            text: job.prompt,
            n_rolled_back: 0,
            n_cached: 0,
            n_approximate: 0,
            cache_reuse: job.cache_reuse,
            borders: Borders {
                named: job.border,
                ..Borders::default()
            },
            is_again: false,
            submitted: Instant::now(),
            began: None,
            first: None,
        }
    }

    /// Queue order; smaller goes first.
    pub(super) fn order(&self) -> (u8, JobId) {
        (u8::MAX - self.priority, self.id)
    }

    /// Records that the job got a slot with `n_cached` tokens evaluated, some of them
    /// approximately.
    pub(super) fn begin(&mut self, n_cached: usize, n_approximate: usize) {
        if let Task::Embed(pooled) = &mut self.task {
            pooled.restart();
        }
        self.is_again = self.began.is_some();
        if !self.is_again {
            self.began = Some(Instant::now());
            (self.n_cached, self.n_approximate) = (n_cached, n_approximate);
        }
    }

    /// Records that the keys of `n` tokens of the prompt were moved.
    pub(super) fn moved(&mut self, n: usize) {
        if !self.is_again {
            self.n_cached += n;
            self.n_approximate += n;
        }
    }

    /// The least length of a cached part that is moved; `None`: none is.
    pub(super) fn cache_reuse(&self) -> Option<usize> {
        self.cache_reuse.filter(|_| !self.is_embedding())
    }

    /// Whether it may start from an approximate state.
    pub(super) fn takes_approximate(&self) -> bool {
        self.cache_reuse().is_some()
    }

    /// Finds the borders of its prompt.
    pub(super) fn find_borders(&mut self, engine: &Engine) {
        self.borders.find(self.text.ids(), engine.tokenizer());
    }

    /// Tokens of the first part of its prompt, such as the system prompt.
    pub(super) fn first_border(&self) -> Option<usize> {
        self.borders.first
    }

    /// Whether its prompt is evaluated and its first token sampled.
    pub(super) fn is_decoding(&self) -> bool {
        self.first.is_some()
    }

    /// Tokens generated so far.
    pub(super) fn n_generated(&self) -> usize {
        self.generation().map_or(0, Generation::n_generated)
    }

    fn generation(&self) -> Option<&Generation> {
        match &self.task {
            Task::Generate(generation) => Some(generation),
            Task::Embed(_) => None,
        }
    }

    /// Whether it is an embedding request.
    pub(super) fn is_embedding(&self) -> bool {
        matches!(self.task, Task::Embed(_))
    }

    /// Whether it may start from a cached prefix.
    pub(super) fn may_share(&self) -> bool {
        match &self.task {
            Task::Generate(_) => true,
            Task::Embed(pooled) => pooled.may_share(),
        }
    }

    /// The result wanted from the row at this position.
    pub(super) fn want(&self, pos: usize) -> Want {
        let n = self.text.len();
        match &self.task {
            Task::Generate(_) if pos + 1 == n => Want::Logits,
            Task::Embed(pooled) if pooled.wants(pos, n) => Want::Hidden,
            _ => Want::Nothing,
        }
    }

    /// Whether the state behind the row at this position is kept: another answer to the same prompt
    /// starts before its last token, other prompts at its borders.
    pub(super) fn wants_checkpoint(&self, pos: usize) -> bool {
        pos + 2 == self.n_prompt || self.borders.has(pos + 1)
    }

    /// Pools the hidden states of evaluated rows, starting at position `pos` of the text.
    ///
    /// # Errors
    /// Scores of a model that computes none.
    pub(super) fn pool(
        &mut self,
        engine: &Engine,
        out: &Output,
        rows: Range<usize>,
        pos: usize,
    ) -> Result<(), Error> {
        let n = self.text.len();
        let Task::Embed(pooled) = &mut self.task else {
            return Ok(());
        };
        for (row, pos) in rows.zip(pos..) {
            if pooled.wants(pos, n) {
                pooled.add(engine, out.hidden(row))?;
            }
            if pos + 1 == n {
                pooled.finish(engine)?;
            }
        }
        Ok(())
    }

    /// What takes the hidden states that its drafts are made from.
    pub(super) fn hidden_sink(&self) -> Option<Arc<dyn HiddenSink>> {
        let speculator = self.speculator.as_ref()?;
        let is_on = speculator.stats().off.is_none();
        speculator.hidden_sink().filter(|_| is_on)
    }

    /// Shows the hidden states of its rows from position `pos` on, the last of them of a draft.
    pub(super) fn show_states(&self, rows: TappedRows<'_>, pos: usize, draft: &[u32]) {
        if let Some(sink) = self.hidden_sink() {
            let n_text = pos + rows.n() - draft.len();
            let tokens = [&self.text.ids()[..n_text], draft].concat();
            sink.take(&tokens, rows);
        }
    }

    /// Turns speculation off.
    pub(super) fn turn_drafts_off(&mut self, why: SpeculationOff) {
        if let Some(speculator) = &mut self.speculator {
            speculator.turn_off(why);
        }
    }

    /// Whether it is speculated.
    pub(super) fn has_drafts(&self) -> bool {
        self.n_max_draft().is_some()
    }

    /// Maximum tokens of the next draft; `None` without speculation.
    pub(super) fn n_max_draft(&self) -> Option<usize> {
        let speculator = self.speculator.as_ref()?;
        let is_on = speculator.stats().off.is_none();
        is_on.then(|| speculator.n_max().min(self.max_draft()))
    }

    /// Maximum tokens of drafts that can become part of the text.
    pub(super) fn max_draft(&self) -> usize {
        self.generation().map_or(0, Generation::max_draft)
    }

    /// A draft of what follows `tokens`, which end with drafts that are not judged yet.
    pub(super) fn propose_ahead(
        &mut self,
        tokens: &[u32],
        n_max: usize,
        costs: &StepCosts,
    ) -> Vec<u32> {
        let speculator = self.speculator.as_mut();
        speculator.map_or_else(Vec::new, |speculator| {
            speculator.propose_ahead(tokens, n_max, costs)
        })
    }

    /// The oldest draft ahead is judged next.
    pub(super) fn next_ahead(&mut self) {
        self.speculator.iter_mut().for_each(|s| s.next_ahead());
    }

    /// A draft of what follows the text.
    pub(super) fn propose(&mut self, room: DraftRoom, costs: &StepCosts) -> Vec<u32> {
        let (Some(speculator), Task::Generate(generation)) = (&mut self.speculator, &self.task)
        else {
            return Vec::new();
        };
        let fit = |draft: &mut Vec<u32>, max: usize| generation.fit_draft(draft, max);
        let text = self.text.ids();
        speculator.propose(text, room, costs, &fit).to_vec()
    }

    /// Records how a step with a draft of `n_draft` tokens went. Returns the seconds that drafting
    /// took.
    pub(super) fn judged(&mut self, n_draft: usize) -> f64 {
        let Some(speculator) = &mut self.speculator else {
            return 0.0;
        };
        speculator.judged(self.verdict.n_accepted, n_draft);
        speculator.draft_seconds()
    }

    /// Shows the whole text to the source of drafts.
    pub(super) fn end_drafts(&mut self) {
        if let Some(speculator) = &mut self.speculator {
            speculator.end(self.text.ids(), self.n_prompt);
        }
    }

    /// Samples the next tokens from rows of `out`: the first is that of the last token, the others
    /// are of a draft behind it. Or reports the embedding. Returns the finish reason, if any.
    pub(super) fn advance(
        &mut self,
        out: &Output,
        LogitSpan { rows, draft }: LogitSpan<'_>,
        n_ctx: usize,
        on_update: &mut dyn FnMut(Update<'_>) -> ControlFlow<()>,
    ) -> Result<Option<FinishReason>, Error> {
        self.verdict = Verdict::default();
        let is_first = !self.is_decoding();
        self.first.get_or_insert_with(Instant::now);
        let generation = match &mut self.task {
            Task::Generate(generation) => generation,
            Task::Embed(pooled) => {
                let flow = on_update(Update::Embedding(&pooled.vector()));
                return Ok(Some(if flow.is_break() {
                    FinishReason::Interrupted
                } else {
                    FinishReason::Stop
                }));
            }
        };
        let on_event = &mut |event: Event| on_update(Update::Event(event));
        self.text.push_tokens(draft);
        let room = n_ctx - self.text.len();
        if is_first {
            begin(generation, self.n_prompt, room, on_event);
        }
        let logits: Vec<&[f32]> = rows.map(|row| out.logits(row)).collect();
        let advanced = match generation.finish_reason() {
            None => generation.advance(StepOutput {
                logits: &logits,
                tokens: self.text.ids(),
                room,
            }),
            Some(_) => Ok(Verdict::default()),
        };
        deliver(generation, on_event);
        // Pending tokens need positions, too.
        generation.limit(room);
        let has_ended = generation.finish_reason().is_some();
        let StepInput { rollback, tokens } = generation.take_input();
        self.n_rolled_back = rollback;
        self.text.truncate(self.text.len() - rollback);
        self.verdict = advanced?;
        if !has_ended {
            self.text.push_tokens(tokens);
            return Ok(None);
        }
        self.end(on_event).map(Some)
    }

    /// Ends the text, as if it had reached its length limit if it has no other end.
    pub(super) fn end(&mut self, on_event: &mut OnEvent<'_>) -> Result<FinishReason, Error> {
        let Task::Generate(generation) = &mut self.task else {
            return Ok(FinishReason::Length);
        };
        generation.cut();
        let finished = generation.finish();
        deliver(generation, on_event);
        finished?;
        Ok(generation.finish_reason().unwrap_or(FinishReason::Length))
    }

    pub(super) fn done(&self, finish_reason: FinishReason) -> Done {
        let between = |from: Option<Instant>, to: Option<Instant>| {
            from.zip(to).map_or(Duration::ZERO, |(from, to)| {
                to.saturating_duration_since(from)
            })
        };
        let stop = self.generation().and_then(Generation::stop_found);
        Done {
            finish_reason,
            stop: stop.map(str::to_owned),
            n_prompt: self.n_prompt,
            n_cached: self.n_cached,
            n_approximate: self.n_approximate,
            n_generated: self.n_generated(),
            n_closing_bytes: self.generation().map_or(0, Generation::n_closing_bytes),
            queue_time: between(Some(self.submitted), self.began),
            prefill_time: between(self.began, self.first),
            decode_time: between(self.first, Some(Instant::now())),
            speculation: self
                .speculator
                .as_ref()
                .map(|speculator| speculator.stats()),
        }
    }
}

/// Rows with the logits after the last token of a text and after each token of a draft.
pub(super) struct LogitSpan<'a> {
    pub(super) rows: Range<usize>,
    pub(super) draft: &'a [u32],
}

/// Reports the end of prefill. Ends a text of no tokens.
fn begin(generation: &mut Generation, n_prompt: usize, room: usize, on_event: &mut OnEvent<'_>) {
    let event = Event::Prompt {
        done: n_prompt,
        total: n_prompt,
    };
    if on_event(event).is_break() {
        generation.interrupt();
    }
    generation.limit(room);
}

/// Hands the events of a generation to `on_event`; `Break` interrupts it.
fn deliver(generation: &mut Generation, on_event: &mut OnEvent<'_>) {
    while let Some(event) = generation.next_event() {
        if on_event(event).is_break() {
            generation.interrupt();
        }
    }
}
