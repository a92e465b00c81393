//! How a text is written: llama.cpp's names of what the engine has, and of what it has not.

use atta_engine::{
    Constraint, DryOptions, GenerateOptions, OtherProperties, SchemaOptions, Strictness,
    tokenizer::Special,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    flow::{
        body::{self, Accepted},
        error::ApiError,
        sampling::{Defaults, OneOrMore, SamplingFields},
        warnings::Warnings,
    },
    models::Model,
};

/// Alternatives of a token that may be asked for.
const MAX_PROBS: usize = 100;
/// Tokens with a bias, at most.
const MAX_BIASES: usize = 1024;

const ORDER: &str = "samplers have a fixed order, which is llama.cpp's default";
const SLOTS: &str = "slots and the reuse of prompts are the server's to choose";

/// Fields of `/completion` and `/infill` that change nothing here.
pub(super) const ACCEPTED: Accepted = &[
    ("cache_prompt", SLOTS),
    ("id_slot", SLOTS),
    ("slot_id", SLOTS),
    ("n_cache_reuse", SLOTS),
    (
        "n_keep",
        "nothing is left out of a text that fills the context",
    ),
    (
        "n_discard",
        "nothing is left out of a text that fills the context",
    ),
    ("samplers", ORDER),
    ("sampler_seq", ORDER),
    ("min_keep", "each sampler keeps one token at least"),
    ("mirostat_tau", "it counts with mirostat only"),
    ("mirostat_eta", "it counts with mirostat only"),
    ("dynatemp_exponent", "it counts with dynatemp_range only"),
    ("xtc_threshold", "it counts with xtc_probability only"),
    ("penalize_nl", "penalties count for all tokens"),
    ("timings_per_token", "timings come at the end"),
    ("return_progress", "nothing is told before the first token"),
    (
        "t_max_predict_ms",
        "--max-time limits the time of an answer",
    ),
    ("t_max_prompt_ms", "--max-time limits the time of an answer"),
    (
        "speculative.n_max",
        "how a model is loaded is decided when the server is started",
    ),
    (
        "speculative.n_min",
        "how a model is loaded is decided when the server is started",
    ),
    (
        "speculative.p_min",
        "how a model is loaded is decided when the server is started",
    ),
    ("n_ctx", "the context is set by -c"),
    ("n_batch", "the size of batches is set by -b"),
    ("n_threads", "the number of threads is set by --threads"),
    ("api_key", "keys come in headers"),
    ("use_default_badwordsids", "there are no such words"),
    ("user", "there are no accounts"),
];

/// Fields that say how a text is written: kept, or refused where they would change it.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Settings {
    #[serde(default, deserialize_with = "body::whole")]
    n_predict: Option<i64>,
    #[serde(default, deserialize_with = "body::whole")]
    max_tokens: Option<i64>,
    temperature: Option<f32>,
    #[serde(default, deserialize_with = "body::whole")]
    top_k: Option<i64>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    typical_p: Option<f32>,
    top_n_sigma: Option<f32>,
    repeat_penalty: Option<f32>,
    #[serde(default, deserialize_with = "body::whole")]
    repeat_last_n: Option<i64>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    dry_multiplier: Option<f32>,
    dry_base: Option<f32>,
    #[serde(default, deserialize_with = "body::whole")]
    dry_allowed_length: Option<i64>,
    #[serde(default, deserialize_with = "body::whole")]
    dry_penalty_last_n: Option<i64>,
    dry_sequence_breakers: Option<Vec<String>>,
    #[serde(default, deserialize_with = "body::whole")]
    seed: Option<i64>,
    stop: Option<OneOrMore>,
    ignore_eos: Option<bool>,
    logit_bias: Option<Value>,
    grammar: Option<String>,
    json_schema: Option<Value>,
    n_probs: Option<usize>,
    #[serde(default, deserialize_with = "body::whole")]
    mirostat: Option<i64>,
    dynatemp_range: Option<f32>,
    xtc_probability: Option<f32>,
    tfs_z: Option<f32>,
    post_sampling_probs: Option<bool>,
    n_indent: Option<u64>,
    image_data: Option<Vec<Value>>,
    lora: Option<Vec<Value>>,
    grammar_lazy: Option<bool>,
}

