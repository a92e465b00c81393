//! Fields of a request that say how tokens are chosen and where a text ends, whatever interface has
//! them.

use std::collections::BTreeMap;

use atta_engine::{Error, GenerateOptions, Sampling, StopError};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value};

use crate::{ServeError, flow::error::ApiError};

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
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            sampling: Sampling::default(),
            seed: None,
            n_predict: None,
            stop: Vec::new(),
            variables: Map::new(),
        }
    }
}

impl Defaults {
    /// Checks what requests would otherwise be blamed for.
    ///
    /// # Errors
    /// The first setting that no request could use.
    pub(crate) fn check(&self) -> Result<(), ServeError> {
        let wrong = |what: String| Err(ServeError::Defaults(what));
        if self.stop.len() > MAX_STOPS {
            return wrong(format!(
                "{} stop strings, expected at most {MAX_STOPS}",
                self.stop.len()
            ));
        }
        if self
            .stop
            .iter()
            .any(|text| text.is_empty() || text.len() > MAX_STOP_BYTES)
        {
            return wrong(format!("a stop string has 1 to {MAX_STOP_BYTES} bytes"));
        }
        match RESERVED_VARIABLES
            .into_iter()
            .find(|&name| self.variables.contains_key(name))
        {
            Some(name) => wrong(format!(
                "{name} is no variable of a chat template that can be set"
            )),
            None => Ok(()),
        }
    }
}

/// Template variables that hold the conversation itself.
pub(crate) const RESERVED_VARIABLES: [&str; 5] = [
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "bos_token",
];

