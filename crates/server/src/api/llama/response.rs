//! Responses of llama.cpp's server: one object, a list of objects, or events.

use std::sync::Arc;

use atta_engine::{GenerateOptions, LogProb};
use axum::{
    Json,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{LlamaPrompts, options};
use crate::{
    api::flavor::ApiFlavor,
    flow::{
        answer::{AnswerEnd, AnswerEvent, Answers, StopReason},
        error::ApiError,
        logprobs::{LogprobPairing, PairedEvent, TokenLogprobs, finite},
        prepare::{self, Prepared},
        stream::{self, EventWriter, StreamEvent},
        usage,
    },
    models::Model,
};

/// The fields of a request about its response.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ReplyFields {
    stream: Option<bool>,
    return_tokens: Option<bool>,
    response_fields: Option<Vec<String>>,
}

/// How the answers are sent.
pub(super) struct LlamaReply {
    /// Whether the response is a list, because the prompt is one.
    is_list: bool,
    stream: bool,
    with_tokens: bool,
    with_probs: bool,
    /// Names of the wanted fields, such as `timings/predicted_n`; none: all.
    fields: Vec<String>,
    /// `generation_settings`.
    settings: Map<String, Value>,
    /// The texts of the prompts.
    prompts: Vec<String>,
}

/// A prompt as text.
fn decoded(model: &Model, ids: &[u32]) -> String {
    String::from_utf8_lossy(&model.engine.tokenizer().decode(ids)).into_owned()
}

/// Prepares a continuation of each prompt.
pub(super) fn prepare(
    model: &Model,
    prompts: &LlamaPrompts,
    mut options: GenerateOptions,
    fields: ReplyFields,
) -> Result<(Prepared, LlamaReply), ApiError> {
    let reply = LlamaReply {
        is_list: prompts.is_list,
        stream: fields.stream == Some(true),
        with_tokens: fields.return_tokens == Some(true),
        with_probs: options.n_logprobs.is_some(),
        fields: fields.response_fields.unwrap_or_default(),
        settings: options::to_json(&options),
        prompts: prompts.ids.iter().map(|ids| decoded(model, ids)).collect(),
    };
    if reply.with_tokens && !reply.with_probs {
        // Ids come with log-probabilities; that of the sampled token alone costs little.
        options.n_logprobs = Some(0);
    }
    let prepared = prepare::continuations(model, &prompts.ids, &options, 1);
    Ok((prepared.map_err(renamed)?, reply))
}

/// An error of the engine, with the names that fields have in this interface.
fn renamed(error: ApiError) -> ApiError {
    error
        .renamed("messages", "prompt")
        .renamed("response_format", "grammar")
}

/// Sends the answers.
pub(super) async fn respond(answers: Answers, reply: LlamaReply) -> Result<Response, ApiError> {
    let is_stream = reply.stream;
    let writer = LlamaWriter::new(Arc::clone(answers.model()), reply, answers.len());
    if is_stream {
        Ok(stream::events(answers, writer))
    } else {
        writer.whole(answers).await
    }
}

/// Writes the events of a streamed response, or the objects of another one.
struct LlamaWriter {
    model: Arc<Model>,
    reply: LlamaReply,
    answers: Vec<AnswerSoFar>,
}

struct AnswerSoFar {
    text: String,
    n_tokens: usize,
    pairing: LogprobPairing,
}

impl LlamaWriter {
    fn new(model: Arc<Model>, reply: LlamaReply, n_answers: usize) -> Self {
        let answer = || AnswerSoFar {
            text: String::new(),
            n_tokens: 0,
            pairing: LogprobPairing::new(reply.with_probs || reply.with_tokens),
        };
        let answers = (0..n_answers).map(|_| answer()).collect();
        Self {
            model,
            reply,
            answers,
        }
    }

    async fn whole(self, mut answers: Answers) -> Result<Response, ApiError> {
        let mut logprobs: Vec<Vec<TokenLogprobs>> =
            (0..answers.len()).map(|_| Vec::new()).collect();
        let mut objects = vec![Value::Null; answers.len()];
        while let Some(event) = answers.next().await {
            match event? {
                (_, AnswerEvent::Piece(_)) => {}
                (i, AnswerEvent::Logprobs(one)) => logprobs[i].push(one),
                (i, AnswerEvent::End(end)) => {
                    let logprobs = std::mem::take(&mut logprobs[i]);
                    let mut object = self.last(i, &end, &end.outcome.text);
                    object["content"] = end.outcome.text.as_str().into();
                    if self.reply.with_tokens {
                        object["tokens"] = ids(&logprobs);
                    }
                    self.add_probabilities(&mut object, &logprobs);
                    objects[i] = selected(object, &self.reply.fields);
                }
            }
        }
        let body = if self.reply.is_list {
            objects.into()
        } else {
            objects.pop().unwrap_or_default()
        };
        Ok(Json(body).into_response())
    }

