//! Options for tools that the model may call.

use std::path::PathBuf;

use clap::Args;

/// The tools on offer.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Tools")]
pub(crate) struct ToolFlags {
    /// Tools that the model may call: a JSON array of definitions in OpenAI's format; -: read from
    /// standard input
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["json", "schema", "regex", "grammar", "on_length", "stop"])]
    pub(crate) tools: Option<PathBuf>,
    /// Whether the model calls a tool: auto, required, none, or the NAME of one [default: auto]
    #[arg(long, value_name = "CHOICE", requires = "tools")]
    pub(crate) tool_choice: Option<String>,
}
