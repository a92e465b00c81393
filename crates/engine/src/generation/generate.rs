//! Generation in a session: an iterator over the events of a text.

#[cfg(feature = "cache")]
use std::path::Path;
use std::{
    collections::VecDeque,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use super::{
    Event, FinishReason, GenerateOptions, Generation, StepInput, StepOutput, Summary, Verdict,
    drafts::SessionDrafts,
};
use crate::{Error, Session};

impl Session {
    /// Appends the prompt and generates text from there. Nothing is computed before the first event
    /// is asked for.
    ///
    /// # Errors
    /// A prompt that is empty or does not fit, a sampling parameter out of range, an unsupported
    /// constraint.
    pub fn generate<'a>(
        &'a mut self,
        prompt: &'a [u32],
        options: &GenerateOptions,
    ) -> Result<Generate<'a>, Error> {
        self.generate_after(prompt, options, Saver::default())
    }

    /// Generates text and saves the session with `saver` on the way.
    pub(crate) fn generate_after<'a>(
        &'a mut self,
        prompt: &'a [u32],
        options: &GenerateOptions,
        saver: Saver<'a>,
    ) -> Result<Generate<'a>, Error> {
        if prompt.is_empty() && self.logits().is_none() {
            return Err(Error::EmptyPrompt);
        }
        let generation = Generation::new(self.engine(), options)?;
        if !self.shifts() {
            self.check_room(prompt.len())?;
        }
        let total = prompt.len();
        let drafts = SessionDrafts::new(self, prompt, options)?;
        Ok(Generate {
            session: self,
            generation,
            drafts,
            n_unverified: 0,
            saver,
            prompt,
            n_prefilled: 0,
            stage: Stage::Prefill,
            queue: VecDeque::from([Event::Prompt { done: 0, total }]),
            error: None,
            start: Instant::now(),
            times: Times::default(),
        })
    }
}

/// A generation in a session: an iterator over its events.
///
/// It ends when the text does, or after an error. A generation that is
/// [interrupted](Self::interrupt) leaves the session with the tokens whose events were taken, but
/// for the pending ones of the [summary](Self::into_summary). So does one that is dropped, but
/// nothing is evaluated then: the session may lack logits, and of a model with recurrent layers it
/// holds the tokens up to a checkpoint.
pub struct Generate<'a> {
    session: &'a mut Session,
    generation: Generation,
    drafts: SessionDrafts,
    /// Tokens at the end of the session that were not judged yet: a draft.
    n_unverified: usize,
    saver: Saver<'a>,
    prompt: &'a [u32],
    /// Tokens of the prompt that are in the session.
    n_prefilled: usize,
    stage: Stage,
    /// Events that do not come from the text, in front of those that do.
    queue: VecDeque<Event>,
    error: Option<Error>,
    /// Start of the stage.
    start: Instant,
    times: Times,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// The prompt is evaluated.
    Prefill,
    /// Tokens are generated.
    Decode,
    /// The text has ended; its last events are in the queue.
    Finish,
    /// Nothing follows but events in the queue.
    Over,
}

/// Times of a [`Summary`].
#[derive(Default)]
struct Times {
    prefill: Duration,
    decode: Duration,
    first_token: Duration,
    /// Tokens of the first step; 0 before it.
    n_first: usize,
}

impl std::fmt::Debug for Generate<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generate")
            .field("n_prompt", &self.prompt.len())
            .field("n_prefilled", &self.n_prefilled)
            .field("n_generated", &self.generation.n_generated())
            .finish_non_exhaustive()
    }
}

impl Iterator for Generate<'_> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let event = self.queue.pop_front();
            if let Some(event) = event.or_else(|| self.generation.next_event()) {
                return Some(Ok(event));
            }
            if self.stage == Stage::Over {
                return self.error.take().map(Err);
            }
            if let Err(error) = self.step() {
                self.fail(error);
            }
        }
    }
}

