//! `POST /v1/chat/completions`.

use std::{collections::BTreeMap, sync::Arc};

use atta_engine::{
    Constraint, GenerateOptions,
    chat::{ChatInput, Message, PromptEnd, Role, ToolUse},
    tools::{Outcome, Piece, ToolCall},
};
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    messages::{self, Says},
    response::{Completion, Thoughts, Usage, done, thought},
    tier::Tier,
};
use crate::{
    api::flavor::ApiFlavor,
    app::{self, App},
    flow::logprobs::TokenLogprobs,
    flow::{
        answer::{AnswerEnd, AnswerEvent, Answers},
        body::{Accepted, Incoming},
        error::ApiError,
        format::{self, OtherFormats, ResponseFormat, Structured},
        prepare::{self, Ask, Asked, Prepared},
        sampling::{OneOrMore, RESERVED_VARIABLES, SamplingFields, n_answers},
        stream::{self, Event, EventWriter},
        thinking::Thinking,
        tools::ToolRequest,
        warnings::Warnings,
    },
    models::Model,
};

/// Alternatives of a token that may be asked for.
pub(super) const MAX_TOP_LOGPROBS: usize = 20;

/// What may be asked for, and is kept or refused.
#[derive(Debug, Deserialize)]
pub(crate) struct ChatRequest {
    messages: Vec<Says>,
    model: Option<String>,
    stream: Option<bool>,
    #[serde(default, deserialize_with = "crate::flow::body::object")]
    stream_options: Option<StreamOptions>,
    n: Option<usize>,
    #[serde(default, deserialize_with = "crate::flow::sampling::no_limit")]
    max_tokens: Option<usize>,
    #[serde(default, deserialize_with = "crate::flow::sampling::no_limit")]
    max_completion_tokens: Option<usize>,
    /// What llama.cpp's server calls it.
    #[serde(default, deserialize_with = "crate::flow::sampling::no_limit")]
    n_predict: Option<usize>,
    stop: Option<OneOrMore>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    #[serde(default, deserialize_with = "crate::flow::sampling::top_k")]
    top_k: Option<usize>,
    min_p: Option<f32>,
    typical_p: Option<f32>,
    repeat_penalty: Option<f32>,
    /// What vLLM calls it.
    repetition_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    #[serde(default, deserialize_with = "crate::flow::sampling::logit_bias")]
    logit_bias: Option<BTreeMap<String, f32>>,
    seed: Option<i64>,
    logprobs: Option<bool>,
    top_logprobs: Option<usize>,
    #[serde(default, deserialize_with = "crate::flow::body::object")]
    response_format: Option<ResponseFormat>,
    /// llama.cpp's server's.
    grammar: Option<String>,
    json_schema: Option<Value>,
    /// vLLM's.
    #[serde(default, deserialize_with = "crate::flow::body::object")]
    structured_outputs: Option<Structured>,
    guided_json: Option<Value>,
    guided_regex: Option<String>,
    guided_choice: Option<Vec<String>>,
    guided_grammar: Option<Value>,
    continue_final_message: Option<bool>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    /// The old form of tools.
    functions: Option<Vec<Value>>,
    function_call: Option<Value>,
    reasoning_effort: Option<String>,
    /// OpenRouter's word for it.
    reasoning: Option<Value>,
    enable_thinking: Option<bool>,
    /// Further variables of the chat template.
    chat_template_kwargs: Option<Map<String, Value>>,
    modalities: Option<Vec<String>>,
    service_tier: Option<Tier>,
}

/// Of a stream; what else may stand here changes nothing.
#[derive(Debug, Default, Deserialize)]
pub(super) struct StreamOptions {
    include_usage: Option<bool>,
}

impl StreamOptions {
    /// Whether the last chunk tells what was used.
    pub(super) fn includes_usage(&self) -> bool {
        self.include_usage == Some(true)
    }
}

/// A request that makes sense.
struct Understood {
    messages: Vec<Message>,
    tools: Option<ToolUse>,
    extra: Map<String, Value>,
    end: PromptEnd,
    options: GenerateOptions,
    how: How,
}

