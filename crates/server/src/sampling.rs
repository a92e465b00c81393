//! Fields of a request that say how tokens are chosen and where a text ends, whatever interface has them.

use std::collections::BTreeMap;

use atta_engine::{Error, GenerateOptions, Sampling, StopError};
use serde::Deserialize;

use crate::refusal::Refusal;

/// Texts that end an answer, at most.
const MAX_STOPS: usize = 16;
/// Bytes of such a text.
const MAX_STOP_BYTES: usize = 256;
/// Tokens with a bias, at most.
const MAX_BIASES: usize = 1024;

/// One text or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    pub(crate) fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::More(texts) => texts,
        }
    }
}

/// What was asked for; what was not has the engine's default.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) temperature: Option<f32>,
    pub(crate) top_p: Option<f32>,
    pub(crate) top_k: Option<usize>,
    pub(crate) min_p: Option<f32>,
    pub(crate) typical_p: Option<f32>,
    pub(crate) repeat_penalty: Option<f32>,
    pub(crate) presence_penalty: Option<f32>,
    pub(crate) frequency_penalty: Option<f32>,
    pub(crate) logit_bias: Option<BTreeMap<String, f32>>,
    pub(crate) seed: Option<i64>,
    pub(crate) stop: Option<OneOrMore>,
    pub(crate) max_tokens: Option<usize>,
    pub(crate) n_logprobs: Option<usize>,
}

impl Wanted {
    pub(crate) fn into_options(self) -> Result<GenerateOptions, Refusal> {
        let default = Sampling::default();
        let sampling = Sampling {
            temperature: self.temperature.unwrap_or(default.temperature),
            top_p: self.top_p.unwrap_or(default.top_p),
            top_k: self.top_k.unwrap_or(default.top_k),
            min_p: self.min_p.unwrap_or(default.min_p),
            typical: self.typical_p.unwrap_or(default.typical),
            repeat_penalty: self.repeat_penalty.unwrap_or(default.repeat_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(default.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(default.frequency_penalty),
            logit_bias: biases(self.logit_bias.unwrap_or_default())?,
            seed: self.seed.map_or_else(any_seed, i64::cast_unsigned),
            ..default
        };
        // Once more than the engine does it, for requests of which nothing is written.
        sampling.validate().map_err(Error::from)?;
        let stop = self.stop.map_or_else(Vec::new, OneOrMore::into_vec);
        if stop.len() > MAX_STOPS {
            return Err(Refusal::field("stop", format!("{} texts, expected at most {MAX_STOPS}", stop.len())));
        }
        if stop.iter().any(String::is_empty) {
            return Err(Error::from(StopError::Empty).into());
        }
        if stop.iter().any(|text| text.len() > MAX_STOP_BYTES) {
            return Err(Refusal::field("stop", format!("a text of more than {MAX_STOP_BYTES} bytes")));
        }
        let n_predict = self.max_tokens.unwrap_or(usize::MAX);
        Ok(GenerateOptions { n_predict, sampling, stop, n_logprobs: self.n_logprobs, ..GenerateOptions::default() })
    }
}

/// Token ids, as texts, with what is added to their logits.
fn biases(given: BTreeMap<String, f32>) -> Result<Vec<(u32, f32)>, Refusal> {
    if given.len() > MAX_BIASES {
        return Err(Refusal::field("logit_bias", format!("{} tokens, expected at most {MAX_BIASES}", given.len())));
    }
    let bias = |(id, bias): (String, f32)| match id.parse() {
        Ok(id) => Ok((id, bias)),
        Err(_) => Err(Refusal::field("logit_bias", format!("{id:?} is no token id"))),
    };
    given.into_iter().map(bias).collect()
}

/// A seed that nobody has asked for.
fn any_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

/// Checks how many answers are asked for.
pub(crate) fn n_answers(n: Option<usize>, max: usize) -> Result<usize, Refusal> {
    match n.unwrap_or(1) {
        n if (1..=max).contains(&n) => Ok(n),
        n => Err(Refusal::field("n", format!("{n} answers, expected 1 to {max}"))),
    }
}
