//! The options for running a model on several machines.

use clap::{Args, ValueEnum};

use super::value;

#[cfg(feature = "cluster")]
use std::path::PathBuf;

/// What a ring shall be good at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RingAim {
    /// The time of a token of one text.
    Latency,
    /// The time of a prompt.
    Prompt,
    /// The time of a token of each of several texts.
    Users,
}

/// A wish of a chat's user about its ring.
#[cfg(feature = "chat")]
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RingRequest<'a> {
    /// See who runs what.
    Show,
    /// Let layers end at these.
    Resize(Vec<usize>),
    /// Take a node in.
    Add(&'a str),
    /// Go on without a node.
    Drop(&'a str),
}

/// How a ring divides a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum RingSplit {
    /// Each machine has some layers: for models that fit into no single one, for prompts, for many
    /// users.
    #[default]
    Layers,
    /// Each machine has some rows of every large matrix: for a faster single text, on wired
    /// machines.
    Rows,
    /// The faster one.
    Auto,
}

/// The type of the numbers between machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum RingWire {
    /// 4 bytes: results are those of one machine to the last bit.
    #[default]
    F32,
    /// 2 bytes.
    F16,
    /// 1 byte, and 2 for each 32.
    Int8,
}

/// How rows and columns travel between machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum RingLane {
    /// The faster one, which is TCP wherever it was measured.
    #[default]
    Auto,
    /// TLS over TCP.
    Tcp,
    /// QUIC over UDP, on ports with the numbers of the TCP ports.
    Udp,
    /// The same past the network stack of Linux, on machines that can and may.
    Afxdp,
}

/// Whether a ring keeps KV rows on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RingJournal {
    On,
    /// Only while layers move because a user wants it.
    Off,
}

/// How machines share a model.
#[derive(Clone, Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "Ring")]
pub(crate) struct RingFlags {
    /// Run the model on several machines of a cluster (`atta node`). auto: on those that help, or
    /// here alone if that is as fast; force: on at least one other; or the names of nodes
    #[arg(long, value_name = "auto|force|NODE,…", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "auto")]
    pub(crate) ring: Option<String>,
    /// What the ring shall be good at [default: users for `serve`, prompt for `perplexity` and
    /// `logits`, else latency]
    #[arg(long, value_name = "AIM", requires = "ring", value_enum)]
    pub(crate) ring_for: Option<RingAim>,
    /// How the model is divided [default: layers]
    #[arg(long, value_name = "HOW", requires = "ring", value_enum)]
    pub(crate) split: Option<RingSplit>,
    /// Type of the numbers between machines: f32, which changes no bit of the result, or f16 or
    /// int8, for slow networks [default: f32]
    #[arg(long, value_name = "TYPE", requires = "ring", value_enum)]
    pub(crate) wire: Option<RingWire>,
    /// How rows and columns travel [default: auto, which is tcp]
    #[arg(long, value_name = "LANE", requires = "ring", value_enum)]
    pub(crate) lane: Option<RingLane>,
    /// Compute each text here a second time with probability P, and leave out a machine whose rows
    /// are not equal to the last bit; 1: all texts. This machine needs memory for it
    #[arg(long, value_name = "P", requires = "ring", value_parser = value::probability)]
    pub(crate) audit: Option<f32>,
    /// Seed by which texts are drawn for --audit; -1: random [default: -1]
    #[arg(long, value_name = "N", requires = "audit", allow_hyphen_values = true)]
    #[arg(value_parser = value::seed)]
    pub(crate) audit_seed: Option<value::Seed>,
    /// Keep KV rows of texts on this machine's disk, so that few are computed again when a machine
    /// is lost [default: off]
    #[arg(long, value_name = "on|off", requires = "ring", value_enum)]
    pub(crate) journal: Option<RingJournal>,
    /// Disk for KV rows, with --journal on and while layers move, and an eighth of it for states of
    /// --cache [default: 4G]
    #[arg(long = "disk-budget", value_name = "SIZE", requires = "ring")]
    #[arg(value_parser = value::size_or_0)]
    pub(crate) journal_bytes: Option<u64>,
    #[cfg(feature = "cluster")]
    #[command(flatten)]
    pub(crate) membership: MembershipFlags,
}

/// How this machine finds its cluster.
#[cfg(feature = "cluster")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Ring")]
pub(crate) struct MembershipFlags {
    /// Where a node of the cluster is; may be repeated. Nodes tell each other's addresses
    #[arg(long = "peer", value_name = "HOST[:PORT]")]
    pub(crate) peers: Vec<String>,
    /// Do not search the local network for nodes: remembered ones and those of --peer only
    #[arg(long)]
    pub(crate) no_discovery: bool,
    /// File of the cluster's key [default: key in ~/.config/atta/cluster]
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
}
