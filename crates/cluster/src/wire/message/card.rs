//! What a node says about itself.

use std::{net::SocketAddr, ops::Range, time::Duration};

use serde::{Deserialize, Serialize};

use super::{NodeName, prepare::LayerRange};

/// A node's description of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// Its name.
    pub name: NodeName,
    /// Version of the program. The nodes of a ring have the same one.
    pub program: String,
    /// Version of the frames between stages.
    pub protocol: u8,
    /// Instruction set of its kernels.
    pub isa: String,
    /// Threads that compute.
    pub n_threads: u32,
    /// Addresses on which it takes connections, the best one first.
    pub addresses: Vec<SocketAddr>,
    /// Memory for models.
    pub memory: MemoryNumbers,
    /// Free bytes of the disk for parts of models, if it keeps any.
    pub disk_free_bytes: Option<u64>,
    /// Measured speeds, if it has measured them.
    pub measure: Option<NodeNumbers>,
    /// Temperature of the processor, °C, if it is known.
    pub celsius: Option<f32>,
    /// Whether it is hot and its processor runs below its full frequency.
    pub is_throttled: bool,
    /// The ring that it belongs to.
    pub held: Option<HeldRing>,
    /// Recent events, the oldest first.
    pub events: Vec<CardEvent>,
}

/// Memory of a node for models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryNumbers {
    /// Bytes in all.
    pub all_bytes: u64,
    /// Bytes that a ring could have now.
    pub free_bytes: u64,
}

/// Measured speeds of a node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeNumbers {
    /// Weights read from memory, bytes/s.
    pub read_bytes_per_s: f64,
    /// Integer multiply-adds, 1/s.
    pub macs_per_s: f64,
    /// Reads of the disk that holds models, bytes/s; 0: it does not stream.
    pub disk_bytes_per_s: f64,
}

/// A measured link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkNumbers {
    /// Median round trip of a short question, µs.
    pub rtt_p50_us: u64,
    /// 90th percentile of the round trip, µs.
    pub rtt_p90_us: u64,
    /// Throughput of a burst, bytes/s.
    pub bytes_per_s: f64,
}

/// The ring that a node belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldRing {
    /// Number of the ring.
    pub ring: u64,
    /// The node that owns it.
    pub coordinator: NodeName,
    /// Name of the model, for people.
    pub model: String,
    /// Number of the stage, from 1.
    pub stage: u16,
    /// Its layers.
    pub layers: LayerRange,
    /// Whether the stage waits for frames, or is still being prepared.
    pub is_ready: bool,
    /// Memory that it takes, bytes.
    pub bytes: u64,
    /// Batches that it has computed.
    pub n_computed: u64,
    /// Seconds since it was prepared.
    pub held_s: u64,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardEvent {
    /// Seconds since it happened.
    pub ago_s: u64,
    /// One line for people.
    pub text: String,
}

impl HeldRing {
    /// Its layers.
    pub fn layers(&self) -> Range<usize> {
        self.layers.range()
    }

    /// Time since it was prepared.
    pub fn held(&self) -> Duration {
        Duration::from_secs(self.held_s)
    }
}
