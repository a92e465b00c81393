//! Sampling parameters and limits of an answer: the one place for defaults and ranges.
//!
//! Each interface reads its own field names into [`SamplingFields`]; the deserializers here read
//! values that several interfaces write alike.

use atta_engine::{DryOptions, Error, GenerateOptions, Sampling, Speculation, StopError};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value};

use super::{error::ApiError, thinking::RESERVED_VARIABLES};
use crate::ServeError;

/// Stop strings of a request.
const MAX_STOPS: usize = 16;
/// Bytes of a stop string.
const MAX_STOP_BYTES: usize = 256;
/// Tokens with a bias.
const MAX_BIASES: usize = 1024;

/// Server-wide defaults for fields that a request does not set.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// Sampling parameters; the seed in it is ignored.
    pub sampling: Sampling,
    /// Seed; `None`: a random one per request.
    pub seed: Option<u64>,
    /// Maximum tokens of an answer; `None`: no limit, or the default of the interface.
    pub n_predict: Option<usize>,
    /// Stop strings.
    pub stop: Vec<String>,
    /// Chat template variables.
    pub variables: Map<String, Value>,
    /// Drafts; they change the time of an answer and nothing else.
    pub speculation: Option<Speculation>,
    /// Least tokens of a part of a cached prompt that is moved to another position, which makes
    /// answers approximate; 0: none is.
    pub cache_reuse: usize,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            sampling: Sampling::default(),
            seed: None,
            n_predict: None,
            stop: Vec::new(),
            variables: Map::new(),
            cache_reuse: 0,
            speculation: None,
        }
    }
}

impl Defaults {
    /// Checks the defaults when the server starts, so that requests do not fail because of them.
    ///
    /// # Errors
    /// The first default that no request could use.
    pub(crate) fn check(&self) -> Result<(), ServeError> {
        let error = |message: String| Err(ServeError::Defaults(message));
        if self.stop.len() > MAX_STOPS {
            let n_stops = self.stop.len();
            return error(format!(
                "{n_stops} stop strings, expected at most {MAX_STOPS}"
            ));
        }
        let is_usable = |text: &String| (1..=MAX_STOP_BYTES).contains(&text.len());
        if !self.stop.iter().all(is_usable) {
            return error(format!("a stop string has 1 to {MAX_STOP_BYTES} bytes"));
        }
        let is_given = |name: &&str| self.variables.contains_key(*name);
        match RESERVED_VARIABLES.into_iter().find(is_given) {
            Some(name) => error(format!(
                "{name} is no variable of a chat template that can be set"
            )),
            None => Ok(()),
        }
    }
}

/// The sampling parameters that a request sets; `None` means the server's default.
#[derive(Debug, Default)]
pub(crate) struct SamplingFields {
    pub(crate) temperature: Option<f32>,
    pub(crate) top_k: Option<usize>,
    pub(crate) top_p: Option<f32>,
    pub(crate) min_p: Option<f32>,
    pub(crate) typical_p: Option<f32>,
    pub(crate) top_n_sigma: Option<f32>,
    pub(crate) repeat_penalty: Option<f32>,
    /// Tokens that the penalties look back.
    pub(crate) repeat_last_n: Option<usize>,
    pub(crate) presence_penalty: Option<f32>,
    pub(crate) frequency_penalty: Option<f32>,
    pub(crate) dry: DryFields,
    pub(crate) logit_bias: Option<Vec<(u32, f32)>>,
    /// -1: a random seed.
    pub(crate) seed: Option<i64>,
    pub(crate) stop: Option<Vec<String>>,
    pub(crate) max_tokens: Option<usize>,
    pub(crate) n_logprobs: Option<usize>,
    pub(crate) speculation: Option<SpeculationName>,
}

/// Parameters of the DRY sampler.
#[derive(Debug, Default)]
pub(crate) struct DryFields {
    pub(crate) multiplier: Option<f32>,
    /// Below 1: the default.
    pub(crate) base: Option<f32>,
    pub(crate) allowed_length: Option<usize>,
    pub(crate) penalty_last_n: Option<usize>,
    pub(crate) sequence_breakers: Option<Vec<String>>,
}

/// The speculation that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SpeculationName {
    /// None.
    Off,
    /// The server's, or from the context if the server has none.
    Auto,
    /// From the context and earlier answers.
    Ngram,
}

impl SpeculationName {
    fn speculation(self, defaults: &Defaults) -> Option<Speculation> {
        match self {
            Self::Off => None,
            Self::Auto => Some(defaults.speculation.clone().unwrap_or_default()),
            Self::Ngram => Some(Speculation::default()),
        }
    }
}

