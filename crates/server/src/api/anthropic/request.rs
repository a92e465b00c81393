//! The conversation of a request: the fields that requests for an answer and for a token count
//! share.

use atta_engine::{
    Constraint, SchemaOptions, Strictness,
    chat::{
        ChatInput, Message, PromptEnd, ToolUse,
        reasoning::{ENABLE_THINKING, REASONING_EFFORT},
    },
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    messages::{self, WireMessage},
    tools::{self, Choice, Tool},
};
use crate::{
    flow::{error::ApiError, format, warnings::Warnings},
    models::Model,
};

/// The shared fields.
pub(super) struct ConversationFields {
    pub(super) messages: Vec<WireMessage>,
    pub(super) system: Option<Value>,
    pub(super) tools: Option<Vec<Tool>>,
    pub(super) tool_choice: Option<Choice>,
    pub(super) thinking: Option<Thinking>,
    pub(super) output_config: Option<OutputConfig>,
    pub(super) thread: Option<Thread>,
}

/// Whether the model reasons.
#[derive(Debug, Deserialize)]
pub(super) struct Thinking {
    #[serde(rename = "type")]
    kind: ThinkingKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ThinkingKind {
    Disabled,
    Adaptive,
    Enabled,
}

/// How much the model reasons, and the format of its answer.
#[derive(Debug, Default, Deserialize)]
pub(super) struct OutputConfig {
    effort: Option<String>,
    pub(super) format: Option<Format>,
}

/// The format of an answer.
#[derive(Debug, Deserialize)]
pub(super) struct Format {
    #[serde(rename = "type")]
    kind: FormatKind,
    schema: Value,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FormatKind {
    JsonSchema,
}

/// A conversation that Anthropic's server stores.
#[derive(Debug, Deserialize)]
pub(super) struct Thread {
    #[serde(rename = "type")]
    kind: String,
}

/// The conversation in the engine's types.
pub(super) struct ParsedConversation {
    messages: Vec<Message>,
    system: Option<String>,
    tools: Option<ToolUse>,
    variables: Map<String, Value>,
    end: PromptEnd,
    pub(super) constraint: Option<Constraint>,
}

impl ConversationFields {
    pub(super) fn parsed(
        self,
        model: &Model,
        warnings: &Warnings,
    ) -> Result<ParsedConversation, ApiError> {
        if let Some(thread) = self.thread {
            thread.check(warnings)?;
        }
        let OutputConfig { effort, format } = self.output_config.unwrap_or_default();
        let has_switch = |name: &str| model.format.has_switch(name);
        let thinking = self.thinking;
        let thinking = thinking.and_then(|thinking| thinking.into_variable(&has_switch, warnings));
        let effort = effort.and_then(|effort| effort_variable(&effort, &has_switch, warnings));
        let messages = messages::messages(self.messages, warnings)?;
        let tools = self.tools.unwrap_or_default();
        Ok(ParsedConversation {
            end: messages::end(&messages)?,
            messages,
            system: messages::system(self.system, warnings)?,
            tools: tools::tool_use(tools, self.tool_choice, warnings)?,
            variables: thinking.into_iter().chain(effort).collect(),
            constraint: match format {
                Some(format) => Some(format.into_constraint(warnings)?),
                None => None,
            },
        })
    }
}

impl Thinking {
    /// The variable of the template, if it reads one.
    fn into_variable(
        self,
        has_switch: &dyn Fn(&str) -> bool,
        warnings: &Warnings,
    ) -> Option<(String, Value)> {
        let is_on = self.kind != ThinkingKind::Disabled;
        if has_switch(ENABLE_THINKING) {
            return Some((ENABLE_THINKING.to_owned(), is_on.into()));
        }
        if is_on {
            warnings.add(
                "thinking.type changes nothing here: the chat template of this model has no \
                 switch for it",
            );
        }
        None
    }
}

/// The variable of the template, if it reads one. Templates know the levels `low`, `medium` and
/// `high`.
fn effort_variable(
    effort: &str,
    has_switch: &dyn Fn(&str) -> bool,
    warnings: &Warnings,
) -> Option<(String, Value)> {
    let level = match effort {
        "low" | "medium" | "high" => effort,
        "xhigh" | "max" => "high",
        _ => {
            warnings.add(
                "output_config.effort changes nothing here: it is no level that this server knows",
            );
            return None;
        }
    };
    if !has_switch(REASONING_EFFORT) {
        warnings.add(
            "output_config.effort changes nothing here: the chat template of this model has no \
             switch for it",
        );
        return None;
    }
    Some((REASONING_EFFORT.to_owned(), level.into()))
}

impl Thread {
    /// A new thread has all messages in its request. The SDKs recognize the error of another one by
    /// its code, and send all messages again.
    fn check(&self, warnings: &Warnings) -> Result<(), ApiError> {
        if self.kind == "create" {
            warnings.add("thread changes nothing here: this server stores nothing");
            return Ok(());
        }
        let message = format!(
            "a thread of type {:?}: this server stores nothing, so send all messages",
            self.kind
        );
        Err(ApiError {
            code: Some("thread_not_found"),
            param: Some("thread".to_owned()),
            ..ApiError::not_found(message)
        })
    }
}

impl Format {
    /// Keywords of the schema that cannot be kept are dropped: Anthropic's interface has no field
    /// that asks for strictness.
    fn into_constraint(self, warnings: &Warnings) -> Result<Constraint, ApiError> {
        let FormatKind::JsonSchema = self.kind;
        let options = SchemaOptions {
            strictness: Strictness::Loose,
            ..SchemaOptions::default()
        };
        format::from_schema("output_config.format", &self.schema, options, warnings)
    }
}

impl ParsedConversation {
    pub(super) fn input(&self) -> ChatInput<'_> {
        ChatInput {
            messages: &self.messages,
            system: self.system.as_deref(),
            tools: self.tools.as_ref(),
            extra: Some(&self.variables),
            end: self.end,
            now: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn thinking_is_a_variable_where_the_template_has_the_switch_and_else_a_warning() {
        let variable = |thinking: Value, has_switch: bool| {
            let thinking: Thinking = serde_json::from_value(thinking).unwrap();
            let warnings = Warnings::default();
            let variable = thinking.into_variable(&|_: &str| has_switch, &warnings);
            (variable.map(|(_, value)| value), warnings.take().len())
        };
        let adaptive = json!({ "type": "adaptive", "display": "omitted" });
        let enabled = json!({ "type": "enabled", "budget_tokens": 1024 });
        let disabled = json!({ "type": "disabled" });
        assert_eq!(variable(adaptive.clone(), true), (Some(true.into()), 0));
        assert_eq!(variable(enabled, true), (Some(true.into()), 0));
        assert_eq!(variable(disabled.clone(), true), (Some(false.into()), 0));
        assert_eq!(variable(adaptive, false), (None, 1));
        assert_eq!(variable(disabled, false), (None, 0));
    }

    #[test]
    fn effort_is_a_level_that_templates_know_and_else_a_warning() {
        let variable = |effort: &str, has_switch: bool| {
            let warnings = Warnings::default();
            let variable = effort_variable(effort, &|_: &str| has_switch, &warnings);
            (variable.map(|(_, value)| value), warnings.take().len())
        };
        assert_eq!(variable("low", true), (Some("low".into()), 0));
        assert_eq!(variable("max", true), (Some("high".into()), 0));
        assert_eq!(variable("low", false), (None, 1));
        assert_eq!(variable("fish", true), (None, 1));
    }

    #[test]
    fn a_thread_may_begin_but_not_go_on() {
        let thread = |kind: &str| {
            serde_json::from_value::<Thread>(json!({ "type": kind, "id": "x" })).unwrap()
        };
        let warnings = Warnings::default();
        assert!(thread("create").check(&warnings).is_ok() && warnings.take().len() == 1);
        let error = thread("continue").check(&warnings).unwrap_err();
        assert_eq!(
            (error.code, error.param.as_deref()),
            (Some("thread_not_found"), Some("thread"))
        );
    }
}
