//! Measures on a text how far models diverge from a reference.
//!
//! The reference is evaluated once; its log-probabilities wait in a file. The first chunks of the
//! text serve to probe groups of tensors, the others to measure the result, so that the result is
//! not judged by the text that it was made for.

use std::{
    num::NonZeroUsize,
    ops::{ControlFlow, Range},
    path::{Path, PathBuf},
    sync::Arc,
};

use atta::{
    Budget, Engine, LoadOptions, ModelFiles, ModelSource, SessionOptions, Threads,
    convert::{
        Checkpoint,
        target::{Blend, CostTable},
    },
    perplexity::{BaselineHeader, Chunks, Estimate, PerplexityReport, Scores},
    tokenizer::Special,
};

use crate::{
    commands::perplexity::saved::{BaselineFile, LogitsWriter},
    failure::Failure,
    input::{self, TextLimit},
    inputs::InputFiles,
    interrupt::Interrupt,
    progress::Progress,
};

/// Tokens of a chunk; the second half is scored.
const N_CTX: usize = 512;
/// Chunks that groups are probed with: some 2,000 tokens.
const N_PROBE: usize = 4;
/// Chunks that the result is measured on.
const N_TEST: usize = 8;
/// The shortest text that says anything, tokens.
const MIN_TOKENS: usize = 64;

/// A text, and what the reference thinks of it.
pub(super) struct Calibration {
    chunks: Chunks,
    /// Log-probabilities of the reference.
    logits: PathBuf,
    load: LoadOptions,
    interrupt: Interrupt,
    progress: Progress,
}

/// A measured divergence.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Divergence {
    /// Mean KL divergence, nats.
    pub(super) kld: Estimate,
    pub(super) n_tokens: usize,
}

/// A part of the text.
#[derive(Clone, Copy, Debug)]
pub(super) enum TextPart {
    /// For groups of tensors.
    Probe,
    /// For the result.
    Test,
}

impl Calibration {
    /// Evaluates the reference on a text; its log-probabilities go to the file `logits`.
    pub(super) fn new(
        reference: &Path,
        text: &Path,
        n_threads: Option<usize>,
        logits: PathBuf,
    ) -> Result<Self, Failure> {
        let load = load_options(n_threads);
        let engine = Engine::open(reference, &load)?;
        let mut calibration = Self {
            chunks: chunks(&engine, text)?,
            logits,
            load,
            interrupt: Interrupt::listen(),
            progress: Progress::new(),
        };
        calibration.save(&engine)?;
        Ok(calibration)
    }

    fn save(&mut self, engine: &Engine) -> Result<(), Failure> {
        let header = BaselineHeader {
            chunks: self.chunks.clone(),
            n_vocab: engine.spec().n_vocab,
        };
        let mut saved = LogitsWriter::new(&self.logits, &InputFiles::default(), &header)?;
        self.progress.busy(|| "evaluating the reference".to_owned());
        let range = 0..self.chunks.len();
        self.evaluate(engine, range, |logits, _| saved.row(logits))?;
        saved.finish()
    }

    /// The divergence of a file from the reference.
    pub(super) fn of_file(&mut self, path: &Path, part: TextPart) -> Result<Divergence, Failure> {
        self.progress
            .busy(|| format!("measuring {}", path.display()));
        let engine = Engine::open(path, &self.load)?;
        self.divergence(&engine, part)
    }

    /// The divergence with each group of tensors in turn taken from the second file, the others
    /// from the first one.
    pub(super) fn of_groups(
        &mut self,
        files: [&Arc<Checkpoint>; 2],
        table: &CostTable,
    ) -> Result<Vec<f64>, Failure> {
        let n = table.groups.len();
        let mut all = Vec::with_capacity(n);
        for (i, group) in table.groups.iter().enumerate() {
            self.progress
                .busy(|| format!("group {} of {n}: {}", i + 1, group.name));
            let engine = self.blended(files, &table.names(group))?;
            all.push(self.divergence(&engine, TextPart::Probe)?.kld.value);
        }
        Ok(all)
    }

    /// The first model with these tensors of the second one.
    fn blended(&self, files: [&Arc<Checkpoint>; 2], names: &[&str]) -> Result<Engine, Failure> {
        let name = "a model for measuring";
        let source = ModelSource {
            name: name.to_owned(),
            bytes: Arc::new(Blend::new(files, |name| names.contains(&name))?),
        };
        let files = ModelFiles::from_sources(vec![source], &Budget::unlimited())
            .map_err(atta::Error::from)?;
        Ok(Engine::from_files(name, files, &self.load)?)
    }

    fn divergence(&mut self, engine: &Engine, part: TextPart) -> Result<Divergence, Failure> {
        let range = self.range(part);
        let mut scores = Scores::compared(engine, &self.chunks)?;
        let mut rows = BaselineFile::open(&self.logits)?.rows(range.start)?;
        self.evaluate(engine, range, |logits, token| {
            scores.push_compared(logits, token, rows.next_row()?);
            Ok(())
        })?;
        let report = PerplexityReport::new(&scores);
        let divergence = report.divergence.expect("the scores are compared");
        Ok(Divergence {
            kld: divergence.kld,
            n_tokens: report.n_tokens,
        })
    }

    fn range(&self, part: TextPart) -> Range<usize> {
        let n = self.chunks.len();
        let n_probe = N_PROBE.min(n.div_ceil(3));
        match part {
            TextPart::Probe => 0..n_probe,
            // A text of one chunk serves for both.
            TextPart::Test => n_probe.min(n - 1)..n,
        }
    }

    /// Evaluates some chunks; `each` gets the logits before every token that is scored, and the
    /// token.
    fn evaluate(
        &self,
        engine: &Engine,
        range: Range<usize>,
        mut each: impl FnMut(&[f32], u32) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut session = engine.session(&self.load.session)?;
        for i in range {
            let mut done = Ok(());
            let flow = self.chunks.evaluate(
                i,
                &mut session,
                || !self.interrupt.is_asked(),
                |logits, token| {
                    if done.is_ok() {
                        done = each(logits, token);
                    }
                },
            );
            done?;
            if flow? == ControlFlow::Break(()) {
                return Err(Failure::Interrupted);
            }
        }
        Ok(())
    }
}

fn load_options(n_threads: Option<usize>) -> LoadOptions {
    let threads = n_threads.and_then(NonZeroUsize::new);
    LoadOptions {
        threads: threads.map_or(Threads::Auto, Threads::Count),
        session: SessionOptions {
            n_ctx: Some(N_CTX),
            n_batch: Some(N_CTX),
            ..SessionOptions::default()
        },
        ..LoadOptions::default()
    }
}

/// The chunks of a text, as long as the model and the text allow.
fn chunks(engine: &Engine, text: &Path) -> Result<Chunks, Failure> {
    let bytes = input::read_bytes(text, &TextLimit::of_memory())?;
    let tokenizer = engine.tokenizer();
    let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
    let ids: Vec<u32> = bos
        .into_iter()
        .chain(tokenizer.encode(bytes, Special::Plain))
        .collect();
    if ids.len() < MIN_TOKENS {
        let why = format!(
            "has {} tokens, expected at least {MIN_TOKENS} to calibrate with",
            ids.len()
        );
        return Err(Failure::at(text, why));
    }
    let n_ctx = N_CTX.min(engine.spec().n_ctx_train).min(ids.len() / 2);
    Ok(Chunks::new(ids, n_ctx, Some(N_PROBE + N_TEST))?)
}