impl SamplingFields {
    /// Fills in the defaults and checks all ranges.
    ///
    /// # Errors
    /// A value out of its range, by the name of its field.
    pub(crate) fn into_options(self, defaults: &Defaults) -> Result<GenerateOptions, ApiError> {
        let stop = match self.stop {
            Some(stop) => checked_stop(stop)?,
            None => defaults.stop.clone(),
        };
        let default = defaults.sampling.clone();
        let sampling = Sampling {
            temperature: self.temperature.unwrap_or(default.temperature),
            top_k: self.top_k.unwrap_or(default.top_k),
            top_p: self.top_p.unwrap_or(default.top_p),
            min_p: self.min_p.unwrap_or(default.min_p),
            typical: self.typical_p.unwrap_or(default.typical),
            top_n_sigma: self.top_n_sigma.unwrap_or(default.top_n_sigma),
            repeat_penalty: self.repeat_penalty.unwrap_or(default.repeat_penalty),
            repeat_window: self.repeat_last_n.unwrap_or(default.repeat_window),
            presence_penalty: self.presence_penalty.unwrap_or(default.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(default.frequency_penalty),
            dry: self.dry.into_options(default.dry),
            logit_bias: self.logit_bias.unwrap_or(default.logit_bias),
            seed: match self.seed {
                Some(-1) => random_seed(),
                Some(seed) => seed.cast_unsigned(),
                None => defaults.seed.unwrap_or_else(random_seed),
            },
        };
        if sampling.logit_bias.len() > MAX_BIASES {
            let n = sampling.logit_bias.len();
            let message = format!("{n} tokens, expected at most {MAX_BIASES}");
            return Err(ApiError::field("logit_bias", message));
        }
        // The engine checks the same for each job; a request may have no job.
        sampling.validate().map_err(Error::from)?;
        Ok(GenerateOptions {
            n_predict: self.max_tokens.or(defaults.n_predict).unwrap_or(usize::MAX),
            sampling,
            stop,
            n_logprobs: self.n_logprobs,
            speculation: match self.speculation {
                None => defaults.speculation.clone(),
                Some(name) => name.speculation(defaults),
            },
            ..GenerateOptions::default()
        })
    }
}

impl DryFields {
    fn into_options(self, default: DryOptions) -> DryOptions {
        let base = self.base.filter(|&base| base >= 1.0);
        DryOptions {
            multiplier: self.multiplier.unwrap_or(default.multiplier),
            base: base.unwrap_or(default.base),
            allowed_length: self.allowed_length.unwrap_or(default.allowed_length),
            penalty_last_n: self.penalty_last_n.unwrap_or(default.penalty_last_n),
            sequence_breakers: self.sequence_breakers.unwrap_or(default.sequence_breakers),
        }
    }
}

fn checked_stop(stop: Vec<String>) -> Result<Vec<String>, ApiError> {
    if stop.len() > MAX_STOPS {
        let message = format!("{} texts, expected at most {MAX_STOPS}", stop.len());
        return Err(ApiError::field("stop", message));
    }
    if stop.iter().any(String::is_empty) {
        return Err(Error::from(StopError::Empty).into());
    }
    if stop.iter().any(|text| text.len() > MAX_STOP_BYTES) {
        let message = format!("a text of more than {MAX_STOP_BYTES} bytes");
        return Err(ApiError::field("stop", message));
    }
    Ok(stop)
}

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

/// Reads a number of tokens; -1 is no limit.
///
/// # Errors
/// Other negative numbers.
pub(crate) fn max_tokens<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    match Option::<i64>::deserialize(from)? {
        Some(-1) => Ok(Some(usize::MAX)),
        Some(n) => usize::try_from(n)
            .map(Some)
            .map_err(|_| negative(n, "-1 for no limit")),
        None => Ok(None),
    }
}

/// Reads `top_k`; 0 and -1 keep all tokens.
///
/// # Errors
/// Other negative numbers.
pub(crate) fn top_k<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    match Option::<i64>::deserialize(from)? {
        Some(-1) => Ok(Some(0)),
        Some(n) => usize::try_from(n)
            .map(Some)
            .map_err(|_| negative(n, "0 or -1 for off")),
        None => Ok(None),
    }
}

fn negative<E: serde::de::Error>(n: i64, or: &str) -> E {
    E::custom(format!("{n}, expected a number from 0, or {or}"))
}

/// `top_k` of llama.cpp and Ollama, where all numbers below 1 keep all tokens.
pub(crate) fn top_k_or_all(n: i64) -> usize {
    usize::try_from(n).unwrap_or(0)
}

/// A number of tokens of llama.cpp and Ollama, where negative numbers mean all.
pub(crate) fn n_tokens_or_all(n: i64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// What a request adds to the logits of tokens: an object, or a list of pairs. `false` forbids a
/// token, as in llama.cpp.
#[derive(Debug, PartialEq)]
pub(crate) struct LogitBias(Vec<(BiasedToken, f32)>);

/// A token by its id, or by a text, which may be an id.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum BiasedToken {
    Id(u32),
    Text(String),
}

/// The pairs of an object or a list, with biases as they are written.
fn biased_tokens(value: Value) -> Result<Vec<(BiasedToken, Value)>, &'static str> {
    match value {
        Value::Object(fields) => Ok(fields
            .into_iter()
            .map(|(token, bias)| (BiasedToken::Text(token), bias))
            .collect()),
        list => serde_json::from_value(list)
            .map_err(|_| "expected an object of tokens, or a list of [token, bias]"),
    }
}