impl Understood {
    fn said(&self) -> ChatInput<'_> {
        let tools = self.tools.as_ref();
        ChatInput {
            messages: &self.messages,
            tools,
            extra: Some(&self.extra),
            end: self.end,
            ..ChatInput::default()
        }
    }
}

impl ChatRequest {
    fn into_ask(mut self, model: &Model, warnings: &Warnings) -> Result<Understood, ApiError> {
        self.refuse_unsupported()?;
        let mut extra = variables(self.chat_template_kwargs.take())?;
        self.thinking()
            .set("reasoning_effort", model, &mut extra, warnings);
        let n_logprobs = self.n_logprobs()?;
        let messages = messages::messages(std::mem::take(&mut self.messages), warnings)?;
        let end = self.end(&messages)?;
        let is_old_form = self.functions.is_some() && self.tools.is_none();
        let request = ToolRequest {
            tools: self.tools.take(),
            choice: self.tool_choice.take(),
            parallel: self.parallel_tool_calls,
        };
        let tools = request
            .or_functions(self.functions.take(), self.function_call.take())
            .into_use(warnings)?;
        let how = How {
            n: n_answers(self.n, model.n_jobs)?,
            tier: self.service_tier,
            stream: self.stream == Some(true),
            include_usage: self
                .stream_options
                .take()
                .unwrap_or_default()
                .includes_usage(),
            logprobs: n_logprobs.is_some(),
            is_old_form,
        };
        let constraint = self.constraint(warnings)?;
        let options = GenerateOptions {
            constraint,
            ..self
                .into_sampling(n_logprobs)
                .into_options(&model.defaults)?
        };
        Ok(Understood {
            messages,
            tools,
            extra,
            end,
            options,
            how,
        })
    }

    fn refuse_unsupported(&self) -> Result<(), ApiError> {
        if self
            .modalities
            .as_ref()
            .is_some_and(|kinds| kinds != &["text"])
        {
            return Err(ApiError::field(
                "modalities",
                "this server writes text only",
            ));
        }
        if self.guided_grammar.is_some() {
            return Err(ApiError::field(
                "guided_grammar",
                "it is not supported; the field \"grammar\" takes GBNF",
            ));
        }
        Ok(())
    }

    /// Where the prompt ends.
    fn end(&self, messages: &[Message]) -> Result<PromptEnd, ApiError> {
        let is_open = messages
            .last()
            .is_some_and(|last| last.role == Role::Assistant && last.tool_calls.is_empty());
        match self.continue_final_message {
            Some(true) if is_open => Ok(PromptEnd::WithinLastMessage),
            Some(true) => {
                let message = "the last message must be an assistant message without tool calls";
                Err(ApiError::field("continue_final_message", message))
            }
            _ => Ok(PromptEnd::Answer),
        }
    }

    fn thinking(&self) -> Thinking {
        let reasoning = self.reasoning.as_ref();
        let effort = self.reasoning_effort.clone();
        let effort = effort.or_else(|| reasoning?.get("effort")?.as_str().map(str::to_owned));
        let enable = self
            .enable_thinking
            .or_else(|| reasoning?.get("enabled")?.as_bool());
        Thinking { effort, enable }
    }

    fn n_logprobs(&self) -> Result<Option<usize>, ApiError> {
        match (self.logprobs.unwrap_or(false), self.top_logprobs) {
            (_, Some(n)) if n > MAX_TOP_LOGPROBS => Err(ApiError::field(
                "top_logprobs",
                format!("{n}, expected at most {MAX_TOP_LOGPROBS}"),
            )),
            (false, Some(n)) if n > 0 => Err(ApiError::field(
                "top_logprobs",
                "it is of no use without logprobs: true",
            )),
            (false, _) => Ok(None),
            (true, n) => Ok(Some(n.unwrap_or(0))),
        }
    }

    /// What the text must look like.
    fn constraint(&mut self, warnings: &Warnings) -> Result<Option<Constraint>, ApiError> {
        let others = OtherFormats {
            grammar: self.grammar.take(),
            json_schema: self.json_schema.take(),
            structured_outputs: self.structured_outputs.take(),
            guided_json: self.guided_json.take(),
            guided_regex: self.guided_regex.take(),
            guided_choice: self.guided_choice.take(),
        };
        format::wanted(self.response_format.take(), others, warnings)
    }

