//! The question that makes a node a stage of a ring, and its answers.

use std::{fmt, num::NonZeroU32, ops::Range, time::Duration};

use atta_model::{ExecutorSize, KvElem, KvType};
use serde::{Deserialize, Serialize};

use super::{Digest, NodeAddress, NodeName, RingSecret};
use crate::wire::Dtype;

/// A stage that a node shall prepare. Two of them with the same bytes are the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prepare {
    /// Number of the ring.
    pub ring: u64,
    /// Number of the plan within the ring; a later plan replaces an earlier one.
    pub epoch: u32,
    /// Version of the coordinator's program.
    pub program: String,
    /// Version of the frames between stages.
    pub protocol: u8,
    /// The owner of the ring, which takes results.
    pub coordinator: NodeAddress,
    /// The stage before, which takes acknowledgements; `None` for the first one.
    pub previous: Option<NodeAddress>,
    /// The next stage; `None` for the last one.
    pub next: Option<NodeAddress>,
    /// How rows or columns travel.
    pub lane: LaneName,
    /// What every connection of the ring begins with.
    pub secret: RingSecret,
    /// The model.
    pub model: WantedModel,
    /// The stage.
    pub part: StagePart,
    /// The members that compute all layers together; the node shall be number
    /// [`StagePart::stage`] of them. `None`: it shall be a stage of its own.
    pub group: Option<MemberGroup>,
    /// Capacity of the executor.
    pub size: SizeNumbers,
    /// Type of the numbers of rows between machines; a group has f32.
    pub wire: WireType,
    /// Nodes that have the model's files, to be asked for what this one lacks, in this order.
    pub sources: Vec<NodeAddress>,
}

/// Type of the numbers of rows between machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WireType {
    /// f32: results are those of one machine to the last bit.
    F32,
    /// f16.
    F16,
    /// 8 bits, and an f16 scale for each 32.
    Int8,
}

impl From<Dtype> for WireType {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 => Self::F32,
            Dtype::F16 => Self::F16,
            Dtype::Int8 => Self::Int8,
        }
    }
}

impl From<WireType> for Dtype {
    fn from(wire: WireType) -> Self {
        match wire {
            WireType::F32 => Self::F32,
            WireType::F16 => Self::F16,
            WireType::Int8 => Self::Int8,
        }
    }
}

/// A model by its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantedModel {
    /// The hash of headers and tensors ([`model_id`](crate::part::model_id)).
    pub id: Digest,
    /// The name of its first file, for people and as the name of a part; without directories.
    pub name: String,
    /// Its files, in order.
    pub files: Vec<WantedFile>,
    /// Hash over the tensors that the stage reads; see [`share_hash`](crate::part::share_hash).
    pub share: Digest,
}

/// One file of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantedFile {
    /// Its length, bytes.
    pub bytes: u64,
    /// The hash of its header.
    pub header: Digest,
}

/// Which part of the model a stage runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagePart {
    /// Number of the stage, from 1.
    pub stage: u16,
    /// Stages of the ring.
    pub n_stages: u16,
    /// Its layers.
    pub layers: LayerRange,
}

/// Machines that compute a model together, each with some rows of every large matrix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberGroup {
    /// Members 1, 2, 3 …; member 0 is the coordinator.
    pub others: Vec<NodeAddress>,
    /// Speeds of all members, to which their rows are in proportion.
    pub speeds: Vec<NonZeroU32>,
}

/// A range of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerRange {
    /// The first one.
    pub start: u32,
    /// The one behind the last.
    pub end: u32,
}

impl LayerRange {
    /// The layers.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

impl From<&Range<usize>> for LayerRange {
    fn from(layers: &Range<usize>) -> Self {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            start: number(layers.start),
            end: number(layers.end),
        }
    }
}

/// Element type of keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ElemName {
    /// f32.
    F32,
    /// f16.
    F16,
    /// 8 bits and a scale.
    Q8,
    /// 4 bits, a scale and a minimum.
    Q4,
}

impl From<KvElem> for ElemName {
    fn from(elem: KvElem) -> Self {
        match elem {
            KvElem::F32 => Self::F32,
            KvElem::F16 => Self::F16,
            KvElem::Q8 => Self::Q8,
            KvElem::Q4 => Self::Q4,
        }
    }
}

