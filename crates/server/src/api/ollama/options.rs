//! Fields that `/api/chat` and `/api/generate` share, and `options`, in which Ollama nests its
//! sampling fields.

use std::time::Duration;

use atta_engine::{
    Constraint, GenerateOptions,
    chat::{ChatInput, Prompt},
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{keep_alive::KeepAliveField, think::Think};
use crate::{
    flow::{
        body::{Accepted, BodyFields, whole},
        error::ApiError,
        format, logprobs,
        prepare::{self, Prepared},
        request::SharedFields,
        sampling::{Defaults, OneOrMore, SamplingFields, n_tokens_or_all, top_k_or_all},
        warnings::Warnings,
    },
    models::{KeepAlive, Model},
};

/// The shared fields.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct OllamaShared {
    options: Option<Map<String, Value>>,
    format: Option<Value>,
    stream: Option<bool>,
    think: Option<Value>,
    keep_alive: Option<KeepAliveField>,
    logprobs: Option<bool>,
    top_logprobs: Option<usize>,
}

/// The options, and the form of the reply.
pub(crate) struct ParsedFields {
    pub(super) options: GenerateOptions,
    think: Option<Think>,
    pub(super) stream: bool,
    /// The `done_reason` of a request without a prompt.
    pub(super) load_reason: &'static str,
}

/// The options that are kept, and those that are refused because they would change the text.
#[derive(Debug, Deserialize)]
pub(crate) struct OllamaOptions {
    temperature: Option<f32>,
    #[serde(default, deserialize_with = "whole")]
    top_k: Option<i64>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    typical_p: Option<f32>,
    #[serde(default, deserialize_with = "whole")]
    seed: Option<i64>,
    #[serde(default, deserialize_with = "whole")]
    num_predict: Option<i64>,
    stop: Option<OneOrMore>,
    repeat_penalty: Option<f32>,
    #[serde(default, deserialize_with = "whole")]
    repeat_last_n: Option<i64>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    #[serde(default, deserialize_with = "whole")]
    num_ctx: Option<i64>,
    #[serde(default, deserialize_with = "whole")]
    mirostat: Option<i64>,
    tfs_z: Option<f32>,
}

/// Why options about loading a model have no effect.
const AT_START: &str = "how a model is loaded is decided when the server is started";

/// Options without effect.
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

/// Fields of a request without effect.
pub(super) const ACCEPTED_FIELDS: Accepted = &[
    ("truncate", "a conversation that is too long is an error"),
    ("shift", "an answer that fills the context ends there"),
    ("_debug_render_only", "there is no such mode"),
];

impl SharedFields for OllamaShared {
    const TAKES_ANY_NAME: bool = false;

    fn take(fields: &mut BodyFields) -> Result<Self, ApiError> {
        fields.take()
    }

    fn keep_alive(&self) -> Option<KeepAlive> {
        self.keep_alive.map(|KeepAliveField(keep_alive)| keep_alive)
    }
}

impl OllamaShared {
    pub(super) fn streams(&self) -> bool {
        self.stream.unwrap_or(true)
    }

    /// Whether `think` is true.
    pub(super) fn thinks(&self) -> bool {
        self.think == Some(Value::Bool(true))
    }

    /// Whether no field asks for anything about an answer.
    pub(super) fn is_bare(&self) -> bool {
        matches!(
            self,
            Self {
                options: None,
                format: None,
                stream: _,
                think: None,
                keep_alive: _,
                logprobs: None,
                top_logprobs: None,
            }
        )
    }

    /// Whether the model is to leave memory at once.
    pub(super) fn is_unload(&self) -> bool {
        self.keep_alive() == Some(KeepAlive::For(Duration::ZERO))
    }

    /// The `done_reason` of a request without a prompt.
    pub(super) fn load_reason(&self) -> &'static str {
        match self.is_unload() {
            true => "unload",
            false => "load",
        }
    }

    /// `n_ctx` is the size of the context.
    pub(super) fn parsed(
        self,
        n_ctx: usize,
        defaults: &Defaults,
        warnings: &Warnings,
    ) -> Result<ParsedFields, ApiError> {
        let stream = self.streams();
        let load_reason = self.load_reason();
        let think = self.think.map(Think::parse).transpose()?.flatten();
        let n_logprobs = logprobs::n_alternatives(
            self.logprobs == Some(true),
            self.top_logprobs,
            "logprobs: true",
        )?;
        let constraint = match self.format {
            Some(format) => constraint(&format, warnings)?,
            None => None,
        };
        let options = parse_options(self.options, warnings)?;
        options.warn_of_context(n_ctx, warnings);
        let sampling = SamplingFields {
            n_logprobs,
            ..options.into_fields()?
        };
        Ok(ParsedFields {
            options: GenerateOptions {
                constraint,
                ..sampling.into_options(defaults)?
            },
            think,
            stream,
            load_reason,
        })
    }
}

