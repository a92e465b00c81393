//! The request of chat: its fields, and the conversation and options that they mean.

use atta_engine::{
    GenerateOptions,
    chat::{ChatInput, Message, PromptEnd, Role, ToolUse},
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::{
    choices::{ChoiceOptions, ChoicesShared},
    messages::{self, WireMessage},
    sampling::AnswerLimits,
};
use crate::{
    flow::{
        body::Accepted,
        error::ApiError,
        logprobs,
        request::{PathFields, PathRequest},
        sampling::max_tokens,
        thinking::{Thinking, template_variables},
        tools::ToolRequest,
        warnings::Warnings,
    },
    models::Model,
};

pub(crate) type ChatRequest = PathRequest<ChatFields>;

/// The fields of chat alone.
#[derive(Debug, Deserialize)]
pub(crate) struct ChatFields {
    messages: Vec<WireMessage>,
    model: Option<String>,
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
}

/// How the answers are sent.
#[derive(Clone, Copy)]
pub(super) struct ChatReply {
    pub(super) choices: ChoiceOptions,
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

impl PathFields for ChatFields {
    type Shared = ChoicesShared;
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

impl ChatRequest {
    pub(super) fn parsed(self, model: &Model, warnings: &Warnings) -> Result<ParsedChat, ApiError> {
        let mut chat = self.own;
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
        let reply = ChatReply {
            choices: self
                .shared
                .choices
                .parsed(model.n_jobs, chat.logprobs == Some(true))?,
            has_functions: chat.functions.is_some() && chat.tools.is_none(),
        };
        let max_tokens = chat
            .max_completion_tokens
            .or(chat.max_tokens)
            .or(chat.n_predict);
        let limits = AnswerLimits {
            max_tokens,
            n_logprobs,
        };
        Ok(ParsedChat {
            end: chat.end(&messages)?,
            messages,
            tools: chat.take_tools().into_use(warnings)?,
            variables,
            options: self
                .shared
                .into_options(limits, &model.defaults, warnings)?,
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
