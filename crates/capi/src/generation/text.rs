//! A generation in a session, which it owns until it ends.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use atta_engine::{
    Event, FinishReason, Generate, GenerateOptions, LogProbs, Session, Summary, tokenizer::Special,
};
use self_cell::{MutBorrow, self_cell};
use serde_json::{Value, json};

use super::Happened;
use crate::{
    event::AttaEventKind,
    failure::{AttaStatus, CallResult, Failure},
    sampler::options,
    session::{Held, SessionCell, check_ids},
};

/// How long a cancellation may go unseen while the model is paused.
const PAUSE: Duration = Duration::from_millis(50);

/// A session with what it goes on with.
struct Owner {
    session: Session,
    /// Tokens to append: those that an earlier generation left, and the prompt.
    prompt: Vec<u32>,
}

self_cell!(
    struct RunningText {
        owner: MutBorrow<Owner>,
        #[not_covariant]
        dependent: Generate,
    }
);

/// A generation in a session.
pub(crate) struct TextGeneration {
    cell: Arc<SessionCell>,
    /// `None` once it has ended.
    running: Option<RunningText>,
    is_cancelled: Arc<AtomicBool>,
    /// Tokens of the text so far.
    n_generated: usize,
}

impl std::fmt::Debug for TextGeneration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextGeneration")
            .field("n_generated", &self.n_generated)
            .finish_non_exhaustive()
    }
}

impl TextGeneration {
    /// Takes the session out of its cell.
    pub(crate) fn new(cell: &Arc<SessionCell>, json: &[u8]) -> CallResult<Self> {
        let request = TextRequest::parse(json)?;
        let options = options(&cell.loaded, cell.n_ctx, &request.options)?;
        Self::with_options(cell, request.prompt, &options)
    }

    pub(crate) fn with_options(
        cell: &Arc<SessionCell>,
        prompt: Option<TextPrompt>,
        options: &GenerateOptions,
    ) -> CallResult<Self> {
        let held = cell.take()?;
        match start(cell, held, prompt, options) {
            Ok(running) => Ok(Self {
                cell: Arc::clone(cell),
                running: Some(running),
                is_cancelled: Arc::default(),
                n_generated: 0,
            }),
            Err(unstarted) => {
                let Unstarted { held, failure } = *unstarted;
                cell.put(held);
                Err(failure)
            }
        }
    }

    pub(crate) fn cancel_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_cancelled)
    }

    pub(crate) fn suspend(&mut self, file: Option<&Path>) -> CallResult<()> {
        let running = self.running();
        Ok(running.with_dependent_mut(|_, generate| generate.suspend(file))?)
    }

    pub(crate) fn resume(&mut self) -> CallResult<()> {
        let running = self.running();
        Ok(running.with_dependent_mut(|_, generate| generate.resume())?)
    }

    fn running(&mut self) -> &mut RunningText {
        let running = self.running.as_mut();
        running.expect("nothing is asked of it behind its last event")
    }

    fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Waits while heat pauses the model, for this time at most.
    fn wait_while_paused(&self, time: Duration) -> CallResult<()> {
        let engine = &self.cell.loaded.engine;
        let start = Instant::now();
        while !self.is_cancelled() {
            let left = time.saturating_sub(start.elapsed());
            if engine.wait_while_paused(left.min(PAUSE)) {
                break;
            }
            if left.is_zero() {
                let message = "no event yet: the model is paused, since the machine is too hot";
                return Err(Failure::new(AttaStatus::Pending, message));
            }
        }
        Ok(())
    }

    /// The next event, for which a model that is paused waits so long.
    pub(crate) fn next(&mut self, time: Duration) -> CallResult<Happened> {
        self.wait_while_paused(time)?;
        let is_cancelled = self.is_cancelled();
        let is_suspended = |running: &mut RunningText| {
            running.with_dependent_mut(|_, generate| generate.is_suspended())
        };
        if !is_cancelled && is_suspended(self.running()) {
            return Err(Failure::suspended());
        }
        loop {
            let event = self.running().with_dependent_mut(|_, generate| {
                if is_cancelled {
                    generate.interrupt();
                }
                generate.next()
            });
            match event.transpose()? {
                None => return self.end(),
                Some(Event::Tentative) => {}
                Some(event) => return Ok(self.happened(event)),
            }
        }
    }

    fn happened(&mut self, event: Event) -> Happened {
        match event {
            Event::Prompt { done, total } => Happened {
                n_done: done,
                n_total: total,
                ..Happened::text(AttaEventKind::Prompt, String::new())
            },
            Event::Token { n, id, logprobs } => {
                self.n_generated = n;
                let logprobs = logprobs.as_ref().map(logprobs_json);
                Happened {
                    token: id,
                    n_done: n,
                    ..Happened::text(AttaEventKind::Token, logprobs.unwrap_or_default())
                }
            }
            Event::Text(text) => Happened::text(AttaEventKind::Text, text),
            Event::Note(note) => Happened::text(AttaEventKind::Note, note),
            // It is skipped before.
            Event::Tentative => Happened::text(AttaEventKind::Note, String::new()),
        }
    }

    /// Gives the session back, and says how it went.
    fn end(&mut self) -> CallResult<Happened> {
        let summary = self
            .running()
            .with_dependent_mut(|_, generate| generate.end_with_summary())?;
        self.give_back(summary.pending.clone());
        Ok(Happened {
            n_done: summary.n_generated,
            ..Happened::text(AttaEventKind::Done, summary_json(&summary).to_string())
        })
    }

    fn give_back(&mut self, pending: Vec<u32>) {
        if let Some(running) = self.running.take() {
            let session = running.into_owner().into_inner().session;
            self.cell.put(Held { session, pending });
        }
    }
}

