//! The options of `atta perplexity`.

use std::path::PathBuf;

use clap::Args;

use crate::args::{GpuFlags, ModelArg, ModelFlags, RingFlags, value};

/// Measures the perplexity of the model on a text.
///
/// The text is split into chunks of -c tokens (512 by default). The second half of each chunk is
/// scored, with the chunk before it as context. Results and files of saved logits are those of
/// llama.cpp's llama-perplexity. Special tokens in the text are plain text.
///
/// With --kld the text is that of the saved logits, and -f is optional.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atta perplexity model.gguf -f wiki.txt
  atta perplexity model-f16.gguf -f wiki.txt --save-logits f16.logits
  atta perplexity model-q4.gguf --kld f16.logits --json
  atta perplexity model.gguf -f wiki.txt --resume wiki.progress")]
pub(crate) struct PerplexityArgs {
    #[command(flatten)]
    pub(super) model: ModelArg,
    /// Text file; -: standard input
    #[arg(
        short = 'f',
        long = "file",
        value_name = "TEXT",
        required_unless_present = "kld"
    )]
    pub(super) text: Option<PathBuf>,
    /// Number of chunks to score [default: all]
    #[arg(long = "chunks", value_name = "N", value_parser = value::positions)]
    #[arg(allow_negative_numbers = true)]
    pub(super) n_chunks: Option<usize>,
    /// Save the log-probabilities of all tokens to FILE, 16 bits each, as a baseline for --kld
    #[arg(long, value_name = "FILE")]
    pub(super) save_logits: Option<PathBuf>,
    /// Compute the KL divergence, and more, to the logits saved in FILE
    #[arg(long, value_name = "FILE", conflicts_with = "save_logits")]
    pub(super) kld: Option<PathBuf>,
    /// Keep a journal of finished chunks in FILE, and resume from it if it exists
    ///
    /// After Ctrl-C or a crash, the same command resumes with the next chunk, and the results are
    /// the same to the last digit. The file of --save-logits then grows in place.
    #[arg(long, value_name = "FILE")]
    pub(super) resume: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) model_flags: ModelFlags,
    #[command(flatten)]
    pub(super) ring: RingFlags,
    #[command(flatten)]
    pub(super) gpu: GpuFlags,
}
