//! What may be asked for, and what it means.

use std::collections::BTreeMap;

use atta_engine::{
    Constraint, GenerateOptions, Sampling,
    chat::{ChatInput, Message, ToolUse},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{input, tools::Names};
use crate::{
    api::openai::{
        chat::{MAX_TOP_LOGPROBS, variables},
        tier::Tier,
    },
    flow::{
        body::Accepted,
        error::ApiError,
        format,
        prepare::Ask,
        sampling::{Defaults, OneOrMore, SamplingFields},
        thinking::Thinking,
        tools::ToolRequest,
        warnings::Warnings,
    },
};

/// What has to be included for log-probabilities.
const LOGPROBS: &str = "message.output_text.logprobs";

/// A request. Some of its fields mean nothing to us, and are told as they came.
#[derive(Debug, Deserialize)]
pub(crate) struct ResponseRequest {
    input: Value,
    model: Option<String>,
    instructions: Option<String>,
    stream: Option<bool>,
    #[serde(default, deserialize_with = "crate::flow::sampling::no_limit")]
    max_output_tokens: Option<usize>,
    stop: Option<OneOrMore>,
    seed: Option<i64>,
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
    include: Option<Vec<String>>,
    top_logprobs: Option<usize>,
    #[serde(default, deserialize_with = "crate::flow::body::object")]
    text: Option<Text>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    #[serde(default, deserialize_with = "crate::flow::body::object")]
    reasoning: Option<Reasoning>,
    /// Further variables of the chat template.
    chat_template_kwargs: Option<Map<String, Value>>,
    metadata: Option<Map<String, Value>>,
    user: Option<String>,
    safety_identifier: Option<String>,
    prompt_cache_key: Option<String>,
    service_tier: Option<Tier>,
    background: Option<bool>,
    previous_response_id: Option<Value>,
    conversation: Option<Value>,
    prompt: Option<Value>,
}

/// How much the model is to think; what else may stand here changes nothing.
#[derive(Debug, Default, Deserialize)]
struct Reasoning {
    effort: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Text {
    #[serde(default, deserialize_with = "crate::flow::body::object")]
    format: Option<Format>,
    verbosity: Option<Value>,
}

/// What the text must look like; a name and a description say nothing here.
#[derive(Debug, Deserialize)]
struct Format {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    schema: Option<Value>,
    description: Option<String>,
    strict: Option<bool>,
}

impl Format {
    fn constraint(&self, warnings: &Warnings) -> Result<Option<Constraint>, ApiError> {
        let wrong = |message: String| Err(ApiError::field("text", message));
        match (self.kind.as_str(), &self.schema) {
            ("text", _) => Ok(None),
            ("json_object", None) => Ok(Some(Constraint::JsonObject)),
            ("json_object" | "json_schema", Some(schema)) => {
                format::constraint(schema, self.strict == Some(true), warnings).map(Some)
            }
            ("json_schema", None) => wrong("format: the schema is missing".to_owned()),
            (kind, _) => wrong(format!("format: type {kind:?} is not supported")),
        }
    }

    /// As it is told.
    fn to_json(&self) -> Value {
        let Self {
            kind,
            name,
            schema,
            description,
            strict,
        } = self;
        match schema {
            None => json!({ "type": kind }),
            Some(schema) => json!({
                "type": kind, "name": name, "schema": schema, "description": description, "strict": strict,
            }),
        }
    }
}

/// A request that makes sense.
pub(super) struct Understood {
    pub(super) messages: Vec<Message>,
    pub(super) system: Option<String>,
    pub(super) tools: Option<ToolUse>,
    pub(super) extra: Map<String, Value>,
    pub(super) thinking: Thinking,
    pub(super) options: GenerateOptions,
    pub(super) tier: Tier,
    pub(super) how: How,
}

impl Understood {
    pub(super) fn said(&self) -> ChatInput<'_> {
        let (messages, tools, system) = (
            &self.messages[..],
            self.tools.as_ref(),
            self.system.as_deref(),
        );
        ChatInput {
            messages,
            tools,
            system,
            extra: Some(&self.extra),
            ..ChatInput::default()
        }
    }
}

/// How the response is to be sent.
pub(super) struct How {
    pub(super) stream: bool,
    pub(super) logprobs: bool,
    /// Tools in the form that the client knows.
    pub(super) names: Names,
    /// What was asked for, as the response tells it.
    pub(super) settings: Value,
}

impl Ask for ResponseRequest {
    const ACCEPTED: Accepted = &[
        ("client_metadata", "this server stores nothing"),
        ("store", "this server stores nothing"),
        (
            "stream_options",
            "nothing is obfuscated, and usage always stands in the last event",
        ),
        (
            "truncation",
            "a conversation that is too long is refused; nothing is left out of it",
        ),
        ("max_tool_calls", "this server calls no tools itself"),
        (
            "prompt_cache_retention",
            "the beginnings of all prompts are kept",
        ),
        (
            "context_management",
            "a conversation that is too long is refused; nothing is left out of it",
        ),
    ];

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

impl ResponseRequest {
    pub(super) fn into_ask(
        mut self,
        defaults: &Defaults,
        warnings: &Warnings,
    ) -> Result<Understood, ApiError> {
        self.refuse_unsupported()?;
        let n_logprobs = self.n_logprobs(warnings)?;
        let text = self.text.take().unwrap_or_default();
        if text.verbosity.is_some() {
            warnings.add("text.verbosity changes nothing here: no model here has a switch for it");
        }
        let given = self.tools.take().unwrap_or_default();
        let settings = self.settings(&given, &text, &defaults.sampling);
        let mut names = Names::default();
        let request = ToolRequest {
            tools: Some(names.declare(&given)),
            choice: self.tool_choice.take(),
            parallel: self.parallel_tool_calls,
        };
        let tools = request.into_use(warnings)?;
        let constraint = text
            .format
            .map_or(Ok(None), |format| format.constraint(warnings))?;
        let mut messages = input::messages(std::mem::take(&mut self.input), warnings)?;
        let system = input::system(self.instructions.take(), &mut messages);
        let how = How {
            stream: self.stream == Some(true),
            logprobs: n_logprobs.is_some(),
            names,
            settings,
        };
        let (extra, tier) = (
            variables(self.chat_template_kwargs.take())?,
            self.service_tier.unwrap_or_default(),
        );
        let thinking = Thinking {
            effort: self.reasoning.take().unwrap_or_default().effort,
            enable: None,
        };
        let options = GenerateOptions {
            constraint,
            ..self.into_sampling(n_logprobs).into_options(defaults)?
        };
        Ok(Understood {
            messages,
            system,
            tools,
            extra,
            thinking,
            options,
            tier,
            how,
        })
    }

    fn refuse_unsupported(&self) -> Result<(), ApiError> {
        let refuse = |name: &str, message: &str| Err(ApiError::field(name, message));
        if self.background == Some(true) {
            return refuse(
                "background",
                "this server stores nothing that could be asked for later",
            );
        }
        if self.previous_response_id.is_some() {
            return refuse(
                "previous_response_id",
                "this server stores no responses: send the whole conversation",
            );
        }
        if self.conversation.is_some() {
            return refuse(
                "conversation",
                "this server stores no conversations: send the whole of it",
            );
        }
        if self.prompt.is_some() {
            return refuse("prompt", "this server stores no prompts: send its text");
        }
        Ok(())
    }

    fn n_logprobs(&self, warnings: &Warnings) -> Result<Option<usize>, ApiError> {
        let include = self.include.as_deref().unwrap_or_default();
        for other in include.iter().filter(|&name| name != LOGPROBS) {
            warnings.add(format!(
                "include: {other:?} changes nothing here: there is no such thing"
            ));
        }
        match (
            include.iter().any(|name| name == LOGPROBS),
            self.top_logprobs.unwrap_or(0),
        ) {
            (_, n) if n > MAX_TOP_LOGPROBS => Err(ApiError::field(
                "top_logprobs",
                format!("{n}, expected at most {MAX_TOP_LOGPROBS}"),
            )),
            (false, 0) => Ok(None),
            (false, _) => Err(ApiError::field(
                "top_logprobs",
                format!("it is of no use without include: [{LOGPROBS:?}]"),
            )),
            (true, n) => Ok(Some(n)),
        }
    }

    fn settings(&self, tools: &[Value], text: &Text, default: &Sampling) -> Value {
        let format = text
            .format
            .as_ref()
            .map_or_else(|| json!({ "type": "text" }), Format::to_json);
        json!({
            "background": false,
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens.filter(|&n| n < usize::MAX),
            "max_tool_calls": null,
            "metadata": self.metadata.clone().unwrap_or_default(),
            "parallel_tool_calls": self.parallel_tool_calls.unwrap_or(true),
            "previous_response_id": null,
            "prompt_cache_key": self.prompt_cache_key,
            "reasoning": { "effort": self.reasoning.as_ref().and_then(|how| how.effort.clone()), "summary": null },
            "safety_identifier": self.safety_identifier,
            "service_tier": self.service_tier.unwrap_or_default().name(),
            "store": false,
            "temperature": number(self.temperature.unwrap_or(default.temperature)),
            "text": { "format": format, "verbosity": text.verbosity.clone().unwrap_or_else(|| "medium".into()) },
            "tool_choice": self.tool_choice.clone().unwrap_or_else(|| "auto".into()),
            "tools": tools,
            "top_logprobs": self.top_logprobs.unwrap_or(0),
            "top_p": number(self.top_p.unwrap_or(default.top_p)),
            "truncation": "disabled",
            "user": self.user,
        })
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
            max_tokens: self.max_output_tokens,
            n_logprobs,
        }
    }
}

/// As it is written: 0.8, and not the next number of 32 bits to it.
fn number(x: f32) -> Option<f64> {
    x.to_string().parse().ok()
}

/// What the engine refuses, by the names that fields have here.
pub(super) fn as_named_here(error: ApiError) -> ApiError {
    match error.param.as_deref() {
        Some("messages") => error.about("input"),
        Some("response_format") => error.about("text.format"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask_with_warnings(fields: Value) -> Result<(Understood, Vec<String>), ApiError> {
        let mut body = json!({ "input": "Hello!" });
        body.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let warnings = Warnings::default();
        let bytes = body.to_string();
        let request = crate::flow::body::parse::<ResponseRequest>(
            bytes.as_bytes(),
            ResponseRequest::ACCEPTED,
            &warnings,
        )?;
        Ok((
            request.into_ask(&Defaults::default(), &warnings)?,
            warnings.take(),
        ))
    }

    fn ask(fields: Value) -> Result<Understood, ApiError> {
        ask_with_warnings(fields).map(|(asked, _)| asked)
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let wrong = [
            ("background", json!(true)),
            ("previous_response_id", json!("resp_1")),
            ("conversation", json!("conv_1")),
            ("prompt", json!({ "id": "p" })),
            ("top_logprobs", json!(2)),
            ("tool_choice", json!("required")),
            ("service_tier", json!("gold")),
            ("max_output_tokens", json!(-2)),
            ("input", json!(1)),
            ("text", json!({ "format": { "type": "xml" } })),
            ("chat_template_kwargs", json!({ "messages": [] })),
        ];
        for (name, value) in wrong {
            let error = ask(json!({ name: value })).err();
            assert_eq!(error.and_then(|error| error.param).as_deref(), Some(name));
        }
    }

    #[test]
    fn what_codex_sends_is_taken_with_warnings() {
        let function =
            json!({ "type": "function", "name": "exec", "parameters": {}, "strict": false });
        let (asked, warnings) = ask_with_warnings(json!({
            "client_metadata": { "thread_id": "x" }, "store": false, "reasoning": { "effort": "low", "summary": "auto" },
            "include": ["reasoning.encrypted_content"], "text": { "verbosity": "low" }, "prompt_cache_key": "k",
            "tools": [function, { "type": "web_search" }, { "type": "custom", "name": "apply_patch" },
                { "type": "namespace", "name": "agents", "description": "d", "tools": [function] }],
            "max_output_tokens": -1, "top_k": -1,
        }))
        .map_err(|error| error.message)
        .unwrap();
        let tools = asked.tools.unwrap().tools;
        assert_eq!(
            tools.names().collect::<Vec<_>>(),
            ["exec", "apply_patch", "agents.exec"]
        );
        assert_eq!(asked.thinking.effort.as_deref(), Some("low"));
        assert_eq!(
            (asked.options.n_predict, asked.options.sampling.top_k),
            (usize::MAX, 0)
        );
        let about = [
            "client_metadata",
            "store",
            "reasoning.encrypted_content",
            "text.verbosity",
            "web_search",
        ];
        assert_eq!(warnings.len(), about.len(), "{warnings:?}");
        assert!(
            about
                .iter()
                .all(|what| warnings.iter().any(|warning| warning.contains(what))),
            "{warnings:?}"
        );
        assert!(
            !warnings.iter().any(|warning| warning.contains("unknown")),
            "{warnings:?}"
        );
        assert_eq!(asked.how.settings["max_output_tokens"], Value::Null);
    }

    #[test]
    fn what_is_so_anyway_is_taken_and_told() {
        let text = json!({ "verbosity": "medium", "format": { "type": "json_object" } });
        let usual = json!({
            "background": false, "reasoning": { "effort": null }, "include": [], "text": text,
            "metadata": { "a": "b" }, "temperature": 0.7, "conversation": null,
        });
        let asked = ask(usual).map_err(|error| error.message).unwrap();
        let settings = asked.how.settings;
        assert_eq!(
            (&settings["store"], &settings["text"]),
            (&json!(false), &text)
        );
        assert_eq!(
            (&settings["temperature"], &settings["metadata"]["a"]),
            (&json!(0.7), &json!("b"))
        );
        assert!(matches!(
            asked.options.constraint,
            Some(Constraint::JsonObject)
        ));
    }
}