impl Drop for TextGeneration {
    fn drop(&mut self) {
        let running = self.running.as_mut();
        // After an error, or where it ends early; of an error the words are out.
        let summary = running
            .map(|running| running.with_dependent_mut(|_, generate| generate.end_with_summary()));
        let pending = summary.and_then(Result::ok).map(|summary| summary.pending);
        self.give_back(pending.unwrap_or_default());
    }
}

/// A generation that could not begin, with its session.
struct Unstarted {
    held: Held,
    failure: Failure,
}

fn start(
    cell: &SessionCell,
    held: Held,
    prompt: Option<TextPrompt>,
    options: &GenerateOptions,
) -> Result<RunningText, Box<Unstarted>> {
    let ids = match held.session.is_suspended() {
        true => Err(Failure::suspended()),
        false => prompt_ids(cell, &held, prompt),
    };
    let ids = match ids {
        Ok(ids) => ids,
        Err(failure) => return Err(Box::new(Unstarted { held, failure })),
    };
    let Held { session, pending } = held;
    let n_pending = pending.len();
    let prompt = [pending, ids].concat();
    let owner = MutBorrow::new(Owner { session, prompt });
    let started = RunningText::try_new_or_recover(owner, |owner| {
        let Owner { session, prompt } = owner.borrow_mut();
        session.generate(prompt, options)
    });
    started.map_err(|unstarted| {
        let Owner {
            session,
            mut prompt,
        } = unstarted.0.into_inner();
        prompt.truncate(n_pending);
        let held = Held {
            session,
            pending: prompt,
        };
        let failure = unstarted.1.into();
        Box::new(Unstarted { held, failure })
    })
}

/// A prompt.
#[derive(Debug)]
pub(crate) enum TextPrompt {
    Text(String),
    Tokens(Vec<u32>),
}

fn prompt_ids(cell: &SessionCell, held: &Held, prompt: Option<TextPrompt>) -> CallResult<Vec<u32>> {
    let engine = &cell.loaded.engine;
    match prompt {
        None => Ok(Vec::new()),
        Some(TextPrompt::Tokens(ids)) => check_ids(&cell.loaded, &ids).map(|()| ids),
        Some(TextPrompt::Text(text)) => Ok(match held.session.tokens() {
            [] => engine.prompt_ids(text.as_bytes()),
            _ => engine.tokenizer().encode_after(&text, Special::Parse),
        }),
    }
}

/// A request for a text in a session.
struct TextRequest {
    prompt: Option<TextPrompt>,
    /// The other fields, as JSON.
    options: Vec<u8>,
}

impl TextRequest {
    fn parse(json: &[u8]) -> CallResult<Self> {
        let refused = |message: String| Failure::new(AttaStatus::Request, message);
        if json.is_empty() {
            return Ok(Self {
                prompt: None,
                options: Vec::new(),
            });
        }
        let mut fields: Value = serde_json::from_slice(json)
            .map_err(|error| refused(format!("this is no JSON: {error}")))?;
        let prompt = fields
            .as_object_mut()
            .and_then(|fields| fields.shift_remove("prompt"));
        let prompt = match prompt {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(TextPrompt::Text(text)),
            Some(list) => Some(TextPrompt::Tokens(serde_json::from_value(list).map_err(
                |_| refused("prompt is neither a text nor a list of tokens".to_owned()),
            )?)),
        };
        let options = fields.to_string().into_bytes();
        Ok(Self { prompt, options })
    }
}

fn logprobs_json(logprobs: &LogProbs) -> String {
    let top = logprobs.top.iter();
    let top: Vec<Value> = top
        .map(|one| json!({ "token": one.id, "logprob": one.logprob }))
        .collect();
    json!({ "logprob": logprobs.chosen.logprob, "top": top }).to_string()
}

fn summary_json(summary: &Summary) -> Value {
    let reason = match summary.finish_reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::Interrupted => "interrupted",
    };
    json!({
        "finish_reason": reason,
        "stop": summary.stop,
        "n_prompt": summary.n_prompt,
        "n_generated": summary.n_generated,
        "prefill_seconds": summary.prefill_time.as_secs_f64(),
        "decode_seconds": summary.decode_time.as_secs_f64(),
        "prefill_tok_s": summary.prefill_tok_s(),
        "decode_tok_s": summary.decode_tok_s(),
    })
}
