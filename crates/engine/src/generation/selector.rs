//! Chooses the token that follows a text: its logits, what may not be, and a sampler.

use atta_store::Reservation;

use super::constraint_state::Rules;
use crate::{Breakers, Engine, Error, GenerateOptions, LogProbs, Sampler, SamplingError};

/// A sampler with a copy of the logits to work on: penalties change them in place, and those of the
/// step must stay.
pub(crate) struct Chooser {
    sampler: Sampler,
    /// `[n_vocab]`
    logits: Vec<f32>,
    logprobs: Option<LogProbs>,
    _memory: Reservation,
}

impl Chooser {
    pub(crate) fn new(engine: &Engine, options: &GenerateOptions) -> Result<Self, Error> {
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
            .map(|n_top| LogProbs::new(n_top, n_vocab));
        let bytes =
            sampler.heap_bytes() + 4 * n_vocab + logprobs.as_ref().map_or(0, LogProbs::heap_bytes);
        let memory = engine.budget().reserve("sampler", bytes as u64)?;
        Ok(Self {
            sampler,
            logits: vec![0.0; n_vocab],
            logprobs,
            _memory: memory,
        })
    }

    /// The token that follows `tokens`, after which there were `logits`, \[n_vocab\]; `None` if
    /// none can.
    pub(crate) fn choose(
        &mut self,
        logits: &[f32],
        tokens: &[u32],
        rules: &mut Rules,
    ) -> Result<Option<u32>, Error> {
        self.logits.copy_from_slice(logits);
        rules.restrict(logits, &mut self.logits)?;
        let chosen = self.sampler.sample(&mut self.logits, tokens);
        let token = rules.nearest(chosen);
        // A guide knows what may follow all the same.
        if token == Some(chosen) && self.logits.get(chosen as usize) == Some(&f32::NEG_INFINITY) {
            return Err(SamplingError::NothingLeft.into());
        }
        if let Some((logprobs, token)) = self.logprobs.as_mut().zip(token) {
            logprobs.fill(logits, token);
        }
        Ok(token)
    }

    /// What the model thought of the token that was chosen last, if anybody wants to know.
    pub(crate) fn logprobs(&self) -> Option<&LogProbs> {
        self.logprobs.as_ref()
    }
}
