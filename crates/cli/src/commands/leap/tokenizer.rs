//! `atta leap-tokenizer`, and the program called `tokenizer`: a vocabulary as LEAP's tokenizer.bin.

use std::{fs, path::PathBuf};

use atta::convert::llama2c::{self, TokenizerFile};
use clap::Args;

use crate::{
    args::extra_help,
    failure::Failure,
    inputs::InputFiles,
    load::warn,
    output::{NewFile, Stdout},
};

/// Converts a vocabulary to a tokenizer.bin, with the options of LEAP's `tokenizer`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, hide = true)]
#[command(after_help = extra_help(
    "Example:
  ln -s \"$(command -v atta)\" tokenizer
  ./tokenizer Meta-Llama-3-8B/tokenizer.model -o tokenizer.bin"
))]
pub(crate) struct LeapTokenizerArgs {
    /// tokenizer.model of Llama 3 or of SentencePiece, GGUF file, or directory of a model
    model: PathBuf,
    /// Output file
    #[arg(short, long, value_name = "FILE", default_value = "tokenizer.bin")]
    output: PathBuf,
    /// Overwrite it
    #[arg(long)]
    force: bool,
}

pub(in crate::commands) fn run(args: LeapTokenizerArgs) -> Result<(), Failure> {
    let LeapTokenizerArgs {
        model,
        output,
        force,
    } = args;
    let inputs = InputFiles::of([Some(&model)]);
    inputs.protect_own_from(&output)?;
    // Its kinds of vocabularies need no other option, so the error names none.
    let read = llama2c::tokenizer_file(&model);
    let TokenizerFile { bytes, dropped } =
        read.map_err(|error| Failure::Failed(error.to_string()))?;
    dropped.iter().for_each(|what| warn(what));
    let is_there = output.exists();
    let is_same = is_there && fs::read(&output).is_ok_and(|there| there == bytes);
    if is_there && !is_same && !force {
        return Err(Failure::at(
            &output,
            "exists already, with another vocabulary: give another name by -o, or --force",
        ));
    }
    if !is_same {
        let mut file = NewFile::create(&output, &inputs)?;
        file.write(&bytes)?;
        file.finish()?;
    }
    Stdout::lock().line(&output.display().to_string())
}
