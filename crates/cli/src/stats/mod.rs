//! `--stats-json`: the statistics of a run, as one JSON object whose keys are a contract.
//!
//! Every key is always there. `finish_reason` is stop, length, interrupted or error; an error adds
//! the key `error`. `generated_tokens` counts the end-of-generation token, which costs as much as
//! any other token and adds no text. Times are seconds, rates tokens per second.
//!
//! `cached_tokens` counts the tokens of `prompt_tokens` whose KV cache was reused, from the context
//! of a chat or from the prompt cache; `prefill_tok_s` excludes them. `restore_s` is the time to
//! restore them from the prompt cache.
//!
//! The object of a chat describes the last answer. `turns` lists `prompt_tokens`, `cached_tokens`,
//! `generated_tokens` and `finish_reason` of every answer.
//!
//! `speculation` has the steps that selected tokens, the tokens of drafts that were evaluated and
//! that were right, and in `off` why there are no drafts; it is null without speculation.
//!
//! `expert_uses` counts the experts that steps used, one in a batch counted once, `expert_misses`
//! those that were neither in memory nor being read.
//!
//! A value that is not known is null: memory off Linux, `io_wait_s` of a mapped model, where a page
//! fault looks like computing, and `predicted_decode_tok_s` of weights in memory; threads, where no
//! model was loaded.

#[cfg(feature = "chat")]
mod chat;

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use atta::{
    BudgetItem, Engine, FinishReason, Io, Summary, WeightsAt,
    system::{self, Usage},
};
use serde_json::{Value, json};

use crate::{
    failure::Failure, inputs::InputFiles, json, memory::PeakPrivate, output::NewFile,
    report::weights_name,
};

/// The tokens of a prompt whose KV cache was reused.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CachedPrefix {
    pub(crate) n_tokens: usize,
    /// How long restoring them took.
    pub(crate) time: Duration,
}

/// The statistics of a run so far; a run that fails leaves the rest at zero.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) n_prompt: usize,
    pub(crate) n_generated: usize,
    cached: CachedPrefix,
    /// The answers of a chat, oldest first; `None` for a single text.
    turns: Option<Vec<Value>>,
    pub(crate) peak: PeakPrivate,
    load_s: f64,
    summary: Option<Summary>,
    memory: Vec<BudgetItem>,
    weights: Option<WeightsAt>,
    io: Io,
    predicted_tok_s: Option<f64>,
    /// Threads of single tokens, and of prompts.
    threads: Option<[usize; 2]>,
}

impl Stats {
    pub(crate) fn new() -> Self {
        let mut stats = Self::default();
        stats.peak.sample();
        stats
    }

    /// Records the loaded model.
    pub(crate) fn loaded(&mut self, engine: &Engine) {
        self.load_s = engine.load_time().as_secs_f64();
        self.weights = Some(engine.weights_at());
        self.predicted_tok_s = engine.predicted_tok_s();
        self.account(engine);
        self.peak.sample();
    }

    /// Records the part of the prompt that was not computed.
    pub(crate) fn reused(&mut self, cached: CachedPrefix) {
        self.cached = cached;
    }

    /// Records the reserved memory, which is largest while a session lives.
    pub(crate) fn account(&mut self, engine: &Engine) {
        self.memory = engine.budget().items();
        self.io = engine.model().weights().io();
        let threads = engine.step_threads();
        self.threads = Some([threads.n_decode(), threads.n_prompt()]);
    }

    /// Records the end of a generation.
    pub(crate) fn generated(&mut self, summary: Summary) {
        self.n_prompt = self.cached.n_tokens + summary.n_prompt;
        self.n_generated = summary.n_generated;
        self.summary = Some(summary);
        self.peak.sample();
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
        let is_read = self.weights.is_some_and(|at| at != WeightsAt::Mapped);
        let io_wait_s = is_read.then_some(self.io.wait.as_secs_f64());
        let mut object = json!({
            "prompt_tokens": self.n_prompt,
            "cached_tokens": self.cached.n_tokens,
            "generated_tokens": self.n_generated,
            "finish_reason": self.finish_reason(failure),
            "load_s": self.load_s,
            "restore_s": self.cached.time.as_secs_f64(),
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
            "io_wait_s": io_wait_s,
            "expert_uses": self.io.n_expert_uses,
            "expert_misses": self.io.n_expert_misses,
            "decode_threads": self.threads.map(|[decode, _]| decode),
            "prompt_threads": self.threads.map(|[_, prompt]| prompt),
            "speculation": self.summary.as_ref().and_then(speculation),
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

/// How the drafts of a text went; `None` without speculation.
fn speculation(summary: &Summary) -> Option<Value> {
    let stats = summary.speculation?;
    Some(json!({
        "steps": stats.n_steps,
        "drafted_tokens": stats.n_drafted,
        "accepted_tokens": stats.n_accepted,
        "tokens_per_step": summary.n_generated as f64 / stats.n_steps.max(1) as f64,
        "off": stats.off.map(|why| why.to_string()),
    }))
}

/// The file of `--stats-json`, if asked for. The thread that ends the run writes it.
pub(crate) struct StatsFile(Mutex<Option<NewFile>>);

impl StatsFile {
    /// Creates the file before the work, so that a path that cannot be written to is an early
    /// error.
    pub(crate) fn create(path: Option<&Path>, inputs: &InputFiles) -> Result<Self, Failure> {
        Ok(Self(Mutex::new(
            path.map(|path| NewFile::create(path, inputs)).transpose()?,
        )))
    }

    /// Writes the failure of a run that has not begun, and returns it. Wrong usage writes no file.
    pub(crate) fn of_failure(
        path: Option<&Path>,
        inputs: &InputFiles,
        stats: &Stats,
        failure: Failure,
    ) -> Failure {
        if !matches!(failure, Failure::Usage(_)) {
            // Of two failures the first is reported.
            let _ = Self::create(path, inputs).and_then(|file| file.write(stats, Some(&failure)));
        }
        failure
    }

    /// Writes the statistics once; later calls do nothing.
    pub(crate) fn write(&self, stats: &Stats, failure: Option<&Failure>) -> Result<(), Failure> {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        file.map_or(Ok(()), |file| stats.write(file, failure))
    }

    /// Writes the statistics of a run that ends by Ctrl-C; a failure goes to standard error.
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
