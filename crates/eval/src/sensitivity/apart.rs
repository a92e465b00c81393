//! Trials that run the layers of a model one by one: those in front of the layer that a trial
//! leaves out are computed once for all trials.
//!
//! ```text
//! x = embedding
//! for each layer l that is not chosen:
//!     if l is tried:  y = x through the layers behind l;  the logits of y
//!     x = layer l of x
//! ```
//! Every layer is an executor of its own, for as long as it runs: keys and values of one layer are
//! in memory at a time.

use std::{ops::Range, sync::Arc};

use atta_engine::{Engine, SessionOptions, spec::ModelSpec};
use atta_model::{
    Backend, Batch, CpuBackend, CpuFootprint, Executor, ExecutorSize, Footprint, Output, SeqId,
    Share, Want,
};

use super::trials::{Comparison, Trials};
use crate::{Error, perplexity::Chunks};

/// Rows whose logits are in memory at a time.
const N_HEAD_ROWS: usize = 32;

/// The trials of a round.
pub(super) struct Apart<'a> {
    pub(super) engine: &'a Engine,
    pub(super) chunks: &'a Chunks,
    pub(super) session: &'a SessionOptions,
    /// Layers that all trials leave out.
    pub(super) chosen: &'a [usize],
    /// The layer that each trial leaves out.
    pub(super) tried: &'a [usize],
}

/// Bytes that a measurement takes beside its session, with chunks of `n_ctx` tokens.
pub fn extra_bytes(spec: &ModelSpec, session: &SessionOptions, n_threads: usize) -> u64 {
    let size = size(spec, session, layer(0));
    let executor = CpuFootprint(n_threads).executor_bytes(spec, &size);
    let residuals = 4 * 4 * (size.n_ctx * spec.d_residual()) as u64;
    let logits = 2 * (size.n_ctx / 2 * spec.n_vocab) as u64;
    executor.state + executor.activations + residuals + logits
}

fn layer(l: usize) -> Share {
    Share {
        layers: l..l + 1,
        embed: false,
        head: false,
    }
}

/// The size of an executor of a part, for a chunk.
fn size(spec: &ModelSpec, session: &SessionOptions, part: Share) -> ExecutorSize {
    ExecutorSize {
        part: Some(part),
        n_checkpoints: 0,
        ..session.executor_size(spec)
    }
}

impl Trials for Apart<'_> {
    fn run(&mut self, i: usize, to: &mut Comparison<'_>) -> Result<(), Error> {
        let spec = self.engine.spec();
        let mut x = self.embed(&self.chunks.inputs(i, self.engine))?;
        for l in self.computed(0..spec.layers.len()) {
            if let Some(trial) = self.tried.iter().position(|&tried| tried == l) {
                to.begin(trial)?;
                let mut y = x.clone();
                for behind in self.computed(l + 1..spec.layers.len()) {
                    y = self.through(layer(behind), &y)?;
                }
                self.score(i, &y, to)?;
            }
            x = self.through(layer(l), &x)?;
        }
        Ok(())
    }
}

impl Apart<'_> {
    /// The layers of a range that are not chosen.
    fn computed(&self, mut layers: Range<usize>) -> impl Iterator<Item = usize> {
        let chosen = self.chosen;
        std::iter::from_fn(move || layers.find(|l| !chosen.contains(l)))
    }

    /// The residuals in front of the first layer, `[ids.len(), d_residual]`.
    fn embed(&self, ids: &[u32]) -> Result<Vec<f32>, Error> {
        let part = Share {
            layers: 0..0,
            embed: true,
            head: false,
        };
        let mut x = Vec::new();
        self.run_part(
            &self.size(part),
            ids.len(),
            |batch, seq, t| batch.push_token(seq, t, ids[t], Want::Hidden),
            |out, row, _| x.extend_from_slice(out.hidden(row)),
        )?;
        Ok(x)
    }

    /// The residuals behind a part, of those in front of it; both `[n, d_residual]`.
    fn through(&self, part: Share, x: &[f32]) -> Result<Vec<f32>, Error> {
        let d = self.engine.spec().d_residual();
        let mut y = Vec::with_capacity(x.len());
        self.run_part(
            &self.size(part),
            x.len() / d,
            |batch, seq, t| batch.push_hidden(seq, t, &x[t * d..][..d], Want::Hidden),
            |out, row, _| y.extend_from_slice(out.hidden(row)),
        )?;
        Ok(y)
    }

    /// Compares the logits of the residuals of chunk `i` behind the last layer.
    fn score(&self, i: usize, x: &[f32], to: &mut Comparison<'_>) -> Result<(), Error> {
        let d = self.engine.spec().d_residual();
        let tokens = self.chunks.scored(i);
        let x = &x[x.len() - tokens.len() * d..];
        self.run_part(
            &self.head_size(),
            tokens.len(),
            |batch, seq, t| batch.push_hidden(seq, t, &x[t * d..][..d], Want::Logits),
            |out, row, t| to.push(out.logits(row), tokens[t]),
        )
    }

    fn head_size(&self) -> ExecutorSize {
        let n_layers = self.engine.spec().layers.len();
        let size = self.size(Share {
            layers: n_layers..n_layers,
            embed: false,
            head: true,
        });
        ExecutorSize {
            n_batch: size.n_batch.min(N_HEAD_ROWS),
            ..size
        }
    }

    fn size(&self, part: Share) -> ExecutorSize {
        size(self.engine.spec(), self.session, part)
    }

    fn executor(&self, size: &ExecutorSize) -> Result<Box<dyn Executor>, Error> {
        let engine = self.engine;
        let backend = CpuBackend::new(engine.kernels(), Arc::clone(engine.pool()));
        Ok(backend.open(Arc::clone(engine.model()), size, engine.budget())?)
    }

    /// Runs a part of the model on rows that `push` adds by their index; `each` takes a row of the
    /// output and its index.
    fn run_part(
        &self,
        size: &ExecutorSize,
        n_rows: usize,
        push: impl Fn(&mut Batch, SeqId, usize),
        mut each: impl FnMut(&Output, usize, usize),
    ) -> Result<(), Error> {
        let mut part = self.executor(size)?;
        let seq = part.new_seq()?;
        let mut batch = Batch::default();
        let mut out = Output::default();
        for start in (0..n_rows).step_by(size.n_batch) {
            let rows = start..n_rows.min(start + size.n_batch);
            batch.clear();
            rows.clone().for_each(|t| push(&mut batch, seq, t));
            part.step(&batch, &mut out)?;
            rows.for_each(|t| each(&out, t - start, t));
        }
        Ok(())
    }
}
