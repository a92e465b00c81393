//! The ring of machines behind a model, as `/api/cluster`, `/metrics` and the page `/cluster` show
//! it.
//!
//! Knows no ring: the program that runs one implements [`ClusterMonitor`]. The one idea: plain
//! numbers, which the monitor has at hand, so that no request waits for another machine. A number
//! that is not known is `None`, never 0.

use std::fmt::Debug;

use serde::Serialize;

/// Watches a ring.
pub trait ClusterMonitor: Debug + Send + Sync {
    /// The status as it is known now. It must not wait: the thread of all connections calls it.
    fn status(&self) -> RingStatus;
}

/// A ring of machines that run a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RingStatus {
    /// What the ring does.
    pub state: RingState,
    /// Name of the machine that owns the ring: this server's.
    pub coordinator: String,
    /// Name of the model's file.
    pub model: String,
    /// Layers of the model.
    pub n_layers: usize,
    /// Epoch of the protocol: it grows with each repair.
    pub epoch: u32,
    /// Times that the stages were brought to one state since the ring was opened, the opening
    /// included.
    pub n_fences: u64,
    /// Times that every text was computed again.
    pub n_rebuilds: u64,
    /// Batches so far.
    pub n_batches: u64,
    /// Rows of them: tokens that were read or written.
    pub n_rows: u64,
    /// Texts and rows that the coordinator has computed, too; `None` without audits.
    pub audit: Option<AuditStatus>,
    /// The plan's speeds.
    pub expected: RingSpeed,
    /// Measured speeds.
    pub measured: RingSpeed,
    /// One token's way round the ring, µs: the mean of the last tokens that were alone.
    pub lap_us: Option<f64>,
    /// The part of it that no machine computed: links and queues, µs.
    pub hops_us: Option<f64>,
    /// The machines in the order of the ring, the coordinator first.
    pub nodes: Vec<NodeStatus>,
    /// The last events, the newest first.
    pub events: Vec<ClusterEvent>,
}

/// What audits of a ring have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AuditStatus {
    /// Texts that have begun.
    pub n_texts: u64,
    /// Texts that were drawn.
    pub n_drawn: u64,
    /// Rows that were compared.
    pub n_rows: u64,
    /// Machines that were left out for rows that differ.
    pub n_faults: u64,
}

/// What a ring does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RingState {
    /// Its model is not in memory.
    Closed,
    /// It computes, or waits for requests.
    Open,
    /// It brings its stages to one state again.
    Repairing,
    /// The last batch failed.
    Failed,
}

/// Speeds of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RingSpeed {
    /// Tokens of one text, 1/s.
    pub decode_tok_s: Option<f64>,
    /// Tokens of all texts together, 1/s.
    pub users_tok_s: Option<f64>,
}

/// A machine of a ring.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeStatus {
    /// Its name.
    pub node: String,
    /// Where it is reached; `None` for the coordinator.
    pub address: Option<String>,
    /// What it does.
    pub state: NodeState,
    /// Why, if there is a reason to tell.
    pub why: Option<String>,
    /// Its first layer.
    pub first_layer: usize,
    /// The layer behind its last one.
    pub end_layer: usize,
    /// Its part of all layers, 0 to 1.
    pub share: f64,
    /// Memory for layers, bytes.
    pub memory_bytes: Option<u64>,
    /// Memory that the ring holds, bytes.
    pub memory_held_bytes: Option<u64>,
    /// Memory that is left, bytes.
    pub memory_free_bytes: Option<u64>,
    /// Computing of a token, µs; of the coordinator with the head.
    pub compute_us: Option<f64>,
    /// Computing of a token in one layer, µs.
    pub layer_us: Option<f64>,
    /// Bytes that it sends on for a token.
    pub bytes_out: Option<f64>,
    /// Its work so far; `None` for the coordinator.
    pub totals: Option<NodeTotals>,
    /// The link to the next machine of the ring, as it was measured before the ring was opened.
    pub link: Option<LinkStatus>,
    /// Temperature, °C.
    pub celsius: Option<f64>,
    /// Whether it is hot and its processor runs below its full frequency.
    pub is_throttled: Option<bool>,
    /// Seconds since it was heard; `None` if it never was, and 0 for the coordinator.
    pub heard_s: Option<u64>,
}

/// What a machine of a ring does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It is the coordinator.
    Coordinator,
    /// It waits for rows, or computes them.
    Ready,
    /// It loads its layers.
    Loading,
    /// It holds nothing of this ring.
    Idle,
    /// It does not answer.
    Silent,
}

/// What a machine has done for a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct NodeTotals {
    /// Batches.
    pub n_batches: u64,
    /// Rows.
    pub n_rows: u64,
    /// Time of computing, s.
    pub compute_s: f64,
    /// Bytes that it sent on.
    pub bytes_out: u64,
}

/// A link between two machines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkStatus {
    /// The machine at its other end.
    pub to: String,
    /// Median round trip, µs.
    pub rtt_p50_us: f64,
    /// 90th percentile of the round trip, µs.
    pub rtt_p90_us: f64,
    /// Throughput, bytes/s.
    pub bytes_per_s: f64,
}

/// An event of a ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterEvent {
    /// The machine that tells it.
    pub node: String,
    /// Seconds since it happened.
    pub ago_s: u64,
    /// One line for people.
    pub event: String,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A ring of two machines in which every field is set.
    pub(crate) fn ring() -> RingStatus {
        let speed = RingSpeed {
            decode_tok_s: Some(20.0),
            users_tok_s: Some(60.0),
        };
        let node = NodeStatus {
            node: "pi1".to_owned(),
            address: Some("10.0.0.2:9990".to_owned()),
            state: NodeState::Ready,
            why: Some("a reason".to_owned()),
            first_layer: 4,
            end_layer: 12,
            share: 2.0 / 3.0,
            memory_bytes: Some(4 << 30),
            memory_held_bytes: Some(1 << 30),
            memory_free_bytes: Some(3 << 30),
            compute_us: Some(8000.0),
            layer_us: Some(1000.0),
            bytes_out: Some(8228.0),
            totals: Some(NodeTotals::default()),
            link: Some(LinkStatus {
                to: "lap".to_owned(),
                rtt_p50_us: 210.0,
                rtt_p90_us: 350.0,
                bytes_per_s: 1.1e8,
            }),
            celsius: Some(51.5),
            is_throttled: Some(true),
            heard_s: Some(2),
        };
        RingStatus {
            state: RingState::Repairing,
            coordinator: "lap".to_owned(),
            model: "m.gguf".to_owned(),
            n_layers: 12,
            epoch: 2,
            n_fences: 2,
            n_rebuilds: 1,
            n_batches: 9,
            n_rows: 90,
            audit: Some(AuditStatus {
                n_texts: 8,
                n_drawn: 2,
                n_rows: 30,
                n_faults: 1,
            }),
            expected: speed,
            measured: speed,
            lap_us: Some(50_000.0),
            hops_us: Some(400.0),
            nodes: vec![node],
            events: vec![ClusterEvent {
                node: "lap".to_owned(),
                ago_s: 3,
                event: "the ring opens: pi1".to_owned(),
            }],
        }
    }
}
