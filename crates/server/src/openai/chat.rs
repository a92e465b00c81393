//! `POST /v1/chat/completions`.

use std::{collections::BTreeMap, sync::Arc};

use atta_engine::{
    GenerateOptions,
    chat::{Message, Said, ToolUse},
    tools::{Outcome, Piece, ToolCall, ToolChoice},
};
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    says::{ResponseFormat, Says, name_results, tool_use},
    tier::Tier,
    wire::{Completion, Thoughts, Usage, done, thought},
};
use crate::{
    answer::{Answers, Happening},
    app::{self, App},
    body::Incoming,
    dialect::Dialect,
    models::Model,
    prepare::{self, Ask, Prepared},
    refusal::Refusal,
    remarks::Remarks,
    sampling::{OneOrMore, Wanted, n_answers},
    stream::{self, Event, Writer},
    worker::Thought,
};

/// Alternatives of a token that may be asked for.
pub(super) const MAX_TOP_LOGPROBS: usize = 20;

/// Variables of a template that say what was said.
const OURS: [&str; 5] = ["messages", "tools", "documents", "add_generation_prompt", "bos_token"];

/// What may be asked for. Fields with an underscore mean nothing to us, and nothing to the answer.
#[derive(Debug, Deserialize)]
pub(crate) struct ChatRequest {
    messages: Vec<Says>,
    model: Option<String>,
    stream: Option<bool>,
    #[serde(default, deserialize_with = "crate::body::object")]
    stream_options: Option<StreamOptions>,
    n: Option<usize>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    stop: Option<OneOrMore>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<usize>,
    min_p: Option<f32>,
    typical_p: Option<f32>,
    repeat_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    logit_bias: Option<BTreeMap<String, f32>>,
    seed: Option<i64>,
    logprobs: Option<bool>,
    top_logprobs: Option<usize>,
    #[serde(default, deserialize_with = "crate::body::object")]
    response_format: Option<ResponseFormat>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    /// Further variables of the chat template.
    chat_template_kwargs: Option<Map<String, Value>>,
    #[serde(rename = "user")]
    _user: Option<String>,
    #[serde(rename = "metadata")]
    _metadata: Option<Value>,
    store: Option<bool>,
    modalities: Option<Vec<String>>,
    service_tier: Option<Tier>,
    #[serde(rename = "safety_identifier")]
    _safety_identifier: Option<String>,
    #[serde(rename = "prompt_cache_key")]
    _prompt_cache_key: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct StreamOptions {
    include_usage: Option<bool>,
    include_obfuscation: Option<bool>,
}

impl StreamOptions {
    /// Whether the last chunk tells what was used.
    pub(super) fn includes_usage(&self) -> Result<bool, Refusal> {
        match self.include_obfuscation {
            Some(true) => Err(Refusal::field("stream_options", "include_obfuscation is not supported")),
            _ => Ok(self.include_usage == Some(true)),
        }
    }
}

/// A request that makes sense.
struct Understood {
    messages: Vec<Message>,
    tools: Option<ToolUse>,
    extra: Map<String, Value>,
    options: GenerateOptions,
    how: How,
}

impl ChatRequest {
    fn into_ask(self, max_answers: usize) -> Result<Understood, Refusal> {
        if self.store == Some(true) {
            return Err(Refusal::field("store", "this server stores nothing"));
        }
        if self.modalities.is_some_and(|kinds| kinds != ["text"]) {
            return Err(Refusal::field("modalities", "this server writes text only"));
        }
        let extra = variables(self.chat_template_kwargs)?;
        if self.messages.is_empty() {
            return Err(Refusal::field("messages", "there are no messages"));
        }
        let n_logprobs = match (self.logprobs.unwrap_or(false), self.top_logprobs) {
            (_, Some(n)) if n > MAX_TOP_LOGPROBS => {
                return Err(Refusal::field("top_logprobs", format!("{n}, expected at most {MAX_TOP_LOGPROBS}")));
            }
            (false, Some(n)) if n > 0 => {
                return Err(Refusal::field("top_logprobs", "it is of no use without logprobs: true"));
            }
            (false, _) => None,
            (true, n) => Some(n.unwrap_or(0)),
        };
        let mut messages = self.messages.into_iter().map(Says::into_message).collect::<Result<Vec<_>, _>>()?;
        name_results(&mut messages);
        let tools = tool_use(self.tools, self.tool_choice, self.parallel_tool_calls)?;
        let constraint = self.response_format.map_or(Ok(None), ResponseFormat::into_constraint)?;
        if constraint.is_some() && tools.as_ref().is_some_and(|tools| tools.choice != ToolChoice::None) {
            return Err(Refusal::field(
                "response_format",
                "it cannot be combined with tools; tool_choice: \"none\" may",
            ));
        }
        let wanted = Wanted {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            min_p: self.min_p,
            typical_p: self.typical_p,
            repeat_penalty: self.repeat_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            logit_bias: self.logit_bias,
            seed: self.seed,
            stop: self.stop,
            max_tokens: self.max_completion_tokens.or(self.max_tokens),
            n_logprobs,
        };
        Ok(Understood {
            messages,
            tools,
            extra,
            options: GenerateOptions { constraint, ..wanted.into_options()? },
            how: How {
                n: n_answers(self.n, max_answers)?,
                tier: self.service_tier,
                stream: self.stream == Some(true),
                include_usage: self.stream_options.unwrap_or_default().includes_usage()?,
                logprobs: n_logprobs.is_some(),
            },
        })
    }
}

/// Further variables of a template, none of which is a field of its own.
pub(super) fn variables(given: Option<Map<String, Value>>) -> Result<Map<String, Value>, Refusal> {
    let given = given.unwrap_or_default();
    match OURS.into_iter().find(|&name| given.contains_key(name)) {
        Some(name) => Err(Refusal::field("chat_template_kwargs", format!("{name} is a field of its own"))),
        None => Ok(given),
    }
}

impl Ask for ChatRequest {
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// Answers a conversation.
pub(crate) async fn answer(State(app): State<Arc<App>>, incoming: Incoming) -> Result<Response, Refusal> {
    let (answers, how) = prepare::begin(&app, incoming, prepared).await?;
    let head = Head { id: app.id("chatcmpl-"), created: app::now(), model: Arc::clone(answers.model()) };
    match how.stream {
        true => {
            let held = vec![None; how.n];
            Ok(stream::events(answers, Chunks { head, usage: Usage::default(), how, held }))
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
}

fn prepared(model: &Model, request: ChatRequest, _remarks: &Remarks) -> Result<(Prepared, How), Refusal> {
    let ask = request.into_ask(model.n_jobs)?;
    let tools = ask.tools.as_ref();
    let said = Said { messages: &ask.messages, tools, extra: Some(&ask.extra), ..Said::default() };
    let prepared = prepare::answers(model, &said, &ask.options, ask.how.n)?;
    Ok((prepared.with_priority(ask.how.tier.unwrap_or_default().priority()), ask.how))
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
async fn whole(head: &Head, mut answers: Answers, how: How) -> Result<Response, Refusal> {
    let mut choices = Vec::with_capacity(how.n);
    let mut thoughts: Vec<Vec<Thought>> = (0..how.n).map(|_| Vec::new()).collect();
    let mut usage = Usage::default();
    while let Some(happening) = answers.next().await {
        match happening? {
            (_, Happening::Piece(_)) => {}
            (i, Happening::Thought(one)) => thoughts[i].push(one),
            (index, Happening::End(end)) => {
                usage.add(&end.done);
                let list = std::mem::take(&mut thoughts[index]);
                let content = (!list.is_empty()).then(|| Thoughts { model: &head.model, list });
                let logprobs = content.map(|content| LogProbs { content, refusal: None });
                choices.push(Choice { index, message: message(&end.outcome), logprobs, finish_reason: end.reason() });
            }
        }
    }
    choices.sort_by_key(|choice| choice.index);
    let mut object = head.object("chat.completion");
    object["usage"] = usage.to_json();
    object["service_tier"] = how.tier.unwrap_or_default().name().into();
    Ok(Json(Completion { object, choices }).into_response())
}

fn message(outcome: &Outcome) -> Value {
    let has_content = !outcome.text.is_empty() || outcome.calls.is_empty();
    let mut message = json!({ "role": "assistant", "content": has_content.then_some(&outcome.text), "refusal": null });
    if !outcome.reasoning.is_empty() {
        message["reasoning_content"] = outcome.reasoning.trim().into();
    }
    if !outcome.calls.is_empty() {
        message["tool_calls"] = outcome.calls.iter().map(call).collect();
    }
    message
}

/// A call; its arguments are a text of JSON, as the interface has it.
fn call(call: &ToolCall) -> Value {
    let function = json!({ "name": call.name, "arguments": call.arguments.to_string() });
    json!({ "id": call.id, "type": "function", "function": function })
}

/// An answer in parts.
struct Chunks {
    head: Head,
    usage: Usage,
    how: How,
    /// Text of each answer that waits for the log-probabilities that come with it.
    held: Vec<Option<String>>,
}

impl Chunks {
    fn chunk(&self, i: usize, delta: Value, logprobs: Option<Value>, reason: Option<&str>) -> Value {
        let choice = json!({ "index": i, "delta": delta, "logprobs": logprobs, "finish_reason": reason });
        let mut chunk = self.head.object("chat.completion.chunk");
        chunk["choices"] = json!([choice]);
        if self.how.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }
}

/// What a piece adds to a message.
fn delta(piece: Piece) -> Option<Value> {
    Some(match piece {
        Piece::Text(text) => json!({ "content": text }),
        Piece::Reasoning(text) => json!({ "reasoning_content": text }),
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

impl Writer for Chunks {
    fn begin(&mut self) -> Vec<Event> {
        let first = |i| self.chunk(i, json!({ "role": "assistant", "content": "" }), None, None).into();
        (0..self.how.n).map(first).collect()
    }

    fn write(&mut self, i: usize, happening: Happening) -> Vec<Event> {
        if let Happening::Thought(one) = happening {
            let logprobs = json!({ "content": [thought(&self.head.model, &one)], "refusal": null });
            let text = self.held[i].take().unwrap_or_default();
            return vec![self.chunk(i, json!({ "content": text }), Some(logprobs), None).into()];
        }
        let held = self.held[i].take().map(|text| self.chunk(i, json!({ "content": text }), None, None));
        let delta = match happening {
            Happening::Piece(Piece::Text(text)) if self.how.logprobs => {
                self.held[i] = Some(text);
                None
            }
            Happening::Piece(piece) => delta(piece).map(|delta| self.chunk(i, delta, None, None)),
            Happening::End(end) => {
                self.usage.add(&end.done);
                Some(self.chunk(i, json!({}), None, Some(end.reason())))
            }
            Happening::Thought(_) => None,
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
        vec![last.into(), done()]
    }

    fn fail(&mut self, refusal: &Refusal) -> Vec<Event> {
        vec![Dialect::OpenAi.error(refusal, None).into()]
    }
}
