//! What may be asked for, and what it means.

use std::collections::BTreeMap;

use atta_engine::{
    Constraint, GenerateOptions, Sampling,
    chat::{Message, ToolUse},
    tools::ToolChoice,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    input,
    tools::{Tool, nested_choice},
};
use crate::{
    openai::{
        chat::{MAX_TOP_LOGPROBS, variables},
        says::tool_use,
        tier::Tier,
    },
    prepare::Ask,
    refusal::Refusal,
    sampling::{OneOrMore, Wanted},
};

/// What has to be included for log-probabilities; nothing else can be.
const LOGPROBS: &str = "message.output_text.logprobs";

/// A request. Some of its fields mean nothing to us, and are told as they came.
#[derive(Debug, Deserialize)]
pub(crate) struct ResponseRequest {
    input: Value,
    model: Option<String>,
    instructions: Option<String>,
    stream: Option<bool>,
    #[serde(default, deserialize_with = "crate::body::object")]
    stream_options: Option<StreamOptions>,
    max_output_tokens: Option<usize>,
    stop: Option<OneOrMore>,
    seed: Option<i64>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<usize>,
    min_p: Option<f32>,
    typical_p: Option<f32>,
    repeat_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    logit_bias: Option<BTreeMap<String, f32>>,
    include: Option<Vec<String>>,
    top_logprobs: Option<usize>,
    #[serde(default, deserialize_with = "crate::body::object")]
    text: Option<Text>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    reasoning: Option<Map<String, Value>>,
    /// Further variables of the chat template.
    chat_template_kwargs: Option<Map<String, Value>>,
    metadata: Option<BTreeMap<String, String>>,
    user: Option<String>,
    safety_identifier: Option<String>,
    prompt_cache_key: Option<String>,
    service_tier: Option<Tier>,
    truncation: Option<String>,
    store: Option<bool>,
    background: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    include_obfuscation: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
struct Text {
    format: Option<Format>,
    verbosity: Option<String>,
}

/// What the text must look like.
#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Format {
    Text {},
    JsonObject {},
    JsonSchema { name: String, schema: Value, description: Option<String>, strict: Option<bool> },
}

impl Format {
    fn constraint(&self) -> Option<Constraint> {
        match self {
            Self::Text {} => None,
            Self::JsonObject {} => Some(Constraint::JsonObject),
            Self::JsonSchema { schema, .. } => Some(Constraint::Schema(schema.to_string())),
        }
    }
}

/// A request that makes sense.
pub(super) struct Understood {
    pub(super) messages: Vec<Message>,
    pub(super) system: Option<String>,
    pub(super) tools: Option<ToolUse>,
    pub(super) extra: Map<String, Value>,
    pub(super) options: GenerateOptions,
    pub(super) tier: Tier,
    pub(super) how: How,
}

/// How the response is to be sent.
pub(super) struct How {
    pub(super) stream: bool,
    pub(super) logprobs: bool,
    /// What was asked for, as the response tells it.
    pub(super) settings: Value,
}

impl Ask for ResponseRequest {
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

impl ResponseRequest {
    pub(super) fn into_ask(mut self) -> Result<Understood, Refusal> {
        self.refuse_unsupported()?;
        let n_logprobs = self.n_logprobs()?;
        let tools = self.tools.take().unwrap_or_default().into_iter().map(Tool::read).collect::<Result<Vec<_>, _>>()?;
        let format = self.text.take().unwrap_or_default().format.unwrap_or(Format::Text {});
        let settings = self.settings(&tools, &format);
        let choice = self.tool_choice.take().map(|choice| nested_choice(&choice)).transpose()?;
        let nested = (!tools.is_empty()).then(|| tools.iter().map(Tool::nested).collect());
        let tools = tool_use(nested, choice, self.parallel_tool_calls)?;
        let constraint = format.constraint();
        if constraint.is_some() && tools.as_ref().is_some_and(|tools| tools.choice != ToolChoice::None) {
            let message = "a format cannot be combined with tools; tool_choice: \"none\" may";
            return Err(Refusal::field("text.format", message));
        }
        let mut messages = input::messages(std::mem::take(&mut self.input))?;
        let system = input::system(self.instructions.take(), &mut messages);
        let how = How { stream: self.stream == Some(true), logprobs: n_logprobs.is_some(), settings };
        let (extra, tier) = (variables(self.chat_template_kwargs.take())?, self.service_tier.unwrap_or_default());
        let options = GenerateOptions { constraint, ..self.into_wanted(n_logprobs).into_options()? };
        Ok(Understood { messages, system, tools, extra, options, tier, how })
    }

    fn refuse_unsupported(&self) -> Result<(), Refusal> {
        let refuse = |name: &str, message: &str| Err(Refusal::field(name, message));
        if self.store == Some(true) {
            return refuse("store", "this server stores nothing");
        }
        if self.background == Some(true) {
            return refuse("background", "this server stores nothing that could be asked for later");
        }
        if self.truncation.as_ref().is_some_and(|how| how != "disabled") {
            return refuse("truncation", "a conversation that is too long is refused; nothing is left out of it");
        }
        if self.stream_options.as_ref().is_some_and(|options| options.include_obfuscation == Some(true)) {
            return refuse("stream_options", "include_obfuscation is not supported");
        }
        if let Some((name, _)) = self.reasoning.iter().flatten().find(|(_, value)| !value.is_null()) {
            return Err(Refusal::field(format!("reasoning.{name}"), "how a model thinks cannot be chosen"));
        }
        if self.text.as_ref().and_then(|text| text.verbosity.as_ref()).is_some_and(|how| how != "medium") {
            return refuse("text.verbosity", "how much a model says cannot be chosen");
        }
        Ok(())
    }