/// What was asked for; what was not has the server's default.
#[derive(Debug, Default)]
pub(crate) struct SamplingFields {
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

impl SamplingFields {
    pub(crate) fn into_options(self, defaults: &Defaults) -> Result<GenerateOptions, ApiError> {
        let default = defaults.sampling.clone();
        let sampling = Sampling {
            temperature: self.temperature.unwrap_or(default.temperature),
            top_p: self.top_p.unwrap_or(default.top_p),
            top_k: self.top_k.unwrap_or(default.top_k),
            min_p: self.min_p.unwrap_or(default.min_p),
            typical: self.typical_p.unwrap_or(default.typical),
            repeat_penalty: self.repeat_penalty.unwrap_or(default.repeat_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(default.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(default.frequency_penalty),
            logit_bias: self.logit_bias.map_or(Ok(default.logit_bias), biases)?,
            // -1 is llama.cpp's word for any.
            seed: match self.seed {
                Some(-1) => any_seed(),
                Some(seed) => seed.cast_unsigned(),
                None => defaults.seed.unwrap_or_else(any_seed),
            },
            ..default
        };
        // Once more than the engine does it, for requests of which nothing is written.
        sampling.validate().map_err(Error::from)?;
        let stop = self
            .stop
            .map_or_else(|| defaults.stop.clone(), OneOrMore::into_vec);
        if stop.len() > MAX_STOPS {
            return Err(ApiError::field(
                "stop",
                format!("{} texts, expected at most {MAX_STOPS}", stop.len()),
            ));
        }
        if stop.iter().any(String::is_empty) {
            return Err(Error::from(StopError::Empty).into());
        }
        if stop.iter().any(|text| text.len() > MAX_STOP_BYTES) {
            return Err(ApiError::field(
                "stop",
                format!("a text of more than {MAX_STOP_BYTES} bytes"),
            ));
        }
        let n_predict = self.max_tokens.or(defaults.n_predict).unwrap_or(usize::MAX);
        Ok(GenerateOptions {
            n_predict,
            sampling,
            stop,
            n_logprobs: self.n_logprobs,
            ..GenerateOptions::default()
        })
    }
}

/// A number of tokens; -1 is no limit.
///
/// # Errors
/// Any other number below 0, and what is no whole number.
pub(crate) fn no_limit<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    match Option::<i64>::deserialize(from)? {
        Some(-1) => Ok(Some(usize::MAX)),
        Some(n) => usize::try_from(n)
            .map(Some)
            .map_err(|_| below_zero(n, "-1 for no limit")),
        None => Ok(None),
    }
}

/// How many tokens are kept by `top_k`; 0 and -1 keep all.
///
/// # Errors
/// As [`no_limit`].
pub(crate) fn top_k<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    match Option::<i64>::deserialize(from)? {
        Some(-1) => Ok(Some(0)),
        Some(n) => usize::try_from(n)
            .map(Some)
            .map_err(|_| below_zero(n, "0 or -1 for off")),
        None => Ok(None),
    }
}

fn below_zero<E: serde::de::Error>(n: i64, or: &str) -> E {
    E::custom(format!("{n}, expected a number from 0, or {or}"))
}

/// What is added to the logits of tokens: an object, or a list of pairs as llama.cpp's server has
/// it.
///
/// # Errors
/// What is neither.
pub(crate) fn logit_bias<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<BTreeMap<String, f32>>, D::Error> {
    let pairs = match Option::<Value>::deserialize(from)? {
        None => return Ok(None),
        Some(Value::Object(fields)) => fields.into_iter().collect(),
        Some(value) => serde_json::from_value::<Vec<(u32, Value)>>(value)
            .map_err(|_| {
                D::Error::custom(
                    "expected an object of token ids, or a list of pairs of id and bias",
                )
            })?
            .into_iter()
            .map(|(id, bias)| (id.to_string(), bias))
            .collect::<Vec<(String, Value)>>(),
    };
    let number = |(id, bias): (String, Value)| match bias {
        // Never, as llama.cpp's server has it.
        Value::Bool(false) => Ok((id, f32::NEG_INFINITY)),
        bias => match bias.as_f64() {
            Some(bias) => Ok((id, bias as f32)),
            None => Err(D::Error::custom(format!(
                "the bias of {id} is {bias}, expected a number"
            ))),
        },
    };
    pairs
        .into_iter()
        .map(number)
        .collect::<Result<_, _>>()
        .map(Some)
}

/// Token ids, as texts, with what is added to their logits.
fn biases(given: BTreeMap<String, f32>) -> Result<Vec<(u32, f32)>, ApiError> {
    if given.len() > MAX_BIASES {
        return Err(ApiError::field(
            "logit_bias",
            format!("{} tokens, expected at most {MAX_BIASES}", given.len()),
        ));
    }
    let bias = |(id, bias): (String, f32)| match id.parse() {
        Ok(id) => Ok((id, bias)),
        Err(_) => Err(ApiError::field(
            "logit_bias",
            format!("{id:?} is no token id"),
        )),
    };
    given.into_iter().map(bias).collect()
}

/// A random number.
pub(crate) fn any_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

/// Checks how many answers are asked for.
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
        let read = |value: Value| (no_limit(value.clone()).ok(), top_k(value).ok());
        assert_eq!(read(json!(-1)), (Some(Some(usize::MAX)), Some(Some(0))));
        assert_eq!(read(json!(7)), (Some(Some(7)), Some(Some(7))));
        assert_eq!(read(json!(null)), (Some(None), Some(None)));
        assert_eq!(read(json!(-2)), (None, None));
        assert!(
            no_limit(json!(-2))
                .unwrap_err()
                .to_string()
                .contains("-1 for no limit")
        );
    }

    #[test]
    fn biases_are_an_object_or_a_list_of_pairs() {
        let read = |value: Value| logit_bias(value).map_err(|error| error.to_string());
        let one = BTreeMap::from([("5".to_owned(), 1.5)]);
        assert_eq!(read(json!({ "5": 1.5 })), Ok(Some(one.clone())));
        assert_eq!(read(json!([[5, 1.5]])), Ok(Some(one)));
        assert_eq!(
            read(json!([[5, false]])).unwrap().unwrap()["5"],
            f32::NEG_INFINITY
        );
        assert!(
            read(json!([5])).is_err()
                && read(json!({ "5": "x" })).is_err()
                && read(json!(1)).is_err()
        );
    }
}
