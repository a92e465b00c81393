//! `atta imatrix`: what the matrices of a model are multiplied with, over a text.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex, PoisonError},
};

use atta::{
    Engine, KvType, ModelFiles, Session, arch,
    convert::{Collector, Existing, Importance, Options, convert},
    tokenizer::Special,
};

use crate::{
    args::ImatrixArgs,
    failure::Failure,
    input::{self, Limit},
    inputs::Inputs,
    interrupt::Interrupt,
    load::{self, warn},
    progress::Progress,
};

/// Tokens of a chunk and of a batch, where nobody says otherwise.
const DEFAULT_N_CTX: usize = 512;

pub(super) fn run(args: &ImatrixArgs) -> Result<(), Failure> {
    args.model_flags.refuse_fit("imatrix")?;
    let mut options = args.model_flags.session_options(KvType::F32);
    let other = args.add.as_ref().filter(|&add| *add != args.output);
    Inputs::of([Some(&args.model), Some(&args.text), other]).protect_own_from(&args.output)?;
    if args.output.exists() && !args.force && args.add.as_ref() != Some(&args.output) {
        return Err(Failure::at(
            &args.output,
            "exists already: give another name, or --force",
        ));
    }
    let n_ctx = options.n_ctx.unwrap_or(DEFAULT_N_CTX);
    (options.n_ctx, options.n_batch) = (Some(n_ctx), options.n_batch.or(Some(DEFAULT_N_CTX)));
    let mut load = load::options(Some(&args.model), &args.model_flags, options.clone())?;
    load.spare_bytes = bytes(args)?;
    let mut importance = args
        .add
        .as_deref()
        .map(Importance::open)
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
    let ids = ids(args, &engine)?;
    importance.chunk_size = n_ctx as u32;
    importance
        .datasets
        .push(args.text.to_string_lossy().into_owned());
    let _memory = engine
        .budget()
        .reserve("importance", load.spare_bytes)
        .map_err(atta::Error::from)?;
    let (interrupt, before) = (Interrupt::listen(), importance.n_chunks);
    let importance = collect(engine.session(&options)?, &ids, importance, &interrupt)?;
    if importance.n_chunks == before {
        return Err(Failure::Interrupted);
    }
    report(&importance);
    let options = Options {
        existing: Existing::Replace,
        ..Options::default()
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

/// Bytes that the result will take, which weights must leave free.
fn bytes(args: &ImatrixArgs) -> Result<u64, Failure> {
    let files = ModelFiles::open(&load::locate(&args.model)?).map_err(atta::Error::from)?;
    let spec = arch::lower(files.directory().metadata());
    // What is wrong with the model is said when it is loaded.
    Ok(spec.map_or(0, |spec| Collector::bytes(&spec)))
}

/// The ids of the text, byte for byte: nothing in it is a special token. Whole chunks only.
fn ids(args: &ImatrixArgs, engine: &Engine) -> Result<Vec<Vec<u32>>, Failure> {
    let n_ctx = args.model_flags.n_ctx.unwrap_or(DEFAULT_N_CTX);
    let text = input::read_bytes(&args.text, &Limit::of_memory())?;
    let tokenizer = engine.tokenizer();
    let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
    let ids: Vec<u32> = bos
        .into_iter()
        .chain(tokenizer.encode(text, Special::Plain))
        .collect();
    let chunks = ids
        .chunks_exact(n_ctx)
        .take(args.n_chunks.unwrap_or(usize::MAX));
    // As llama.cpp has it: every chunk begins as a text does.
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

/// What was seen of the chunks until the end, or until Ctrl-C.
fn collect(
    mut session: Session,
    chunks: &[Vec<u32>],
    importance: Importance,
    interrupt: &Interrupt,
) -> Result<Importance, Failure> {
    let mut progress = Progress::new();
    let importance = Arc::new(Mutex::new(importance));
    let engine = session.engine();
    let directory = engine.model().weights().files().directory();
    let collector = Collector::new(engine.spec(), directory, importance.clone())?;
    session.observe(Box::new(collector));
    for (i, chunk) in chunks.iter().enumerate() {
        progress.busy(&format!("chunk {} of {}", i + 1, chunks.len()));
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
    let importance = Arc::into_inner(importance).expect("the session that listened is gone");
    Ok(importance
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner))
}

/// Says which experts the text did not reach.
fn report(importance: &Importance) {
    let unseen: usize = importance
        .entries()
        .map(|(_, entry)| entry.n_unseen())
        .sum();
    if unseen > 0 {
        warn(&format!(
            "{unseen} matrices of experts were not used by any token: their columns all count the same"
        ));
    }
}
