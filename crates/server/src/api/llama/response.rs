//! Answers as llama.cpp's server writes them: one object, a list of them, or events.

use std::sync::Arc;

use atta_engine::{FinishReason, GenerateOptions, LogProb, tools::Piece};
use axum::{
    Json,
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};

use super::options;
use crate::{
    api::flavor::ApiFlavor,
    flow::logprobs::TokenLogprobs,
    flow::{
        answer::{AnswerEnd, AnswerEvent, Answers},
        error::ApiError,
        prepare::{self, Prepared},
        stream::{self, Event, EventWriter},
    },
    models::Model,
};

/// Urgency of a request, the same as that of others that do not say.
const PRIORITY: u8 = 1;

/// How answers are to be sent.
pub(super) struct AnswerPlan {
    /// Whether the answer is a list, as the prompt is.
    pub(super) is_list: bool,
    pub(super) is_stream: bool,
    /// Whether the ids of tokens are told.
    pub(super) with_tokens: bool,
    /// Fields of the answer that are wanted, inner ones behind a slash; none: all.
    pub(super) fields: Vec<String>,
    /// Whether log-probabilities are told.
    with_probs: bool,
    settings: Map<String, Value>,
    prompts: Vec<String>,
}

/// How a client wants its answers.
#[derive(Debug, Default)]
pub(super) struct Wish {
    pub(super) is_list: bool,
    pub(super) is_stream: bool,
    pub(super) with_tokens: bool,
    pub(super) fields: Vec<String>,
}

/// Jobs that go on with prompts.
pub(super) fn prepared(
    model: &Model,
    prompts: &[Vec<u32>],
    mut options: GenerateOptions,
    wish: Wish,
) -> Result<(Prepared, AnswerPlan), ApiError> {
    let Wish {
        is_list,
        is_stream,
        with_tokens,
        fields,
    } = wish;
    let with_probs = options.n_logprobs.is_some();
    let settings = options::to_json(&options);
    if with_tokens && !with_probs {
        // Ids come with log-probabilities, of which none but the token's own is computed then.
        options.n_logprobs = Some(0);
    }
    let text = |ids: &Vec<u32>| {
        String::from_utf8_lossy(&model.engine.tokenizer().decode(ids)).into_owned()
    };
    let plan = AnswerPlan {
        is_list,
        is_stream,
        with_tokens,
        fields,
        with_probs,
        settings,
        prompts: prompts.iter().map(text).collect(),
    };
    let prepared = prepare::texts(model, prompts, &options, 1).map_err(in_our_words)?;
    Ok((prepared.with_priority(PRIORITY), plan))
}

/// Fields by their names in this interface.
fn in_our_words(error: ApiError) -> ApiError {
    let is_grammar = error.param.as_deref() == Some("response_format");
    let error = error.renamed("messages", "prompt");
    if is_grammar {
        error.renamed("response_format", "grammar")
    } else {
        error
    }
}

/// Sends answers.
pub(super) async fn respond(answers: Answers, plan: AnswerPlan) -> Result<Response, ApiError> {
    let n = answers.len();
    let teller = Teller {
        model: Arc::clone(answers.model()),
        plan,
        texts: vec![String::new(); n],
        held: vec![None; n],
        thoughts: (0..n).map(|_| Vec::new()).collect(),
        n_written: vec![0; n],
    };
    if teller.plan.is_stream {
        Ok(stream::events(answers, teller))
    } else {
        teller.whole(answers).await
    }
}

struct Teller {
    model: Arc<Model>,
    plan: AnswerPlan,
    /// What each answer is so far.
    texts: Vec<String>,
    /// Text of each that waits for the token that comes with it.
    held: Vec<Option<String>>,
    /// Tokens of each, if they are told; in a stream, those that were not told yet.
    thoughts: Vec<Vec<TokenLogprobs>>,
    n_written: Vec<usize>,
}

impl Teller {
    async fn whole(mut self, mut answers: Answers) -> Result<Response, ApiError> {
        let mut objects: Vec<Option<Value>> = vec![None; answers.len()];
        while let Some(event) = answers.next().await {
            match event? {
                (i, AnswerEvent::Piece(Piece::Text(text))) => self.texts[i].push_str(&text),
                (_, AnswerEvent::Piece(_)) => {}
                (i, AnswerEvent::Logprobs(thought)) => self.thoughts[i].push(thought),
                (i, AnswerEvent::End(end)) => {
                    let thoughts = std::mem::take(&mut self.thoughts[i]);
                    let mut object = self.last(i, &end, &thoughts);
                    object["content"] = end.outcome.text.as_str().into();
                    objects[i] = Some(selected(object, &self.plan.fields));
                }
            }
        }
        let mut objects: Vec<Value> = objects.into_iter().flatten().collect();
        let body = if self.plan.is_list {
            objects.into()
        } else {
            objects.pop().unwrap_or_default()
        };
        Ok(Json(body).into_response())
    }