    fn into_sampling(self, n_logprobs: Option<usize>) -> SamplingFields {
        SamplingFields {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            min_p: self.min_p,
            typical_p: self.typical_p,
            repeat_penalty: self.repeat_penalty.or(self.repetition_penalty),
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            logit_bias: self.logit_bias,
            seed: self.seed,
            stop: self.stop,
            max_tokens: self
                .max_completion_tokens
                .or(self.max_tokens)
                .or(self.n_predict),
            n_logprobs,
        }
    }
}

/// Further variables of a template, none of which is a field of its own.
pub(crate) fn variables(given: Option<Map<String, Value>>) -> Result<Map<String, Value>, ApiError> {
    let given = given.unwrap_or_default();
    match RESERVED_VARIABLES
        .into_iter()
        .find(|&name| given.contains_key(name))
    {
        Some(name) => Err(ApiError::field(
            "chat_template_kwargs",
            format!("{name} is a field of its own"),
        )),
        None => Ok(given),
    }
}

impl Ask for ChatRequest {
    const ACCEPTED: Accepted = &[
        ("user", "there are no accounts"),
        ("safety_identifier", "there are no accounts"),
        ("metadata", "this server stores nothing"),
        ("store", "this server stores nothing"),
        ("verbosity", "no model here has a switch for it"),
        ("prompt_cache_key", "the beginnings of all prompts are kept"),
        (
            "prompt_cache_retention",
            "the beginnings of all prompts are kept",
        ),
        ("cache_prompt", "the beginnings of all prompts are kept"),
        ("prediction", "it would only make the answer faster"),
        ("web_search_options", "this server does not search"),
        ("id_slot", "the server gives out its slots"),
        ("samplers", "samplers have one order"),
        ("add_generation_prompt", "an answer always follows"),
        ("reasoning_format", "thoughts are always reasoning_content"),
        ("include_reasoning", "thoughts are always reasoning_content"),
        ("parse_tool_calls", "calls are always parsed"),
        ("timings_per_token", "times are those of /metrics"),
        ("messages[].id", "messages are known by their order"),
        (
            "messages[].reasoning_details",
            "thoughts are taken from reasoning_content or reasoning",
        ),
        (
            "messages[].thinking_blocks",
            "thoughts are taken from reasoning_content or reasoning",
        ),
        (
            "messages[].provider_specific_fields",
            "they are those of another server",
        ),
        (
            "messages[].cache_control",
            "the beginnings of all prompts are kept",
        ),
    ];

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// Answers a conversation.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let (answers, how) = prepare::begin(&app, incoming, prepared).await?;
    let head = Head {
        id: app.id("chatcmpl-"),
        created: app::now(),
        model: Arc::clone(answers.model()),
    };
    match how.stream {
        true => {
            let held = vec![None; how.n];
            Ok(stream::events(
                answers,
                Chunks {
                    head,
                    usage: Usage::default(),
                    timings: None,
                    how,
                    held,
                },
            ))
        }
        false => whole(&head, answers, how).await,
    }
}

/// How the answers are to be sent.
#[derive(Clone, Copy)]
struct How {
    n: usize,
    tier: Option<Tier>,
    stream: bool,
    include_usage: bool,
    logprobs: bool,
    /// Whether a call is a `function_call`.
    is_old_form: bool,
}

fn prepared(
    model: &Model,
    request: ChatRequest,
    warnings: &Warnings,
) -> Result<(Prepared, How), ApiError> {
    let ask = request.into_ask(model, warnings)?;
    let prepared = prepare::answers(model, &ask.said(), &ask.options, ask.how.n)?;
    Ok((
        prepared.with_priority(ask.how.tier.unwrap_or_default().priority()),
        ask.how,
    ))
}

/// Counts the tokens of a prompt.
pub(crate) async fn count(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let count = |model: &Model, request: ChatRequest, warnings: &Warnings| {
        let ask = request.into_ask(model, warnings)?;
        Ok(prepare::ask(model, &ask.said(), &ask.options)?
            .0
            .prompt
            .ids
            .len())
    };
    let n_tokens = Asked::read(&app, incoming).await?.map(count).await?;
    Ok(counted(n_tokens))
}

