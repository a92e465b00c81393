//! `tool_choice`. Whether a named tool exists is checked by the grammar.

use std::{convert::Infallible, str::FromStr};

/// Whether a model may call tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// Text or calls.
    #[default]
    Auto,
    /// At least one call.
    Required,
    /// Text only.
    None,
    /// One call of this tool.
    Named(String),
}

/// Anything but `auto`, `required` and `none` is a tool name; tools with those names cannot be
/// chosen.
impl FromStr for ToolChoice {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "auto" => Self::Auto,
            "required" => Self::Required,
            "none" => Self::None,
            name => Self::Named(name.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_choices_and_anything_else_names_a_tool() {
        let parse = |text: &str| text.parse::<ToolChoice>().unwrap();
        assert_eq!(parse("auto"), ToolChoice::Auto);
        assert_eq!(parse("required"), ToolChoice::Required);
        assert_eq!(parse("none"), ToolChoice::None);
        assert_eq!(parse("Auto"), ToolChoice::Named("Auto".into()));
        assert_eq!(ToolChoice::default(), ToolChoice::Auto);
    }
}