    fn n_logprobs(&self) -> Result<Option<usize>, Refusal> {
        let include = self.include.as_deref().unwrap_or_default();
        if let Some(other) = include.iter().find(|&name| name != LOGPROBS) {
            return Err(Refusal::field("include", format!("{other:?} is not supported")));
        }
        match (include.is_empty(), self.top_logprobs.unwrap_or(0)) {
            (_, n) if n > MAX_TOP_LOGPROBS => {
                Err(Refusal::field("top_logprobs", format!("{n}, expected at most {MAX_TOP_LOGPROBS}")))
            }
            (true, 0) => Ok(None),
            (true, _) => {
                Err(Refusal::field("top_logprobs", format!("it is of no use without include: [{LOGPROBS:?}]")))
            }
            (false, n) => Ok(Some(n)),
        }
    }

    fn settings(&self, tools: &[Tool], format: &Format) -> Value {
        let default = Sampling::default();
        json!({
            "background": false,
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "max_tool_calls": null,
            "metadata": self.metadata.clone().unwrap_or_default(),
            "parallel_tool_calls": self.parallel_tool_calls.unwrap_or(true),
            "previous_response_id": null,
            "prompt_cache_key": self.prompt_cache_key,
            "reasoning": { "effort": null, "summary": null },
            "safety_identifier": self.safety_identifier,
            "service_tier": self.service_tier.unwrap_or_default().name(),
            "store": false,
            "temperature": number(self.temperature.unwrap_or(default.temperature)),
            "text": { "format": format, "verbosity": "medium" },
            "tool_choice": self.tool_choice.clone().unwrap_or_else(|| "auto".into()),
            "tools": tools,
            "top_logprobs": self.top_logprobs.unwrap_or(0),
            "top_p": number(self.top_p.unwrap_or(default.top_p)),
            "truncation": "disabled",
            "user": self.user,
        })
    }

    fn into_wanted(self, n_logprobs: Option<usize>) -> Wanted {
        Wanted {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            min_p: self.min_p,
            typical_p: self.typical_p,
            repeat_penalty: self.repeat_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            logit_bias: self.logit_bias,
            seed: self.seed,
            stop: self.stop,
            max_tokens: self.max_output_tokens,
            n_logprobs,
        }
    }
}

/// As it is written: 0.8, and not the next number of 32 bits to it.
fn number(x: f32) -> Option<f64> {
    x.to_string().parse().ok()
}

/// What the engine refuses, by the names that fields have here.
pub(super) fn as_named_here(refusal: Refusal) -> Refusal {
    match refusal.param.as_deref() {
        Some("messages") => refusal.about("input"),
        Some("response_format") => refusal.about("text.format"),
        _ => refusal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(fields: Value) -> Result<Understood, Refusal> {
        let mut body = json!({ "input": "Hello!" });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        crate::body::parse::<ResponseRequest>(body.to_string().as_bytes(), &[], &crate::remarks::Remarks::default())?
            .into_ask()
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let wrong = [
            ("store", json!(true)),
            ("background", json!(true)),
            ("previous_response_id", json!("resp_1")),
            ("conversation", json!("conv_1")),
            ("prompt", json!({ "id": "p" })),
            ("max_tool_calls", json!(1)),
            ("truncation", json!("auto")),
            ("stream_options", json!({ "include_obfuscation": true })),
            ("include", json!(["reasoning.encrypted_content"])),
            ("top_logprobs", json!(2)),
            ("tools", json!([{ "type": "web_search" }])),
            ("tool_choice", json!("required")),
            ("service_tier", json!("scale")),
            ("input", json!(1)),
            ("text", json!({ "format": { "type": "xml" } })),
            ("chat_template_kwargs", json!({ "messages": [] })),
        ];
        for (name, value) in wrong {
            let refusal = ask(json!({ name: value })).err();
            assert_eq!(refusal.and_then(|refusal| refusal.param).as_deref(), Some(name));
        }
        let param = |fields| ask(fields).err().and_then(|refusal| refusal.param);
        assert_eq!(param(json!({ "reasoning": { "effort": "low" } })).as_deref(), Some("reasoning.effort"));
        assert_eq!(param(json!({ "text": { "verbosity": "low" } })).as_deref(), Some("text.verbosity"));
    }

    #[test]
    fn what_is_so_anyway_is_taken_and_told() {
        let text = json!({ "verbosity": "medium", "format": { "type": "json_object" } });
        let usual = json!({
            "store": false, "background": false, "truncation": "disabled", "reasoning": { "effort": null },
            "include": [], "text": text, "metadata": { "a": "b" }, "temperature": 0.7, "conversation": null,
        });
        let asked = ask(usual).map_err(|refusal| refusal.message).unwrap();
        let settings = asked.how.settings;
        assert_eq!((&settings["store"], &settings["text"]), (&json!(false), &text));
        assert_eq!((&settings["temperature"], &settings["metadata"]["a"]), (&json!(0.7), &json!("b")));
        assert!(matches!(asked.options.constraint, Some(Constraint::JsonObject)));
    }
}
