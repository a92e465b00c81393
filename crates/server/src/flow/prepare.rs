//! From a parsed request to jobs: renders the chat template, tokenizes, compiles the constraint.
//!
//! This takes milliseconds, and more for a new grammar; it runs on a blocking thread.

use std::sync::Arc;

use atta_engine::{
    AdapterSet, EarlierAnswers, Error, GenerateOptions, Job, Pooling, Text,
    chat::{ChatInput, ChatPrompt, Prompt, PromptEnd, Role},
    tools::Parser,
};

use super::{answer::AnswerParser, error::ApiError, sampling, warnings::Warnings};
use crate::{app, models::Model};

/// Queue priorities. A job of a higher priority starts first; none is interrupted for another.
pub(crate) const LOW_PRIORITY: u8 = 0;
pub(crate) const DEFAULT_PRIORITY: u8 = 1;
pub(crate) const HIGH_PRIORITY: u8 = 2;

/// Jobs, and a parser for the output of each.
#[derive(Default)]
pub(crate) struct Prepared {
    pub(crate) jobs: Vec<Job>,
    pub(crate) parsers: Vec<AnswerParser>,
}

impl Prepared {
    /// Drafts from earlier answers to the same client, if there are any.
    pub(crate) fn with_earlier_answers(self, earlier: Option<&Arc<EarlierAnswers>>) -> Self {
        let Some(earlier) = earlier else {
            return self;
        };
        let jobs = self.jobs.into_iter();
        let jobs = jobs.map(|job| job.with_earlier_answers(earlier)).collect();
        Self { jobs, ..self }
    }

    /// Computes all jobs with these adapters.
    pub(crate) fn with_adapters(self, adapters: AdapterSet) -> Self {
        let jobs = self.jobs.into_iter();
        let jobs = jobs.map(|job| job.with_adapters(adapters)).collect();
        Self { jobs, ..self }
    }

    /// Allows parts of cached prompts of so many tokens to be moved; `None`: all answers are exact.
    pub(crate) fn with_cache_reuse(self, n_min: Option<usize>) -> Self {
        let Some(n_min) = n_min else { return self };
        let jobs = self.jobs.into_iter();
        let jobs = jobs.map(|job| job.with_cache_reuse(n_min)).collect();
        Self { jobs, ..self }
    }

    /// Keeps the state behind so many tokens of all prompts, if models want to.
    fn with_border(self, border: Option<usize>) -> Self {
        let Some(n) = border else { return self };
        let jobs = self.jobs.into_iter();
        let jobs = jobs.map(|job| job.with_border(n)).collect();
        Self { jobs, ..self }
    }

    /// Whether vectors or scores are wanted instead of texts.
    pub(crate) fn is_embedding(&self) -> bool {
        let mut parsers = self.parsers.iter();
        parsers.any(|parser| matches!(parser, AnswerParser::Embedding(_)))
    }

    pub(crate) fn with_priority(self, priority: u8) -> Self {
        let jobs = self
            .jobs
            .into_iter()
            .map(|job| job.with_priority(priority))
            .collect();
        Self { jobs, ..self }
    }
}

/// Renders the prompt of a conversation. Models that handle short conversations only get its
/// newest turns, with a warning.
pub(crate) fn render(
    model: &Model,
    input: &ChatInput<'_>,
    options: &GenerateOptions,
    warnings: &Warnings,
) -> Result<ChatPrompt, ApiError> {
    let mut extra = model.defaults.variables.clone();
    extra.extend(input.extra.cloned().unwrap_or_default());
    let input = ChatInput {
        now: Some(app::local_now()),
        extra: Some(&extra),
        ..*input
    };
    let prompt = render_as_given(model, &input, options)?;
    let Some(window) = model.talk_window else {
        return Ok(prompt);
    };
    if prompt.prompt.ids.len() <= window {
        return Ok(prompt);
    }
    let (prompt, n_dropped) = shortened(model, &input, options, window)?;
    if n_dropped > 0 {
        let name = &model.name;
        warnings.add(format!(
            "the first {n_dropped} messages were dropped: {name:?} handles short conversations only"
        ));
    }
    Ok(prompt)
}

fn render_as_given(
    model: &Model,
    input: &ChatInput<'_>,
    options: &GenerateOptions,
) -> Result<ChatPrompt, ApiError> {
    let prompt = model.format.prompt(input, options.reply());
    Ok(prompt.map_err(Error::from)?)
}

