//! `atta man`: manual pages of all commands, made from their help.

use std::{fs, path::PathBuf};

use clap::Args;

use crate::{args, failure::Failure, output::Stdout};

/// Writes manual pages of all commands to a directory.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atta man ~/.local/share/man/man1 && man atta-run")]
pub(crate) struct ManArgs {
    /// Directory for atta.1, atta-run.1 and so on; it is made if it does not exist
    directory: PathBuf,
}

pub(super) fn run(args: ManArgs) -> Result<(), Failure> {
    let directory = &args.directory;
    fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(args::command(), directory))
        .map_err(|error| Failure::at(directory, format_args!("cannot write: {error}")))?;
    let mut out = Stdout::lock();
    out.line(&directory.join("atta.1").to_string_lossy())?;
    out.flush()
}