impl ParsedFields {
    /// Prepares an answer to a conversation that follows the tokens `before`, with the reasoning
    /// that the request asks for. Returns the whole prompt, too.
    pub(super) fn answer_after(
        &self,
        model: &Model,
        before: &[u32],
        input: &ChatInput<'_>,
        warnings: &Warnings,
    ) -> Result<(Prepared, Prompt), ApiError> {
        let input = ChatInput {
            extra: Some(&Think::variables(self.think.as_ref())),
            ..*input
        };
        let (prepared, prompt) =
            prepare::answer_after(model, before, &input, &self.options, warnings)?;
        if let Some(think) = &self.think {
            think.check(model, &prompt.text, warnings)?;
        }
        Ok((prepared, prompt))
    }
}

/// Parses the field `options`.
pub(super) fn parse_options(
    options: Option<Map<String, Value>>,
    warnings: &Warnings,
) -> Result<OllamaOptions, ApiError> {
    BodyFields::new(options.unwrap_or_default()).rest(ACCEPTED, warnings)
}

impl OllamaOptions {
    /// Refuses samplers that are not supported, unless their values switch them off.
    fn refuse_unsupported(&self) -> Result<(), ApiError> {
        if self.mirostat.is_some_and(|mirostat| mirostat != 0) {
            let message = "mirostat is not supported, only 0, which switches it off";
            return Err(ApiError::field("mirostat", message));
        }
        if self.tfs_z.is_some_and(|z| z != 1.0) {
            let message = "tfs_z is not supported, only 1, which switches it off";
            return Err(ApiError::field("tfs_z", message));
        }
        Ok(())
    }

    fn warn_of_context(&self, n_ctx: usize, warnings: &Warnings) {
        let Some(n) = self.num_ctx else { return };
        if usize::try_from(n).is_ok_and(|n| n > n_ctx) {
            warnings.add(format!(
                "num_ctx is {n}, but the context of this server holds {n_ctx} tokens"
            ));
        }
    }

    fn into_fields(self) -> Result<SamplingFields, ApiError> {
        self.refuse_unsupported()?;
        Ok(SamplingFields {
            temperature: self.temperature,
            top_k: self.top_k.map(top_k_or_all),
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical_p,
            repeat_penalty: self.repeat_penalty,
            repeat_last_n: n_tokens("repeat_last_n", self.repeat_last_n, -1)?,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            seed: self.seed,
            stop: self.stop.map(OneOrMore::into_vec),
            // -1 is no limit; -2 is until the context is full, which is the same without context
            // shift.
            max_tokens: n_tokens("num_predict", self.num_predict, -2)?,
            ..SamplingFields::default()
        })
    }
}

/// A number of tokens; negative numbers down to `least` mean all.
fn n_tokens(name: &str, n: Option<i64>, least: i64) -> Result<Option<usize>, ApiError> {
    match n {
        Some(n) if n < least => Err(ApiError::field(
            name,
            format!("{name} is {n}, expected {least} or more"),
        )),
        n => Ok(n.map(n_tokens_or_all)),
    }
}

/// The constraint of `format`. Keywords of a schema that cannot be kept are dropped with a warning.
fn constraint(format: &Value, warnings: &Warnings) -> Result<Option<Constraint>, ApiError> {
    match format {
        Value::String(name) if name.is_empty() => Ok(None),
        Value::String(name) if name == "json" => Ok(Some(Constraint::JsonObject)),
        Value::Object(_) => format::from_loose_schema("format", format, warnings).map(Some),
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
        let settings = OllamaShared {
            options: options.as_object().cloned(),
            ..OllamaShared::default()
        };
        settings
            .parsed(4096, &Defaults::default(), &Warnings::default())
            .map(|parsed| parsed.options)
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
    fn an_option_that_cannot_be_kept_is_named() {
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
        let settings = OllamaShared {
            options: given.as_object().cloned(),
            ..OllamaShared::default()
        };
        let options = settings
            .parsed(4096, &Defaults::default(), &warnings)
            .map(|parsed| parsed.options)
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
    fn fields_that_cannot_be_kept_are_named() {
        let refused = [
            (
                "think",
                OllamaShared {
                    think: Some("deeply".into()),
                    ..OllamaShared::default()
                },
            ),
            (
                "format",
                OllamaShared {
                    format: Some("yaml".into()),
                    ..OllamaShared::default()
                },
            ),
            (
                "top_logprobs",
                OllamaShared {
                    top_logprobs: Some(2),
                    ..OllamaShared::default()
                },
            ),
        ];
        for (name, settings) in refused {
            let error = settings
                .parsed(4096, &Defaults::default(), &Warnings::default())
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
