//! From what was said to jobs: the template, the tokens, the grammar. It takes milliseconds, and
//! with a new grammar more, so that it is done on a thread where nobody else has to wait for it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use atta_engine::{
    Error, GenerateOptions, Job,
    chat::{ChatInput, ChatPrompt, Prompt, PromptEnd, Role},
};

use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    app::{self, App},
    flow::{
        answer::{AnswerParser, Answers},
        body::{self, Accepted, Incoming},
        error::ApiError,
        sampling,
        warnings::Warnings,
    },
    models::{KeepAlive, Model},
};

/// The priority of a job for which nobody has asked for another.
pub(crate) const USUAL_PRIORITY: u8 = 1;

/// Jobs, and who reads what they write.
#[derive(Default)]
pub(crate) struct Prepared {
    pub(crate) jobs: Vec<Job>,
    pub(crate) parsers: Vec<AnswerParser>,
    /// Number of oldest messages that were dropped.
    pub(crate) n_left_out: usize,
}

impl Prepared {
    /// Lets its jobs go before those of a lower priority while they wait.
    pub(crate) fn with_priority(self, priority: u8) -> Self {
        let jobs = self
            .jobs
            .into_iter()
            .map(|job| job.with_priority(priority))
            .collect();
        Self { jobs, ..self }
    }
}

/// A request that names a model.
pub(crate) trait Ask: DeserializeOwned + Send + 'static {
    /// Fields that change nothing here.
    const ACCEPTED: Accepted = &[];
    /// Whether an unknown model name means the only model: clients made for hosted services send
    /// names such as `gpt-4o`.
    const TAKES_ANY_NAME: bool = true;

    /// Its name, if it is given.
    fn model(&self) -> Option<&str>;

    /// How long the model is to stay in memory then, if it says so.
    fn stay(&self) -> Option<KeepAlive> {
        None
    }
}

/// A request that was read, and its place among those that are answered or wait.
pub(crate) struct Received<R> {
    pub(crate) request: R,
    warnings: Warnings,
    place: OwnedSemaphorePermit,
    /// When its answer has to end.
    until: Option<Instant>,
}

impl<R: Ask> Received<R> {
    pub(crate) async fn read(app: &App, incoming: Incoming) -> Result<Self, ApiError> {
        let Incoming { body, warnings } = incoming;
        let until = app.options.max_time.map(|time| Instant::now() + time);
        if app.is_stopping() {
            return Err(ApiError::stopping());
        }
        let place = app.place()?;
        let bytes = body::read(body, app.options.max_body, app.options.read_timeout).await?;
        // The place is held by the work, which goes on if the client goes away.
        let parse = move || {
            let request = body::parse(&bytes, R::ACCEPTED, &warnings)?;
            Ok(Self {
                request,
                warnings,
                place,
                until,
            })
        };
        elsewhere(parse).await
    }

    /// Has its model loaded if it is not in memory.
    async fn with_model(self, app: &App) -> Result<Asked<R>, ApiError> {
        let Self {
            request,
            warnings,
            place,
            ..
        } = self;
        let start = Instant::now();
        let model = app
            .models
            .get(model_name(app, &request, &warnings), request.stay())
            .await?;
        Ok(Asked {
            request,
            warnings,
            model,
            place,
            load_time: start.elapsed(),
        })
    }

    /// As [`begin`].
    pub(crate) async fn begin<T: Send + 'static>(
        self,
        app: &App,
        make: impl FnOnce(&Model, R, &Warnings) -> Result<(Prepared, T), ApiError> + Send + 'static,
    ) -> Result<(Answers, T), ApiError> {
        let until = self.until;
        let Asked {
            request,
            warnings,
            model,
            place,
            load_time,
        } = self.with_model(app).await?;
        let work = move || {
            let (prepared, more) = make(&model, request, &warnings)?;
            if prepared.n_left_out > 0 {
                let (n, name) = (prepared.n_left_out, &model.name);
                warnings.add(format!(
                    "the first {n} messages were dropped: {name:?} handles short conversations only"
                ));
            }
            Ok(((prepared, more), model, place))
        };
        let ((Prepared { jobs, parsers, .. }, more), model, place) = elsewhere(work).await?;
        let (sender, news) = tokio::sync::mpsc::unbounded_channel();
        model.worker.submit(jobs, &sender, until)?;
        Ok((Answers::new(model, load_time, news, parsers, place), more))
    }
}

/// A request that was read, its model, and its place.
pub(crate) struct Asked<R> {
    request: R,
    warnings: Warnings,
    model: Arc<Model>,
    place: OwnedSemaphorePermit,
    /// How long it took to have the model in memory.
    load_time: Duration,
}

impl<R: Ask> Asked<R> {
    /// Reads a request, and has its model loaded if it is not in memory.
    pub(crate) async fn read(app: &App, incoming: Incoming) -> Result<Self, ApiError> {
        Received::read(app, incoming).await?.with_model(app).await
    }

    /// Answers it where nobody waits for that.
    pub(crate) async fn map<T: Send + 'static>(
        self,
        answer: impl FnOnce(&Model, R, &Warnings) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let Self {
            request,
            warnings,
            model,
            place,
            ..
        } = self;
        let work = move || {
            let _place = place;
            answer(&model, request, &warnings)
        };
        elsewhere(work).await
    }
}

/// Reads a request, has jobs made of it where nobody waits for it, and puts them into the queue.
/// `make` may return more than jobs.
pub(crate) async fn begin<R: Ask, T: Send + 'static>(
    app: &App,
    incoming: Incoming,
    make: impl FnOnce(&Model, R, &Warnings) -> Result<(Prepared, T), ApiError> + Send + 'static,
) -> Result<(Answers, T), ApiError> {
    Received::read(app, incoming).await?.begin(app, make).await
}

