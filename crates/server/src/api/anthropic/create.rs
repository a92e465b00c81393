//! `POST /v1/messages`.

use std::sync::Arc;

use atta_engine::{Done, FinishReason, GenerateOptions};
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    accepted,
    content::Content,
    events::Parts,
    messages::Turn,
    request::{Format, OutputConfig, Talk, Thinking, Thread},
    tools::{Choice, Tool},
};
use crate::{
    app::App,
    flow::{
        answer::{AnswerEnd, AnswerEvent, Answers},
        body::{Accepted, Incoming},
        error::ApiError,
        prepare::{self, Ask, Prepared},
        sampling::{Defaults, OneOrMore, SamplingFields},
        stream,
        warnings::Warnings,
    },
    models::Model,
};

/// The fields that are kept; [`accepted`] has others.
#[derive(Debug, Deserialize)]
pub(crate) struct MessagesRequest {
    messages: Vec<Turn>,
    max_tokens: usize,
    model: Option<String>,
    system: Option<Value>,
    stream: Option<bool>,
    stop_sequences: Option<Vec<String>>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<usize>,
    tools: Option<Vec<Tool>>,
    tool_choice: Option<Choice>,
    thinking: Option<Thinking>,
    output_config: Option<OutputConfig>,
    /// As older clients have it: `output_config.format`.
    output_format: Option<Format>,
    thread: Option<Thread>,
}

impl Ask for MessagesRequest {
    const ACCEPTED: Accepted = accepted::FIELDS;

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

impl MessagesRequest {
    fn into_parts(self, defaults: &Defaults) -> Result<(Talk, GenerateOptions), ApiError> {
        let wanted = SamplingFields {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            stop: self.stop_sequences.map(OneOrMore::More),
            max_tokens: Some(self.max_tokens),
            ..SamplingFields::default()
        };
        let mut output_config = self.output_config.unwrap_or_default();
        output_config.format = output_config.format.or(self.output_format);
        let talk = Talk {
            turns: self.messages,
            system: self.system,
            tools: self.tools,
            tool_choice: self.tool_choice,
            thinking: self.thinking,
            output_config: Some(output_config),
            thread: self.thread,
        };
        Ok((talk, wanted.into_options(defaults)?))
    }
}

/// How an answer is to be sent.
struct How {
    stream: bool,
    stops: Vec<String>,
    n_prompt: usize,
}

/// Answers a conversation.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let (
        answers,
        How {
            stream,
            stops,
            n_prompt,
        },
    ) = prepare::begin(&app, incoming, prepared).await?;
    let head = Head {
        id: app.id("msg_"),
        model: Arc::clone(answers.model()),
        stops,
    };
    if stream {
        Ok(stream::events(answers, Parts::new(head, n_prompt)))
    } else {
        whole(&head, answers).await
    }
}

fn prepared(
    model: &Model,
    request: MessagesRequest,
    warnings: &Warnings,
) -> Result<(Prepared, How), ApiError> {
    let stream = request.stream == Some(true);
    let in_their_words = |error: ApiError| {
        error
            .renamed("stop", "stop_sequences")
            .renamed("response_format", "output_config.format")
    };
    let (talk, options) = request
        .into_parts(&model.defaults)
        .map_err(in_their_words)?;
    let talk = talk.understood(model, warnings).map_err(in_their_words)?;
    let options = GenerateOptions {
        constraint: talk.constraint.clone(),
        ..options
    };
    let prepared = prepare::answers(model, &talk.said(), &options, 1).map_err(in_their_words)?;
    let n_prompt = prepared.jobs.iter().map(atta_engine::Job::n_prompt).sum();
    Ok((
        prepared,
        How {
            stream,
            stops: options.stop,
            n_prompt,
        },
    ))
}

/// What is known of an answer before there is any of it.
pub(super) struct Head {
    id: String,
    model: Arc<Model>,
    /// What may end it.
    stops: Vec<String>,
}

impl Head {
    pub(super) fn message(&self, content: Value, ending: &Ending, usage: Value) -> Value {
        json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model.name, "content": content,
            "stop_reason": ending.reason, "stop_sequence": ending.stop, "usage": usage,
        })
    }

    pub(super) fn ending(&self, end: &AnswerEnd) -> Ending {
        let stop = end
            .done
            .stop
            .clone()
            .filter(|stop| self.stops.contains(stop));
        match end.done.finish_reason {
            FinishReason::Length => Ending {
                reason: Some("max_tokens"),
                stop: None,
            },
            _ if !end.outcome.calls.is_empty() => Ending {
                reason: Some("tool_use"),
                stop: None,
            },
            _ if stop.is_some() => Ending {
                reason: Some("stop_sequence"),
                stop,
            },
            _ => Ending {
                reason: Some("end_turn"),
                stop: None,
            },
        }
    }
}

/// Why an answer ended; nothing while it has not.
#[derive(Default)]
pub(super) struct Ending {
    pub(super) reason: Option<&'static str>,
    pub(super) stop: Option<String>,
}

/// What was used. Tokens that did not have to be read are counted apart from the others of the
/// prompt.
pub(super) fn usage(done: &Done) -> Value {
    json!({
        "input_tokens": done.n_prompt - done.n_cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": done.n_cached,
        "output_tokens": done.n_generated,
    })
}

/// The answer, when it is complete.
async fn whole(head: &Head, mut answers: Answers) -> Result<Response, ApiError> {
    let (mut content, mut ended) = (Content::default(), None);
    while let Some(event) = answers.next().await {
        match event?.1 {
            AnswerEvent::Piece(piece) => content.push(piece),
            AnswerEvent::Logprobs(_) => {}
            AnswerEvent::End(end) => ended = Some(end),
        }
    }
    let end = ended.ok_or_else(ApiError::broken)?;
    let message = head.message(content.into_json(), &head.ending(&end), usage(&end.done));
    Ok(Json(message).into_response())
}