/// Drops the oldest turns until the prompt has at most `window` tokens; system messages and the
/// last turn always stay. Returns the prompt and the number of dropped messages.
fn shortened(
    model: &Model,
    input: &ChatInput<'_>,
    options: &GenerateOptions,
    window: usize,
) -> Result<(ChatPrompt, usize), ApiError> {
    let messages = input.messages;
    let n_system = messages
        .iter()
        .take_while(|message| message.role == Role::System)
        .count();
    let turns: Vec<usize> = (n_system..messages.len())
        .filter(|&i| messages[i].role == Role::User)
        .collect();
    let render_from = |start: usize| -> Result<(ChatPrompt, usize), ApiError> {
        let shown = [&messages[..n_system], &messages[start..]].concat();
        let input = ChatInput {
            messages: &shown,
            ..*input
        };
        Ok((render_as_given(model, &input, options)?, start - n_system))
    };
    // Each dropped turn makes the prompt shorter: a binary search for the first turn that fits.
    let mut low = 1;
    let mut high = turns.len().saturating_sub(1);
    let mut found = render_from(turns.last().copied().unwrap_or(n_system))?;
    while low < high {
        let middle = (low + high) / 2;
        let rendered = render_from(turns[middle])?;
        if rendered.0.prompt.ids.len() <= window {
            found = rendered;
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(found)
}

/// Counts the tokens of the prompt that a conversation becomes.
pub(crate) fn count_tokens(
    model: &Model,
    input: &ChatInput<'_>,
    options: &GenerateOptions,
    warnings: &Warnings,
) -> Result<usize, ApiError> {
    let chat = render(model, input, options, warnings)?;
    Ok(chat.prompt.ids.len())
}

/// Prepares `n` answers to a conversation.
pub(crate) fn answers(
    model: &Model,
    input: &ChatInput<'_>,
    options: &GenerateOptions,
    n: usize,
    warnings: &Warnings,
) -> Result<Prepared, ApiError> {
    let chat = render(model, input, options, warnings)?;
    let border = tools_border(model, input, options, &chat.prompt.ids);
    let options = options.clone().with_rules(chat.rules);
    let jobs = jobs(model, &chat.prompt.ids, &options, n)
        .map_err(|error| model.engine.blame_tool(error, input.tools))?;
    let parsers = (0..n)
        .map(|_| message_parser(&chat.parser, input))
        .collect();
    Ok(Prepared { jobs, parsers }.with_border(border))
}

/// The tokens of a prompt in front of its tools, where one with other tools parts from it. Only for
/// models with recurrent layers, since the prompt is rendered once more without tools.
fn tools_border(
    model: &Model,
    input: &ChatInput<'_>,
    options: &GenerateOptions,
    ids: &[u32],
) -> Option<usize> {
    input.tools.filter(|_| model.engine.spec().is_recurrent())?;
    let without = ChatInput {
        tools: None,
        ..*input
    };
    let other = render(model, &without, options, &Warnings::default()).ok()?;
    let pairs = ids.iter().zip(&other.prompt.ids);
    Some(pairs.take_while(|(a, b)| a == b).count())
}

/// Puts `before` in front of `ids`, so that the joined prompt has one BOS token, at its start.
fn prepend(before: &[u32], ids: &mut Vec<u32>, bos: Option<u32>) {
    if let Some(&first) = before.first() {
        let is_bos = ids.first() == Some(&first) && bos == Some(first);
        ids.splice(..usize::from(is_bos), before.iter().copied());
    }
}

/// Prepares an answer to a conversation that follows the tokens of an earlier one. Returns the
/// whole prompt, too.
pub(crate) fn answer_after(
    model: &Model,
    before: &[u32],
    input: &ChatInput<'_>,
    options: &GenerateOptions,
    warnings: &Warnings,
) -> Result<(Prepared, Prompt), ApiError> {
    let mut chat = render(model, input, options, warnings)?;
    prepend(before, &mut chat.prompt.ids, model.engine.tokenizer().bos());
    let options = options.clone().with_rules(chat.rules);
    let jobs = jobs(model, &chat.prompt.ids, &options, 1)
        .map_err(|error| model.engine.blame_tool(error, input.tools))?;
    let parsers = vec![message_parser(&chat.parser, input)];
    Ok((Prepared { jobs, parsers }, chat.prompt))
}

fn message_parser(parser: &Parser, input: &ChatInput<'_>) -> AnswerParser {
    let parser = parser.clone().with_id_seed(sampling::random_seed());
    match input.end {
        PromptEnd::WithinLastMessage => AnswerParser::rest_of_message(parser),
        _ => AnswerParser::message(parser),
    }
}

/// Prepares `n` continuations of each prompt.
pub(crate) fn continuations(
    model: &Model,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    n: usize,
) -> Result<Prepared, ApiError> {
    let mut prepared = Prepared::default();
    for ids in prompts {
        prepared.jobs.extend(jobs(model, ids, options, n)?);
        let parsers = (0..n).map(|_| AnswerParser::Plain(String::new()));
        prepared.parsers.extend(parsers);
    }
    Ok(prepared)
}

/// Prepares an embedding, or scores, of each text. A single text has the default priority; lists,
/// which index documents, wait for all other requests.
pub(crate) fn embeddings(texts: Vec<impl Into<Text>>, pooling: Pooling) -> Prepared {
    let priority = match texts.len() {
        1 => DEFAULT_PRIORITY,
        _ => LOW_PRIORITY,
    };
    let jobs: Vec<Job> = texts
        .into_iter()
        .map(|text| Job::embedding(text, pooling))
        .collect();
    let parsers = jobs
        .iter()
        .map(|_| AnswerParser::Embedding(Vec::new()))
        .collect();
    Prepared { jobs, parsers }.with_priority(priority)
}

/// `n` jobs of one prompt, with consecutive seeds.
fn jobs(
    model: &Model,
    ids: &[u32],
    options: &GenerateOptions,
    n: usize,
) -> Result<Vec<Job>, Error> {
    // The batcher checks this, too, but only after a streamed response has begun.
    if ids.is_empty() {
        return Err(Error::EmptyPrompt);
    }
    check_length(model, ids)?;
    let job = |i: usize| {
        let mut options = options.clone();
        options.sampling.seed = options.sampling.seed.wrapping_add(i as u64);
        Ok(Job::new(&model.engine, ids.to_vec(), &options)?.with_priority(DEFAULT_PRIORITY))
    };
    (0..n).map(job).collect()
}

/// Checks that a prompt fits into the context.
///
/// # Errors
/// [`Error::PromptTooLong`].
pub(crate) fn check_length(model: &Model, ids: &[u32]) -> Result<(), Error> {
    let n_prompt = ids.len();
    let n_ctx = model.n_ctx;
    match n_prompt > n_ctx {
        true => Err(Error::PromptTooLong { n_prompt, n_ctx }),
        false => Ok(()),
    }
}