impl Settings {
    /// What they mean to a model.
    pub(super) fn understand(
        mut self,
        model: &Model,
        warnings: &Warnings,
    ) -> Result<GenerateOptions, ApiError> {
        self.refuse_unsupported()?;
        let dry = self.take_dry();
        let constraint = constraint(self.grammar, self.json_schema, warnings)?;
        let n_logprobs = n_logprobs(self.n_probs)?;
        let default = &model.defaults.sampling;
        let given = self.logit_bias.filter(|biases| !biases.is_null());
        let mut biases = given.map_or(Ok(default.logit_bias.clone()), |biases| {
            logit_bias(model, biases)
        })?;
        if self.ignore_eos == Some(true) {
            biases.extend(
                model
                    .engine
                    .tokenizer()
                    .eog()
                    .iter()
                    .map(|&id| (id, f32::NEG_INFINITY)),
            );
        }
        let wanted = SamplingFields {
            temperature: self.temperature.map(|temperature| temperature.max(0.0)),
            top_p: self.top_p,
            // Less than 1 is all tokens.
            top_k: self.top_k.map(|n| usize::try_from(n).unwrap_or(0)),
            min_p: self.min_p,
            typical_p: self.typical_p,
            repeat_penalty: self.repeat_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            seed: self.seed,
            stop: self.stop.map(without_empty),
            max_tokens: self.n_predict.or(self.max_tokens).map(counted),
            n_logprobs,
            ..SamplingFields::default()
        };
        let mut options = wanted.into_options(&model.defaults)?;
        let sampling = &mut options.sampling;
        sampling.logit_bias = biases;
        sampling.repeat_window = self.repeat_last_n.map_or(sampling.repeat_window, counted);
        sampling.top_n_sigma = self.top_n_sigma.unwrap_or(sampling.top_n_sigma);
        sampling.dry = dry.into_options(&default.dry, model.n_ctx);
        sampling.validate().map_err(atta_engine::Error::from)?;
        Ok(GenerateOptions {
            constraint,
            ..options
        })
    }

    /// Takes the fields of DRY out.
    fn take_dry(&mut self) -> Dry {
        Dry {
            multiplier: self.dry_multiplier,
            base: self.dry_base,
            allowed_length: self.dry_allowed_length,
            penalty_last_n: self.dry_penalty_last_n,
            sequence_breakers: self.dry_sequence_breakers.take(),
        }
    }

    /// Refuses what is not here, unless its value switches it off.
    fn refuse_unsupported(&self) -> Result<(), ApiError> {
        let is_not = |value: Option<f32>, off: f32| value.is_some_and(|value| value != off);
        let has_any =
            |list: &Option<Vec<Value>>| list.as_ref().is_some_and(|list| !list.is_empty());
        let wanted = [
            (
                "mirostat",
                self.mirostat.is_some_and(|mirostat| mirostat != 0),
            ),
            ("dynatemp_range", is_not(self.dynatemp_range, 0.0)),
            ("xtc_probability", is_not(self.xtc_probability, 0.0)),
            ("tfs_z", is_not(self.tfs_z, 1.0)),
            (
                "post_sampling_probs",
                self.post_sampling_probs == Some(true),
            ),
            ("n_indent", self.n_indent.is_some_and(|n| n != 0)),
            ("image_data", has_any(&self.image_data)),
            ("lora", has_any(&self.lora)),
            ("grammar_lazy", self.grammar_lazy == Some(true)),
        ];
        match wanted.into_iter().find(|(_, is)| *is) {
            Some((name, _)) => Err(ApiError::field(name, format!("{name} is not supported"))),
            None => Ok(()),
        }
    }
}

/// What is asked of DRY.
struct Dry {
    multiplier: Option<f32>,
    base: Option<f32>,
    allowed_length: Option<i64>,
    penalty_last_n: Option<i64>,
    sequence_breakers: Option<Vec<String>>,
}

