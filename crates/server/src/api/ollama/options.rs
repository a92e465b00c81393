//! What chat and generate are asked for in the same words: how it is written, and what it must look
//! like.

use std::time::Duration;

use atta_engine::{Constraint, GenerateOptions, OtherProperties, SchemaOptions, Strictness};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    flow::{
        body::{self, Accepted},
        error::ApiError,
        sampling::{Defaults, OneOrMore, SamplingFields},
        warnings::Warnings,
    },
    models::{KeepAlive, Model},
};

/// Alternatives of a token that may be asked for.
const MAX_TOP_LOGPROBS: usize = 20;
/// What opens the thoughts of a model.
pub(super) const THINK: &str = "<think>";
/// The variable of a template that says whether the model is to think.
const ENABLE_THINKING: &str = "enable_thinking";
/// The variable of a template that says how much.
const REASONING_EFFORT: &str = "reasoning_effort";
const LEVELS: [&str; 3] = ["low", "medium", "high"];

/// Fields as they came.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) options: Option<Map<String, Value>>,
    pub(super) format: Option<Value>,
    pub(super) think: Option<Value>,
    pub(super) logprobs: Option<bool>,
    pub(super) top_logprobs: Option<usize>,
}

/// What they mean.
pub(super) struct Understood {
    pub(super) options: GenerateOptions,
    /// Whether and how much the model is to think, if the request says so.
    think: Option<Think>,
}

/// What `think` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Think {
    No,
    Yes,
    /// `low`, `medium` or `high`.
    Level(String),
}

/// Options that are read: kept, or refused where they would change the result.
#[derive(Debug, Deserialize)]
pub(crate) struct Options {
    temperature: Option<f32>,
    #[serde(default, deserialize_with = "body::whole")]
    top_k: Option<i64>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    typical_p: Option<f32>,
    #[serde(default, deserialize_with = "body::whole")]
    seed: Option<i64>,
    #[serde(default, deserialize_with = "body::whole")]
    num_predict: Option<i64>,
    stop: Option<OneOrMore>,
    repeat_penalty: Option<f32>,
    #[serde(default, deserialize_with = "body::whole")]
    repeat_last_n: Option<i64>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    #[serde(default, deserialize_with = "body::whole")]
    num_ctx: Option<i64>,
    #[serde(default, deserialize_with = "body::whole")]
    mirostat: Option<i64>,
    tfs_z: Option<f32>,
}

/// Why options of the machine change nothing.
const AT_START: &str = "how a model is loaded is decided when the server is started";

/// Options that change nothing here.
pub(super) const ACCEPTED: Accepted = &[
    ("num_gpu", AT_START),
    ("main_gpu", AT_START),
    ("num_thread", AT_START),
    ("num_batch", AT_START),
    ("use_mmap", AT_START),
    ("use_mlock", AT_START),
    ("low_vram", AT_START),
    ("numa", AT_START),
    ("f16_kv", AT_START),
    ("vocab_only", AT_START),
    ("logits_all", AT_START),
    ("embedding_only", AT_START),
    (
        "num_keep",
        "nothing is left out of a text that fills the context",
    ),
    ("mirostat_tau", "it counts with mirostat only"),
    ("mirostat_eta", "it counts with mirostat only"),
    ("penalize_newline", "penalties count for all tokens"),
];

/// Fields of a request that change nothing here.
pub(super) const ACCEPTED_FIELDS: Accepted = &[
    ("truncate", "a conversation that is too long is an error"),
    ("shift", "an answer that fills the context ends there"),
    ("_debug_render_only", "there is no such mode"),
];

