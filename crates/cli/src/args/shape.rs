//! Options for what the text must look like.

use std::path::PathBuf;

use clap::{Args, ValueEnum, builder::NonEmptyStringValueParser};

/// The shape of the text, at most one.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Shape of the text")]
pub(crate) struct ShapeFlags {
    /// Write JSON and nothing else: an object, or, with =value, any value
    #[arg(long, value_name = "WHAT", value_enum, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "object", conflicts_with_all = ["schema", "regex", "grammar"])]
    pub(crate) json: Option<JsonKind>,
    /// Write JSON that this JSON Schema allows; -: it comes on standard input. Keywords that
    /// cannot be kept to are errors
    #[arg(long, value_name = "FILE", conflicts_with_all = ["regex", "grammar"])]
    pub(crate) schema: Option<PathBuf>,
    /// Let objects have properties that the schema does not list, unless it forbids them; they may
    /// not by default, where the schema lists some
    #[cfg(feature = "constrain")]
    #[arg(long, requires = "schema")]
    pub(crate) schema_open: bool,
    /// Write what this regular expression matches as a whole
    #[arg(long, value_name = "R", conflicts_with = "grammar", value_parser = NonEmptyStringValueParser::new())]
    #[arg(allow_hyphen_values = true)]
    pub(crate) regex: Option<String>,
    /// Write a text of this grammar, in GBNF (llama.cpp's) or Lark (llguidance's); -: as above
    #[arg(long, value_name = "FILE")]
    pub(crate) grammar: Option<PathBuf>,
    /// What happens when such a text is as long as -n or -c allow and not complete: a short end is
    /// added, it stays as it is, or that is a failure [default: close]
    #[arg(long, value_name = "WHAT", value_enum)]
    pub(crate) on_length: Option<OnLengthName>,
}

/// What JSON is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum JsonKind {
    Object,
    Value,
}

/// What happens to a text that is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLengthName {
    Close,
    Cut,
    Fail,
}

impl ShapeFlags {
    /// Whether the text must look like something.
    pub(crate) fn is_given(&self) -> bool {
        self.json.is_some()
            || self.schema.is_some()
            || self.regex.is_some()
            || self.grammar.is_some()
    }

    /// Whether standard input is spoken for.
    pub(crate) fn takes_stdin(&self) -> bool {
        [&self.schema, &self.grammar]
            .into_iter()
            .flatten()
            .any(|path| path.as_os_str() == "-")
    }

    /// JSON, and nothing else about it.
    pub(crate) fn json() -> Self {
        Self {
            json: Some(JsonKind::Object),
            ..Self::default()
        }
    }
}
