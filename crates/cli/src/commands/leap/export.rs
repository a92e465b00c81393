//! `atta leap-export`, and the program called `export`: a checkpoint of Meta as LEAP's model.bin.

use std::path::PathBuf;

use clap::Args;

use crate::{
    args::extra_help,
    commands::convert::{self, ConvertArgs, TargetFormat},
    failure::Failure,
};

/// Converts a checkpoint to a model.bin of LEAP and llama2.c, with the options of LEAP's `export`.
///
/// `atta convert DIR OUT --to leap-f32` or leap-int8 is the same. A tokenizer.bin is written beside
/// OUT.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, hide = true)]
#[command(after_help = extra_help(
    "Example:
  ln -s \"$(command -v atta)\" export
  ./export llama3-8b.bin --meta-llama Meta-Llama-3-8B/ --version 2"
))]
pub(crate) struct LeapExportArgs {
    /// Output file
    out: PathBuf,
    /// Directory of a checkpoint, of Meta or Hugging Face
    #[arg(long, value_name = "DIR")]
    meta_llama: PathBuf,
    /// 1: f32; 2: int8 in groups of 64
    #[arg(long, value_name = "1|2", default_value = "1", value_parser = version)]
    version: TargetFormat,
    /// Overwrite OUT, and the tokenizer.bin beside it
    #[arg(long)]
    force: bool,
}

fn version(text: &str) -> Result<TargetFormat, String> {
    match text {
        "1" => Ok(TargetFormat::LeapF32),
        "2" => Ok(TargetFormat::LeapInt8),
        _ => Err("expected 1 or 2".to_owned()),
    }
}

pub(in crate::commands) fn run(args: LeapExportArgs) -> Result<(), Failure> {
    let convert = ConvertArgs::of(args.meta_llama, args.out, args.version);
    convert::run(match args.force {
        true => convert.overwriting(),
        false => convert,
    })
}
