//! Options that constrain the generated text.

use std::path::PathBuf;

use clap::{Args, ValueEnum, builder::NonEmptyStringValueParser};

use crate::input;

/// The constraint on the generated text; at most one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Constraints")]
pub(crate) struct ConstraintFlags {
    /// Constrain the output to JSON: an object, or any value with --json=value
    #[arg(long, value_name = "WHAT", value_enum, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "object", conflicts_with_all = ["schema", "regex", "grammar"])]
    pub(crate) json: Option<JsonKind>,
    /// Constrain the output to this JSON Schema; -: read from standard input. A keyword that
    /// cannot be enforced is an error
    #[arg(long, value_name = "FILE", conflicts_with_all = ["regex", "grammar"])]
    pub(crate) schema: Option<PathBuf>,
    /// Allow properties that the schema does not list, unless it forbids them. By default they are
    /// forbidden in objects that list properties
    #[arg(long, requires = "schema")]
    pub(crate) schema_open: bool,
    /// Constrain the output to a full match of this regular expression
    #[arg(long, value_name = "R", conflicts_with = "grammar")]
    #[arg(value_parser = NonEmptyStringValueParser::new(), allow_hyphen_values = true)]
    pub(crate) regex: Option<String>,
    /// Constrain the output to this grammar: GBNF (llama.cpp) or Lark (llguidance); -: read from
    /// standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) grammar: Option<PathBuf>,
    /// When -n or -c cut constrained output short: close it with a short valid end, cut it, or
    /// fail [default: close]
    #[arg(long, value_name = "WHAT", value_enum)]
    pub(crate) on_length: Option<OnLengthName>,
}

/// The JSON that `--json` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum JsonKind {
    Object,
    Value,
}

/// How constrained output ends that is not complete at its length limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLengthName {
    Close,
    Cut,
    Fail,
}

impl ConstraintFlags {
    /// Whether a constraint was given.
    pub(crate) fn is_given(&self) -> bool {
        self.json.is_some()
            || self.schema.is_some()
            || self.regex.is_some()
            || self.grammar.is_some()
    }

    /// Whether the schema or the grammar is read from standard input.
    pub(crate) fn takes_stdin(&self) -> bool {
        let files = [self.schema.as_deref(), self.grammar.as_deref()];
        files.into_iter().flatten().any(input::is_stdin)
    }

    /// `--json` alone.
    pub(crate) fn json() -> Self {
        Self {
            json: Some(JsonKind::Object),
            ..Self::default()
        }
    }
}
