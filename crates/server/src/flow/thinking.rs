//! Whether and how much a model reasons: variables of chat templates.
//!
//! A template without such a switch cannot be told; then the
//! field changes nothing, with a warning.

use atta_engine::chat::reasoning::Reasoning;
use serde_json::{Map, Value};

use super::{error::ApiError, warnings::Warnings};
use crate::models::Model;

/// Template variables that hold the conversation itself.
pub(crate) const RESERVED_VARIABLES: [&str; 5] = [
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "bos_token",
];

/// Template variables that a request sets by `chat_template_kwargs`.
///
/// # Errors
/// A variable that has a field of its own.
pub(crate) fn template_variables(
    given: Option<Map<String, Value>>,
) -> Result<Map<String, Value>, ApiError> {
    let given = given.unwrap_or_default();
    let is_given = |name: &&str| given.contains_key(*name);
    match RESERVED_VARIABLES.into_iter().find(is_given) {
        Some(name) => Err(ApiError::field(
            "chat_template_kwargs",
            format!("{name} is a field of its own"),
        )),
        None => Ok(given),
    }
}

/// The reasoning that a request asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Thinking {
    /// A word such as `low`. Where a template only knows on and off, `none` and `minimal` are off.
    pub(crate) effort: Option<String>,
    pub(crate) enable: Option<bool>,
}

impl Thinking {
    /// Sets the variables that the template reads, unless the request sets them itself.
    pub(crate) fn set(
        &self,
        field: &str,
        model: &Model,
        variables: &mut Map<String, Value>,
        warnings: &Warnings,
    ) {
        if !self.set_where(|name| model.format.has_switch(name), variables) {
            warnings.add(format!(
                "{field} changes nothing here: the chat template of this model has no switch for it"
            ));
        }
    }

    /// Returns false if the request asks for something and the template has no variable for it.
    fn set_where(&self, has: impl Fn(&str) -> bool, variables: &mut Map<String, Value>) -> bool {
        let asked = Reasoning {
            effort: self.effort.as_deref(),
            enable: self.enable,
        };
        let values = asked.variables(has);
        let is_set = !values.is_empty();
        for (name, value) in values {
            variables.entry(name).or_insert(value);
        }
        is_set || (self.effort.is_none() && self.enable.is_none())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(thinking: &Thinking, template: &str) -> Option<Value> {
        let mut variables = Map::new();
        let has = |name: &str| template.contains(name);
        thinking
            .set_where(has, &mut variables)
            .then_some(Value::Object(variables))
    }

    fn effort(word: &str) -> Thinking {
        Thinking {
            effort: Some(word.to_owned()),
            enable: None,
        }
    }

    fn off() -> Thinking {
        Thinking {
            effort: None,
            enable: Some(false),
        }
    }

    #[test]
    fn a_template_gets_the_variables_that_it_reads() {
        let qwen = "{% if enable_thinking is false %}";
        let oss = "{{ reasoning_effort }}";
        let no = json!({ "enable_thinking": false });
        for (thinking, template, expected) in [
            (
                effort("low"),
                oss,
                Some(json!({ "reasoning_effort": "low" })),
            ),
            (
                effort("low"),
                qwen,
                Some(json!({ "enable_thinking": true })),
            ),
            (effort("none"), qwen, Some(no.clone())),
            (effort("low"), "{{ messages }}", None),
            (Thinking::default(), "", Some(json!({}))),
            (off(), qwen, Some(no)),
        ] {
            assert_eq!(set(&thinking, template), expected, "{thinking:?}");
        }
    }

    #[test]
    fn a_variable_that_a_request_sets_itself_stays() {
        let mut variables = Map::from_iter([("enable_thinking".to_owned(), true.into())]);
        assert!(off().set_where(|_| true, &mut variables));
        assert_eq!(variables["enable_thinking"], true);
    }

    #[test]
    fn a_variable_with_a_field_of_its_own_is_refused() {
        let given = |name: &str| Some(Map::from_iter([(name.to_owned(), Value::Null)]));
        assert!(template_variables(given("my_variable")).is_ok());
        let error = template_variables(given("messages")).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("chat_template_kwargs"));
    }
}