/// How many tokens a prompt has.
pub(super) fn counted(n_tokens: usize) -> Response {
    Json(json!({ "object": "response.input_tokens", "input_tokens": n_tokens })).into_response()
}

/// What is the same in all parts of an answer.
struct Head {
    id: String,
    created: u64,
    model: Arc<Model>,
}

impl Head {
    /// All but the choices.
    fn object(&self, kind: &str) -> Value {
        json!({
            "id": self.id, "object": kind, "created": self.created, "model": self.model.name,
            "system_fingerprint": null,
        })
    }
}

#[derive(Serialize)]
struct Choice<'a> {
    index: usize,
    message: Value,
    logprobs: Option<LogProbs<'a>>,
    finish_reason: &'static str,
}

#[derive(Serialize)]
struct LogProbs<'a> {
    content: Thoughts<'a>,
    refusal: Option<&'a str>,
}

/// All answers, when they are complete.
async fn whole(head: &Head, mut answers: Answers, how: How) -> Result<Response, ApiError> {
    let mut choices = Vec::with_capacity(how.n);
    let mut thoughts: Vec<Vec<TokenLogprobs>> = (0..how.n).map(|_| Vec::new()).collect();
    let mut cut: Vec<CutCall> = (0..how.n).map(|_| CutCall::default()).collect();
    let (mut usage, mut timings) = (Usage::default(), None);
    while let Some(event) = answers.next().await {
        match event? {
            (i, AnswerEvent::Piece(piece)) => cut[i].hear(piece),
            (i, AnswerEvent::Logprobs(one)) => thoughts[i].push(one),
            (index, AnswerEvent::End(end)) => {
                usage.add(&end.done);
                timings = (how.n == 1).then(|| end.timings());
                let list = std::mem::take(&mut thoughts[index]);
                let content = (!list.is_empty()).then(|| Thoughts {
                    model: &head.model,
                    list,
                });
                let logprobs = content.map(|content| LogProbs {
                    content,
                    refusal: None,
                });
                let calls: Vec<Value> = end
                    .outcome
                    .calls
                    .iter()
                    .map(call)
                    .chain(cut[index].call.take())
                    .collect();
                let message = message(&end.outcome, calls, how);
                choices.push(Choice {
                    index,
                    message,
                    logprobs,
                    finish_reason: reason(&end, how),
                });
            }
        }
    }
    choices.sort_by_key(|choice| choice.index);
    let mut object = head.object("chat.completion");
    object["usage"] = usage.to_json();
    if let Some(timings) = timings {
        object["timings"] = timings;
    }
    object["service_tier"] = how.tier.unwrap_or_default().name().into();
    Ok(Json(Completion { object, choices }).into_response())
}

/// The call that the end of an answer has cut, as a stream tells of it: with the arguments that
/// there are.
#[derive(Default)]
struct CutCall {
    call: Option<Value>,
}

impl CutCall {
    fn hear(&mut self, piece: Piece) {
        match (piece, &mut self.call) {
            (Piece::CallBegin { id, name, .. }, _) => self.call = Some(object(&id, &name, "")),
            (Piece::CallArguments { fragment, .. }, Some(call)) => {
                let arguments = &mut call["function"]["arguments"];
                *arguments = (arguments.as_str().unwrap_or_default().to_owned() + &fragment).into();
            }
            (Piece::Call(_), _) => self.call = None,
            _ => {}
        }
    }
}

fn message(outcome: &Outcome, mut calls: Vec<Value>, how: How) -> Value {
    let has_content = !outcome.text.is_empty() || calls.is_empty();
    let mut message = json!({ "role": "assistant", "content": has_content.then_some(&outcome.text), "refusal": null });
    if !outcome.reasoning.is_empty() {
        message["reasoning_content"] = outcome.reasoning.trim().into();
    }
    match calls.first_mut() {
        Some(first) if how.is_old_form => message["function_call"] = first["function"].take(),
        Some(_) => message["tool_calls"] = calls.into(),
        None => {}
    }
    message
}

/// Why an answer ended.
fn reason(end: &AnswerEnd, how: How) -> &'static str {
    match end.reason() {
        "tool_calls" if how.is_old_form => "function_call",
        reason => reason,
    }
}

