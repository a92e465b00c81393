//! `GET /metrics`: counters and gauges in the text format of Prometheus.
//!
//! The one idea: a table per source of values. A metric is one row: name, type, help, and how it is
//! read from the source.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    app::App,
    cluster::{NodeState, NodeStatus, NodeTotals, RingState, RingStatus},
    thermal::ThermalStatus,
    worker::WorkerStatus,
};

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
const OF_WORKERS: [Metric<WorkerStatus>; 15] = [
    gauge("atta_jobs_running", "Jobs in prefill or decoding", |s| s.n_running as f64),
    gauge("atta_jobs_waiting", "Jobs in the queue", |s| s.n_waiting as f64),
    counter("atta_steps_total", "Batches computed", |s| s.counts.n_steps as f64),
    counter("atta_prompt_tokens_total", "Prompt tokens computed", |s| s.counts.n_read as f64),
    counter("atta_prompt_tokens_reused_total", "Prompt tokens found in the prefix cache", |s| s.counts.n_reused as f64),
    counter("atta_prompt_tokens_approximate_total", "Prompt tokens whose reused state is approximate", |s| s.counts.n_approximate as f64),
    counter("atta_prompt_tokens_restored_total", "Prompt tokens restored from disk", |s| s.counts.n_restored as f64),
    counter("atta_generated_tokens_total", "Tokens generated", |s| s.counts.n_written as f64),
    counter("atta_draft_tokens_total", "Tokens of drafts computed", |s| s.counts.n_drafted as f64),
    counter("atta_draft_tokens_accepted_total", "Tokens of drafts that became part of an answer", |s| s.counts.n_accepted as f64),
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

#[rustfmt::skip] // One metric, one row.
const OF_RING: [Metric<RingStatus>; 15] = [
    gauge("atta_ring_up", "Whether the ring of machines is open", |r| flag(r.state == RingState::Open)),
    gauge("atta_ring_nodes", "Machines of the ring", |r| r.nodes.len() as f64),
    gauge("atta_ring_epoch", "Epoch of the ring's protocol", |r| f64::from(r.epoch)),
    counter("atta_ring_fences_total", "Times that the stages were brought to one state", |r| r.n_fences as f64),
    counter("atta_ring_rebuilds_total", "Times that all texts were computed again", |r| r.n_rebuilds as f64),
    counter("atta_ring_batches_total", "Batches that went round the ring", |r| r.n_batches as f64),
    counter("atta_ring_rows_total", "Rows of these batches", |r| r.n_rows as f64),
    counter("atta_ring_audit_rows_total", "Rows that the coordinator has computed, too", |r| r.audit.map_or(0.0, |audit| audit.n_rows as f64)),
    counter("atta_ring_audit_faults_total", "Machines left out for rows that differ", |r| r.audit.map_or(0.0, |audit| audit.n_faults as f64)),
    gauge("atta_ring_lap_seconds", "Time of a token round the ring", |r| seconds(r.lap_us)),
    gauge("atta_ring_hops_seconds", "Part of it that no machine computed", |r| seconds(r.hops_us)),
    gauge("atta_ring_decode_tokens_per_second", "Tokens of one text", |r| known(r.measured.decode_tok_s)),
    gauge("atta_ring_decode_tokens_per_second_expected", "Tokens of one text, as planned", |r| known(r.expected.decode_tok_s)),
    gauge("atta_ring_users_tokens_per_second", "Tokens of all texts while the ring has work", |r| known(r.measured.users_tok_s)),
    gauge("atta_ring_users_tokens_per_second_expected", "Tokens of all texts, as planned", |r| known(r.expected.users_tok_s)),
];

#[rustfmt::skip] // One metric, one row.
const OF_RING_NODES: [Metric<NodeStatus>; 15] = [
    gauge("atta_ring_node_up", "Whether the machine does its part of the ring", |n| flag(matches!(n.state, NodeState::Coordinator | NodeState::Ready))),
    gauge("atta_ring_node_layers", "Layers of the machine", |n| n.end_layer.saturating_sub(n.first_layer) as f64),
    gauge("atta_ring_node_memory_bytes", "Memory for layers", |n| known(n.memory_bytes.map(|b| b as f64))),
    gauge("atta_ring_node_memory_held_bytes", "Memory that the ring holds", |n| known(n.memory_held_bytes.map(|b| b as f64))),
    gauge("atta_ring_node_memory_free_bytes", "Memory that is left", |n| known(n.memory_free_bytes.map(|b| b as f64))),
    gauge("atta_ring_node_token_seconds", "Computing of a token", |n| seconds(n.compute_us)),
    gauge("atta_ring_node_layer_seconds", "Computing of a token in one layer", |n| seconds(n.layer_us)),
    counter("atta_ring_node_batches_total", "Batches computed by the machine", |n| total(n, |t| t.n_batches as f64)),
    counter("atta_ring_node_rows_total", "Rows computed by the machine", |n| total(n, |t| t.n_rows as f64)),
    counter("atta_ring_node_compute_seconds_total", "Time of computing them", |n| total(n, |t| t.compute_s)),
    counter("atta_ring_node_sent_bytes_total", "Bytes that the machine sent on", |n| total(n, |t| t.bytes_out as f64)),
    gauge("atta_ring_node_temperature_celsius", "Temperature of the machine", |n| known(n.celsius)),
    gauge("atta_ring_node_throttled", "Whether heat slows the machine down", |n| known(n.is_throttled.map(flag))),
    gauge("atta_ring_link_rtt_seconds", "Median round trip to the next machine", |n| seconds(n.link.as_ref().map(|l| l.rtt_p50_us))),
    gauge("atta_ring_link_bytes_per_second", "Throughput to the next machine", |n| known(n.link.as_ref().map(|l| l.bytes_per_s))),
];

/// A number, or the value of a metric that is left out.
fn known(value: Option<f64>) -> f64 {
    value.unwrap_or(f64::NAN)
}

fn seconds(micros: Option<f64>) -> f64 {
    known(micros) / 1e6
}

fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

fn total(node: &NodeStatus, read: fn(&NodeTotals) -> f64) -> f64 {
    known(node.totals.as_ref().map(read))
}

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
    if let Some(monitor) = &app.options.cluster {
        write_ring(&mut out, &monitor.status());
    }
    out
}

