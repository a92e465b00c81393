//! `--think`: how much the model thinks, where its chat template can be told.

use atta::chat::{
    Chat,
    reasoning::{REASONING_EFFORT, Reasoning, switch},
};
use clap::ValueEnum;

use crate::failure::Failure;

/// How much the model thinks before it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Think {
    /// As the template does without being told.
    #[default]
    Auto,
    Off,
    On,
    Low,
    Medium,
    High,
}

impl Think {
    /// The value with this name.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let expected = "expected auto, off, on, low, medium or high";
        Self::from_str(text, false).map_err(|_| format!("think {text}: {expected}"))
    }

    /// The name of the value.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Off => "off",
            Self::On => "on",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// Tells the template.
    ///
    /// # Errors
    /// A template without a switch for it.
    pub(super) fn apply(self, chat: &mut Chat) -> Result<(), Failure> {
        let has = |name: &str| chat.has_switch(name);
        let has_levels = has(REASONING_EFFORT);
        let has_switch = switch(has).is_some();
        let asked = match self {
            Self::Auto => Reasoning::default(),
            Self::Off | Self::On if has_switch => Reasoning {
                enable: Some(self == Self::On),
                effort: None,
            },
            Self::Low | Self::Medium | Self::High if has_levels => Reasoning {
                effort: Some(self.name()),
                enable: None,
            },
            _ => return Err(self.refusal(has_switch, has_levels)),
        };
        let variables = asked.variables(has).into_iter();
        let variables = variables.map(|(name, value)| (name.to_owned(), value));
        chat.set_variables(variables.collect());
        Ok(())
    }

    fn refusal(self, has_switch: bool, has_levels: bool) -> Failure {
        let known = match (has_switch, has_levels) {
            (true, _) => "can only be told on and off",
            (false, true) => "can only be told low, medium and high",
            (false, false) => "cannot be told how much to think",
        };
        let name = self.name();
        Failure::Usage(format!(
            "--think {name}: the chat template of this model {known}"
        ))
    }
}
