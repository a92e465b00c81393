//! What the server counts, in the text format of Prometheus.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::app::App;

/// Counts of requests.
#[derive(Default)]
pub(crate) struct Metrics {
    n_requests: AtomicU64,
    n_refused: AtomicU64,
    n_failed: AtomicU64,
    n_connections: AtomicU64,
}

impl Metrics {
    /// Notes a request that was answered with this status.
    pub(crate) fn request(&self, status: u16) {
        self.n_requests.fetch_add(1, Ordering::Relaxed);
        match status {
            400..500 => self.n_refused.fetch_add(1, Ordering::Relaxed),
            500.. => self.n_failed.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    /// Counts a connection as long as what is returned lives.
    pub(crate) fn connected(&self) -> Connected<'_> {
        self.n_connections.fetch_add(1, Ordering::Relaxed);
        Connected(self)
    }
}

/// An open connection.
pub(crate) struct Connected<'a>(&'a Metrics);

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.n_connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All of it.
pub(crate) fn text(app: &App) -> String {
    let (status, metrics) = (app.models.status(), &app.metrics);
    let (counts, loaded) = (status.counts, app.models.loaded());
    let memory: u64 = loaded
        .iter()
        .map(|model| model.engine.budget().used())
        .sum();
    let read = |n: &AtomicU64| n.load(Ordering::Relaxed) as f64;
    let rows = [
        (
            "atta_requests_total",
            "counter",
            "Requests answered",
            read(&metrics.n_requests),
        ),
        (
            "atta_requests_refused_total",
            "counter",
            "Requests answered with 4xx",
            read(&metrics.n_refused),
        ),
        (
            "atta_requests_failed_total",
            "counter",
            "Requests answered with 5xx",
            read(&metrics.n_failed),
        ),
        (
            "atta_connections",
            "gauge",
            "Connections that are open",
            read(&metrics.n_connections),
        ),
        (
            "atta_jobs_running",
            "gauge",
            "Texts that are read or written",
            status.n_running as f64,
        ),
        (
            "atta_jobs_waiting",
            "gauge",
            "Texts that wait for a place",
            status.n_waiting as f64,
        ),
        (
            "atta_steps_total",
            "counter",
            "Batches computed",
            counts.n_steps as f64,
        ),
        (
            "atta_prompt_tokens_total",
            "counter",
            "Tokens of prompts computed",
            counts.n_read as f64,
        ),
        (
            "atta_prompt_tokens_reused_total",
            "counter",
            "Tokens of prompts that were there",
            counts.n_reused as f64,
        ),
        (
            "atta_prompt_tokens_restored_total",
            "counter",
            "Tokens of prompts from the disk",
            counts.n_restored as f64,
        ),
        (
            "atta_generated_tokens_total",
            "counter",
            "Tokens written",
            counts.n_written as f64,
        ),
        (
            "atta_preemptions_total",
            "counter",
            "Texts that lost their place for a while",
            counts.n_preempted as f64,
        ),
        (
            "atta_evictions_total",
            "counter",
            "Kept texts given up",
            counts.n_evicted as f64,
        ),
        (
            "atta_step_gap_seconds_max",
            "gauge",
            "Longest time between two steps",
            status.max_gap.as_secs_f64(),
        ),
        (
            "atta_kv_tokens",
            "gauge",
            "Positions that are taken",
            status.n_positions as f64,
        ),
        (
            "atta_kv_tokens_max",
            "gauge",
            "Positions there are",
            status.n_positions_max as f64,
        ),
        (
            "atta_memory_bytes",
            "gauge",
            "Private memory accounted for",
            memory as f64,
        ),
        (
            "atta_models_loaded",
            "gauge",
            "Models in memory",
            loaded.len() as f64,
        ),
    ];
    let mood = app.throttle.as_ref().map(|throttle| throttle.status());
    let warmth = mood.map(|mood| {
        [
            (
                "atta_temperature_celsius",
                "gauge",
                "Temperature of the hottest thermal zone",
                mood.celsius,
            ),
            (
                "atta_duty",
                "gauge",
                "Part of the time that may be computed",
                mood.duty,
            ),
            (
                "atta_pauses_total",
                "counter",
                "Steps with a pause behind them",
                mood.n_pauses as f64,
            ),
        ]
    });
    let mut out = String::new();
    for (name, kind, help, value) in rows.into_iter().chain(warmth.into_iter().flatten()) {
        // Writing to a String does not fail.
        let _ = writeln!(
            out,
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}"
        );
    }
    out
}