fn write_ring(out: &mut String, ring: &RingStatus) {
    write_all(out, &OF_RING, ring);
    let samples = ring.nodes.iter().map(|node| Sample {
        labels: format!("{{node=\"{}\"}}", escaped(&node.node)),
        source: node,
    });
    let samples: Vec<Sample<'_, NodeStatus>> = samples.collect();
    for metric in &OF_RING_NODES {
        write_metric(out, metric, &samples);
    }
}

/// The value of a label.
fn escaped(label: &str) -> String {
    let escape = |c| match c {
        '\\' => "\\\\".to_owned(),
        '"' => "\\\"".to_owned(),
        '\n' => "\\n".to_owned(),
        c => String::from(c),
    };
    label.chars().map(escape).collect()
}

fn write_all<S>(out: &mut String, metrics: &[Metric<S>], source: &S) {
    for metric in metrics {
        let labels = String::new();
        write_metric(out, metric, &[Sample { labels, source }]);
    }
}

/// One of the sources of a metric.
struct Sample<'a, S> {
    /// Labels in braces, if there are any.
    labels: String,
    source: &'a S,
}

/// Writes a metric of some sources. A value that is NaN is not known, and left out.
fn write_metric<S>(out: &mut String, metric: &Metric<S>, samples: &[Sample<'_, S>]) {
    let Metric { name, help, .. } = metric;
    let ty = metric.ty.name();
    let mut head = format!("# HELP {name} {help}\n# TYPE {name} {ty}\n");
    for Sample { labels, source } in samples {
        let value = (metric.read)(source);
        if !value.is_nan() {
            out.push_str(&std::mem::take(&mut head));
            // Writing to a String does not fail.
            let _ = writeln!(out, "{name}{labels} {value}");
        }
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

    #[test]
    fn labels_are_escaped_and_unknown_values_left_out() {
        let mut out = String::new();
        let metric = gauge("hot", "Degrees", |celsius: &Option<f64>| known(*celsius));
        let samples = [Some(51.5), None].map(|source| (source, escaped("a\"\\\n")));
        let samples = samples.each_ref().map(|(source, name)| Sample {
            labels: format!("{{node=\"{name}\"}}"),
            source,
        });
        write_metric(&mut out, &metric, &samples[1..]);
        assert_eq!(out, "");
        write_metric(&mut out, &metric, &samples);
        let expected = "# HELP hot Degrees\n# TYPE hot gauge\nhot{node=\"a\\\"\\\\\\n\"} 51.5\n";
        assert_eq!(out, expected);
    }
}