impl Dry {
    /// For a context of `n_ctx` tokens, which is as far back as it can look.
    fn into_options(self, default: &DryOptions, n_ctx: usize) -> DryOptions {
        DryOptions {
            multiplier: self.multiplier.unwrap_or(default.multiplier),
            base: self
                .base
                .filter(|&base| base >= 1.0)
                .unwrap_or(default.base),
            allowed_length: self.allowed_length.map_or(default.allowed_length, counted),
            penalty_last_n: self
                .penalty_last_n
                .map_or(default.penalty_last_n, |n| counted(n).min(n_ctx)),
            sequence_breakers: self
                .sequence_breakers
                .unwrap_or_else(|| default.sequence_breakers.clone()),
        }
    }
}

/// Texts that end an answer. One of no characters ends none, which is how clients leave the field
/// empty.
fn without_empty(stop: OneOrMore) -> OneOrMore {
    OneOrMore::More(
        stop.into_vec()
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect(),
    )
}

/// A number of tokens; less than 0 is all that there can be.
fn counted(n: i64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

fn n_logprobs(n_probs: Option<usize>) -> Result<Option<usize>, ApiError> {
    match n_probs {
        None | Some(0) => Ok(None),
        Some(n) if n > MAX_PROBS => Err(ApiError::field(
            "n_probs",
            format!("n_probs is {n}, expected at most {MAX_PROBS}"),
        )),
        n => Ok(n),
    }
}

fn constraint(
    grammar: Option<String>,
    schema: Option<Value>,
    warnings: &Warnings,
) -> Result<Option<Constraint>, ApiError> {
    let grammar = grammar.filter(|grammar| !grammar.trim().is_empty());
    match (grammar, schema.filter(|schema| !schema.is_null())) {
        (Some(_), Some(_)) => Err(ApiError::field(
            "grammar",
            "grammar cannot be combined with json_schema",
        )),
        (Some(grammar), None) => Ok(Some(Constraint::Gbnf(grammar))),
        (None, Some(schema)) => {
            let options = SchemaOptions {
                strictness: Strictness::Loose,
                others: OtherProperties::Closed,
            };
            let made = Constraint::from_schema(&schema.to_string(), options);
            let (constraint, loosened) = made
                .map_err(|error| ApiError::field("json_schema", format!("json_schema: {error}")))?;
            warnings.extend(
                loosened
                    .into_iter()
                    .map(|warning| format!("json_schema: {warning}")),
            );
            Ok(Some(constraint))
        }
        (None, None) => Ok(None),
    }
}

/// Tokens, or texts, and what is added to the logits of each: as pairs, or as an object.
fn logit_bias(model: &Model, biases: Value) -> Result<Vec<(u32, f32)>, ApiError> {
    let wrong = || {
        ApiError::field(
            "logit_bias",
            "logit_bias is no list of [token or text, number or false]",
        )
    };
    let pairs: Vec<(Value, Value)> = match biases {
        Value::Null => Vec::new(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(key, bias)| (Value::String(key), bias))
            .collect(),
        Value::Array(list) => {
            let pair = |item: Value| match item {
                Value::Array(pair) => <[Value; 2]>::try_from(pair)
                    .ok()
                    .map(|[token, bias]| (token, bias)),
                _ => None,
            };
            list.into_iter()
                .map(pair)
                .collect::<Option<_>>()
                .ok_or_else(wrong)?
        }
        _ => return Err(wrong()),
    };
    let mut all = Vec::new();
    for (token, bias) in pairs {
        let bias = match bias {
            Value::Bool(false) => f32::NEG_INFINITY,
            bias => bias.as_f64().ok_or_else(wrong)? as f32,
        };
        all.extend(
            tokens(model, &token)
                .ok_or_else(wrong)?
                .into_iter()
                .map(|id| (id, bias)),
        );
    }
    match all.len() {
        n if n > MAX_BIASES => Err(ApiError::field(
            "logit_bias",
            format!("{n} tokens, expected at most {MAX_BIASES}"),
        )),
        _ => Ok(all),
    }
}

/// The token that a number is, or the tokens of a text.
fn tokens(model: &Model, token: &Value) -> Option<Vec<u32>> {
    let id = match token {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => return None,
    };
    match (id, token) {
        (Some(id), _) => u32::try_from(id).ok().map(|id| vec![id]),
        (None, Value::String(text)) => Some(
            model
                .engine
                .tokenizer()
                .encode(text.as_bytes(), Special::Parse),
        ),
        _ => None,
    }
}

/// What llama.cpp's server calls the seed of those who have none.
const NO_SEED: u32 = u32::MAX;

/// The settings where a request does not say, as llama.cpp's server tells them.
pub(super) fn defaults(defaults: &Defaults) -> Map<String, Value> {
    let Defaults {
        sampling,
        n_predict,
        stop,
        seed,
        ..
    } = defaults.clone();
    let n_predict = n_predict.unwrap_or(usize::MAX);
    let options = GenerateOptions {
        sampling,
        n_predict,
        stop,
        ..GenerateOptions::default()
    };
    let mut settings = to_json(&options);
    settings.insert("seed".to_owned(), seed.unwrap_or(NO_SEED.into()).into());
    settings
}

/// The settings of an answer, as llama.cpp's server tells them.
pub(super) fn to_json(options: &GenerateOptions) -> Map<String, Value> {
    let sampling = &options.sampling;
    let count = |n: usize| i64::try_from(n).unwrap_or(-1);
    let grammar = match &options.constraint {
        Some(Constraint::Gbnf(grammar)) => grammar.as_str(),
        _ => "",
    };
    let settings = json!({
        "n_predict": count(options.n_predict),
        "max_tokens": count(options.n_predict),
        "seed": sampling.seed,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "typical_p": sampling.typical,
        "top_n_sigma": sampling.top_n_sigma,
        "repeat_penalty": sampling.repeat_penalty,
        "repeat_last_n": count(sampling.repeat_window),
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "dry_multiplier": sampling.dry.multiplier,
        "dry_base": sampling.dry.base,
        "dry_allowed_length": sampling.dry.allowed_length,
        "dry_penalty_last_n": count(sampling.dry.penalty_last_n),
        "dry_sequence_breakers": sampling.dry.sequence_breakers,
        "mirostat": 0,
        "xtc_probability": 0.0,
        "dynatemp_range": 0.0,
        "stop": options.stop,
        // JSON has no infinity: such a bias is null.
        "logit_bias": sampling.logit_bias.iter().map(|(token, bias)| json!({ "token": token, "bias": bias })).collect::<Vec<_>>(),
        "n_probs": options.n_logprobs.unwrap_or(0),
        "ignore_eos": false,
        "grammar": grammar,
        "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "temperature"],
    });
    match settings {
        Value::Object(settings) => settings,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(value: Value) -> Settings {
        body::understand(value, ACCEPTED, &Warnings::default()).unwrap()
    }

    #[test]
    fn what_would_change_the_text_and_is_not_here_is_named() {
        for (name, value) in [
            ("mirostat", json!(2)),
            ("xtc_probability", json!(0.5)),
            ("dynatemp_range", json!(0.1)),
            ("lora", json!([{ "id": 0, "scale": 1 }])),
            ("post_sampling_probs", json!(true)),
        ] {
            let error = settings(json!({ name: value }))
                .refuse_unsupported()
                .unwrap_err();
            assert_eq!(error.param.as_deref(), Some(name));
        }
        let off = json!({ "mirostat": 0, "xtc_probability": 0.0, "dynatemp_range": 0, "lora": [], "image_data": [] });
        assert!(settings(off).refuse_unsupported().is_ok());
    }

    #[test]
    fn a_grammar_and_a_schema_exclude_each_other_and_empty_ones_are_none() {
        let of = |grammar: &str, schema: Value| {
            constraint(Some(grammar.to_owned()), Some(schema), &Warnings::default())
        };
        assert!(of("root ::= \"a\"", json!({ "type": "object" })).is_err());
        assert!(matches!(
            of("root ::= \"a\"", Value::Null),
            Ok(Some(Constraint::Gbnf(_)))
        ));
        assert!(matches!(of(" ", Value::Null), Ok(None)));
    }

    #[test]
    fn what_is_accepted_is_a_warning() {
        let warnings = Warnings::default();
        let given =
            json!({ "cache_prompt": true, "id_slot": -1, "samplers": ["top_k"], "unheard_of": 1 });
        body::understand::<Settings>(given, ACCEPTED, &warnings).unwrap();
        assert_eq!(warnings.take().len(), 4);
    }
}
