//! Options of `/completion` and `/infill`: llama.cpp's names.

use atta_engine::{
    Constraint, GenerateOptions,
    tokenizer::{Special, Tokenizer},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::response::ReplyFields;
use crate::{
    flow::{
        body::{Accepted, BodyFields, whole},
        error::ApiError,
        format,
        request::SharedFields,
        sampling::{
            Defaults, DryFields, LogitBias, OneOrMore, SamplingFields, SpeculationName,
            n_tokens_or_all, top_k_or_all,
        },
        warnings::Warnings,
    },
    models::Model,
};

/// Alternatives of a token that a request may ask for.
const MAX_PROBS: usize = 100;

const ORDER: &str = "samplers have a fixed order, which is llama.cpp's default";
const TIME: &str = "the server limits the time of an answer, for all requests alike";
const AT_START: &str = "how a model is loaded is decided when the server is started";
const SLOTS: &str = "slots and the reuse of prompts are the server's to choose";

/// Fields of `/completion` and `/infill` that change nothing here.
pub(super) const ACCEPTED: Accepted = &[
    ("cache_prompt", SLOTS),
    ("id_slot", SLOTS),
    ("slot_id", SLOTS),
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
    ("t_max_predict_ms", TIME),
    ("t_max_prompt_ms", TIME),
    ("speculative.n_max", AT_START),
    ("speculative.n_min", AT_START),
    ("speculative.p_min", AT_START),
    ("n_ctx", AT_START),
    ("n_batch", AT_START),
    ("n_threads", AT_START),
    ("api_key", "keys come in headers"),
    ("use_default_badwordsids", "there are no such words"),
    ("user", "there are no accounts"),
];

/// The fields that are kept, and those that are refused because they would change the text.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct LlamaOptions {
    #[serde(default, deserialize_with = "whole")]
    n_predict: Option<i64>,
    #[serde(default, deserialize_with = "whole")]
    max_tokens: Option<i64>,
    temperature: Option<f32>,
    #[serde(default, deserialize_with = "whole")]
    top_k: Option<i64>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    typical_p: Option<f32>,
    top_n_sigma: Option<f32>,
    repeat_penalty: Option<f32>,
    #[serde(default, deserialize_with = "whole")]
    repeat_last_n: Option<i64>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    dry_multiplier: Option<f32>,
    dry_base: Option<f32>,
    #[serde(default, deserialize_with = "whole")]
    dry_allowed_length: Option<i64>,
    #[serde(default, deserialize_with = "whole")]
    dry_penalty_last_n: Option<i64>,
    dry_sequence_breakers: Option<Vec<String>>,
    #[serde(default, deserialize_with = "whole")]
    seed: Option<i64>,
    stop: Option<OneOrMore>,
    ignore_eos: Option<bool>,
    logit_bias: Option<LogitBias>,
    grammar: Option<String>,
    json_schema: Option<Value>,
    n_probs: Option<usize>,
    #[serde(default, deserialize_with = "whole")]
    mirostat: Option<i64>,
    dynatemp_range: Option<f32>,
    xtc_probability: Option<f32>,
    tfs_z: Option<f32>,
    post_sampling_probs: Option<bool>,
    n_indent: Option<u64>,
    image_data: Option<Vec<Value>>,
    grammar_lazy: Option<bool>,
    speculation: Option<SpeculationName>,
}

/// The fields that `/completion` and `/infill` share.
pub(crate) struct LlamaShared {
    pub(super) options: LlamaOptions,
    pub(super) reply: ReplyFields,
}

impl SharedFields for LlamaShared {
    fn take(fields: &mut BodyFields) -> Result<Self, ApiError> {
        Ok(Self {
            options: fields.take()?,
            reply: fields.take()?,
        })
    }
}

/// What the options are for.
#[derive(Clone, Copy)]
pub(crate) struct OptionsTarget<'a> {
    pub(crate) tokenizer: &'a Tokenizer,
    /// Positions of a context.
    pub(crate) n_ctx: usize,
    pub(crate) defaults: &'a Defaults,
}

impl<'a> From<&'a Model> for OptionsTarget<'a> {
    fn from(model: &'a Model) -> Self {
        Self {
            tokenizer: model.engine.tokenizer(),
            n_ctx: model.n_ctx,
            defaults: &model.defaults,
        }
    }
}

/// Reads options that stand alone.
pub(crate) fn read(fields: BodyFields, warnings: &Warnings) -> Result<LlamaOptions, ApiError> {
    fields.rest(ACCEPTED, warnings)
}

