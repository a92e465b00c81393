//! `atta perplexity`: the perplexity of a model on a text, and its KL divergence from saved logits.
//!
//! The library computes the figures; this module handles the files. Without `--resume` the results
//! are written whole or not at all. With it, a journal keeps the scores of finished chunks, and
//! saved logits grow in place.

mod args;
mod figures;
mod journal;
pub(super) mod saved;

use std::{fs::File, io::BufReader, ops::ControlFlow, path::Path, time::Instant};

use atta::{
    Engine, Explain, KvType, Session,
    perplexity::{Baseline, BaselineHeader, Chunks, PerplexityReport, Scores},
    tokenizer::Special,
};

use crate::{
    args::{flag, ring::RingAim},
    failure::Failure,
    gpu::GpuPlanner,
    input::{self, TextLimit},
    inputs::InputFiles,
    interrupt::Interrupt,
    load,
    output::Stdout,
    progress::Progress,
    ring,
};

pub(crate) use args::PerplexityArgs;

use journal::Journal;
use saved::{BaselineFile, LogitsWriter};

/// Tokens of a chunk and of a batch by default. Batches are larger than those of `run`, since
/// memory matters less here.
const DEFAULT_N_CTX: usize = 512;

/// Memory for scores: those of a million tokens, or of a third of that with `--kld`.
const SCORE_BYTES: u64 = 4 << 20;

pub(super) fn run(args: PerplexityArgs) -> Result<(), Failure> {
    let args = &args;
    args.model_flags.refuse_fit("perplexity")?;
    protect(args)?;
    let mut session_options = args.model_flags.session_options(KvType::default());
    session_options.n_batch = session_options.n_batch.or(Some(DEFAULT_N_CTX));
    let base = args.kld.as_deref().map(BaselineFile::open).transpose()?;
    let n_ctx = base
        .as_ref()
        .map(|base| base.header.chunks.n_ctx())
        .or(session_options.n_ctx);
    session_options.n_ctx = n_ctx.or(Some(DEFAULT_N_CTX));
    let mut options = load::options(
        args.model.as_deref(),
        &args.model_flags,
        session_options.clone(),
    )?;
    options.spare_bytes = SCORE_BYTES;
    let model = args.model.as_deref();
    let (options, _) = ring::plan(model, &args.ring, RingAim::Prompt, options)?;
    let options = GpuPlanner::new(1).plan(model, &args.gpu, options)?;
    let engine = load::engine(model, &options)?;
    let chunks = chunks(args, &engine, base.as_ref())?;
    session_options.n_ctx = Some(chunks.n_ctx());
    let mut measurement = Measurement {
        session: engine.session(&session_options)?,
        scores: if base.is_some() {
            Scores::compared(&engine, &chunks)
        } else {
            Scores::new(&engine, &chunks)
        }?,
        interrupt: Interrupt::listen(),
        progress: Progress::new(),
        chunks,
    };
    measurement.run(args, base)?;
    drop(measurement.progress);
    let report = PerplexityReport::new(&measurement.scores);
    let mut out = Stdout::lock();
    let figures = if args.json {
        figures::json
    } else {
        figures::text
    };
    out.line(&figures(&report, &measurement.chunks))?;
    out.flush()
}

impl From<atta::EvalError> for Failure {
    fn from(error: atta::EvalError) -> Self {
        Self::Failed(error.explain(flag))
    }
}

/// Refuses an output that is read, and two outputs to one file.
fn protect(args: &PerplexityArgs) -> Result<(), Failure> {
    let inputs = inputs(args);
    let outputs = [&args.save_logits, &args.resume];
    outputs
        .into_iter()
        .flatten()
        .try_for_each(|output| inputs.protect_from(output))?;
    let own = InputFiles::of([args.resume.as_ref()]);
    args.save_logits
        .as_ref()
        .map_or(Ok(()), |path| own.protect_own_from(path))
}

/// The files that are read.
fn inputs(args: &PerplexityArgs) -> InputFiles {
    InputFiles::of([args.model.as_ref(), args.text.as_ref(), args.kld.as_ref()])
}