impl Settings {
    /// What they mean to a model whose texts have at most `n_ctx` positions.
    pub(super) fn understand(
        self,
        n_ctx: usize,
        defaults: &Defaults,
        warnings: &Warnings,
    ) -> Result<Understood, ApiError> {
        let think = self.think.map(think).transpose()?.flatten();
        let n_logprobs = n_logprobs(self.logprobs, self.top_logprobs)?;
        let constraint = self
            .format
            .map_or(Ok(None), |format| constraint(&format, warnings))?;
        let options: Options = body::understand(
            Value::Object(self.options.unwrap_or_default()),
            ACCEPTED,
            warnings,
        )?;
        let options = GenerateOptions {
            constraint,
            n_logprobs,
            ..options.into_options(n_ctx, defaults, warnings)?
        };
        Ok(Understood { options, think })
    }
}

fn think(value: Value) -> Result<Option<Think>, ApiError> {
    match value {
        Value::Bool(false) => Ok(Some(Think::No)),
        Value::Bool(true) => Ok(Some(Think::Yes)),
        Value::String(text) if text.is_empty() => Ok(None),
        Value::String(level) if LEVELS.contains(&level.as_str()) => Ok(Some(Think::Level(level))),
        other => {
            let message =
                format!("think is {other}, expected true, false, \"low\", \"medium\" or \"high\"");
            Err(ApiError::field("think", message))
        }
    }
}

impl Understood {
    /// Variables of the template.
    pub(super) fn extra(&self) -> Map<String, Value> {
        let Some(think) = &self.think else {
            return Map::new();
        };
        let mut extra =
            Map::from_iter([(ENABLE_THINKING.to_owned(), (*think != Think::No).into())]);
        if let Think::Level(level) = think {
            extra.insert(REASONING_EFFORT.to_owned(), level.as_str().into());
        }
        extra
    }

    /// Refuses to think if the model cannot, as Ollama does; what else of `think` is not kept
    /// becomes a warning.
    pub(super) fn check_thinking(
        &self,
        model: &Model,
        prompt: &str,
        warnings: &Warnings,
    ) -> Result<(), ApiError> {
        let Some(think) = &self.think else {
            return Ok(());
        };
        let can_think = can_think(model);
        if *think != Think::No && !can_think {
            return Err(ApiError::field(
                "think",
                format!("think: {:?} does not support thinking", model.name),
            ));
        }
        match think {
            Think::Level(_) if !model.format.has_switch(REASONING_EFFORT) => {
                warnings.add("think: this model thinks, but the level changes nothing: its template has none");
            }
            Think::No if can_think && !model.format.has_switch(ENABLE_THINKING) => {
                warnings.add("think: whether this model thinks cannot be chosen");
            }
            Think::No if prompt.trim_end().ends_with(THINK) => {
                warnings.add("think: this model always thinks")
            }
            _ => {}
        }
        Ok(())
    }
}

/// Whether a model has thoughts, as far as its template knows.
pub(super) fn can_think(model: &Model) -> bool {
    let signs = [ENABLE_THINKING, REASONING_EFFORT, THINK];
    model
        .engine
        .chat_template()
        .is_some_and(|template| signs.iter().any(|sign| template.contains(sign)))
}

impl Options {
    /// Refuses samplers that are not here, unless their values switch them off.
    fn refuse_unsupported(&self) -> Result<(), ApiError> {
        if self.mirostat.is_some_and(|mirostat| mirostat != 0) {
            return Err(ApiError::field(
                "mirostat",
                "mirostat is not supported, only 0, which switches it off",
            ));
        }
        if self.tfs_z.is_some_and(|z| z != 1.0) {
            return Err(ApiError::field(
                "tfs_z",
                "tfs_z is not supported, only 1, which switches it off",
            ));
        }
        Ok(())
    }

