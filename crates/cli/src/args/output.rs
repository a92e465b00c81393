//! Options for files that are written beside the text: the prompt cache, and reports.

use std::path::PathBuf;

use clap::Args;

use super::value;

/// Where the KV cache of a prompt is kept between runs.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Cache")]
pub(crate) struct CacheFlags {
    /// Save the KV cache of prompts to PATH and reuse it: a directory of many prompts if PATH is
    /// one or ends in /, else a file for the last prompt
    ///
    /// The text is the same as without. A saved state that is damaged or of another model is
    /// ignored.
    #[arg(long, value_name = "PATH")]
    pub(crate) cache: Option<PathBuf>,
    /// Size limit of a cache directory, such as 256M; evicts the least recently used [default: 1G]
    #[arg(long, value_name = "SIZE", value_parser = value::size, requires = "cache")]
    pub(crate) cache_size: Option<u64>,
}

/// What a run reports beside the text.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct ReportFlags {
    /// Write token counts, timings and memory use to FILE as one JSON object
    ///
    /// It is written on failure and after Ctrl-C too. Its keys are always the same; a value that is
    /// not known is null, and a failure adds `error`. `prompt_tokens` counts the begin-of-sequence
    /// token, `generated_tokens` the end-of-generation token, which adds no text.
    #[arg(long, value_name = "FILE")]
    pub(crate) stats_json: Option<PathBuf>,
    /// Print memory use by purpose to standard error, and the operating system's figures
    #[arg(long)]
    pub(crate) mem_report: bool,
    /// Print model, threads, instruction set and timings to standard error
    #[arg(long)]
    pub(crate) verbose: bool,
}