impl Generate<'_> {
    /// Hands all events to `on_event`; `Break` interrupts the generation.
    ///
    /// # Errors
    /// A step that failed, a constraint that cannot be met. An interruption is not an error, and
    /// neither is a full context.
    pub fn run(
        mut self,
        mut on_event: impl FnMut(Event) -> ControlFlow<()>,
    ) -> Result<Summary, Error> {
        while let Some(event) = self.next() {
            if on_event(event?).is_break() {
                self.interrupt();
            }
        }
        self.into_summary()
    }

    /// Ends the generation at the last event that was taken. Only warnings and errors follow.
    pub fn interrupt(&mut self) {
        if self.stage == Stage::Over {
            return;
        }
        self.queue.retain(|event| matches!(event, Event::Note(_)));
        self.generation.interrupt();
        if let Err(error) = self.end() {
            self.fail(error);
        }
    }

    /// Suspends the session between two events, as [`Session::suspend`]. No event but those that
    /// are there already can be taken before it is [resumed](Self::resume).
    ///
    /// # Errors
    /// As [`Session::suspend`]. Where batches in flight fail, the generation is over.
    #[cfg(feature = "cache")]
    pub fn suspend(&mut self, file: Option<&Path>) -> Result<(), Error> {
        let settled = self.session.settle();
        if settled.is_err() {
            self.stage = Stage::Over;
            self.undo();
        }
        settled?;
        self.session.suspend(file)
    }

    /// Resumes a suspended session; the text goes on with the same bits.
    ///
    /// # Errors
    /// As [`Session::resume`].
    #[cfg(feature = "cache")]
    pub fn resume(&mut self) -> Result<(), Error> {
        self.session.resume()
    }

    /// Whether the session is suspended.
    #[cfg(feature = "cache")]
    pub fn is_suspended(&self) -> bool {
        self.session.is_suspended()
    }

    /// Interrupts the generation, if it is not over, and says how it went.
    ///
    /// # Errors
    /// The error of the generation, if the iterator has not returned it.
    pub fn into_summary(mut self) -> Result<Summary, Error> {
        self.end_with_summary()
    }

    /// As [`into_summary`](Self::into_summary), for an owner that cannot give it away.
    ///
    /// # Errors
    /// As [`into_summary`](Self::into_summary).
    pub fn end_with_summary(&mut self) -> Result<Summary, Error> {
        self.interrupt();
        match self.error.take() {
            Some(error) => Err(error),
            None => Ok(self.summary()),
        }
    }

    fn summary(&self) -> Summary {
        let reason = self.generation.finish_reason();
        Summary {
            finish_reason: reason.unwrap_or(FinishReason::Interrupted),
            stop: self.generation.stop_found().map(str::to_owned),
            n_prompt: self.n_prefilled,
            n_generated: self.generation.n_generated(),
            prefill_time: self.times.prefill,
            decode_time: self.times.decode,
            first_token_time: self.times.first_token,
            n_first: self.times.n_first,
            pending: self.generation.pending().to_vec(),
            n_closing_bytes: self.generation.n_closing_bytes(),
            speculation: self.drafts.stats(),
        }
    }

    fn fail(&mut self, error: Error) {
        self.error = Some(error);
        self.stage = Stage::Over;
        self.undo();
    }

    /// Removes tokens that are no part of the text from the session. Evaluates nothing, so that a
    /// model with recurrent layers returns to its nearest checkpoint.
    fn undo(&mut self) {
        let n_rolled_back = self.generation.take_input().rollback;
        let n_rolled_back = n_rolled_back.max(self.n_unverified);
        // After an error the first one counts, and `drop` reports none.
        let _ = self.session.take_windows_back();
        let n_left = self.session.tokens().len() - n_rolled_back;
        let _ = self.session.truncate(n_left);
    }

    /// Computes until there are events, or the stage is another.
    fn step(&mut self) -> Result<(), Error> {
        match self.stage {
            Stage::Prefill => self.prefill(),
            Stage::Decode => self.decode(),
            Stage::Finish => self.end(),
            Stage::Over => Ok(()),
        }
    }

    /// Evaluates a chunk of the prompt.
    fn prefill(&mut self) -> Result<(), Error> {
        let total = self.prompt.len();
        if self.n_prefilled == total {
            self.queue.extend(self.saver.save(self.session));
            self.stage = Stage::Decode;
            self.start = Instant::now();
            return Ok(());
        }
        if self.n_prefilled == 0 {
            self.start = Instant::now();
        }
        let note = self.saver.save_before_shift(self.session, 1);
        self.queue.extend(note);
        self.n_prefilled += self
            .session
            .append_chunk(&self.prompt[self.n_prefilled..])?;
        self.times.prefill = self.start.elapsed();
        let done = self.n_prefilled - self.session.n_in_flight();
        self.queue.push_back(Event::Prompt { done, total });
        Ok(())
    }

    /// Evaluates the pending tokens and selects the next ones.
    fn decode(&mut self) -> Result<(), Error> {
        self.generation.limit(self.session.room());
        if self.generation.finish_reason().is_some() {
            self.stage = Stage::Finish;
            return self.generation.finish();
        }
        let StepInput { rollback, tokens } = self.generation.take_input();
        self.session.roll_back(rollback, tokens.is_empty())?;
        let note = self.saver.save_before_shift(self.session, tokens.len());
        self.queue.extend(note);
        let n_draft = self.drafts.append(self.session, &self.generation)?;
        let verdict = self.judge(n_draft)?;
        self.times.decode = self.start.elapsed();
        if self.times.n_first == 0 {
            self.times.first_token = self.times.decode;
            self.times.n_first = self.generation.n_generated();
        }
        if verdict.was_rolled_back {
            self.times.n_first = self.times.n_first.min(1);
        }
        Ok(())
    }

    /// Selects the next tokens; the last `n_draft` of the session are a draft.
    fn judge(&mut self, n_draft: usize) -> Result<Verdict, Error> {
        self.n_unverified = n_draft;
        let advanced = self.generation.advance(StepOutput {
            logits: &self.session.last_logits(n_draft),
            tokens: self.session.tokens(),
            room: self.session.room(),
        });
        self.n_unverified = 0;
        let verdict = advanced?;
        self.drafts.judged(self.session, verdict);
        Ok(verdict)
    }

    /// Leaves the session with the tokens of the text, and saves it.
    fn end(&mut self) -> Result<(), Error> {
        self.stage = Stage::Over;
        self.session.settle()?;
        let StepInput { rollback, tokens } = self.generation.take_input();
        self.session.roll_back(rollback, tokens.is_empty())?;
        self.drafts.end(self.session, tokens);
        self.queue.extend(self.saver.save(self.session));
        Ok(())
    }
}

