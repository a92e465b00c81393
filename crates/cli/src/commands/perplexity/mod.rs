//! `atta perplexity`: how well a model predicts a text, and how far it is from a model whose logits
//! were saved.
//!
//! The method and the figures are the library's; here are the files. Without `--resume` a
//! measurement is whole or nothing. With it, what was scored so far is in a journal, and saved
//! logits grow in place.

mod figures;
mod journal;
mod saved;

use std::{fs::File, io::BufReader, ops::ControlFlow, path::Path, time::Instant};

use atta::{
    Engine, KvType, Session,
    perplexity::{Baseline, BaselineHeader, Chunks, PerplexityReport, Scores},
    tokenizer::Special,
};

use crate::{
    args::PerplexityArgs,
    failure::Failure,
    input::{self, Limit},
    inputs::Inputs,
    interrupt::Interrupt,
    load,
    output::Stdout,
    progress::Progress,
};

use journal::Journal;
use saved::{Compared, Saved};

/// Tokens of a chunk and of a batch, where nobody says otherwise. Batches are larger than those of
/// `run`, since memory matters less here.
const DEFAULT_N_CTX: usize = 512;

/// Kept free for scores: those of a million tokens, or of a third of that with a comparison.
const SCORE_BYTES: u64 = 4 << 20;

pub(super) fn run(args: &PerplexityArgs) -> Result<(), Failure> {
    args.model_flags.refuse_fit("perplexity")?;
    protect(args)?;
    let mut session_options = args.model_flags.session_options(KvType::default());
    session_options.n_batch = session_options.n_batch.or(Some(DEFAULT_N_CTX));
    let base = args.kld.as_deref().map(Compared::open).transpose()?;
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
    let engine = load::engine(args.model.as_deref(), &options)?;
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

/// Refuses to write over what is read, and two outputs in one file.
fn protect(args: &PerplexityArgs) -> Result<(), Failure> {
    let inputs = inputs(args);
    let outputs = [&args.save_logits, &args.resume];
    outputs
        .into_iter()
        .flatten()
        .try_for_each(|output| inputs.protect_from(output))?;
    let own = Inputs::of([args.resume.as_ref()]);
    args.save_logits
        .as_ref()
        .map_or(Ok(()), |path| own.protect_own_from(path))
}

/// The files that are read.
fn inputs(args: &PerplexityArgs) -> Inputs {
    Inputs::of([args.model.as_ref(), args.text.as_ref(), args.kld.as_ref()])
}

/// The text to be scored: that of the baseline, or that of `-f`.
fn chunks(
    args: &PerplexityArgs,
    engine: &Engine,
    base: Option<&Compared>,
) -> Result<Chunks, Failure> {
    let given = args
        .text
        .as_deref()
        .map(|path| ids(engine, path))
        .transpose()?;
    let Some(Compared { path, header, .. }) = base else {
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
            format_args!("it has chunks of {n_ctx} tokens: leave -c away, or give -c {n_ctx}"),
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

/// The ids of a file, byte for byte: nothing in it is a special token.
fn ids(engine: &Engine, path: &Path) -> Result<Vec<u32>, Failure> {
    let text = input::read_bytes(path, &Limit::of_memory())?;
    let tokenizer = engine.tokenizer();
    let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
    Ok(bos
        .into_iter()
        .chain(tokenizer.encode(text, Special::Plain))
        .collect())
}

/// What a measurement works with.
struct Measurement {
    session: Session,
    chunks: Chunks,
    scores: Scores,
    interrupt: Interrupt,
    progress: Progress,
}

impl Measurement {
    fn run(&mut self, args: &PerplexityArgs, base: Option<Compared>) -> Result<(), Failure> {
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
            (Some(path), Some(_)) => Some(Saved::resume(path, &header, n_done)?),
            (Some(path), None) => Some(Saved::new(path, &inputs(args), &header)?),
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
        saved.map_or(Ok(()), Saved::finish)
    }

    /// Scores chunk `i`; on Ctrl-C or an error, as if it had never been begun.
    fn chunk(
        &mut self,
        i: usize,
        mut saved: Option<&mut Saved>,
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
            (None, ControlFlow::Continue(())) => saved.map_or(Ok(()), Saved::flush),
        }
    }

    /// Says how far it is, and how long the rest will take.
    fn show(&mut self, n_done_now: usize, i: usize, start: Instant) {
        if !self.progress.is_seen() {
            return;
        }
        let n = self.chunks.len();
        let rest = match n_done_now {
            0 => String::new(),
            done => {
                let seconds = start.elapsed().as_secs_f64() / done as f64 * (n - i) as f64;
                let ppl = self.scores.perplexity().value;
                format!(
                    ": perplexity {ppl:.4} so far, {:.0} min {:02.0} s left",
                    (seconds / 60.0).floor(),
                    seconds % 60.0
                )
            }
        };
        self.progress.busy(&format!("chunk {} of {n}{rest}", i + 1));
    }
}