impl LlamaOptions {
    pub(crate) fn into_options(
        mut self,
        target: OptionsTarget<'_>,
        warnings: &Warnings,
    ) -> Result<GenerateOptions, ApiError> {
        self.refuse_unsupported()?;
        let constraint = constraint(self.grammar.take(), self.json_schema.take(), warnings)?;
        let ignores_eos = self.ignore_eos == Some(true);
        let mut options = self.into_fields(target)?.into_options(target.defaults)?;
        if ignores_eos {
            let eog = target.tokenizer.eog().iter();
            let biases = &mut options.sampling.logit_bias;
            biases.extend(eog.map(|&id| (id, f32::NEG_INFINITY)));
        }
        Ok(GenerateOptions {
            constraint,
            ..options
        })
    }

    fn into_fields(self, target: OptionsTarget<'_>) -> Result<SamplingFields, ApiError> {
        let tokenize = |text: &str| Some(target.tokenizer.encode(text.as_bytes(), Special::Parse));
        let biases = self.logit_bias.map(|biases| biases.into_ids(tokenize));
        Ok(SamplingFields {
            temperature: self.temperature.map(|temperature| temperature.max(0.0)),
            top_k: self.top_k.map(top_k_or_all),
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical_p,
            top_n_sigma: self.top_n_sigma,
            repeat_penalty: self.repeat_penalty,
            repeat_last_n: self.repeat_last_n.map(n_tokens_or_all),
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            dry: DryFields {
                multiplier: self.dry_multiplier,
                base: self.dry_base,
                allowed_length: self.dry_allowed_length.map(n_tokens_or_all),
                // DRY cannot look back further than the context.
                penalty_last_n: self
                    .dry_penalty_last_n
                    .map(|n| n_tokens_or_all(n).min(target.n_ctx)),
                sequence_breakers: self.dry_sequence_breakers,
            },
            logit_bias: biases.transpose()?,
            seed: self.seed,
            stop: self.stop.map(without_empty),
            max_tokens: self.n_predict.or(self.max_tokens).map(n_tokens_or_all),
            n_logprobs: n_logprobs(self.n_probs)?,
            speculation: self.speculation,
        })
    }

    /// Refuses features that are not supported, unless their value switches them off.
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
            ("grammar_lazy", self.grammar_lazy == Some(true)),
        ];
        match wanted.into_iter().find(|(_, is)| *is) {
            Some((name, _)) => Err(ApiError::field(name, format!("{name} is not supported"))),
            None => Ok(()),
        }
    }
}

/// Clients leave `stop` empty by a text without characters.
fn without_empty(stop: OneOrMore) -> Vec<String> {
    let mut stop = stop.into_vec();
    stop.retain(|text| !text.is_empty());
    stop
}

/// 0 is no log-probabilities at all.
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
    match (format::grammar(grammar), schema) {
        (Some(_), Some(_)) => Err(ApiError::field(
            "grammar",
            "grammar cannot be combined with json_schema",
        )),
        (Some(grammar), None) => Ok(Some(grammar)),
        (None, Some(schema)) => {
            format::from_loose_schema("json_schema", &schema, warnings).map(Some)
        }
        (None, None) => Ok(None),
    }
}

/// llama.cpp's number for a random seed.
const NO_SEED: u32 = u32::MAX;

/// The server's defaults, in the JSON of `default_generation_settings`.
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

/// The options of an answer, in the JSON of `generation_settings`.
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

    fn options(value: Value) -> LlamaOptions {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_would_change_the_text_and_is_not_here_is_named() {
        for (name, value) in [
            ("mirostat", json!(2)),
            ("xtc_probability", json!(0.5)),
            ("dynatemp_range", json!(0.1)),
            ("post_sampling_probs", json!(true)),
        ] {
            let error = options(json!({ name: value }))
                .refuse_unsupported()
                .unwrap_err();
            assert_eq!(error.param.as_deref(), Some(name));
        }
        let off =
            json!({ "mirostat": 0, "xtc_probability": 0.0, "dynatemp_range": 0, "image_data": [] });
        assert!(options(off).refuse_unsupported().is_ok());
    }

    #[test]
    fn a_grammar_and_a_schema_exclude_each_other_and_empty_ones_are_none() {
        let grammar = Some("root ::= \"a\"".to_owned());
        let schema = Some(json!({ "type": "object" }));
        assert!(constraint(grammar, schema, &Warnings::default()).is_err());
        assert!(matches!(
            constraint(
                Some("root ::= \"a\"".to_owned()),
                None,
                &Warnings::default()
            ),
            Ok(Some(Constraint::Gbnf(_)))
        ));
        let empty = constraint(Some(" ".to_owned()), None, &Warnings::default());
        assert!(matches!(empty, Ok(None)));
    }

    #[test]
    fn what_is_accepted_is_a_warning() {
        let warnings = Warnings::default();
        let given =
            json!({ "cache_prompt": true, "id_slot": -1, "samplers": ["top_k"], "unheard_of": 1 });
        let fields = BodyFields::new(given.as_object().unwrap().clone());
        fields.rest::<LlamaOptions>(ACCEPTED, &warnings).unwrap();
        assert_eq!(warnings.take().len(), 4);
    }
}
