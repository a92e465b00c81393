//! `--stats-json`: what a run did, as one JSON object whose keys are a contract.
//!
//! Every key is always there. `finish_reason` is stop, length, interrupted or error; with the last
//! there is `error` too. `generated_tokens` counts the token that ends the text, which is chosen
//! like any other and costs as much, although no text comes from it. Times are seconds, rates
//! tokens per second.
//!
//! `cached_tokens` are those of `prompt_tokens` whose state was there already, in the context of a
//! chat or a cache; they are no part of `prefill_tok_s`. `restore_s` is how long it took to get
//! them from a cache.
//!
//! Of a chat the object is about the last answer, and `turns` has those four of every one:
//! `prompt_tokens`, `cached_tokens`, `generated_tokens` and `finish_reason`.
//!
//! Null is what nobody can say: memory off Linux, `io_wait_s` of a mapped model, since waiting for
//! a page cannot be told from computing, and `predicted_decode_tok_s` of weights that are in
//! memory.

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
};

#[cfg(feature = "chat")]
use atta::chat::Reply;
use atta::{
    Engine, FinishReason, Io, Item, Summary, WeightsAt,
    system::{self, Usage},
};
use serde_json::{Value, json};

use crate::{
    cache::Recalled, failure::Failure, inputs::Inputs, json, memory::PeakPrivate, output::NewFile,
    report::weights_name,
};

/// What is known of a run so far; a run that fails leaves the rest at zero.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) n_prompt: usize,
    pub(crate) n_generated: usize,
    /// How many of them needed no computing.
    n_cached: usize,
    restore_s: f64,
    /// The answers of a chat, oldest first; none for a single text.
    turns: Option<Vec<Value>>,
    pub(crate) peak: PeakPrivate,
    load_s: f64,
    summary: Option<Summary>,
    memory: Vec<Item>,
    weights: Option<WeightsAt>,
    io: Io,
    predicted_tok_s: Option<f64>,
}

impl Stats {
    pub(crate) fn new() -> Self {
        let mut stats = Self::default();
        stats.peak.sample();
        stats
    }

    /// The same for a chat, which has answers where a text has none.
    #[cfg(feature = "chat")]
    pub(crate) fn of_chat() -> Self {
        Self {
            turns: Some(Vec::new()),
            ..Self::new()
        }
    }

    /// The model is there.
    pub(crate) fn loaded(&mut self, engine: &Engine) {
        self.load_s = engine.load_time().as_secs_f64();
        self.weights = Some(engine.weights_at());
        self.predicted_tok_s = engine
            .prediction()
            .map(|prediction| prediction.decode_tok_s);
        self.account(engine);
        self.peak.sample();
    }

    /// A part of the prompt did not have to be read.
    pub(crate) fn recalled(&mut self, Recalled { n_tokens, time }: Recalled) {
        (self.n_cached, self.restore_s) = (n_tokens, time.as_secs_f64());
    }

    /// Takes down what memory is reserved for, which is the most while a session lives.
    pub(crate) fn account(&mut self, engine: &Engine) {
        self.memory = engine.budget().items();
        self.io = engine.model().weights().io();
    }

    /// The generation has ended.
    pub(crate) fn generated(&mut self, summary: Summary) {
        (self.n_prompt, self.n_generated) = (self.n_cached + summary.n_prompt, summary.n_generated);
        self.summary = Some(summary);
        self.peak.sample();
    }

    /// An answer has ended; it is the one that the object is about, until the next.
    #[cfg(feature = "chat")]
    pub(crate) fn answered(&mut self, reply: Reply) {
        self.recalled(Recalled {
            n_tokens: reply.n_cached,
            time: reply.restore_time,
        });
        self.generated(reply.summary);
        let turn = json!({
            "prompt_tokens": self.n_prompt,
            "cached_tokens": self.n_cached,
            "generated_tokens": self.n_generated,
            "finish_reason": self.finish_reason(None),
        });
        self.turns.get_or_insert_default().push(turn);
    }

    /// Writes the object.
    fn write(&self, mut file: NewFile, failure: Option<&Failure>) -> Result<(), Failure> {
        file.write((json::pretty(&self.to_json(failure)) + "\n").as_bytes())?;
        file.finish()
    }

