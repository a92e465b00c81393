//! What chat and generate are asked for in the same words: how it is written, and what it must look like.

use std::time::Duration;

use atta_engine::{Constraint, GenerateOptions};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    body,
    models::{Model, Stay},
    refusal::Refusal,
    remarks::Remarks,
    sampling::{OneOrMore, Wanted},
};

/// Alternatives of a token that may be asked for.
const MAX_TOP_LOGPROBS: usize = 20;
/// What opens the thoughts of a model.
pub(super) const THINK: &str = "<think>";
/// The variable of a template that says whether the model is to think.
const ENABLE_THINKING: &str = "enable_thinking";

/// Fields as they came.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) options: Option<Map<String, Value>>,
    pub(super) format: Option<Value>,
    pub(super) think: Option<Value>,
    pub(super) logprobs: Option<bool>,
    pub(super) top_logprobs: Option<usize>,
    /// Whether a conversation that is too long is cut.
    pub(super) truncate: Option<bool>,
    /// Whether an answer that is too long takes the place of what was first.
    pub(super) shift: Option<bool>,
}

/// What they mean.
pub(super) struct Understood {
    pub(super) options: GenerateOptions,
    /// Whether the model is to think, if somebody has said so.
    pub(super) think: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Options {
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    typical_p: Option<f32>,
    seed: Option<i64>,
    num_predict: Option<i64>,
    stop: Option<OneOrMore>,
    repeat_penalty: Option<f32>,
    repeat_last_n: Option<i64>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    num_ctx: Option<usize>,
    mirostat: Option<i64>,
}

impl Settings {
    /// What they mean to a model whose texts have at most `n_ctx` positions.
    pub(super) fn understand(self, n_ctx: usize, remarks: &Remarks) -> Result<Understood, Refusal> {
        for (name, value) in [("truncate", self.truncate), ("shift", self.shift)] {
            if value == Some(true) {
                return Err(Refusal::field(name, format!("{name} is not supported: nothing is left out of a text")));
            }
        }
        let think = match self.think {
            None => None,
            Some(Value::Bool(think)) => Some(think),
            Some(other) => return Err(Refusal::field("think", format!("think is {other}, expected true or false"))),
        };
        let n_logprobs = n_logprobs(self.logprobs, self.top_logprobs)?;
        let constraint = self.format.map_or(Ok(None), constraint)?;
        let options: Options = body::understand(Value::Object(self.options.unwrap_or_default()), &[], remarks)?;
        let options = GenerateOptions { constraint, n_logprobs, ..options.into_options(n_ctx)? };
        Ok(Understood { options, think })
    }
}

impl Understood {
    /// Variables of the template.
    pub(super) fn extra(&self) -> Map<String, Value> {
        self.think.map(|think| (ENABLE_THINKING.to_owned(), think.into())).into_iter().collect()
    }

