//! The request of chat: its fields, and the conversation and options that they mean.

use atta_engine::{
    GenerateOptions,
    chat::{ChatInput, Message, PromptEnd, Role, ToolUse},
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::{
    messages::{self, WireMessage},
    sampling::OpenAiSampling,
    tier::Tier,
};
use crate::{
    flow::{
        body::{Accepted, BodyFields},
        error::ApiError,
        format::FormatFields,
        logprobs,
        request::ApiRequest,
        sampling::{max_tokens, n_answers},
        thinking::{Thinking, template_variables},
        tools::ToolRequest,
        warnings::Warnings,
    },
    models::Model,
};

/// The fields that are kept or refused, in the parts that read them.
pub(crate) struct ChatRequest {
    sampling: OpenAiSampling,
    format: FormatFields,
    chat: ChatFields,
}

/// The fields of chat alone.
#[derive(Debug, Deserialize)]
pub(crate) struct ChatFields {
    messages: Vec<WireMessage>,
    model: Option<String>,
    stream: Option<bool>,
    #[serde(default, deserialize_with = "crate::flow::body::object")]
    stream_options: Option<StreamOptions>,
    n: Option<usize>,
    #[serde(default, deserialize_with = "max_tokens")]
    max_tokens: Option<usize>,
    #[serde(default, deserialize_with = "max_tokens")]
    max_completion_tokens: Option<usize>,
    /// llama.cpp's name for `max_tokens`.
    #[serde(default, deserialize_with = "max_tokens")]
    n_predict: Option<usize>,
    logprobs: Option<bool>,
    top_logprobs: Option<usize>,
    continue_final_message: Option<bool>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    /// The deprecated form of `tools`.
    functions: Option<Vec<Value>>,
    function_call: Option<Value>,
    reasoning_effort: Option<String>,
    /// OpenRouter's form of `reasoning_effort`.
    reasoning: Option<Value>,
    enable_thinking: Option<bool>,
    /// Variables of the chat template.
    chat_template_kwargs: Option<Map<String, Value>>,
    modalities: Option<Vec<String>>,
    service_tier: Option<Tier>,
}

/// `stream_options`; its other fields have no effect.
#[derive(Debug, Default, Deserialize)]
pub(in crate::api::openai) struct StreamOptions {
    include_usage: Option<bool>,
}

impl StreamOptions {
    /// Whether the last chunk has the usage.
    pub(in crate::api::openai) fn includes_usage(options: Option<&Self>) -> bool {
        options.is_some_and(|options| options.include_usage == Some(true))
    }
}

/// How the answers are sent.
#[derive(Clone, Copy)]
pub(super) struct ChatReply {
    pub(super) n: usize,
    pub(super) tier: Option<Tier>,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) logprobs: bool,
    /// Whether calls are written in the deprecated form `function_call`.
    pub(super) has_functions: bool,
}

/// The conversation, the options and the form of the reply.
pub(super) struct ParsedChat {
    messages: Vec<Message>,
    tools: Option<ToolUse>,
    variables: Map<String, Value>,
    end: PromptEnd,
    pub(super) options: GenerateOptions,
    pub(super) reply: ChatReply,
}

impl ParsedChat {
    pub(super) fn input(&self) -> ChatInput<'_> {
        ChatInput {
            messages: &self.messages,
            tools: self.tools.as_ref(),
            extra: Some(&self.variables),
            end: self.end,
            ..ChatInput::default()
        }
    }
}

impl ApiRequest for ChatRequest {
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

    fn read(mut fields: BodyFields, warnings: &Warnings) -> Result<Self, ApiError> {
        Ok(Self {
            sampling: fields.take()?,
            format: fields.take()?,
            chat: fields.rest(Self::ACCEPTED, warnings)?,
        })
    }

    fn model(&self) -> Option<&str> {
        self.chat.model.as_deref()
    }
}

impl ChatRequest {
    pub(super) fn parsed(self, model: &Model, warnings: &Warnings) -> Result<ParsedChat, ApiError> {
        let mut chat = self.chat;
        chat.refuse_unsupported()?;
        let mut variables = template_variables(chat.chat_template_kwargs.take())?;
        chat.thinking()
            .set("reasoning_effort", model, &mut variables, warnings);
        let n_logprobs = logprobs::n_alternatives(
            chat.logprobs == Some(true),
            chat.top_logprobs,
            "logprobs: true",
        )?;
        let messages = messages::messages(std::mem::take(&mut chat.messages), warnings)?;
        let reply = chat.reply(model.n_jobs)?;
        let max_tokens = chat
            .max_completion_tokens
            .or(chat.max_tokens)
            .or(chat.n_predict);
        let sampling = self.sampling.into_fields(max_tokens, n_logprobs)?;
        Ok(ParsedChat {
            end: chat.end(&messages)?,
            messages,
            tools: chat.take_tools().into_use(warnings)?,
            variables,
            options: GenerateOptions {
                constraint: self.format.into_constraint(warnings)?,
                ..sampling.into_options(&model.defaults)?
            },
            reply,
        })
    }
}

impl ChatFields {
    fn refuse_unsupported(&self) -> Result<(), ApiError> {
        match &self.modalities {
            Some(kinds) if kinds != &["text"] => Err(ApiError::field(
                "modalities",
                "this server writes text only",
            )),
            _ => Ok(()),
        }
    }

    fn reply(&self, max_answers: usize) -> Result<ChatReply, ApiError> {
        Ok(ChatReply {
            n: n_answers(self.n, max_answers)?,
            tier: self.service_tier,
            stream: self.stream == Some(true),
            include_usage: StreamOptions::includes_usage(self.stream_options.as_ref()),
            logprobs: self.logprobs == Some(true),
            has_functions: self.functions.is_some() && self.tools.is_none(),
        })
    }

    /// Where the prompt ends.
    fn end(&self, messages: &[Message]) -> Result<PromptEnd, ApiError> {
        if self.continue_final_message != Some(true) {
            return Ok(PromptEnd::Answer);
        }
        match messages.last() {
            Some(last) if last.role == Role::Assistant && last.tool_calls.is_empty() => {
                Ok(PromptEnd::WithinLastMessage)
            }
            _ => Err(ApiError::field(
                "continue_final_message",
                "the last message must be an assistant message without tool calls",
            )),
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

    fn take_tools(&mut self) -> ToolRequest {
        let request = ToolRequest {
            tools: self.tools.take(),
            choice: self.tool_choice.take(),
            parallel: self.parallel_tool_calls,
        };
        request.or_functions(self.functions.take(), self.function_call.take())
    }
}