impl From<ElemName> for KvElem {
    fn from(name: ElemName) -> Self {
        match name {
            ElemName::F32 => Self::F32,
            ElemName::F16 => Self::F16,
            ElemName::Q8 => Self::Q8,
            ElemName::Q4 => Self::Q4,
        }
    }
}

/// The capacity of an executor, as [`ExecutorSize`] has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeNumbers {
    /// Positions per sequence.
    pub n_ctx: u32,
    /// Sequences at once.
    pub n_seqs: u32,
    /// Rows per batch.
    pub n_batch: u32,
    /// Type of keys.
    pub k: ElemName,
    /// Type of values.
    pub v: ElemName,
    /// Layers at each end of the model that have 8 bits where others have 4.
    pub n_edge_layers: u32,
    /// Batches in flight.
    pub n_flights: u32,
    /// Positions that are kept behind an evicted range.
    pub n_recent: Option<u32>,
    /// Positions of all sequences together.
    pub n_shared: Option<u32>,
    /// Recurrent states that a sequence can return to.
    pub n_checkpoints: u32,
}

impl SizeNumbers {
    /// The numbers of a size without its part.
    pub fn of(size: &ExecutorSize) -> Self {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            n_ctx: number(size.n_ctx),
            n_seqs: number(size.n_seqs),
            n_batch: number(size.n_batch),
            k: size.kv.k.into(),
            v: size.kv.v.into(),
            n_edge_layers: number(size.kv.n_edge_layers),
            n_flights: number(size.n_flights),
            n_recent: size.n_recent.map(number),
            n_shared: size.n_shared.map(number),
            n_checkpoints: number(size.n_checkpoints),
        }
    }

    /// The size of an executor of all layers.
    pub fn to_size(self) -> ExecutorSize {
        ExecutorSize {
            n_ctx: self.n_ctx as usize,
            n_seqs: self.n_seqs as usize,
            n_batch: self.n_batch as usize,
            kv: KvType {
                k: self.k.into(),
                v: self.v.into(),
                n_edge_layers: self.n_edge_layers as usize,
            },
            part: None,
            n_flights: self.n_flights as usize,
            n_recent: self.n_recent.map(|n| n as usize),
            n_shared: self.n_shared.map(|n| n as usize),
            n_checkpoints: self.n_checkpoints as usize,
            n_draft: 0,
        }
    }
}

/// How rows or columns travel between machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LaneName {
    /// TLS over TCP.
    #[default]
    Tcp,
    /// QUIC over UDP.
    Udp,
    /// QUIC over UDP, past the network stack on machines that can.
    AfXdp,
}

impl LaneName {
    /// Whether rows travel by QUIC.
    pub fn is_quic(self) -> bool {
        match self {
            Self::Tcp => false,
            Self::Udp | Self::AfXdp => true,
        }
    }
}

impl fmt::Display for LaneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::AfXdp => "afxdp",
        })
    }
}

/// A stage that is being prepared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loading {
    /// Bytes that are done.
    pub done_bytes: u64,
    /// Bytes of this step in all; 0 where they are not known.
    pub of_bytes: u64,
    /// The step, for people: `fetching from lap`.
    pub what: String,
}

/// A stage that waits for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadyStage {
    /// Memory that it takes, weights in the page cache included, bytes.
    pub bytes: u64,
    /// Weights that every token reads from disk, bytes.
    pub streamed_bytes: u64,
    /// Time that it took, ms.
    pub load_ms: u64,
    /// Hash over the tensors that it reads, which must be that of the question.
    pub share: Digest,
}

/// A stage that cannot be prepared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blocked {
    /// One line for people.
    pub why: String,
    /// The smallest change that would do, one line for people, if there is one.
    pub would_do: Option<String>,
}

/// A node that belongs to another ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Occupied {
    /// The owner of that ring.
    pub by: NodeName,
    /// Seconds since it was prepared.
    pub since_s: u64,
}

impl Occupied {
    /// Time since it was prepared.
    pub fn since(&self) -> Duration {
        Duration::from_secs(self.since_s)
    }
}
