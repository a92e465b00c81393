//! `atta completions`: a shell's script that completes commands and options.

use clap::Args;
use clap_complete::Shell;

use crate::{args, failure::Failure, output::Stdout};

/// Prints a script that completes commands and options in a shell.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atta completions bash > ~/.local/share/bash-completion/completions/atta
  atta completions zsh > ~/.zfunc/_atta            with fpath+=~/.zfunc before compinit
  atta completions fish > ~/.config/fish/completions/atta.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(args: CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::command(), "atta", &mut script);
    let mut out = Stdout::lock();
    out.write(&String::from_utf8_lossy(&script))?;
    out.flush()
}
