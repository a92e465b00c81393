//! `atta sensitivity`: measures what a model loses where it runs in part.
//!
//! The library measures; this module handles the files. The measurements go into a copy of the
//! model's file, because they are true of these weights only.

mod figures;

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use atta::{
    Engine, EvalError, KvType, LoadOptions, ModelFiles, Reduction, Sensitivity, arch,
    convert::{ConvertOptions, Existing, convert, gguf},
    perplexity::Chunks,
    sensitivity::{Measurement, TrialProgress, extra_bytes},
    tokenizer::Special,
};
use clap::Args;

use crate::{
    args::{ModelFileArg, ModelFlags, value},
    failure::Failure,
    input::{self, TextLimit},
    inputs::InputFiles,
    interrupt::Interrupt,
    load,
    output::Stdout,
    progress::Progress,
};

/// Tokens of a chunk and of a batch by default.
const DEFAULT_N_CTX: usize = 512;

/// Chunks by default: a thousand scored tokens tell layers apart, and every layer runs many times.
const DEFAULT_N_CHUNKS: usize = 4;

/// Measures what leaving layers out costs, and fewer experts, for `--quality` and `--experts`.
///
/// The text is split into chunks of -c tokens (512 by default), scored as by `atta perplexity`.
/// First each layer is left out alone; then, one after another, the layer that adds the least KL
/// divergence from the whole model, until that is above 1 nat. The first two and the last two
/// layers always stay. It takes as long as dozens of perplexities of the same chunks.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atta sensitivity model.gguf -f text.txt -o model-measured.gguf
  atta run model-measured.gguf --quality 0.8 -p \"Once upon a time\"")]
pub(crate) struct SensitivityArgs {
    #[command(flatten)]
    model: ModelFileArg,
    /// Text file; -: standard input
    #[arg(short = 'f', long = "file", value_name = "TEXT", required = true)]
    text: PathBuf,
    /// Write a copy of the model with the measurements to FILE
    #[arg(short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Number of chunks to score
    #[arg(long = "chunks", value_name = "N", value_parser = value::positions)]
    #[arg(allow_negative_numbers = true, default_value_t = DEFAULT_N_CHUNKS)]
    n_chunks: usize,
    /// The most layers to leave out together [default: until that costs more than 1 nat]
    #[arg(long = "layers", value_name = "N", value_parser = value::positions)]
    #[arg(allow_negative_numbers = true)]
    n_layers: Option<usize>,
    /// Overwrite the output file
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model_flags: ModelFlags,
}

pub(super) fn run(args: Box<SensitivityArgs>) -> Result<(), Failure> {
    args.model_flags.refuse_fit("sensitivity")?;
    args.model_flags.refuse_reduction("sensitivity")?;
    args.model_flags.refuse_lora("sensitivity")?;
    protect(&args)?;
    let options = options(&args)?;
    let engine = load::engine(Some(&args.model), &options)?;
    let chunks = chunks(&args, &engine)?;
    let interrupt = Interrupt::listen();
    let measured = measure(&args, &engine, &chunks, &options, &interrupt)?;
    let mut out = Stdout::lock();
    let figures = if args.json {
        figures::json
    } else {
        figures::text
    };
    out.line(&figures(&measured, &engine)?)?;
    out.flush()?;
    match &args.output {
        Some(output) => write(&args, output, &measured, &interrupt),
        None => Ok(()),
    }
}

/// Refuses an output that is read, or exists.
fn protect(args: &SensitivityArgs) -> Result<(), Failure> {
    let Some(output) = &args.output else {
        return Ok(());
    };
    InputFiles::of([Some(&*args.model), Some(&args.text)]).protect_own_from(output)?;
    match output.exists() && !args.force {
        true => Err(Failure::at(
            output,
            "exists already: give another name, or --force",
        )),
        false => Ok(()),
    }
}

fn options(args: &SensitivityArgs) -> Result<LoadOptions, Failure> {
    let mut session = args.model_flags.session_options(KvType::default());
    session.n_ctx = session.n_ctx.or(Some(DEFAULT_N_CTX));
    session.n_batch = session.n_batch.or(Some(DEFAULT_N_CTX));
    let model = Some(args.model.as_path());
    let options = load::options(model, &args.model_flags, session)?;
    let files = ModelFiles::open(&load::locate(&args.model)?).map_err(atta::Error::from)?;
    // An unsupported model is an error when it is loaded.
    let spec = arch::lower(files.directory().metadata());
    let n_threads = options.threads.count();
    let spare_bytes = spec.map_or(0, |spec| extra_bytes(&spec, &options.session, n_threads));
    Ok(LoadOptions {
        spare_bytes,
        ..options
    })
}

/// The text in chunks; special tokens in it are plain text.
fn chunks(args: &SensitivityArgs, engine: &Engine) -> Result<Chunks, Failure> {
    let text = input::read_bytes(&args.text, &TextLimit::of_memory())?;
    let tokenizer = engine.tokenizer();
    let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
    let ids = bos
        .into_iter()
        .chain(tokenizer.encode(text, Special::Plain));
    let n_ctx = args.model_flags.n_ctx.unwrap_or(DEFAULT_N_CTX);
    Ok(Chunks::new(ids.collect(), n_ctx, Some(args.n_chunks))?)
}

fn measure(
    args: &SensitivityArgs,
    engine: &Engine,
    chunks: &Chunks,
    options: &LoadOptions,
    interrupt: &Interrupt,
) -> Result<Sensitivity, Failure> {
    let path = load::locate(&args.model)?;
    let mut progress = Progress::new();
    let mut open =
        |reduction: &Reduction| Engine::open(&path, &in_part(options, engine, reduction.clone()));
    let measurement = Measurement {
        engine,
        chunks,
        session: options.session.clone(),
        open: &mut open,
        progress: &mut |trial| {
            progress.busy(|| shown(trial));
            go_on(interrupt)
        },
    };
    let measured = measurement.run(args.n_layers.unwrap_or(usize::MAX));
    progress.clear();
    match measured {
        Err(EvalError::Cancelled) => Err(Failure::Interrupted),
        measured => Ok(measured?),
    }
}

/// The options of loading the model in part, beside the whole one.
fn in_part(options: &LoadOptions, whole: &Engine, reduction: Reduction) -> LoadOptions {
    LoadOptions {
        reduction,
        pool: Some(Arc::clone(whole.pool())),
        beside: whole.budget().used(),
        ..options.clone()
    }
}

fn go_on(interrupt: &Interrupt) -> ControlFlow<()> {
    match interrupt.is_asked() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}

fn shown(
    TrialProgress {
        round,
        n_done,
        n_all,
    }: TrialProgress,
) -> String {
    format!("round {}: trial {} of {n_all}", round + 1, n_done + 1)
}

/// Writes a copy of the model with the measurements.
fn write(
    args: &SensitivityArgs,
    output: &Path,
    measured: &Sensitivity,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let mut checkpoint = gguf::open(&load::locate(&args.model)?)?;
    measured.write(&mut checkpoint.metadata);
    let existing = match args.force {
        true => Existing::Replace,
        false => Existing::Keep,
    };
    let options = ConvertOptions {
        existing,
        ..ConvertOptions::default()
    };
    convert(&checkpoint, output, &options, &mut |_| go_on(interrupt))?;
    Ok(())
}