    /// Refuses what this model cannot do: to think, or not to think if its prompt already begins to.
    pub(super) fn check_thinking(&self, model: &Model, prompt: &str) -> Result<(), Refusal> {
        match self.think {
            Some(true) if !can_think(model) => Err(Refusal::field("think", "think: this model does not think")),
            Some(false) if can_think(model) && !model.form.has_switch(ENABLE_THINKING) => {
                Err(Refusal::field("think", "think: whether this model thinks cannot be chosen"))
            }
            Some(false) if prompt.trim_end().ends_with(THINK) => {
                Err(Refusal::field("think", "think: this model always thinks"))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a model has thoughts, as far as its template knows.
pub(super) fn can_think(model: &Model) -> bool {
    let template = model.engine.chat_template();
    template.is_some_and(|template| template.contains(ENABLE_THINKING) || template.contains(THINK))
}

impl Options {
    fn into_options(self, n_ctx: usize) -> Result<GenerateOptions, Refusal> {
        if let Some(n) = self.num_ctx.filter(|&n| n > n_ctx) {
            let message = format!("num_ctx is {n}, but the context of this server holds {n_ctx}: it is set by -c");
            return Err(Refusal::field("num_ctx", message));
        }
        if self.mirostat.is_some_and(|mirostat| mirostat != 0) {
            return Err(Refusal::field("mirostat", "mirostat is not supported"));
        }
        // −1: without end; −2: until the context is full. It is the same, since nothing is left out of a text.
        let max_tokens = counted("num_predict", self.num_predict, -2)?;
        let window = counted("repeat_last_n", self.repeat_last_n, -1)?;
        let wanted = Wanted {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            min_p: self.min_p,
            typical_p: self.typical_p,
            repeat_penalty: self.repeat_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            // −1 is any.
            seed: self.seed.filter(|&seed| seed != -1),
            stop: self.stop,
            max_tokens,
            ..Wanted::default()
        };
        let mut options = wanted.into_options()?;
        options.sampling.repeat_window = window.unwrap_or(options.sampling.repeat_window);
        Ok(options)
    }
}

/// What is said of a request without words: it has the model loaded, or taken out of memory.
pub(super) fn reason_of_nothing(stay: Option<Stay>) -> &'static str {
    if stay == Some(Stay::For(Duration::ZERO)) { "unload" } else { "load" }
}

/// A number of tokens; those from `least` to −1 are more than there can be.
fn counted(name: &str, n: Option<i64>, least: i64) -> Result<Option<usize>, Refusal> {
    match n {
        Some(n) if n < least => Err(Refusal::field(name, format!("{name} is {n}, expected {least} or more"))),
        Some(n) => Ok(Some(usize::try_from(n).unwrap_or(usize::MAX))),
        None => Ok(None),
    }
}

fn n_logprobs(logprobs: Option<bool>, top: Option<usize>) -> Result<Option<usize>, Refusal> {
    match (logprobs.unwrap_or(false), top.unwrap_or(0)) {
        (_, n) if n > MAX_TOP_LOGPROBS => {
            Err(Refusal::field("top_logprobs", format!("top_logprobs is {n}, expected at most {MAX_TOP_LOGPROBS}")))
        }
        (false, 0) => Ok(None),
        (false, _) => Err(Refusal::field("top_logprobs", "top_logprobs is of no use without logprobs: true")),
        (true, n) => Ok(Some(n)),
    }
}

/// What an answer must look like.
fn constraint(format: Value) -> Result<Option<Constraint>, Refusal> {
    match &format {
        Value::String(name) if name.is_empty() => Ok(None),
        Value::String(name) if name == "json" => Ok(Some(Constraint::JsonObject)),
        Value::Object(_) => Ok(Some(Constraint::Schema(format.to_string()))),
        _ => Err(Refusal::field("format", format!("format is {format}, expected \"json\" or a JSON schema"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(options: Value) -> Result<GenerateOptions, Refusal> {
        let settings = Settings { options: options.as_object().cloned(), ..Settings::default() };
        settings.understand(4096, &Remarks::default()).map(|understood| understood.options)
    }

    #[test]
    fn options_have_the_names_of_the_interface() {
        let options = of(json!({
            "temperature": 0.5, "seed": 7, "num_predict": 12, "stop": ["a"], "repeat_last_n": 3, "num_ctx": 4096,
            "mirostat": 0, "num_gpu": null,
        }));
        let options = options.unwrap();
        assert_eq!((options.n_predict, options.stop), (12, vec!["a".to_owned()]));
        assert_eq!((options.sampling.seed, options.sampling.repeat_window), (7, 3));
        for n in [-1, -2] {
            assert_eq!(of(json!({ "num_predict": n })).unwrap().n_predict, usize::MAX);
        }
        assert_eq!(of(json!({ "repeat_last_n": -1 })).unwrap().sampling.repeat_window, usize::MAX);
        let random = || of(json!({ "seed": -1 })).unwrap().sampling.seed;
        assert_ne!(random(), random());
    }

    #[test]
    fn an_option_that_cannot_be_had_is_named() {
        for (name, value) in [
            ("num_gpu", json!(1)),
            ("num_keep", json!(4)),
            ("mirostat", json!(2)),
            ("num_ctx", json!(4097)),
            ("num_predict", json!(-3)),
            ("repeat_last_n", json!(-2)),
            ("top_k", json!("many")),
        ] {
            let refusal = of(json!({ name: value })).unwrap_err();
            assert!(refusal.param.as_deref() == Some(name) && refusal.message.contains(name), "{refusal:?}");
        }
    }

    #[test]
    fn other_settings_that_cannot_be_had_are_named() {
        let refused = [
            ("truncate", Settings { truncate: Some(true), ..Settings::default() }),
            ("shift", Settings { shift: Some(true), ..Settings::default() }),
            ("think", Settings { think: Some("high".into()), ..Settings::default() }),
            ("format", Settings { format: Some("yaml".into()), ..Settings::default() }),
            ("top_logprobs", Settings { top_logprobs: Some(2), ..Settings::default() }),
        ];
        for (name, settings) in refused {
            let refusal = settings.understand(4096, &Remarks::default()).err().unwrap();
            assert!(refusal.param.as_deref() == Some(name) && refusal.message.contains(name), "{refusal:?}");
        }
    }

    #[test]
    fn a_format_is_a_name_or_a_schema() {
        let of = |format: Value| constraint(format).unwrap();
        assert!(of("".into()).is_none());
        assert!(matches!(of("json".into()), Some(Constraint::JsonObject)));
        assert!(matches!(of(json!({ "type": "object" })), Some(Constraint::Schema(_))));
    }
}