/// Resolves the model name of a request; on a server of one model any name is accepted.
fn model_name<'a, R: Ask>(app: &App, request: &'a R, warnings: &Warnings) -> Option<&'a str> {
    let name = request.model()?;
    match app.models.only() {
        Some(ours) if R::TAKES_ANY_NAME && app.models.look_up(Some(name)).is_err() => {
            warnings.add(format!("there is no model {name:?} here: {ours:?} answers"));
            None
        }
        _ => Some(name),
    }
}

/// Does what takes a while on another thread.
async fn elsewhere<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| ApiError::broken())?
}

/// Renders the prompt of a conversation. Returns it with the number of dropped messages.
pub(crate) fn ask(
    model: &Model,
    said: &ChatInput<'_>,
    options: &GenerateOptions,
) -> Result<(ChatPrompt, usize), ApiError> {
    let mut extra = model.defaults.variables.clone();
    extra.extend(said.extra.cloned().unwrap_or_default());
    let said = ChatInput {
        now: Some(app::local_now()),
        extra: Some(&extra),
        ..*said
    };
    let asked = model
        .format
        .prompt(&said, options.reply())
        .map_err(Error::from)?;
    match model.talk_window {
        Some(window) if asked.prompt.ids.len() > window => shortened(model, &said, options, window),
        _ => Ok((asked, 0)),
    }
}

/// Drops the oldest turns until the prompt fits the window; the last turn always stays.
fn shortened(
    model: &Model,
    said: &ChatInput<'_>,
    options: &GenerateOptions,
    window: usize,
) -> Result<(ChatPrompt, usize), ApiError> {
    let messages = said.messages;
    let n_system = messages
        .iter()
        .take_while(|message| message.role == Role::System)
        .count();
    let turns: Vec<usize> = (n_system..messages.len())
        .filter(|&i| messages[i].role == Role::User)
        .collect();
    let ask = |start: usize| -> Result<(ChatPrompt, usize), ApiError> {
        let shown = [&messages[..n_system], &messages[start..]].concat();
        let asked = model
            .format
            .prompt(
                &ChatInput {
                    messages: &shown,
                    ..*said
                },
                options.reply(),
            )
            .map_err(Error::from)?;
        Ok((asked, start - n_system))
    };
    // Prompts become shorter with each dropped turn: a binary search for the first that fits.
    let (mut low, mut high) = (1, turns.len().saturating_sub(1));
    let mut found = ask(turns.last().copied().unwrap_or(n_system))?;
    while low < high {
        let middle = (low + high) / 2;
        let asked = ask(turns[middle])?;
        if asked.0.prompt.ids.len() <= window {
            (found, high) = (asked, middle);
        } else {
            low = middle + 1;
        }
    }
    Ok(found)
}

/// Answers to a conversation, `n` of them.
pub(crate) fn answers(
    model: &Model,
    said: &ChatInput<'_>,
    options: &GenerateOptions,
    n: usize,
) -> Result<Prepared, ApiError> {
    answers_after(model, &[], said, options, n).map(|(prepared, _)| prepared)
}

/// Answers to a conversation behind the tokens of an earlier one, and what they answer.
pub(crate) fn answers_after(
    model: &Model,
    before: &[u32],
    said: &ChatInput<'_>,
    options: &GenerateOptions,
    n: usize,
) -> Result<(Prepared, Prompt), ApiError> {
    let (asked, n_left_out) = ask(model, said, options)?;
    let mut prompt = asked.prompt;
    if let Some(&first) = before.first() {
        // A text begins once.
        let n_skipped = usize::from(
            prompt.ids.first() == Some(&first) && model.engine.tokenizer().bos() == Some(first),
        );
        prompt.ids.splice(..n_skipped, before.iter().copied());
    }
    let options = options.clone().with_rules(asked.rules);
    let jobs = jobs(model, &prompt.ids, &options, n);
    let jobs = jobs.map_err(|error| model.engine.blame_tool(error, said.tools))?;
    let reader = if said.end == PromptEnd::WithinLastMessage {
        AnswerParser::rest_of_message
    } else {
        AnswerParser::message
    };
    let parsers = (0..n)
        .map(|_| reader(asked.parser.clone().with_id_seed(sampling::any_seed())))
        .collect();
    Ok((
        Prepared {
            jobs,
            parsers,
            n_left_out,
        },
        prompt,
    ))
}

/// Texts that go on after a prompt, `n` of each.
pub(crate) fn texts(
    model: &Model,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    n: usize,
) -> Result<Prepared, ApiError> {
    let mut all = Prepared::default();
    for ids in prompts {
        all.jobs.extend(jobs(model, ids, options, n)?);
        all.parsers
            .extend((0..n).map(|_| AnswerParser::Plain(String::new())));
    }
    Ok(all)
}

/// Each with another seed.
fn jobs(
    model: &Model,
    ids: &[u32],
    options: &GenerateOptions,
    n: usize,
) -> Result<Vec<Job>, Error> {
    let (n_prompt, n_ctx) = (ids.len(), model.n_ctx);
    // The batcher says the same, but then a stream has begun.
    if n_prompt == 0 {
        return Err(Error::EmptyPrompt);
    }
    if n_prompt > n_ctx {
        return Err(Error::PromptTooLong { n_prompt, n_ctx });
    }
    let job = |i: usize| {
        let mut options = options.clone();
        options.sampling.seed = options.sampling.seed.wrapping_add(i as u64);
        Ok(Job::new(&model.engine, ids.to_vec(), &options)?.with_priority(USUAL_PRIORITY))
    };
    (0..n).map(job).collect()
}