    fn into_options(
        self,
        n_ctx: usize,
        defaults: &Defaults,
        warnings: &Warnings,
    ) -> Result<GenerateOptions, ApiError> {
        self.refuse_unsupported()?;
        if let Some(n) = self
            .num_ctx
            .filter(|&n| usize::try_from(n).is_ok_and(|n| n > n_ctx))
        {
            warnings.add(format!(
                "num_ctx is {n}, but the context of this server holds {n_ctx} tokens, which -c sets"
            ));
        }
        // −1: without end; −2: until the context is full. It is the same, since nothing is left out
        // of a text.
        let max_tokens = counted("num_predict", self.num_predict, -2)?;
        let window = counted("repeat_last_n", self.repeat_last_n, -1)?;
        let wanted = SamplingFields {
            temperature: self.temperature,
            top_p: self.top_p,
            // Less than 1 is all tokens.
            top_k: self.top_k.map(|n| usize::try_from(n).unwrap_or(0)),
            min_p: self.min_p,
            typical_p: self.typical_p,
            repeat_penalty: self.repeat_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            // −1 is any.
            seed: self.seed,
            stop: self.stop,
            max_tokens,
            ..SamplingFields::default()
        };
        let mut options = wanted.into_options(defaults)?;
        options.sampling.repeat_window = window.unwrap_or(options.sampling.repeat_window);
        Ok(options)
    }
}

/// What is said of a request without words: it has the model loaded, or taken out of memory.
pub(super) fn reason_of_nothing(stay: Option<KeepAlive>) -> &'static str {
    if stay == Some(KeepAlive::For(Duration::ZERO)) {
        "unload"
    } else {
        "load"
    }
}

/// A number of tokens; those from `least` to −1 are more than there can be.
fn counted(name: &str, n: Option<i64>, least: i64) -> Result<Option<usize>, ApiError> {
    match n {
        Some(n) if n < least => Err(ApiError::field(
            name,
            format!("{name} is {n}, expected {least} or more"),
        )),
        Some(n) => Ok(Some(usize::try_from(n).unwrap_or(usize::MAX))),
        None => Ok(None),
    }
}

fn n_logprobs(logprobs: Option<bool>, top: Option<usize>) -> Result<Option<usize>, ApiError> {
    match (logprobs.unwrap_or(false), top.unwrap_or(0)) {
        (_, n) if n > MAX_TOP_LOGPROBS => Err(ApiError::field(
            "top_logprobs",
            format!("top_logprobs is {n}, expected at most {MAX_TOP_LOGPROBS}"),
        )),
        (false, 0) => Ok(None),
        (false, _) => Err(ApiError::field(
            "top_logprobs",
            "top_logprobs is of no use without logprobs: true",
        )),
        (true, n) => Ok(Some(n)),
    }
}

