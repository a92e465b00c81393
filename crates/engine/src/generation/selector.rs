//! Token selection: the next token from the logits, within a constraint.

use atta_store::Reservation;

use super::{ConstraintState, GenerateOptions};
use crate::{
    Breakers, Engine, Error, LogProbs, Sampler, SamplingError, sampling::LogProbCollector,
};

/// A sampler with a copy of the logits to work on: penalties and constraints change them in place,
/// and those of the step must stay.
pub(super) struct TokenSelector {
    sampler: Sampler,
    /// `[n_vocab]`
    logits: Vec<f32>,
    logprobs: Option<LogProbCollector>,
    _memory: Reservation,
}

/// A selected token.
pub(super) struct Selected {
    pub(super) token: u32,
    pub(super) logprobs: Option<LogProbs>,
}

impl TokenSelector {
    pub(super) fn new(engine: &Engine, options: &GenerateOptions) -> Result<Self, Error> {
        let n_vocab = engine.spec().n_vocab;
        let mut sampler = Sampler::new(options.sampling.clone(), n_vocab)?;
        if options.sampling.dry.applies() {
            sampler = sampler.with_breakers(Breakers::find(
                engine.tokenizer(),
                &options.sampling.dry.sequence_breakers,
            ));
        }
        let logprobs = options
            .n_logprobs
            .map(|n_top| LogProbCollector::new(n_top, n_vocab));
        let logprobs_bytes = logprobs.as_ref().map_or(0, LogProbCollector::heap_bytes);
        let bytes = sampler.heap_bytes() + 4 * n_vocab + logprobs_bytes;
        let memory = engine.budget().reserve("sampler", bytes as u64)?;
        Ok(Self {
            sampler,
            logits: vec![0.0; n_vocab],
            logprobs,
            _memory: memory,
        })
    }

    /// Selects the token after `tokens`, whose logits are `logits`, `[n_vocab]`; `None` if the
    /// constraint allows none.
    pub(super) fn select(
        &mut self,
        logits: &[f32],
        tokens: &[u32],
        constraint: &mut ConstraintState,
    ) -> Result<Option<Selected>, Error> {
        self.logits.copy_from_slice(logits);
        constraint.mask(logits, &mut self.logits)?;
        let sampled = self.sampler.sample(&mut self.logits, tokens);
        let token = constraint.nearest(sampled);
        // Where all logits are −∞ the sampler takes any token, and only a constraint knows better.
        if token == Some(sampled) && self.logits.get(sampled as usize) == Some(&f32::NEG_INFINITY) {
            return Err(SamplingError::NothingLeft.into());
        }
        Ok(token.map(|token| Selected {
            token,
            logprobs: self
                .logprobs
                .as_mut()
                .map(|collector| collector.collect(logits, token)),
        }))
    }
}
