//! `atta picolm`, and the program called by that name: `run` with PicoLM's options.
//!
//! A drop-in for programs that start `picolm`: prompt on standard input or with `-p`, text on
//! standard output, and nothing but text. PicoLM ends the text with a line feed; this command does
//! so on a terminal only, like `run`.

use std::{ffi::OsString, path::PathBuf};

use atta::{DryOptions, Explain, GenerateOptions, Pool, Sampling};
use clap::Args;

use super::run::{EmptyPrompt, Machines, PROMPT_HINT, ResolvedRun};
use crate::{
    args::{
        CacheFlags, ConstraintFlags, ContextFlags, GpuFlags, ModelFlags, ReportFlags, RingFlags,
        SpeculationFlags, extra_help, flag,
        value::{self, Seed},
    },
    constraint,
    failure::Failure,
    input::TextSource,
    inputs::InputFiles,
};

/// PicoLM's default number of threads; fewer are used on fewer cores.
const DEFAULT_THREADS: usize = 4;

/// Continues a text, with the options of PicoLM.
///
/// A drop-in for `picolm`, for programs and scripts that call it: a link of that name to this
/// program is this command. -k is top-p here; top-k and min-p are off. Only text goes to standard
/// output.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
#[command(after_help = extra_help(
    "Examples:
  atta picolm model.gguf -p \"Once upon a time\" -n 100 -t 0
  ln -s \"$(command -v atta)\" picolm; echo \"Explain gravity\" | ./picolm model.gguf -n 100 -j 4"
))]
pub(crate) struct PicolmArgs {
    /// GGUF file, or ORG/REPO[:QUANT] that was pulled
    model: PathBuf,
    /// Prompt [default: standard input, byte for byte]
    #[arg(short, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<OsString>,
    /// Maximum number of tokens to generate
    #[arg(short = 'n', value_name = "N", default_value = "256")]
    #[arg(value_parser = value::count, allow_negative_numbers = true)]
    n_predict: usize,
    /// Temperature; 0: greedy
    #[arg(short = 't', value_name = "TEMP", default_value = "0.8")]
    #[arg(value_parser = value::number, allow_negative_numbers = true)]
    temperature: f32,
    /// Top-p sampling: keep the most probable tokens with total probability P (1 = off)
    #[arg(short = 'k', value_name = "P", default_value = "0.9")]
    #[arg(value_parser = value::probability, allow_negative_numbers = true)]
    top_p: f32,
    /// RNG seed; -1: random
    #[arg(short = 's', value_name = "SEED", default_value = "42", value_parser = value::seed)]
    #[arg(allow_negative_numbers = true)]
    seed: Seed,
    /// Context length in tokens [default, and 0: the model's training length, at most 4096]
    #[arg(short = 'c', value_name = "CTX", value_parser = value::positions_or_0)]
    #[arg(allow_negative_numbers = true)]
    n_ctx: Option<usize>,
    /// Number of threads [default: 4, or as many as there are cores]
    #[arg(short = 'j', value_name = "THREADS", value_parser = value::threads)]
    #[arg(allow_negative_numbers = true)]
    n_threads: Option<usize>,
    /// Constrain the output to a JSON object
    #[arg(long)]
    json: bool,
    /// Save the KV cache of the prompt and the text to FILE and reuse it; PicoLM's own files are
    /// refused
    #[arg(long, value_name = "FILE")]
    cache: Option<PathBuf>,
}

pub(super) fn run(args: PicolmArgs) -> Result<(), Failure> {
    let options = generate_options(&args)?;
    let n_threads = args
        .n_threads
        .unwrap_or_else(|| DEFAULT_THREADS.min(Pool::default_threads()));
    let prompt = TextSource::given_or_piped(args.prompt.as_deref(), PROMPT_HINT)?;
    let run = ResolvedRun {
        model: Some(args.model),
        empty_prompt: EmptyPrompt::Refused,
        options,
        speculation: SpeculationFlags::off(),
        // PicoLM's default is 0.
        model_flags: ModelFlags::of(args.n_ctx.filter(|&n| n > 0), n_threads),
        context: ContextFlags::default(),
        cache: CacheFlags {
            cache: args.cache,
            cache_size: None,
        },
        machines: Machines::Flags(RingFlags::default(), GpuFlags::default()),
        report: ReportFlags::default(),
        inputs: InputFiles::default(),
    };
    run.execute(prompt)
}

fn generate_options(args: &PicolmArgs) -> Result<GenerateOptions, Failure> {
    let options = GenerateOptions {
        n_predict: args.n_predict,
        sampling: nucleus(args.temperature, args.top_p, args.seed),
        ..GenerateOptions::default()
    };
    let options = if args.json {
        constraint::apply(&ConstraintFlags::json(), options)?
    } else {
        options
    };
    options
        .sampling
        .validate()
        .map_err(|error| Failure::Usage(error.explain(flag)))?;
    Ok(options)
}

/// Temperature and top-p; all other samplers are off.
pub(super) fn nucleus(temperature: f32, top_p: f32, seed: Seed) -> Sampling {
    Sampling {
        temperature,
        top_k: 0,
        typical: 1.0,
        top_p,
        min_p: 0.0,
        top_n_sigma: 0.0,
        repeat_penalty: 1.0,
        repeat_window: 0,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
        dry: DryOptions::default(),
        logit_bias: Vec::new(),
        seed: seed.now(),
    }
}
