//! What a model loses where it runs in part: without some layers, with fewer experts.
//!
//! Knows sessions, layers and ids; no files, no tokenizer. The measure is the KL divergence from
//! the whole model on a text, whose tokens are scored as for a perplexity. The similarity of a
//! layer's input and output would be cheaper to have, and misleads: it finds layers of SmolLM2
//! alike that cost 0.1 and 1.3 nats.
//!
//! ```text
//! alone: for each layer: the divergence without it
//! left out = {}
//! loop: of the layers that cost least alone, leave out the one with which the divergence is least
//!       until it is above 1 nat
//! ```
//! The layers in front of the one that a trial leaves out compute the same for all trials, so they
//! are computed once per round (`apart.rs`). Where layers depend on more than the residual before
//! them, each trial runs the whole model (`whole.rs`), as it does with fewer experts.

mod apart;
mod trials;
mod whole;

use std::{cmp::Ordering, ops::ControlFlow};

use atta_engine::{
    Engine, MeasuredStep, Omission, Reduction, Sensitivity, SessionOptions,
    spec::{ModelSpec, Outputs},
};

use crate::{Error, perplexity::Chunks};
use apart::Apart;
use trials::Rounds;
use whole::Whole;

pub use apart::extra_bytes;
pub use trials::TrialProgress;

/// No quality above 0 allows a larger cost.
const MAX_KLD: f32 = 1.0;

/// Layers that a round tries, after the first one, which tries all.
const N_TRIED: usize = 8;

/// A model, a text, and the way to the same model in part.
pub struct Measurement<'a> {
    /// The whole model.
    pub engine: &'a Engine,
    /// The text.
    pub chunks: &'a Chunks,
    /// Sessions to measure in: their KV cache types and batch size.
    pub session: SessionOptions,
    /// Loads the model in part. It is in memory beside the whole one.
    pub open: &'a mut dyn FnMut(&Reduction) -> Result<Engine, atta_engine::Error>,
    /// Hears of every trial; where it breaks, the measurement ends with [`Error::Cancelled`].
    pub progress: &'a mut dyn FnMut(TrialProgress) -> ControlFlow<()>,
}

impl std::fmt::Debug for Measurement<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Measurement")
            .field("engine", self.engine)
            .field("chunks", self.chunks)
            .finish_non_exhaustive()
    }
}

impl Measurement<'_> {
    /// Measures layers, and leaves out `max_layers` together at most; and experts.
    ///
    /// # Errors
    /// A step that failed, memory that the budget does not grant, a model without logits, a
    /// measurement that was cancelled.
    pub fn run(mut self, max_layers: usize) -> Result<Sensitivity, Error> {
        let spec = self.engine.spec();
        if spec.head.outputs != Outputs::Logits {
            return Err(atta_model::Error::NoLogits.into());
        }
        self.session.n_ctx = Some(self.chunks.n_ctx());
        let mut rounds = Rounds::new(self.engine, self.chunks, &self.session)?;
        let all: Vec<usize> = Sensitivity::candidates(spec).collect();
        let alone = self.round(&mut rounds, &[], &all)?;
        Ok(Sensitivity {
            n_tokens: (self.chunks.len() * self.chunks.n_scored()) as u32,
            skip: klds(&alone, spec.layers.len()),
            layers: self.order(&mut rounds, alone, max_layers)?,
            experts: self.experts(&mut rounds)?,
        })
    }

    /// The costs of leaving out each of the `tried` layers together with the `chosen` ones.
    fn round(
        &mut self,
        rounds: &mut Rounds<'_>,
        chosen: &[usize],
        tried: &[usize],
    ) -> Result<Vec<MeasuredStep>, Error> {
        if is_separable(self.engine.spec()) {
            let mut apart = Apart {
                engine: self.engine,
                chunks: self.chunks,
                session: &self.session,
                chosen,
                tried,
            };
            return rounds.costs(&mut apart, tried, self.progress);
        }
        let without = |&l: &usize| Reduction {
            layers: Omission::Layers([chosen, &[l]].concat()),
            n_experts: None,
        };
        let reductions = tried.iter().map(without).collect();
        self.whole(rounds, reductions, tried)
    }

    /// The order in which layers are left out, with costs; `alone` are those of each by itself.
    fn order(
        &mut self,
        rounds: &mut Rounds<'_>,
        mut alone: Vec<MeasuredStep>,
        max_layers: usize,
    ) -> Result<Vec<MeasuredStep>, Error> {
        alone.sort_by(by_kld);
        let mut steps = Vec::new();
        let mut best = alone.first().copied();
        while let Some(step) = best.filter(|step| step.cost.kld <= MAX_KLD) {
            if steps.len() == max_layers {
                break;
            }
            steps.push(step);
            let chosen = layers(&steps);
            let mut tried = layers(&alone);
            tried.retain(|l| !chosen.contains(l));
            tried.truncate(N_TRIED);
            let costs = self.round(rounds, &chosen, &tried)?;
            best = costs.into_iter().min_by(by_kld);
        }
        Ok(steps)
    }

    /// The costs of fewer experts.
    fn experts(&mut self, rounds: &mut Rounds<'_>) -> Result<Vec<MeasuredStep>, Error> {
        let (_, most) = self.engine.spec().max_experts();
        let fewer: Vec<usize> = (1..most).rev().collect();
        let of = |&n: &usize| Reduction {
            layers: Omission::Nothing,
            n_experts: Some(n),
        };
        self.whole(rounds, fewer.iter().map(of).collect(), &fewer)
    }

    /// The costs of models in part, each run whole.
    fn whole(
        &mut self,
        rounds: &mut Rounds<'_>,
        reductions: Vec<Reduction>,
        names: &[usize],
    ) -> Result<Vec<MeasuredStep>, Error> {
        let mut whole = Whole {
            chunks: self.chunks,
            session: &self.session,
            open: &mut *self.open,
            reductions,
        };
        rounds.costs(&mut whole, names, self.progress)
    }
}

fn by_kld(a: &MeasuredStep, b: &MeasuredStep) -> Ordering {
    a.cost.kld.total_cmp(&b.cost.kld)
}

fn layers(steps: &[MeasuredStep]) -> Vec<usize> {
    steps.iter().map(|step| step.to).collect()
}

/// The divergence of each of `n` layers; infinite of those that are not among the steps.
fn klds(steps: &[MeasuredStep], n: usize) -> Vec<f32> {
    let mut klds = vec![f32::INFINITY; n];
    steps.iter().for_each(|step| klds[step.to] = step.cost.kld);
    klds
}

/// Whether every layer can be computed from the residual before it.
fn is_separable(spec: &ModelSpec) -> bool {
    (1..spec.layers.len()).all(|l| spec.may_cut_before(l))
}
