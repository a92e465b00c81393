//! The request of responses: its fields, and the conversation and options that they mean.

use atta_engine::{
    Constraint, GenerateOptions, Sampling,
    chat::{ChatInput, Message, ToolUse},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    super::{
        sampling::{AnswerLimits, OpenAiSampling},
        tier::Tier,
    },
    input,
    tools::ToolNames,
};
use crate::flow::{
    body::Accepted,
    error::ApiError,
    format, logprobs,
    request::{PathFields, PathRequest},
    sampling::{Defaults, max_tokens},
    thinking::{Thinking, template_variables},
    tools::ToolRequest,
    warnings::Warnings,
};

/// The value of `include` that asks for log-probabilities.
const LOGPROBS: &str = "message.output_text.logprobs";

pub(crate) type ResponseRequest = PathRequest<ResponseFields>;

/// The fields of responses alone. Some have no effect and are repeated in the response.
#[derive(Debug, Deserialize)]
pub(crate) struct ResponseFields {
    input: Value,
    model: Option<String>,
    instructions: Option<String>,
    stream: Option<bool>,
    #[serde(default, deserialize_with = "max_tokens")]
    max_output_tokens: Option<usize>,
    include: Option<Vec<String>>,
    top_logprobs: Option<usize>,
    #[serde(default, deserialize_with = "crate::flow::body::object")]
    text: Option<TextFields>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    #[serde(default, deserialize_with = "crate::flow::body::object")]
    reasoning: Option<ReasoningFields>,
    /// Variables of the chat template.
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

/// `reasoning`; its other fields have no effect.
#[derive(Debug, Default, Deserialize)]
struct ReasoningFields {
    effort: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct TextFields {
    #[serde(default, deserialize_with = "crate::flow::body::object")]
    format: Option<TextFormat>,
    verbosity: Option<Value>,
}

/// The format of the text; its name and description have no effect.
#[derive(Debug, Deserialize)]
struct TextFormat {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    schema: Option<Value>,
    description: Option<String>,
    strict: Option<bool>,
}

impl TextFormat {
    fn constraint(&self, warnings: &Warnings) -> Result<Option<Constraint>, ApiError> {
        let is_strict = self.strict == Some(true);
        let schema = self.schema.as_ref();
        format::typed_format("text.format", &self.kind, schema, is_strict, warnings)
    }