    /// An event in front of the last one.
    fn part(&mut self, i: usize, text: &str, logprobs: Option<TokenLogprobs>) -> Value {
        let answer = &mut self.answers[i];
        answer.text.push_str(text);
        // Text whose log-probabilities did not come was forced by a grammar.
        let waits = self.reply.with_probs || self.reply.with_tokens;
        answer.n_tokens += usize::from(logprobs.is_some() || !waits);
        let logprobs: Vec<TokenLogprobs> = logprobs.into_iter().collect();
        let mut part = json!({
            "index": i,
            "content": text,
            "tokens": ids(&logprobs),
            "stop": false,
            "id_slot": -1,
            "tokens_predicted": answer.n_tokens,
            "tokens_evaluated": 0,
        });
        self.add_probabilities(&mut part, &logprobs);
        part
    }

    fn add_probabilities(&self, object: &mut Value, logprobs: &[TokenLogprobs]) {
        if self.reply.with_probs && !logprobs.is_empty() {
            let all = logprobs.iter();
            object["completion_probabilities"] =
                all.map(|one| probabilities(&self.model, one)).collect();
        }
    }

    /// The last event, without the text.
    fn last(&self, i: usize, end: &AnswerEnd, text: &str) -> Value {
        let done = &end.done;
        let stop_type = match end.stop_reason() {
            StopReason::Length => "limit",
            StopReason::StopString => "word",
            StopReason::ToolCalls | StopReason::EndOfText => "eos",
        };
        json!({
            "index": i,
            "content": "",
            "tokens": [],
            "id_slot": -1,
            "stop": true,
            "model": self.model.name,
            "tokens_predicted": done.n_generated,
            "tokens_evaluated": done.n_prompt,
            "generation_settings": self.reply.settings,
            "prompt": self.reply.prompts[i],
            "has_new_line": text.contains('\n'),
            "truncated": false,
            "stop_type": stop_type,
            "stopping_word": done.stop.as_deref().unwrap_or_default(),
            "tokens_cached": done.n_prompt + done.n_generated,
            "timings": usage::timings(done),
        })
    }
}

fn ids(logprobs: &[TokenLogprobs]) -> Value {
    logprobs.iter().map(|one| one.chosen.id).collect()
}

impl EventWriter for LlamaWriter {
    fn write(&mut self, i: usize, event: AnswerEvent) -> Vec<StreamEvent> {
        let mut events = Vec::new();
        for event in self.answers[i].pairing.push(event) {
            events.push(match event {
                PairedEvent::Text(text, logprobs) => self.part(i, &text, logprobs),
                PairedEvent::Piece(_) => continue,
                PairedEvent::End(end) => selected(
                    self.last(i, &end, &self.answers[i].text),
                    &self.reply.fields,
                ),
            });
        }
        events.into_iter().map(StreamEvent::from).collect()
    }

    fn fail(&mut self, error: &ApiError) -> Vec<StreamEvent> {
        vec![ApiFlavor::OpenAi.error(error, None).into()]
    }
}

/// The fields that `response_fields` names; those of inner objects are named by their path.
fn selected(object: Value, fields: &[String]) -> Value {
    if fields.is_empty() {
        return object;
    }
    let found = |name: &String| Some((name.clone(), object.pointer(&format!("/{name}"))?.clone()));
    Value::Object(fields.iter().filter_map(found).collect())
}

/// A token with its log-probability, and those of others at its position.
fn probabilities(model: &Model, logprobs: &TokenLogprobs) -> Value {
    let one = |token: LogProb| {
        let bytes = model.engine.tokenizer().token_bytes(token.id);
        let text = String::from_utf8_lossy(&bytes);
        let logprob = finite(token.logprob);
        json!({ "id": token.id, "token": text, "bytes": bytes, "logprob": logprob })
    };
    let mut entry = one(logprobs.chosen);
    let top = logprobs.top.iter();
    entry["top_logprobs"] = top.map(|&token| one(token)).collect();
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_the_fields_that_it_names_inner_ones_by_their_path() {
        let object =
            json!({ "content": "a", "generation_settings": { "n_predict": 3 }, "stop": true });
        let fields = ["content", "generation_settings/n_predict", "nothing"].map(str::to_owned);
        assert_eq!(
            selected(object.clone(), &fields),
            json!({ "content": "a", "generation_settings/n_predict": 3 })
        );
        assert_eq!(selected(object.clone(), &[]), object);
    }
}