impl<'de> Deserialize<'de> for LogitBias {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let pairs = biased_tokens(Value::deserialize(from)?).map_err(D::Error::custom)?;
        let number = |(token, bias): (BiasedToken, Value)| match bias {
            Value::Bool(false) => Ok((token, f32::NEG_INFINITY)),
            bias => match bias.as_f64() {
                Some(number) => Ok((token, number as f32)),
                None => Err(D::Error::custom(format!(
                    "the bias of {token:?} is {bias}, expected a number or false"
                ))),
            },
        };
        pairs
            .into_iter()
            .map(number)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl LogitBias {
    /// Ids and biases; those of the same id add up.
    ///
    /// # Errors
    /// A text that is no id, if `tokenize` has no tokens for it.
    pub(crate) fn into_ids(
        self,
        tokenize: impl Fn(&str) -> Option<Vec<u32>>,
    ) -> Result<Vec<(u32, f32)>, ApiError> {
        let mut biases = Vec::with_capacity(self.0.len());
        for (token, bias) in self.0 {
            let ids = match &token {
                BiasedToken::Id(id) => Some(vec![*id]),
                BiasedToken::Text(text) => match text.parse() {
                    Ok(id) => Some(vec![id]),
                    Err(_) => tokenize(text),
                },
            };
            let ids = ids.ok_or_else(|| {
                ApiError::field("logit_bias", format!("{token:?} is no token id"))
            })?;
            biases.extend(ids.into_iter().map(|id| (id, bias)));
        }
        Ok(biases)
    }
}

pub(crate) fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

/// Checks the number of answers that a request asks for.
pub(crate) fn n_answers(n: Option<usize>, max: usize) -> Result<usize, ApiError> {
    match n.unwrap_or(1) {
        n if (1..=max).contains(&n) => Ok(n),
        n => Err(ApiError::field(
            "n",
            format!("{n} answers, expected 1 to {max}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn minus_one_is_no_limit_and_no_top_k() {
        let read = |value: Value| (max_tokens(value.clone()).ok(), top_k(value).ok());
        assert_eq!(read(json!(-1)), (Some(Some(usize::MAX)), Some(Some(0))));
        assert_eq!(read(json!(7)), (Some(Some(7)), Some(Some(7))));
        assert_eq!(read(json!(null)), (Some(None), Some(None)));
        assert_eq!(read(json!(-2)), (None, None));
        let error = max_tokens(json!(-2)).unwrap_err().to_string();
        assert!(error.contains("-1 for no limit"), "{error}");
    }

    #[test]
    fn biases_are_an_object_or_a_list_of_pairs() {
        let read = |value: Value| -> Option<Vec<(u32, f32)>> {
            let biases: LogitBias = serde_json::from_value(value).ok()?;
            biases.into_ids(|_| None).ok()
        };
        assert_eq!(read(json!({ "5": 1.5 })), Some(vec![(5, 1.5)]));
        assert_eq!(read(json!([[5, 1.5]])), Some(vec![(5, 1.5)]));
        assert_eq!(
            read(json!([["5", 1], [5, 2]])),
            Some(vec![(5, 1.0), (5, 2.0)])
        );
        assert_eq!(
            read(json!([[5, false]])),
            Some(vec![(5, f32::NEG_INFINITY)])
        );
        for wrong in [json!([5]), json!({ "5": "x" }), json!(1), json!({ "x": 1 })] {
            assert_eq!(read(wrong.clone()), None, "{wrong}");
        }
        let text: LogitBias = serde_json::from_value(json!({ "x": 1 })).unwrap();
        let ids = text.into_ids(|_| Some(vec![7, 8]));
        assert_eq!(ids, Ok(vec![(7, 1.0), (8, 1.0)]));
    }

    #[test]
    fn the_default_of_a_parameter_holds_unless_a_request_sets_it() {
        let dry = DryOptions {
            multiplier: 0.5,
            base: 2.0,
            ..DryOptions::default()
        };
        let sampling = Sampling {
            dry,
            logit_bias: vec![(3, 1.0)],
            ..Sampling::default()
        };
        let defaults = Defaults {
            sampling,
            ..Defaults::default()
        };
        let options = SamplingFields::default().into_options(&defaults).unwrap();
        assert_eq!(options.sampling.dry, defaults.sampling.dry);
        assert_eq!(options.sampling.logit_bias, [(3, 1.0)]);
        let fields = SamplingFields {
            dry: DryFields {
                multiplier: Some(0.25),
                base: Some(0.5),
                ..DryFields::default()
            },
            logit_bias: Some(Vec::new()),
            ..SamplingFields::default()
        };
        let sampling = fields.into_options(&defaults).unwrap().sampling;
        assert_eq!((sampling.dry.multiplier, sampling.dry.base), (0.25, 2.0));
        assert!(sampling.logit_bias.is_empty());
    }
}