    /// As the response repeats it.
    fn to_json(&self) -> Value {
        match &self.schema {
            None => json!({ "type": self.kind }),
            Some(schema) => json!({
                "type": self.kind,
                "name": self.name,
                "schema": schema,
                "description": self.description,
                "strict": self.strict,
            }),
        }
    }
}

/// The conversation, the options and the form of the reply.
pub(super) struct ParsedResponse {
    messages: Vec<Message>,
    system: Option<String>,
    tools: Option<ToolUse>,
    pub(super) variables: Map<String, Value>,
    pub(super) thinking: Thinking,
    pub(super) options: GenerateOptions,
    pub(super) tier: Tier,
    pub(super) reply: ResponseReply,
}

impl ParsedResponse {
    pub(super) fn input(&self) -> ChatInput<'_> {
        ChatInput {
            messages: &self.messages,
            tools: self.tools.as_ref(),
            system: self.system.as_deref(),
            extra: Some(&self.variables),
            ..ChatInput::default()
        }
    }
}

/// How the response is sent.
pub(super) struct ResponseReply {
    pub(super) stream: bool,
    pub(super) logprobs: bool,
    pub(super) names: ToolNames,
    /// Fields of the request, as the response repeats them.
    pub(super) settings: Value,
}

impl PathFields for ResponseFields {
    type Shared = OpenAiSampling;
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
    pub(super) fn parsed(
        self,
        defaults: &Defaults,
        warnings: &Warnings,
    ) -> Result<ParsedResponse, ApiError> {
        let mut response = self.own;
        response.refuse_unsupported()?;
        let n_logprobs = response.n_logprobs(warnings)?;
        let mut names = ToolNames::default();
        let text = response.text.take().unwrap_or_default();
        let reply_settings = response.settings(&text, &self.shared, &defaults.sampling);
        let tools = response.take_tools(&mut names).into_use(warnings)?;
        let mut messages = input::messages(std::mem::take(&mut response.input), warnings)?;
        let limits = AnswerLimits {
            max_tokens: response.max_output_tokens,
            n_logprobs,
        };
        Ok(ParsedResponse {
            system: input::system(response.instructions.take(), &mut messages),
            messages,
            tools,
            variables: template_variables(response.chat_template_kwargs.take())?,
            thinking: Thinking {
                effort: response.reasoning.take().and_then(|fields| fields.effort),
                enable: None,
            },
            options: GenerateOptions {
                constraint: text.into_constraint(warnings)?,
                ..self.shared.into_options(limits, defaults)?
            },
            tier: response.service_tier.unwrap_or_default(),
            reply: ResponseReply {
                stream: response.stream == Some(true),
                logprobs: n_logprobs.is_some(),
                names,
                settings: reply_settings,
            },
        })
    }
}

impl TextFields {
    fn into_constraint(self, warnings: &Warnings) -> Result<Option<Constraint>, ApiError> {
        if self.verbosity.is_some() {
            warnings.add("text.verbosity changes nothing here: no model here has a switch for it");
        }
        match self.format {
            Some(format) => format.constraint(warnings),
            None => Ok(None),
        }
    }
}

impl ResponseFields {
    fn refuse_unsupported(&self) -> Result<(), ApiError> {
        let refuse = |name: &str, message: &str| Err(ApiError::field(name, message));
        if self.background == Some(true) {
            return refuse(
                "background",
                "this server stores nothing that could be parsed for later",
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
        let is_wanted = include.iter().any(|name| name == LOGPROBS);
        let switch = format!("include: [{LOGPROBS:?}]");
        logprobs::n_alternatives(is_wanted, self.top_logprobs, &switch)
    }

    fn take_tools(&mut self, names: &mut ToolNames) -> ToolRequest {
        let tools = self.tools.take().unwrap_or_default();
        ToolRequest {
            tools: Some(names.declare(&tools)),
            choice: self.tool_choice.take(),
            parallel: self.parallel_tool_calls,
        }
    }

    fn settings(&self, text: &TextFields, sampling: &OpenAiSampling, default: &Sampling) -> Value {
        let format = text.format.as_ref();
        let format = format.map_or_else(|| json!({ "type": "text" }), TextFormat::to_json);
        let verbosity = text.verbosity.clone().unwrap_or_else(|| "medium".into());
        let reasoning = self.reasoning.as_ref();
        json!({
            "background": false,
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens.filter(|&n| n < usize::MAX),
            "max_tool_calls": null,
            "metadata": self.metadata.clone().unwrap_or_default(),
            "parallel_tool_calls": self.parallel_tool_calls.unwrap_or(true),
            "previous_response_id": null,
            "prompt_cache_key": self.prompt_cache_key,
            "reasoning": {
                "effort": reasoning.and_then(|fields| fields.effort.as_deref()),
                "summary": null,
            },
            "safety_identifier": self.safety_identifier,
            "service_tier": self.service_tier.unwrap_or_default().name(),
            "store": false,
            "temperature": decimal(sampling.temperature.unwrap_or(default.temperature)),
            "text": { "format": format, "verbosity": verbosity },
            "tool_choice": self.tool_choice.clone().unwrap_or_else(|| "auto".into()),
            "tools": self.tools.as_deref().unwrap_or_default(),
            "top_logprobs": self.top_logprobs.unwrap_or(0),
            "top_p": decimal(sampling.top_p.unwrap_or(default.top_p)),
            "truncation": "disabled",
            "user": self.user,
        })
    }
}

/// The shortest decimal number that reads as `x`: 0.8, not 0.800000011920929.
fn decimal(x: f32) -> Option<f64> {
    x.to_string().parse().ok()
}

/// An error of the engine, with the names that fields have in this interface.
pub(super) fn renamed(error: ApiError) -> ApiError {
    error
        .renamed("messages", "input")
        .renamed("response_format", "text.format")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{body::BodyFields, request::ApiRequest};

    fn with_warnings(fields: Value) -> Result<(ParsedResponse, Vec<String>), ApiError> {
        let mut body = json!({ "input": "Hello!" });
        body.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let warnings = Warnings::default();
        let fields = BodyFields::parse(body.to_string().as_bytes())?;
        let request = ResponseRequest::read(fields, &warnings)?;
        let parsed = request.parsed(&Defaults::default(), &warnings)?;
        Ok((parsed, warnings.take()))
    }

    fn parsed(fields: Value) -> Result<ParsedResponse, ApiError> {
        with_warnings(fields).map(|(parsed, _)| parsed)
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
            ("chat_template_kwargs", json!({ "messages": [] })),
        ];
        for (name, value) in wrong {
            let error = parsed(json!({ name: value })).err();
            assert_eq!(error.and_then(|error| error.param).as_deref(), Some(name));
        }
        let error = parsed(json!({ "text": { "format": { "type": "xml" } } })).err();
        let param = error.and_then(|error| error.param);
        assert_eq!(param.as_deref(), Some("text.format"));
    }

    #[test]
    fn what_codex_sends_is_taken_with_warnings() {
        let function =
            json!({ "type": "function", "name": "exec", "parameters": {}, "strict": false });
        let (parsed, warnings) = with_warnings(json!({
            "client_metadata": { "thread_id": "x" }, "store": false, "reasoning": { "effort": "low", "summary": "auto" },
            "include": ["reasoning.encrypted_content"], "text": { "verbosity": "low" }, "prompt_cache_key": "k",
            "tools": [function, { "type": "web_search" }, { "type": "custom", "name": "apply_patch" },
                { "type": "namespace", "name": "agents", "description": "d", "tools": [function] }],
            "max_output_tokens": -1, "top_k": -1,
        }))
        .map_err(|error| error.message)
        .unwrap();
        let tools = parsed.tools.unwrap().tools;
        assert_eq!(
            tools.names().collect::<Vec<_>>(),
            ["exec", "apply_patch", "agents.exec"]
        );
        assert_eq!(parsed.thinking.effort.as_deref(), Some("low"));
        assert_eq!(
            (parsed.options.n_predict, parsed.options.sampling.top_k),
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
        assert_eq!(parsed.reply.settings["max_output_tokens"], Value::Null);
    }

    #[test]
    fn what_is_so_anyway_is_taken_and_told() {
        let text = json!({ "verbosity": "medium", "format": { "type": "json_object" } });
        let usual = json!({
            "background": false, "reasoning": { "effort": null }, "include": [], "text": text,
            "metadata": { "a": "b" }, "temperature": 0.7, "conversation": null,
        });
        let parsed = parsed(usual).map_err(|error| error.message).unwrap();
        let settings = parsed.reply.settings;
        assert_eq!(
            (&settings["store"], &settings["text"]),
            (&json!(false), &text)
        );
        assert_eq!(
            (&settings["temperature"], &settings["metadata"]["a"]),
            (&json!(0.7), &json!("b"))
        );
        assert!(matches!(
            parsed.options.constraint,
            Some(Constraint::JsonObject)
        ));
    }
}