/// The chunks to score: of the baseline, or of `-f`.
fn chunks(
    args: &PerplexityArgs,
    engine: &Engine,
    base: Option<&BaselineFile>,
) -> Result<Chunks, Failure> {
    let given = args
        .text
        .as_deref()
        .map(|path| ids(engine, path))
        .transpose()?;
    let Some(BaselineFile { path, header, .. }) = base else {
        let n_ctx = args.model_flags.n_ctx.unwrap_or(DEFAULT_N_CTX);
        return Ok(Chunks::new(
            given.unwrap_or_default(),
            n_ctx,
            args.n_chunks,
        )?);
    };
    let n_ctx = header.chunks.n_ctx();
    header
        .check(engine)
        .map_err(|error| Failure::at(path, error))?;
    if args.model_flags.n_ctx.is_some_and(|asked| asked != n_ctx) {
        return Err(Failure::at(
            path,
            format_args!("it has chunks of {n_ctx} tokens: leave -c out, or give -c {n_ctx}"),
        ));
    }
    if given.is_some_and(|ids| !ids.starts_with(header.chunks.ids())) {
        return Err(Failure::at(
            path,
            "it is of another text than -f, or of another vocabulary",
        ));
    }
    Ok(Chunks::new(
        header.chunks.ids().to_vec(),
        n_ctx,
        args.n_chunks,
    )?)
}

/// Tokenizes a file without parsing special tokens.
fn ids(engine: &Engine, path: &Path) -> Result<Vec<u32>, Failure> {
    let text = input::read_bytes(path, &TextLimit::of_memory())?;
    let tokenizer = engine.tokenizer();
    let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
    Ok(bos
        .into_iter()
        .chain(tokenizer.encode(text, Special::Plain))
        .collect())
}

/// A measurement under way.
struct Measurement {
    session: Session,
    chunks: Chunks,
    scores: Scores,
    interrupt: Interrupt,
    progress: Progress,
}

impl Measurement {
    fn run(&mut self, args: &PerplexityArgs, base: Option<BaselineFile>) -> Result<(), Failure> {
        let n_vocab = self.session.engine().spec().n_vocab;
        let mut journal = args
            .resume
            .as_deref()
            .map(|path| Journal::open(path, args, self))
            .transpose()?;
        let n_done = self.scores.nll.len() / self.chunks.n_scored();
        let header = BaselineHeader {
            chunks: self.chunks.clone(),
            n_vocab,
        };
        let mut saved = match (&args.save_logits, &journal) {
            (Some(path), Some(_)) => Some(LogitsWriter::resume(path, &header, n_done)?),
            (Some(path), None) => Some(LogitsWriter::new(path, &inputs(args), &header)?),
            (None, _) => None,
        };
        let mut base = base.map(|base| base.rows(n_done)).transpose()?;
        let start = Instant::now();
        for i in n_done..self.chunks.len() {
            self.show(i - n_done, i, start);
            self.chunk(i, saved.as_mut(), base.as_mut())?;
            if let Some(journal) = &mut journal {
                journal.append(&self.scores)?;
            }
        }
        saved.map_or(Ok(()), LogitsWriter::finish)
    }

    /// Scores chunk `i`; Ctrl-C or an error discards the whole chunk.
    fn chunk(
        &mut self,
        i: usize,
        mut saved: Option<&mut LogitsWriter>,
        mut base: Option<&mut Baseline<BufReader<File>>>,
    ) -> Result<(), Failure> {
        let Self {
            session,
            chunks,
            scores,
            interrupt,
            ..
        } = self;
        let mut failed = None;
        let mut score = |logits: &[f32], token: u32| -> Result<(), Failure> {
            match base.as_mut() {
                Some(rows) => scores.push_compared(logits, token, rows.next_row()?),
                None => scores.push(logits, token),
            }
            saved.as_mut().map_or(Ok(()), |saved| saved.row(logits))
        };
        let flow = chunks.evaluate(
            i,
            session,
            || !interrupt.is_asked(),
            |logits, token| {
                if failed.is_none() {
                    failed = score(logits, token).err();
                }
            },
        );
        match (failed, flow?) {
            (Some(failure), _) => Err(failure),
            (None, ControlFlow::Break(())) => Err(Failure::Interrupted),
            (None, ControlFlow::Continue(())) => saved.map_or(Ok(()), LogitsWriter::flush),
        }
    }

    /// Shows the progress and the remaining time.
    fn show(&mut self, n_done_now: usize, i: usize, start: Instant) {
        let n = self.chunks.len();
        let scores = &self.scores;
        let rest = || match n_done_now {
            0 => String::new(),
            done => {
                let seconds = start.elapsed().as_secs_f64() / done as f64 * (n - i) as f64;
                let ppl = scores.perplexity().value;
                format!(
                    ": perplexity {ppl:.4} so far, {:.0} min {:02.0} s left",
                    (seconds / 60.0).floor(),
                    seconds % 60.0
                )
            }
        };
        self.progress
            .busy(|| format!("chunk {} of {n}{}", i + 1, rest()));
    }
}