/// A call; its arguments are a text of JSON, as the interface has it.
fn call(call: &ToolCall) -> Value {
    object(&call.id, &call.name, &call.arguments.to_string())
}

fn object(id: &str, name: &str, arguments: &str) -> Value {
    json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
}

/// An answer in parts.
struct Chunks {
    head: Head,
    usage: Usage,
    /// Of the only answer.
    timings: Option<Value>,
    how: How,
    /// Text of each answer that waits for the log-probabilities that come with it.
    held: Vec<Option<String>>,
}

impl Chunks {
    fn chunk(
        &self,
        i: usize,
        delta: Value,
        logprobs: Option<Value>,
        reason: Option<&str>,
    ) -> Value {
        let choice =
            json!({ "index": i, "delta": delta, "logprobs": logprobs, "finish_reason": reason });
        let mut chunk = self.head.object("chat.completion.chunk");
        chunk["choices"] = json!([choice]);
        if self.how.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }
}

/// What a piece adds to a message.
fn delta(piece: Piece, how: How) -> Option<Value> {
    Some(match piece {
        Piece::Text(text) => json!({ "content": text }),
        Piece::Reasoning(text) => json!({ "reasoning_content": text }),
        Piece::CallBegin { name, .. } if how.is_old_form => {
            json!({ "function_call": { "name": name, "arguments": "" } })
        }
        Piece::CallArguments { fragment, .. } if how.is_old_form => {
            json!({ "function_call": { "arguments": fragment } })
        }
        Piece::CallBegin { index, id, name } => {
            let function = json!({ "name": name, "arguments": "" });
            json!({ "tool_calls": [{ "index": index, "id": id, "type": "function", "function": function }] })
        }
        Piece::CallArguments { index, fragment } => {
            json!({ "tool_calls": [{ "index": index, "function": { "arguments": fragment } }] })
        }
        // A call that was cut off stays what it is: there is no way to take it back.
        Piece::Call(_) | Piece::CallBroken { .. } => return None,
    })
}

impl EventWriter for Chunks {
    fn begin(&mut self) -> Vec<Event> {
        let first = |i| {
            self.chunk(
                i,
                json!({ "role": "assistant", "content": null }),
                None,
                None,
            )
            .into()
        };
        (0..self.how.n).map(first).collect()
    }

    fn write(&mut self, i: usize, event: AnswerEvent) -> Vec<Event> {
        if let AnswerEvent::Logprobs(one) = event {
            let logprobs = json!({ "content": [thought(&self.head.model, &one)], "refusal": null });
            let text = self.held[i].take().unwrap_or_default();
            return vec![
                self.chunk(i, json!({ "content": text }), Some(logprobs), None)
                    .into(),
            ];
        }
        let held = self.held[i]
            .take()
            .map(|text| self.chunk(i, json!({ "content": text }), None, None));
        let delta = match event {
            AnswerEvent::Piece(Piece::Text(text)) if self.how.logprobs => {
                self.held[i] = Some(text);
                None
            }
            AnswerEvent::Piece(piece) => {
                delta(piece, self.how).map(|delta| self.chunk(i, delta, None, None))
            }
            AnswerEvent::End(end) => {
                self.usage.add(&end.done);
                self.timings = (self.how.n == 1).then(|| end.timings());
                let mut chunk = self.chunk(i, json!({}), None, Some(reason(&end, self.how)));
                if let Some(timings) = self.timings.take_if(|_| !self.how.include_usage) {
                    chunk["timings"] = timings;
                }
                Some(chunk)
            }
            AnswerEvent::Logprobs(_) => None,
        };
        held.into_iter().chain(delta).map(Event::from).collect()
    }

    fn end(&mut self) -> Vec<Event> {
        if !self.how.include_usage {
            return vec![done()];
        }
        let mut last = self.head.object("chat.completion.chunk");
        last["choices"] = json!([]);
        last["usage"] = self.usage.to_json();
        if let Some(timings) = self.timings.take() {
            last["timings"] = timings;
        }
        vec![last.into(), done()]
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        vec![ApiFlavor::OpenAi.error(error, None).into()]
    }
}