/// What an answer must look like. Keywords of a schema that cannot be kept are loosened, and a
/// warning names each of them.
fn constraint(format: &Value, warnings: &Warnings) -> Result<Option<Constraint>, ApiError> {
    match format {
        Value::String(name) if name.is_empty() => Ok(None),
        Value::String(name) if name == "json" => Ok(Some(Constraint::JsonObject)),
        Value::Object(_) => {
            let options = SchemaOptions {
                strictness: Strictness::Loose,
                others: OtherProperties::Closed,
            };
            let made = Constraint::from_schema(&format.to_string(), options);
            let (constraint, loosened) =
                made.map_err(|error| ApiError::field("format", format!("format: {error}")))?;
            warnings.extend(
                loosened
                    .into_iter()
                    .map(|warning| format!("format: {warning}")),
            );
            Ok(Some(constraint))
        }
        _ => Err(ApiError::field(
            "format",
            format!("format is {format}, expected \"json\" or a JSON schema"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(options: Value) -> Result<GenerateOptions, ApiError> {
        let settings = Settings {
            options: options.as_object().cloned(),
            ..Settings::default()
        };
        settings
            .understand(4096, &Defaults::default(), &Warnings::default())
            .map(|understood| understood.options)
    }

    #[test]
    fn options_have_the_names_of_the_interface() {
        let options = of(json!({
            "temperature": 0.5, "seed": 7, "num_predict": 12, "stop": ["a"], "repeat_last_n": 3, "num_ctx": 4096,
            "mirostat": 0, "num_gpu": null,
        }));
        let options = options.unwrap();
        assert_eq!(
            (options.n_predict, options.stop),
            (12, vec!["a".to_owned()])
        );
        assert_eq!(
            (options.sampling.seed, options.sampling.repeat_window),
            (7, 3)
        );
        for n in [-1, -2] {
            assert_eq!(
                of(json!({ "num_predict": n })).unwrap().n_predict,
                usize::MAX
            );
        }
        assert_eq!(
            of(json!({ "repeat_last_n": -1 }))
                .unwrap()
                .sampling
                .repeat_window,
            usize::MAX
        );
        let random = || of(json!({ "seed": -1 })).unwrap().sampling.seed;
        assert_ne!(random(), random());
    }

    #[test]
    fn an_option_that_cannot_be_had_is_named() {
        for (name, value) in [
            ("mirostat", json!(2)),
            ("tfs_z", json!(0.5)),
            ("num_ctx", json!(1024.5)),
            ("num_predict", json!(-3)),
            ("repeat_last_n", json!(-2)),
            ("top_k", json!("many")),
        ] {
            let error = of(json!({ name: value })).unwrap_err();
            assert!(
                error.param.as_deref() == Some(name) && error.message.contains(name),
                "{error:?}"
            );
        }
    }

    #[test]
    fn options_of_the_machine_and_those_that_are_switched_off_are_accepted_with_a_warning() {
        let warnings = Warnings::default();
        let given = json!({
            "num_gpu": 0, "num_thread": 4, "use_mmap": true, "num_keep": 24, "penalize_newline": true, "tfs_z": 1,
            "mirostat": 0, "mirostat_tau": 5.0, "num_ctx": 9005.0, "top_k": -1, "nonsense": 1,
        });
        let settings = Settings {
            options: given.as_object().cloned(),
            ..Settings::default()
        };
        let options = settings
            .understand(4096, &Defaults::default(), &warnings)
            .map(|understood| understood.options)
            .unwrap();
        assert_eq!(options.sampling.top_k, 0);
        let said = warnings.take();
        assert_eq!(said.len(), 8, "{said:?}");
        for name in ["num_gpu", "num_ctx is 9005", "mirostat_tau", "nonsense"] {
            assert!(
                said.iter().any(|warning| warning.contains(name)),
                "{name}: {said:?}"
            );
        }
    }

    #[test]
    fn think_is_yes_no_or_a_level() {
        let of = |value: Value| think(value).unwrap();
        assert_eq!(
            (of(json!(true)), of(json!(false)), of(json!(""))),
            (Some(Think::Yes), Some(Think::No), None)
        );
        let settings = Settings {
            think: Some("high".into()),
            ..Settings::default()
        };
        let extra = settings
            .understand(10, &Defaults::default(), &Warnings::default())
            .map(|understood| understood.extra())
            .unwrap();
        assert_eq!(
            Value::Object(extra),
            json!({ "enable_thinking": true, "reasoning_effort": "high" })
        );
    }

    #[test]
    fn other_settings_that_cannot_be_had_are_named() {
        let refused = [
            (
                "think",
                Settings {
                    think: Some("deeply".into()),
                    ..Settings::default()
                },
            ),
            (
                "format",
                Settings {
                    format: Some("yaml".into()),
                    ..Settings::default()
                },
            ),
            (
                "top_logprobs",
                Settings {
                    top_logprobs: Some(2),
                    ..Settings::default()
                },
            ),
        ];
        for (name, settings) in refused {
            let error = settings
                .understand(4096, &Defaults::default(), &Warnings::default())
                .err()
                .unwrap();
            assert!(
                error.param.as_deref() == Some(name) && error.message.contains(name),
                "{error:?}"
            );
        }
    }

    #[test]
    fn a_format_is_a_name_or_a_schema() {
        let of = |format: Value| constraint(&format, &Warnings::default()).unwrap();
        assert!(of("".into()).is_none());
        assert!(matches!(of("json".into()), Some(Constraint::JsonObject)));
        assert!(matches!(
            of(json!({ "type": "object" })),
            Some(Constraint::Schema(_))
        ));
    }
}
