//! The conversation of a request: what requests for an answer and for a count have in common.

use atta_engine::{
    Constraint, Error, SchemaOptions, Strictness,
    chat::{ChatInput, Message, PromptEnd, ToolUse},
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    messages::{self, Turn},
    tools::{self, Choice, Tool},
};
use crate::{
    flow::{error::ApiError, warnings::Warnings},
    models::Model,
};

/// The variables by which templates have their models think or not, and how much.
const SWITCH: &str = "enable_thinking";
const EFFORT: &str = "reasoning_effort";

/// As it was asked.
pub(super) struct Talk {
    pub(super) turns: Vec<Turn>,
    pub(super) system: Option<Value>,
    pub(super) tools: Option<Vec<Tool>>,
    pub(super) tool_choice: Option<Choice>,
    pub(super) thinking: Option<Thinking>,
    pub(super) output_config: Option<OutputConfig>,
    pub(super) thread: Option<Thread>,
}

/// Whether the model is to think first.
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

/// How much work an answer is, and what it must look like.
#[derive(Debug, Default, Deserialize)]
pub(super) struct OutputConfig {
    effort: Option<String>,
    pub(super) format: Option<Format>,
}

/// What an answer must look like.
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

/// Whether the conversation is one that the server has stored.
#[derive(Debug, Deserialize)]
pub(super) struct Thread {
    #[serde(rename = "type")]
    kind: String,
}

/// As it makes sense.
pub(super) struct Understood {
    messages: Vec<Message>,
    system: Option<String>,
    tools: Option<ToolUse>,
    extra: Map<String, Value>,
    end: PromptEnd,
    pub(super) constraint: Option<Constraint>,
}

impl Talk {
    pub(super) fn understood(
        self,
        model: &Model,
        warnings: &Warnings,
    ) -> Result<Understood, ApiError> {
        self.thread
            .map_or(Ok(()), |thread| thread.check(warnings))?;
        let OutputConfig { effort, format } = self.output_config.unwrap_or_default();
        let has_switch = |name: &str| model.format.has_switch(name);
        let thinking = self
            .thinking
            .and_then(|thinking| thinking.into_variable(&has_switch, warnings));
        let effort = effort.and_then(|effort| effort_variable(&effort, &has_switch, warnings));
        let messages = messages::messages(self.turns, warnings)?;
        Ok(Understood {
            end: messages::end(&messages)?,
            messages,
            system: messages::system(self.system, warnings)?,
            tools: tools::tool_use(self.tools.unwrap_or_default(), self.tool_choice, warnings)?,
            extra: thinking.into_iter().chain(effort).collect(),
            constraint: format
                .map(|format| format.into_constraint(warnings))
                .transpose()?,
        })
    }
}

impl Thinking {
    /// A variable for the template, if it has one.
    fn into_variable(
        self,
        has_switch: &dyn Fn(&str) -> bool,
        warnings: &Warnings,
    ) -> Option<(String, Value)> {
        let thinks = self.kind != ThinkingKind::Disabled;
        if !has_switch(SWITCH) {
            if thinks {
                warnings.add("thinking.type changes nothing here: the chat template of this model has no switch for it");
            }
            return None;
        }
        Some((SWITCH.to_owned(), thinks.into()))
    }
}

/// A variable for the template, if it has one. Templates know the levels `low`, `medium` and
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
    if !has_switch(EFFORT) {
        warnings.add("output_config.effort changes nothing here: the chat template of this model has no switch for it");
        return None;
    }
    Some((EFFORT.to_owned(), level.into()))
}

impl Thread {
    /// A new thread has all messages in its request. One that goes on has not; by the code of the
    /// error the SDKs know that they have to send all of them again.
    fn check(&self, warnings: &Warnings) -> Result<(), ApiError> {
        if self.kind != "create" {
            let message = format!(
                "a thread of type {:?}: this server stores nothing, so send all messages",
                self.kind
            );
            let (code, param) = (Some("thread_not_found"), Some("thread".to_owned()));
            return Err(ApiError {
                code,
                param,
                ..ApiError::not_found(message)
            });
        }
        warnings.add("thread changes nothing here: this server stores nothing");
        Ok(())
    }
}

impl Format {
    /// What of the schema cannot be kept to is loosened: the interface has no word for more
    /// strictness than it has itself.
    fn into_constraint(self, warnings: &Warnings) -> Result<Constraint, ApiError> {
        let FormatKind::JsonSchema = self.kind;
        let options = SchemaOptions {
            strictness: Strictness::Loose,
            ..SchemaOptions::default()
        };
        let (constraint, loosened) =
            Constraint::from_schema(&self.schema.to_string(), options).map_err(Error::from)?;
        warnings.extend(
            loosened
                .into_iter()
                .map(|warning| format!("output_config.format.schema: {warning}")),
        );
        Ok(constraint)
    }
}

impl Understood {
    pub(super) fn said(&self) -> ChatInput<'_> {
        ChatInput {
            messages: &self.messages,
            system: self.system.as_deref(),
            tools: self.tools.as_ref(),
            extra: Some(&self.extra),
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
            let (thinking, warnings): (Thinking, _) = (
                serde_json::from_value(thinking).unwrap(),
                Warnings::default(),
            );
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
