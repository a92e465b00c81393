//! What is said to the model: the part that requests for an answer and for a count have in common.

use atta_engine::chat::{Message, Said, ToolUse};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    says::{self, Blocks, Plain, Turn},
    tools::{self, Choice, Tool},
};
use crate::{models::Model, refusal::Refusal};

/// The variable by which templates have their models think or not.
const SWITCH: &str = "enable_thinking";

/// As it was asked.
pub(super) struct Talk {
    pub(super) turns: Vec<Turn>,
    pub(super) system: Option<Blocks<Plain>>,
    pub(super) tools: Option<Vec<Tool>>,
    pub(super) tool_choice: Option<Choice>,
    pub(super) thinking: Option<Thinking>,
}

/// Whether the model is to think first.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Thinking {
    Disabled {},
    /// As long as it likes.
    Adaptive {},
    /// There is no way to have it think in a number of tokens; what limits it is the length of the answer.
    Enabled {
        #[serde(rename = "budget_tokens")]
        _budget_tokens: usize,
    },
}

/// As it makes sense.
pub(super) struct Understood {
    messages: Vec<Message>,
    system: Option<String>,
    tools: Option<ToolUse>,
    extra: Map<String, Value>,
}

impl Talk {
    pub(super) fn understood(self, model: &Model) -> Result<Understood, Refusal> {
        Ok(Understood {
            messages: says::messages(self.turns)?,
            system: self.system.map(Blocks::into_text),
            tools: tools::tool_use(self.tools.unwrap_or_default(), self.tool_choice)?,
            extra: self.thinking.map_or_else(|| Ok(Map::new()), |thinking| thinking.into_variables(model))?,
        })
    }
}

impl Thinking {
    /// Variables for the template.
    fn into_variables(self, model: &Model) -> Result<Map<String, Value>, Refusal> {
        let thinks = !matches!(self, Self::Disabled {});
        if thinks && !model.form.has_switch(SWITCH) {
            return Err(Refusal::field("thinking", "the template of this model has no switch for that"));
        }
        Ok(Map::from_iter([(SWITCH.to_owned(), thinks.into())]))
    }
}

impl Understood {
    pub(super) fn said(&self) -> Said<'_> {
        Said {
            messages: &self.messages,
            system: self.system.as_deref(),
            tools: self.tools.as_ref(),
            extra: Some(&self.extra),
            now: None,
        }
    }
}
