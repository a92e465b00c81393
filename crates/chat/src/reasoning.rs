//! Whether and how much a model reasons: variables of chat templates.
//!
//! Knows the names of these variables, and no interface that asks for them.

use serde_json::Value;

/// The template variable that switches reasoning on or off.
pub const ENABLE_THINKING: &str = "enable_thinking";
/// The template variable that says how much to reason.
pub const REASONING_EFFORT: &str = "reasoning_effort";

/// Variables that switch reasoning on or off, each with a text that templates which read it have.
const SWITCHES: [(&str, &str); 2] = [
    (ENABLE_THINKING, ENABLE_THINKING),
    ("thinking", "thinking is defined"),
];

/// The reasoning that is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reasoning<'a> {
    /// A word such as `low`. Where a template only knows on and off, `none` and `minimal` are off.
    pub effort: Option<&'a str>,
    /// On or off.
    pub enable: Option<bool>,
}

impl Reasoning<'_> {
    /// The variables to set, of those that the template has; `has` tells it of a name.
    pub fn variables(self, has: impl Fn(&str) -> bool) -> Vec<(&'static str, Value)> {
        let mut values = Vec::new();
        if let Some(effort) = self.effort.filter(|_| has(REASONING_EFFORT)) {
            values.push((REASONING_EFFORT, effort.into()));
        }
        let is_enabled = self
            .enable
            .or_else(|| Some(!matches!(self.effort?, "none" | "minimal")));
        if let (Some(is_enabled), Some(name)) = (is_enabled, switch(has)) {
            values.push((name, is_enabled.into()));
        }
        values
    }
}

/// The variable that switches the reasoning of a template, if it has one.
pub fn switch(has: impl Fn(&str) -> bool) -> Option<&'static str> {
    let known = SWITCHES.into_iter().find(|(_, text)| has(text))?;
    Some(known.0)
}
