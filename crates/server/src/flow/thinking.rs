//! Whether and how much a model is to think, as clients ask for it.
//!
//! Knows the names of the variables that templates have for it. A template without such a switch
//! cannot be told; then the field changes nothing, with a warning.

use serde_json::{Map, Value};

use crate::{flow::warnings::Warnings, models::Model};

/// Variables of templates that say whether the model thinks, each with how its template is known.
const SWITCHES: [(&str, &str); 2] = [
    ("enable_thinking", "enable_thinking"),
    ("thinking", "thinking is defined"),
];
/// The one that says how much.
const EFFORT: &str = "reasoning_effort";

/// What a client asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Thinking {
    /// A word such as `low`; `none` and `minimal` are no thoughts where a template can only have
    /// them or not.
    pub(crate) effort: Option<String>,
    /// As templates and some clients have it.
    pub(crate) enable: Option<bool>,
}

impl Thinking {
    /// Sets what the template has variables for, unless it is set.
    pub(crate) fn set(
        &self,
        field: &str,
        model: &Model,
        extra: &mut Map<String, Value>,
        warnings: &Warnings,
    ) {
        if !self.set_where(|name| model.format.has_switch(name), extra) {
            warnings.add(format!(
                "{field} changes nothing here: the chat template of this model has no switch for it"
            ));
        }
    }

    /// Whether anything is so as it was asked for.
    fn set_where(&self, has: impl Fn(&str) -> bool, extra: &mut Map<String, Value>) -> bool {
        let mut values: Vec<(&str, Value)> = Vec::new();
        if let Some(effort) = self.effort.as_deref().filter(|_| has(EFFORT)) {
            values.push((EFFORT, effort.into()));
        }
        let thinks = self
            .enable
            .or_else(|| Some(!matches!(self.effort.as_deref()?, "none" | "minimal")));
        if let (Some(thinks), Some((name, _))) =
            (thinks, SWITCHES.into_iter().find(|(_, known)| has(known)))
        {
            values.push((name, thinks.into()));
        }
        let is_set = !values.is_empty();
        for (name, value) in values {
            extra.entry(name).or_insert(value);
        }
        is_set || (self.effort.is_none() && self.enable.is_none())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(thinking: &Thinking, template: &str) -> Option<Value> {
        let mut extra = Map::new();
        let has = |name: &str| template.contains(name);
        thinking
            .set_where(has, &mut extra)
            .then_some(Value::Object(extra))
    }

    #[test]
    fn a_template_is_told_what_it_has_variables_for() {
        let effort = |word: &str| Thinking {
            effort: Some(word.to_owned()),
            enable: None,
        };
        let (qwen, oss) = (
            "{% if enable_thinking is false %}",
            "{{ reasoning_effort }}",
        );
        assert_eq!(
            set(&effort("low"), oss),
            Some(json!({ "reasoning_effort": "low" }))
        );
        assert_eq!(
            set(&effort("low"), qwen),
            Some(json!({ "enable_thinking": true }))
        );
        assert_eq!(
            set(&effort("none"), qwen),
            Some(json!({ "enable_thinking": false }))
        );
        assert_eq!(set(&effort("low"), "{{ messages }}"), None);
        assert_eq!(
            set(&Thinking::default(), ""),
            Some(json!({})),
            "nothing was asked for"
        );
        let off = Thinking {
            effort: None,
            enable: Some(false),
        };
        assert_eq!(set(&off, qwen), Some(json!({ "enable_thinking": false })));
    }

    #[test]
    fn what_a_request_says_of_a_variable_itself_counts() {
        let mut extra = json!({ "enable_thinking": true })
            .as_object()
            .unwrap()
            .clone();
        let off = Thinking {
            effort: None,
            enable: Some(false),
        };
        assert!(off.set_where(|_| true, &mut extra));
        assert_eq!(extra["enable_thinking"], true);
    }
}