    /// A part of an answer.
    fn part(&self, i: usize, content: &str, thoughts: &[TokenLogprobs]) -> Value {
        let mut part = json!({
            "index": i, "content": content, "tokens": self.ids(thoughts), "stop": false, "id_slot": -1,
            "tokens_predicted": self.n_written[i], "tokens_evaluated": 0,
        });
        self.add_probs(&mut part, thoughts);
        part
    }

    fn ids(&self, thoughts: &[TokenLogprobs]) -> Vec<u32> {
        let ids = thoughts.iter().map(|thought| thought.chosen.id);
        if self.plan.with_tokens || self.plan.is_stream {
            ids.collect()
        } else {
            Vec::new()
        }
    }

    fn add_probs(&self, object: &mut Value, thoughts: &[TokenLogprobs]) {
        if self.plan.with_probs && !thoughts.is_empty() {
            let all = thoughts
                .iter()
                .map(|thought| probabilities(&self.model, thought));
            object["completion_probabilities"] = all.collect();
        }
    }

    /// All but the text of a complete answer.
    fn last(&self, i: usize, end: &AnswerEnd, thoughts: &[TokenLogprobs]) -> Value {
        let done = &end.done;
        let kind = match (done.finish_reason, &done.stop) {
            (FinishReason::Length, _) => "limit",
            (_, Some(_)) => "word",
            _ => "eos",
        };
        let text = if self.plan.is_stream {
            &self.texts[i]
        } else {
            &end.outcome.text
        };
        let mut object = json!({
            "index": i, "content": "", "tokens": self.ids(thoughts), "id_slot": -1, "stop": true,
            "model": self.model.name, "tokens_predicted": done.n_generated, "tokens_evaluated": done.n_prompt,
            "generation_settings": self.plan.settings, "prompt": self.plan.prompts[i],
            "has_new_line": text.contains('\n'), "truncated": false, "stop_type": kind,
            "stopping_word": done.stop.as_deref().unwrap_or_default(),
            "tokens_cached": done.n_prompt + done.n_generated, "timings": end.timings(),
        });
        if !self.plan.is_stream {
            self.add_probs(&mut object, thoughts);
        }
        object
    }
}

impl EventWriter for Teller {
    fn begin(&mut self) -> Vec<Event> {
        Vec::new()
    }

    fn write(&mut self, i: usize, event: AnswerEvent) -> Vec<Event> {
        let waits = self.plan.with_probs || self.plan.with_tokens;
        match event {
            AnswerEvent::Piece(Piece::Text(text)) => {
                self.texts[i].push_str(&text);
                if waits {
                    let held = self.held[i].replace(text);
                    return held
                        .map(|held| self.part(i, &held, &[]).into())
                        .into_iter()
                        .collect();
                }
                self.n_written[i] += 1;
                vec![self.part(i, &text, &[]).into()]
            }
            AnswerEvent::Logprobs(thought) => {
                self.n_written[i] += 1;
                let text = self.held[i].take().unwrap_or_default();
                vec![self.part(i, &text, &[thought]).into()]
            }
            AnswerEvent::End(end) => {
                let held = self.held[i]
                    .take()
                    .map(|text| self.part(i, &text, &[]).into());
                let last = selected(self.last(i, &end, &[]), &self.plan.fields).into();
                held.into_iter().chain([last]).collect()
            }
            AnswerEvent::Piece(_) => Vec::new(),
        }
    }

    fn end(&mut self) -> Vec<Event> {
        Vec::new()
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        vec![ApiFlavor::OpenAi.error(error, None).into()]
    }
}

/// The fields that a client wants, each by the name that it gave.
fn selected(object: Value, fields: &[String]) -> Value {
    if fields.is_empty() {
        return object;
    }
    let found = |name: &String| Some((name.clone(), object.pointer(&format!("/{name}"))?.clone()));
    Value::Object(fields.iter().filter_map(found).collect())
}

/// A token with its log-probability, and those of others at its place.
fn probabilities(model: &Model, thought: &TokenLogprobs) -> Value {
    let one = |token: LogProb| {
        let bytes = model.engine.tokenizer().token_bytes(token.id);
        let text = String::from_utf8_lossy(&bytes);
        // One that is impossible has no number in JSON.
        json!({ "id": token.id, "token": text, "bytes": bytes, "logprob": token.logprob.max(-9999.0) })
    };
    let mut entry = one(thought.chosen);
    entry["top_logprobs"] = thought.top.iter().map(|&token| one(token)).collect();
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
