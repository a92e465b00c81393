//! Options for tools that the model may call.

use std::path::PathBuf;

use clap::Args;

/// Which tools there are.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Tools")]
pub(crate) struct ToolFlags {
    /// Tools that the model may call: a JSON array of definitions as in OpenAI's interface; -: it
    /// comes on standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "schema", "regex", "grammar", "on_length", "stop"])]
    pub(crate) tools: Option<PathBuf>,
    /// Whether the model calls one: auto (as it likes), required, none, or the NAME of a tool
    /// [default: auto]
    #[arg(long, value_name = "CHOICE", requires = "tools")]
    pub(crate) tool_choice: Option<String>,
}

#[cfg(feature = "chat")]
impl ToolFlags {
    /// Whether standard input is spoken for.
    pub(crate) fn takes_stdin(&self) -> bool {
        self.tools
            .as_deref()
            .is_some_and(|path| path.as_os_str() == "-")
    }
}

/// Who runs them.
#[cfg(feature = "chat")]
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Tools")]
pub(crate) struct RunnerFlags {
    /// Run PROGRAM for each call, with the name of the tool as its argument and the tool's
    /// arguments, a JSON object, on its standard input; what it prints is what the model is
    /// told. You are asked before each call
    #[arg(long, value_name = "PROGRAM", requires = "tools")]
    pub(crate) tool_cmd: Option<PathBuf>,
    /// Have the tools of a simulated house (examples/home), which are part of the program and run
    /// without a question
    #[arg(long, conflicts_with_all = ["tools", "json", "schema", "regex", "grammar", "on_length", "stop"])]
    pub(crate) house: bool,
    /// Do not ask
    #[arg(long, requires = "tool_cmd")]
    pub(crate) yes: bool,
}
