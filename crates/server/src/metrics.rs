//! `GET /metrics`: counters and gauges in the text format of Prometheus.
//!
//! The one idea: a table per source of values. A metric is one row: name, type, help, and how it is
//! read from the source.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{app::App, thermal::ThermalStatus, worker::WorkerStatus};

/// Counts of requests and connections.
#[derive(Default)]
pub(crate) struct Metrics {
    n_requests: AtomicU64,
    n_refused: AtomicU64,
    n_failed: AtomicU64,
    n_connections: AtomicU64,
}

impl Metrics {
    /// Counts a request that was answered with this status.
    pub(crate) fn request(&self, status: u16) {
        self.n_requests.fetch_add(1, Ordering::Relaxed);
        match status {
            400..500 => self.n_refused.fetch_add(1, Ordering::Relaxed),
            500.. => self.n_failed.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    /// Counts a connection until the guard is dropped.
    pub(crate) fn connected(&self) -> ConnectionGuard<'_> {
        self.n_connections.fetch_add(1, Ordering::Relaxed);
        ConnectionGuard(self)
    }
}

/// An open connection.
pub(crate) struct ConnectionGuard<'a>(&'a Metrics);

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        self.0.n_connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy)]
enum MetricType {
    Counter,
    Gauge,
}

impl MetricType {
    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

/// A metric that is read from `S`.
struct Metric<S> {
    name: &'static str,
    ty: MetricType,
    help: &'static str,
    read: fn(&S) -> f64,
}

const fn counter<S>(name: &'static str, help: &'static str, read: fn(&S) -> f64) -> Metric<S> {
    Metric {
        name,
        ty: MetricType::Counter,
        help,
        read,
    }
}

const fn gauge<S>(name: &'static str, help: &'static str, read: fn(&S) -> f64) -> Metric<S> {
    Metric {
        name,
        ty: MetricType::Gauge,
        help,
        read,
    }
}

#[rustfmt::skip] // One metric, one row.
const OF_REQUESTS: [Metric<Metrics>; 4] = [
    counter("atta_requests_total", "Requests answered", |m| load(&m.n_requests)),
    counter("atta_requests_refused_total", "Requests answered with 4xx", |m| load(&m.n_refused)),
    counter("atta_requests_failed_total", "Requests answered with 5xx", |m| load(&m.n_failed)),
    gauge("atta_connections", "Connections that are open", |m| load(&m.n_connections)),
];

#[rustfmt::skip] // One metric, one row.
const OF_WORKERS: [Metric<WorkerStatus>; 12] = [
    gauge("atta_jobs_running", "Jobs in prefill or decoding", |s| s.n_running as f64),
    gauge("atta_jobs_waiting", "Jobs in the queue", |s| s.n_waiting as f64),
    counter("atta_steps_total", "Batches computed", |s| s.counts.n_steps as f64),
    counter("atta_prompt_tokens_total", "Prompt tokens computed", |s| s.counts.n_read as f64),
    counter("atta_prompt_tokens_reused_total", "Prompt tokens found in the prefix cache", |s| s.counts.n_reused as f64),
    counter("atta_prompt_tokens_restored_total", "Prompt tokens restored from disk", |s| s.counts.n_restored as f64),
    counter("atta_generated_tokens_total", "Tokens generated", |s| s.counts.n_written as f64),
    counter("atta_preemptions_total", "Jobs put back into the queue to free KV cache", |s| s.counts.n_preempted as f64),
    counter("atta_evictions_total", "Cached prefixes evicted", |s| s.counts.n_evicted as f64),
    gauge("atta_step_gap_seconds_max", "Longest time between two steps", |s| s.max_gap.as_secs_f64()),
    gauge("atta_kv_tokens", "Positions of the KV cache in use", |s| s.n_positions as f64),
    gauge("atta_kv_tokens_max", "Positions of the KV cache", |s| s.n_positions_max as f64),
];

/// The models in memory.
struct LoadedModels {
    n: usize,
    n_bytes: u64,
}

#[rustfmt::skip] // One metric, one row.
const OF_MODELS: [Metric<LoadedModels>; 2] = [
    gauge("atta_memory_bytes", "Private memory accounted for", |m| m.n_bytes as f64),
    gauge("atta_models_loaded", "Models in memory", |m| m.n as f64),
];

#[rustfmt::skip] // One metric, one row.
const OF_THROTTLE: [Metric<ThermalStatus>; 3] = [
    gauge("atta_temperature_celsius", "Temperature of the hottest thermal zone", |s| s.celsius),
    gauge("atta_duty", "Fraction of the time that models may compute", |s| s.duty),
    counter("atta_pauses_total", "Steps with a pause after them", |s| s.n_pauses as f64),
];

fn load(n: &AtomicU64) -> f64 {
    n.load(Ordering::Relaxed) as f64
}

/// All metrics of the server.
pub(crate) fn text(app: &App) -> String {
    let used = app.models.budgets_used();
    let models = LoadedModels {
        n: used.len(),
        n_bytes: used.iter().sum(),
    };
    let mut out = String::new();
    write_all(&mut out, &OF_REQUESTS, &app.metrics);
    write_all(&mut out, &OF_WORKERS, &app.models.status());
    write_all(&mut out, &OF_MODELS, &models);
    if let Some(throttle) = &app.throttle {
        write_all(&mut out, &OF_THROTTLE, &throttle.status());
    }
    out
}

fn write_all<S>(out: &mut String, metrics: &[Metric<S>], source: &S) {
    for Metric {
        name,
        ty,
        help,
        read,
    } in metrics
    {
        let ty = ty.name();
        let value = read(source);
        // Writing to a String does not fail.
        let _ = writeln!(
            out,
            "# HELP {name} {help}\n# TYPE {name} {ty}\n{name} {value}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_has_its_help_its_type_and_its_value() {
        let metrics = Metrics::default();
        metrics.request(404);
        let _guard = metrics.connected();
        let mut out = String::new();
        write_all(&mut out, &OF_REQUESTS, &metrics);
        assert!(
            out.starts_with(
                "# HELP atta_requests_total Requests answered\n# TYPE atta_requests_total counter\n\
                 atta_requests_total 1\n"
            ),
            "{out}"
        );
        for line in [
            "atta_requests_refused_total 1",
            "atta_requests_failed_total 0",
            "# TYPE atta_connections gauge",
            "atta_connections 1",
        ] {
            assert!(out.lines().any(|found| found == line), "{line}: {out}");
        }
    }
}