impl Drop for Generate<'_> {
    fn drop(&mut self) {
        if self.stage != Stage::Over {
            self.generation.interrupt();
            self.undo();
            self.saver.save(self.session);
        }
    }
}

/// Saves a session on the way, if there is a place for it.
#[derive(Default)]
pub(crate) struct Saver<'a> {
    save: Option<Box<Save<'a>>>,
}

/// Saves a session; returns a warning if that fails.
type Save<'a> = dyn FnMut(&mut Session) -> Option<String> + 'a;

impl<'a> Saver<'a> {
    #[cfg(feature = "cache")]
    pub(crate) fn new(save: impl FnMut(&mut Session) -> Option<String> + 'a) -> Self {
        Self {
            save: Some(Box::new(save)),
        }
    }

    fn save(&mut self, session: &mut Session) -> Option<Event> {
        let save = self.save.as_mut()?;
        save(session).map(Event::Note)
    }

    /// Saves the session if `n` more tokens shift its context for the first time.
    fn save_before_shift(&mut self, session: &mut Session, n: usize) -> Option<Event> {
        let n_left = session.n_until_shift()?;
        if n_left < n { self.save(session) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        path::Path,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use atta_model::{Observer, Phase};

    use super::*;
    use crate::{Engine, LoadOptions, SessionOptions};

    /// Counts steps.
    struct StepCounter(Arc<AtomicUsize>);

    impl Observer for StepCounter {
        fn enter(&mut self, phase: Phase) {
            self.0
                .fetch_add(usize::from(phase == Phase::Idle), Ordering::Relaxed);
        }
    }

    /// A generation whose last two evaluated tokens are to be rolled back, and the text without
    /// them.
    fn generation_to_roll_back(session: &mut Session) -> (Generate<'_>, Vec<u32>) {
        let options = GenerateOptions {
            n_predict: 9,
            ..GenerateOptions::default()
        };
        let mut generate = session.generate(&[1, 40, 50], &options).unwrap();
        while generate.session.tokens().len() < 7 {
            generate.next().unwrap().unwrap();
        }
        generate.generation.pending.clear();
        generate.generation.rollback = 2;
        let rest = generate.session.tokens()[..5].to_vec();
        (generate, rest)
    }

    fn session() -> Session {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stories.gguf");
        let engine = Engine::open(&path, &LoadOptions::default()).unwrap();
        engine.session(&SessionOptions::default()).unwrap()
    }

    #[test]
    fn a_generation_that_fails_is_rolled_back_like_one_that_ends() {
        let mut session = session();
        let (mut generate, rest) = generation_to_roll_back(&mut session);
        generate.fail(Error::EmptyPrompt);
        assert!(generate.into_summary().is_err());
        assert_eq!(session.tokens(), rest);
    }

    #[test]
    fn a_generation_that_is_dropped_evaluates_nothing() {
        let mut session = session();
        let n_steps = Arc::new(AtomicUsize::new(0));
        session.observe(Box::new(StepCounter(Arc::clone(&n_steps))));
        let (generate, rest) = generation_to_roll_back(&mut session);
        let n_before = n_steps.load(Ordering::Relaxed);
        assert!(n_before > 3);
        drop(generate);
        assert_eq!(n_steps.load(Ordering::Relaxed), n_before);
        assert_eq!(session.tokens(), rest);
    }
}
