//! `atta imatrix`: computes an importance matrix from a text.

use std::{
    ops::ControlFlow,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use atta::{
    Engine, KvType, ModelFiles, Session, arch,
    convert::{ConvertOptions, Existing, ImatrixCollector, ImportanceMatrix, convert},
    tokenizer::Special,
};
use clap::Args;

use crate::{
    args::{ModelFileArg, ModelFlags, value},
    failure::Failure,
    input::{self, TextLimit},
    inputs::InputFiles,
    interrupt::Interrupt,
    load::{self, warn},
    progress::Progress,
};

/// Tokens of a chunk and of a batch by default.
const DEFAULT_N_CTX: usize = 512;

/// Computes an importance matrix for `atta convert`.
///
/// The text is split into chunks of -c tokens (512 by default), each evaluated from an empty
/// context. The squares of the inputs of every matrix of a layer are summed per column. Files are
/// llama.cpp's, in GGUF. Ctrl-C stops and writes the chunks so far.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atta imatrix model-f16.gguf -f text.txt -o model.imatrix
  atta imatrix model-f16.gguf -f more.txt --add model.imatrix -o both.imatrix")]
pub(crate) struct ImatrixArgs {
    #[command(flatten)]
    model: ModelFileArg,
    /// Text file; -: standard input
    #[arg(short = 'f', long = "file", value_name = "TEXT", required = true)]
    text: PathBuf,
    /// Output file
    #[arg(short, value_name = "FILE", required = true)]
    output: PathBuf,
    /// Number of chunks to evaluate [default: all]
    #[arg(long = "chunks", value_name = "N", value_parser = value::positions)]
    #[arg(allow_negative_numbers = true)]
    n_chunks: Option<usize>,
    /// Add to the importance matrix in FILE
    #[arg(long, value_name = "FILE")]
    add: Option<PathBuf>,
    /// Overwrite the output file; the file of --add may be overwritten anyway
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    model_flags: ModelFlags,
}

pub(super) fn run(args: ImatrixArgs) -> Result<(), Failure> {
    args.model_flags.refuse_fit("imatrix")?;
    args.model_flags.refuse_reduction("imatrix")?;
    args.model_flags.refuse_lora("imatrix")?;
    let mut options = args.model_flags.session_options(KvType::F32);
    let other = args.add.as_ref().filter(|&add| *add != args.output);
    InputFiles::of([Some(&*args.model), Some(&args.text), other]).protect_own_from(&args.output)?;
    if args.output.exists() && !args.force && args.add.as_ref() != Some(&args.output) {
        return Err(Failure::at(
            &args.output,
            "exists already: give another name, or --force",
        ));
    }
    let n_ctx = options.n_ctx.unwrap_or(DEFAULT_N_CTX);
    options.n_ctx = Some(n_ctx);
    options.n_batch = options.n_batch.or(Some(DEFAULT_N_CTX));
    let mut load = load::options(Some(&args.model), &args.model_flags, options.clone())?;
    load.spare_bytes = bytes(&args)?;
    let mut importance = args
        .add
        .as_deref()
        .map(ImportanceMatrix::open)
        .transpose()?
        .unwrap_or_default();
    if importance.n_chunks > 0 && importance.chunk_size as usize != n_ctx {
        let why = format!(
            "--add: it has chunks of {} tokens: give -c {0}",
            importance.chunk_size.max(1)
        );
        return Err(Failure::Failed(why));
    }
    let engine = load::engine(Some(&args.model), &load)?;
    let ids = ids(&args, &engine)?;
    importance.chunk_size = n_ctx as u32;
    importance
        .datasets
        .push(args.text.to_string_lossy().into_owned());
    let _memory = engine
        .budget()
        .reserve("importance", load.spare_bytes)
        .map_err(atta::Error::from)?;
    let interrupt = Interrupt::listen();
    let before = importance.n_chunks;
    let importance = collect(engine.session(&options)?, &ids, importance, &interrupt)?;
    if importance.n_chunks == before {
        return Err(Failure::Interrupted);
    }
    report(&importance);
    let options = ConvertOptions {
        existing: Existing::Replace,
        ..ConvertOptions::default()
    };
    convert(
        &importance.checkpoint(),
        &args.output,
        &options,
        &mut |_| ControlFlow::Continue(()),
    )?;
    if interrupt.is_asked() {
        Err(Failure::Interrupted)
    } else {
        Ok(())
    }
}

/// Bytes of the result, which weights must leave free.
fn bytes(args: &ImatrixArgs) -> Result<u64, Failure> {
    let files = ModelFiles::open(&load::locate(&args.model)?).map_err(atta::Error::from)?;
    let spec = arch::lower(files.directory().metadata());
    // An unsupported model is an error when it is loaded.
    Ok(spec.map_or(0, |spec| ImatrixCollector::bytes(&spec)))
}

/// Tokenizes the text without parsing special tokens, and splits it into whole chunks.
fn ids(args: &ImatrixArgs, engine: &Engine) -> Result<Vec<Vec<u32>>, Failure> {
    let n_ctx = args.model_flags.n_ctx.unwrap_or(DEFAULT_N_CTX);
    let text = input::read_bytes(&args.text, &TextLimit::of_memory())?;
    let tokenizer = engine.tokenizer();
    let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
    let ids: Vec<u32> = bos
        .into_iter()
        .chain(tokenizer.encode(text, Special::Plain))
        .collect();
    let chunks = ids
        .chunks_exact(n_ctx)
        .take(args.n_chunks.unwrap_or(usize::MAX));
    // As in llama.cpp, every chunk begins with the begin-of-sequence token.
    let begin = |chunk: &[u32]| {
        bos.into_iter()
            .chain(chunk.iter().copied().skip(bos.iter().count()))
            .collect()
    };
    let chunks: Vec<Vec<u32>> = chunks.map(begin).collect();
    match chunks.is_empty() {
        true => Err(Failure::at(
            &args.text,
            format!(
                "has {} tokens, a chunk takes {n_ctx}: give a smaller -c",
                ids.len()
            ),
        )),
        false => Ok(chunks),
    }
}

/// Evaluates the chunks and collects their importance, until the end or Ctrl-C.
fn collect(
    mut session: Session,
    chunks: &[Vec<u32>],
    importance: ImportanceMatrix,
    interrupt: &Interrupt,
) -> Result<ImportanceMatrix, Failure> {
    let mut progress = Progress::new();
    let importance = Arc::new(Mutex::new(importance));
    let engine = session.engine();
    let directory = engine.model().weights().files().directory();
    let collector = ImatrixCollector::new(engine.spec(), directory, importance.clone())?;
    session.observe(Box::new(collector));
    for (i, chunk) in chunks.iter().enumerate() {
        progress.busy(|| format!("chunk {} of {}", i + 1, chunks.len()));
        session.truncate(0)?;
        if session.append_with(chunk, |_| !interrupt.is_asked())? < chunk.len() {
            break;
        }
        importance
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .n_chunks += 1;
    }
    drop(session);
    let importance =
        Arc::into_inner(importance).expect("the session that holds the other reference is dropped");
    Ok(importance
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner))
}

/// Warns of experts that the text did not reach.
fn report(importance: &ImportanceMatrix) {
    let unseen: usize = importance
        .entries()
        .map(|(_, entry)| entry.n_unseen())
        .sum();
    if unseen > 0 {
        warn(&format!(
            "{unseen} matrices of experts were not used by any token: their columns all count the \
             same"
        ));
    }
}
