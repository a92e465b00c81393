//! `POST /v1/messages`.

use std::sync::Arc;

use atta_engine::{GenerateOptions, Job};
use axum::{extract::State, response::Response};
use serde::Deserialize;
use serde_json::Value;

use super::{
    accepted,
    events::MessageWriter,
    messages::WireMessage,
    request::{ConversationFields, Format, OutputConfig, Thinking, Thread},
    response::{MessageEnvelope, whole},
    tools::{Choice, Tool},
};
use crate::{
    app::App,
    flow::{
        body::{Accepted, BodyFields, Incoming},
        error::ApiError,
        prepare::{self, Prepared},
        request::{self, ApiRequest},
        sampling::{Defaults, SamplingFields},
        stream,
        warnings::Warnings,
    },
    models::Model,
};

/// The fields that are kept; [`accepted`] has others.
#[derive(Debug, Deserialize)]
pub(crate) struct MessagesRequest {
    messages: Vec<WireMessage>,
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
    /// The older name of `output_config.format`.
    output_format: Option<Format>,
    thread: Option<Thread>,
}

impl ApiRequest for MessagesRequest {
    const ACCEPTED: Accepted = accepted::FIELDS;

    fn read(fields: BodyFields, warnings: &Warnings) -> Result<Self, ApiError> {
        fields.rest(Self::ACCEPTED, warnings)
    }

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

impl MessagesRequest {
    /// Divides the fields into those of the conversation and the options.
    fn into_parts(
        self,
        defaults: &Defaults,
    ) -> Result<(ConversationFields, GenerateOptions), ApiError> {
        let sampling = SamplingFields {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            stop: self.stop_sequences,
            max_tokens: Some(self.max_tokens),
            ..SamplingFields::default()
        };
        let mut output_config = self.output_config.unwrap_or_default();
        output_config.format = output_config.format.or(self.output_format);
        let conversation = ConversationFields {
            messages: self.messages,
            system: self.system,
            tools: self.tools,
            tool_choice: self.tool_choice,
            thinking: self.thinking,
            output_config: Some(output_config),
            thread: self.thread,
        };
        Ok((conversation, sampling.into_options(defaults)?))
    }
}

/// How an answer is sent.
struct MessageReply {
    stream: bool,
    stop_sequences: Vec<String>,
    n_prompt: usize,
}

/// Answers a conversation.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let (answers, reply) = request::submit(&app, incoming, prepare).await?;
    let envelope = MessageEnvelope {
        id: app.id("msg_"),
        model: Arc::clone(answers.model()),
        stop_sequences: reply.stop_sequences,
    };
    match reply.stream {
        true => {
            let writer = MessageWriter::new(envelope, reply.n_prompt);
            Ok(stream::events(answers, writer))
        }
        false => whole(&envelope, answers).await,
    }
}

fn prepare(
    model: &Model,
    request: MessagesRequest,
    warnings: &Warnings,
) -> Result<(Prepared, MessageReply), ApiError> {
    prepare_job(model, request, warnings).map_err(|error| {
        error
            .renamed("stop", "stop_sequences")
            .renamed("response_format", "output_config.format")
    })
}

fn prepare_job(
    model: &Model,
    request: MessagesRequest,
    warnings: &Warnings,
) -> Result<(Prepared, MessageReply), ApiError> {
    let stream = request.stream == Some(true);
    let (fields, options) = request.into_parts(&model.defaults)?;
    let mut conversation = fields.parsed(model, warnings)?;
    let options = GenerateOptions {
        constraint: conversation.constraint.take(),
        ..options
    };
    let prepared = prepare::answers(model, &conversation.input(), &options, 1, warnings)?;
    let reply = MessageReply {
        stream,
        stop_sequences: options.stop,
        n_prompt: prepared.jobs.iter().map(Job::n_prompt).sum(),
    };
    Ok((prepared, reply))
}