    fn to_json(&self, failure: Option<&Failure>) -> Value {
        let seconds = |of: fn(&Summary) -> f64| self.summary.as_ref().map_or(0.0, of);
        let memory: Vec<Value> = self
            .memory
            .iter()
            .map(|i| json!({ "name": i.name, "bytes": i.bytes }))
            .collect();
        let mut object = json!({
            "prompt_tokens": self.n_prompt,
            "cached_tokens": self.n_cached,
            "generated_tokens": self.n_generated,
            "finish_reason": self.finish_reason(failure),
            "load_s": self.load_s,
            "restore_s": self.restore_s,
            "prefill_s": seconds(|s| s.prefill_time.as_secs_f64()),
            "decode_s": seconds(|s| s.decode_time.as_secs_f64()),
            "prefill_tok_s": seconds(Summary::prefill_tok_s),
            "decode_tok_s": seconds(Summary::decode_tok_s),
            "peak_rss_bytes": Usage::now().map(|usage| usage.hwm),
            "peak_rss_anon_bytes": self.peak.bytes(),
            "memory": memory,
            "weights": self.weights.map(weights_name),
            "pinned_bytes": self.io.pinned_bytes,
            "read_bytes": system::read_bytes(),
            "predicted_decode_tok_s": self.predicted_tok_s,
            "io_wait_s": self.weights.filter(|&at| at != WeightsAt::Mapped).map(|_| self.io.wait.as_secs_f64()),
        });
        if let Some(turns) = &self.turns {
            object["turns"] = json!(turns);
        }
        if let Some(Failure::Failed(message) | Failure::Usage(message)) = failure {
            object["error"] = json!(message);
        }
        object
    }

    fn finish_reason(&self, failure: Option<&Failure>) -> &'static str {
        match (failure, &self.summary) {
            (Some(Failure::Interrupted | Failure::ClosedPipe), _) => "interrupted",
            (None, None) if self.turns.is_some() => "stop",
            (Some(_), _) | (None, None) => "error",
            (None, Some(summary)) => match summary.finish_reason {
                FinishReason::Stop => "stop",
                FinishReason::Length => "length",
                FinishReason::Interrupted => "interrupted",
            },
        }
    }
}

/// The file of `--stats-json`, if asked for. Whoever ends the run writes it.
pub(crate) struct StatsFile(Mutex<Option<NewFile>>);

impl StatsFile {
    /// Opens it now, so that a path that cannot be written to is found out before the work and not
    /// after it.
    pub(crate) fn create(path: Option<&Path>, inputs: &Inputs) -> Result<Self, Failure> {
        Ok(Self(Mutex::new(
            path.map(|path| NewFile::create(path, inputs)).transpose()?,
        )))
    }

    /// The failure of a run that has not begun, once it is written down; that the command line was
    /// wrong is not.
    pub(crate) fn of_failure(
        path: Option<&Path>,
        inputs: &Inputs,
        stats: &Stats,
        failure: Failure,
    ) -> Failure {
        if !matches!(failure, Failure::Usage(_)) {
            // Of two failures the first is the one to hear of.
            let _ = Self::create(path, inputs).and_then(|file| file.write(stats, Some(&failure)));
        }
        failure
    }

    /// Writes it, the first time it is called.
    pub(crate) fn write(&self, stats: &Stats, failure: Option<&Failure>) -> Result<(), Failure> {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        file.map_or(Ok(()), |file| stats.write(file, failure))
    }

    /// Writes it where nobody is left to hear of a failure but standard error.
    pub(crate) fn give_up(&self, stats: &Stats) {
        if let Err(failure) = self.write(stats, Some(&Failure::Interrupted)) {
            failure.report();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_failed_at_once_still_has_every_key() {
        let json = Stats::default().to_json(Some(&Failure::Failed("no".into())));
        assert_eq!(
            (&json["finish_reason"], &json["error"]),
            (&json!("error"), &json!("no"))
        );
        assert_eq!(
            (&json["prompt_tokens"], &json["memory"]),
            (&json!(0), &json!([]))
        );
    }

    #[test]
    fn a_reader_who_has_enough_is_no_error() {
        let json = Stats::default().to_json(Some(&Failure::ClosedPipe));
        assert_eq!(json["finish_reason"], "interrupted");
        assert!(json.get("error").is_none());
    }
}
