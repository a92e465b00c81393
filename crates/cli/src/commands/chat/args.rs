//! The options of `atta chat`.

use std::path::PathBuf;

use clap::Args;

use super::{
    screen::Wrap,
    settings::{Figures, Thoughts, View},
    think::Think,
};
use crate::{
    args::{
        CacheFlags, ConstraintFlags, ContextFlags, GpuFlags, ModelArg, ModelFlags, ReportFlags,
        RingFlags, SamplingFlags, SpeculationFlags, ToolFlags,
    },
    conversation::TemplateName,
};

/// Chats with the model.
///
/// Each line is a message: edited on a terminal, with the history at the arrow keys, or read from a
/// pipe. Only answers go to standard output. Without MODEL, the built-in model, which runs a house
/// (examples/home) and tells stories.
///
/// Messages are formatted by the chat template of the file, in Jinja. Without one they are
/// formatted as ChatML if the vocabulary has its markers, else as lines with `User:` and
/// `Assistant:`. Special tokens in a message are plain text.
///
/// Ctrl-C stops an answer and keeps the chat. Ctrl-C at the prompt after that, Ctrl-D or /exit
/// leaves.
#[derive(Debug, Args)]
#[command(after_help = "Commands in the chat:
  /regen        answer the last message again, with another seed
  /read FILE    put a text file in front of the next message
  /thoughts     show the thoughts of the last answer
  /set NAME X   change a setting, as in /set temperature 0.5; /set lists them
  /clear        clear the conversation, but not the system message
  /system TEXT  set the system message; without TEXT, remove it
  /save FILE    save the conversation to FILE, as JSON
  /load FILE    load a conversation from FILE
  /help         list these commands
  /exit         leave
Begin a message with // to send one that starts with /. On a terminal, three double quotes begin and
end a message of several lines.

Examples:
  atta chat model.gguf --system \"You answer in one sentence.\"
  echo \"What is a leafcutter ant?\" | atta chat model.gguf -t 0
  atta chat model.gguf --tools tools.json --tool-cmd ./run-tool
  atta chat --house -t 0
  atta chat --tools examples/home/tools.json --tool-cmd examples/home/house.py -t 0")]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(super) model: ModelArg,
    /// System message
    #[arg(
        long,
        alias = "system-prompt",
        value_name = "TEXT",
        allow_hyphen_values = true
    )]
    pub(super) system: Option<String>,
    /// Chat template: `chatml`, `plain`, or a Jinja file [default: the template in the model's
    /// file]
    #[arg(long, value_name = "NAME|FILE", alias = "chat-template-file")]
    pub(super) chat_template: Option<TemplateName>,
    #[command(flatten)]
    pub(super) view: ViewFlags,
    #[command(flatten)]
    pub(super) sampling: SamplingFlags,
    #[command(flatten)]
    pub(super) constraint: ConstraintFlags,
    #[command(flatten)]
    pub(super) speculation: SpeculationFlags,
    #[command(flatten)]
    pub(super) tools: ToolFlags,
    #[command(flatten)]
    pub(super) runner: RunnerFlags,
    #[command(flatten)]
    pub(super) model_flags: ModelFlags,
    #[command(flatten)]
    pub(super) context: ContextFlags,
    #[command(flatten)]
    pub(super) cache: CacheFlags,
    #[command(flatten)]
    pub(super) ring: RingFlags,
    #[command(flatten)]
    pub(super) gpu: GpuFlags,
    #[command(flatten)]
    pub(super) report: ReportFlags,
}

/// Thoughts, and how answers look on a terminal.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct ViewFlags {
    /// How much the model thinks before it answers, as far as its chat template can be told
    #[arg(long, value_name = "HOW", value_enum, default_value = "auto")]
    pub(super) think: Think,
    /// Do not show thoughts; /thoughts shows those of the last answer. A pipe never gets thoughts
    #[arg(long)]
    pub(super) hide_thoughts: bool,
    /// Do not tell the model and the speed of answers on a terminal
    #[arg(short, long)]
    pub(super) quiet: bool,
}

impl ViewFlags {
    /// The view that these options choose.
    pub(super) fn view(&self) -> View {
        let thoughts = match self.hide_thoughts {
            true => Thoughts::Hidden,
            false => Thoughts::Shown,
        };
        let figures = match self.quiet {
            true => Figures::Quiet,
            false => Figures::Told,
        };
        View {
            thoughts,
            wrap: Wrap::On,
            figures,
        }
    }
}

/// How tool calls are run.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Tools")]
pub(super) struct RunnerFlags {
    /// Run PROGRAM for each tool call, with the tool's name as argument and its arguments as JSON
    /// on standard input; what it prints is the result. Asks before each call
    #[arg(long, value_name = "PROGRAM", requires = "tools")]
    pub(super) tool_cmd: Option<PathBuf>,
    /// Use the built-in tools of a simulated house (examples/home), which run without asking
    #[arg(long, conflicts_with_all = [
        "tools", "json", "schema", "regex", "grammar", "on_length", "stop",
    ])]
    pub(super) house: bool,
    /// Run tools without asking
    #[arg(long, requires = "tool_cmd")]
    pub(super) yes: bool,
}
