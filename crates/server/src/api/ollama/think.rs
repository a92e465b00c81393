//! The field `think`.

use atta_engine::chat::reasoning::{ENABLE_THINKING, REASONING_EFFORT};
use serde_json::{Map, Value};

use crate::{
    flow::{error::ApiError, warnings::Warnings},
    models::Model,
};

/// The tag in front of a model's reasoning.
pub(super) const THINK_BEGIN: &str = "<think>";
/// The tag behind a model's reasoning, as templates write it.
pub(super) const THINK_END: &str = "</think>\n\n";

const LEVELS: [&str; 3] = ["low", "medium", "high"];

/// The reasoning that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Think {
    Off,
    On,
    /// `low`, `medium` or `high`.
    Level(String),
}

impl Think {
    /// Parses the field; `None` for an empty text.
    pub(super) fn parse(value: Value) -> Result<Option<Self>, ApiError> {
        match value {
            Value::Bool(false) => Ok(Some(Self::Off)),
            Value::Bool(true) => Ok(Some(Self::On)),
            Value::String(text) if text.is_empty() => Ok(None),
            Value::String(level) if LEVELS.contains(&level.as_str()) => {
                Ok(Some(Self::Level(level)))
            }
            other => Err(ApiError::field(
                "think",
                format!("think is {other}, expected true, false, \"low\", \"medium\" or \"high\""),
            )),
        }
    }

    /// The variables of the chat template.
    pub(super) fn variables(think: Option<&Self>) -> Map<String, Value> {
        let Some(think) = think else {
            return Map::new();
        };
        let is_on = *think != Self::Off;
        let mut variables = Map::from_iter([(ENABLE_THINKING.to_owned(), is_on.into())]);
        if let Self::Level(level) = think {
            variables.insert(REASONING_EFFORT.to_owned(), level.as_str().into());
        }
        variables
    }

    /// Checks the field against the model, as Ollama does. `prompt` is the rendered prompt. A value
    /// that the template has no switch for becomes a warning.
    ///
    /// # Errors
    /// Reasoning is on, and the model cannot reason.
    pub(super) fn check(
        &self,
        model: &Model,
        prompt: &str,
        warnings: &Warnings,
    ) -> Result<(), ApiError> {
        let can_think = can_think(model);
        let has_switch = |name: &str| model.format.has_switch(name);
        match self {
            Self::On | Self::Level(_) if !can_think => {
                let message = format!("think: {:?} does not support thinking", model.name);
                return Err(ApiError::field("think", message));
            }
            Self::Level(_) if !has_switch(REASONING_EFFORT) => warnings.add(
                "think: this model thinks, but the level changes nothing: its template has none",
            ),
            Self::Off if can_think && !has_switch(ENABLE_THINKING) => {
                warnings.add("think: whether this model thinks cannot be chosen");
            }
            Self::Off if prompt.trim_end().ends_with(THINK_BEGIN) => {
                warnings.add("think: this model always thinks");
            }
            _ => {}
        }
        Ok(())
    }
}

/// Whether the model can reason, as far as its template shows.
pub(super) fn can_think(model: &Model) -> bool {
    let signs = [ENABLE_THINKING, REASONING_EFFORT, THINK_BEGIN];
    let template = model.engine.chat_template();
    template.is_some_and(|template| signs.iter().any(|sign| template.contains(sign)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn think_is_yes_no_or_a_level() {
        let parse = |value: Value| Think::parse(value);
        assert_eq!(parse(json!(true)), Ok(Some(Think::On)));
        assert_eq!(parse(json!(false)), Ok(Some(Think::Off)));
        assert_eq!(parse(json!("")), Ok(None));
        let error = parse(json!("deeply")).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("think"));
        let level = parse(json!("high")).unwrap();
        assert_eq!(
            Value::Object(Think::variables(level.as_ref())),
            json!({ "enable_thinking": true, "reasoning_effort": "high" })
        );
    }
}
