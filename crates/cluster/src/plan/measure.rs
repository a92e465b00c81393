//! What the planner is told: sizes of a model, measured nodes and links, and the wish.

use std::{collections::BTreeMap, time::Duration};

use super::{MAX_NODES, Refusal};
use crate::wire::Dtype;

/// Sizes of one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerSizes {
    /// Weights, bytes.
    pub weight_bytes: u64,
    /// Weights that one row reads, bytes; less than `weight_bytes` where experts are routed.
    pub row_bytes: u64,
    /// Multiply-adds of one row.
    pub macs: u64,
    /// Keys and values of one position, bytes.
    pub kv_bytes: u64,
    /// Positions that are kept at most, where attention has a window.
    pub window: Option<u64>,
    /// Recurrent state of one sequence, bytes.
    pub state_bytes: u64,
    /// Whether the model may be cut before this layer; not where it reads keys of an earlier one.
    pub may_cut_before: bool,
}

/// Sizes of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSizes {
    /// All layers in order.
    pub layers: Vec<LayerSizes>,
    /// Token embedding and other tables that are read by rows, bytes.
    pub embed_bytes: u64,
    /// Output head and its norm, bytes; without the matrix where it is the embedding.
    pub head_bytes: u64,
    /// What a row with logits reads of head and embedding, bytes.
    pub head_read_bytes: u64,
    /// Multiply-adds of the head for one row.
    pub head_macs: u64,
    /// Width of a row between layers.
    pub d_model: u64,
    /// Activations and scratch of one row of a batch, bytes.
    pub scratch_row_bytes: u64,
    /// Activations of every node whatever the rows, and tensors that all nodes hold, bytes.
    pub fixed_bytes: u64,
    /// Recurrent states that a sequence keeps, besides one for each batch in flight.
    pub n_states: u64,
    /// A journal of all layers on the coordinator of a ring, bytes.
    pub journal_bytes: u64,
    /// Logits and sampling of all sequences, bytes.
    pub output_bytes: u64,
}

/// How fast a node computes.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeSpeed {
    /// Rates, for models that the node has not run yet.
    Rates {
        /// Weights read from memory with the best number of threads, bytes/s.
        read_bytes_per_s: f64,
        /// Integer multiply-adds, 1/s.
        macs_per_s: f64,
    },
    /// Times of a layer of this model: T(c).
    Measured {
        /// Weights of the measured layer, bytes; other layers take time in proportion.
        layer_bytes: u64,
        /// Times by rows, ascending; between two points a line, beyond the last in proportion.
        points: Vec<PassTime>,
    },
}

/// The time of one layer for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassTime {
    /// Rows of the batch.
    pub n_rows: u64,
    /// Time of the layer.
    pub time: Duration,
}

/// A measured node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeMeasure {
    /// Name, for people.
    pub name: String,
    /// Memory that a model may take, bytes; what the system shall keep is taken off already.
    pub ram_bytes: u64,
    /// Speed of computing.
    pub speed: NodeSpeed,
    /// Reads of the disk that holds the part, bytes/s; 0 for a node that must not stream.
    pub disk_bytes_per_s: f64,
}

/// A measured link, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkMeasure {
    /// Median round trip of a small message.
    pub rtt_p50: Duration,
    /// 90th percentile of the round trip.
    pub rtt_p90: Duration,
    /// Throughput of a burst, bytes/s.
    pub bytes_per_s: f64,
}

/// All nodes and links.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measures {
    /// The nodes, at most [`MAX_NODES`].
    pub nodes: Vec<NodeMeasure>,
    /// The links by the indices of their nodes, the lower one first. Nodes without a link cannot
    /// be neighbours in a ring.
    pub links: BTreeMap<(usize, usize), LinkMeasure>,
}

/// The number that a ring shall make small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// The time of one token of one text.
    Latency,
    /// The time of a prompt of `n_prompt` tokens.
    Prompt,
    /// The time of a token of each of `n_seqs` texts.
    Users,
}

/// The wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRequest {
    /// The aim of a plan.
    pub objective: Objective,
    /// Positions of each sequence.
    pub n_ctx: u64,
    /// Sequences at a time.
    pub n_seqs: u64,
    /// Positions of all sequences together; `None`: `n_ctx` for each.
    pub n_shared: Option<u64>,
    /// Positions behind a row for which speeds are predicted.
    pub n_past: u64,
    /// Tokens of the prompt for which speeds are predicted.
    pub n_prompt: u64,
    /// Most rows of a batch: executors have memory for so many.
    pub n_batch: u64,
    /// The coordinator's links to all other nodes, bytes of memory.
    pub lead_link_bytes: u64,
    /// The links of another node, bytes of memory.
    pub stage_link_bytes: u64,
    /// Type of the numbers of rows between machines.
    pub wire: Dtype,
    /// The coordinator, which holds embedding and head; `None` tries every node.
    pub lead: Option<usize>,
    /// Nodes that must hold layers, or be the lead.
    pub must_use: Vec<usize>,
    /// Most visits of a lap to each node; several let nodes that stream read while others compute.
    pub max_rounds: u64,
}

impl Measures {
    pub(super) fn link(&self, from: usize, to: usize) -> Option<&LinkMeasure> {
        self.links.get(&(from.min(to), from.max(to)))
    }
}

impl LinkMeasure {
    /// The round trip to count with: the median, or the 90th percentile where they are more than
    /// 5 ms apart (Wi-Fi).
    pub(super) fn rtt(&self) -> Duration {
        match self.rtt_p90.saturating_sub(self.rtt_p50) > Duration::from_millis(5) {
            true => self.rtt_p90,
            false => self.rtt_p50,
        }
    }
}

/// Refuses inputs that cannot have been measured.
pub(super) fn check(
    model: &ModelSizes,
    measures: &Measures,
    request: &PlanRequest,
) -> Result<(), Refusal> {
    let n_nodes = measures.nodes.len();
    let known = |node: &usize| *node < n_nodes;
    let counts = [
        request.n_ctx,
        request.n_seqs,
        request.n_prompt,
        request.n_batch,
        request.max_rounds,
    ];
    let wrong = if n_nodes == 0 || n_nodes > MAX_NODES {
        Some(format!("{n_nodes} nodes, expected 1 to {MAX_NODES}"))
    } else if model.layers.is_empty() || model.layers.len() > 4096 || model.d_model == 0 {
        Some("a model has 1 to 4096 layers and a width".to_owned())
    } else if counts.contains(&0) {
        Some("the context, sequences, prompt, batch and rounds are at least 1".to_owned())
    } else if !request.lead.iter().chain(&request.must_use).all(known) {
        Some(format!("a node of the request is not one of the {n_nodes}"))
    } else {
        let nodes = measures.nodes.iter().find_map(wrong_node);
        nodes.or_else(|| {
            measures
                .links
                .iter()
                .find_map(|(ends, link)| wrong_link([ends.0, ends.1], link, n_nodes))
        })
    };
    wrong.map_or(Ok(()), |what| Err(Refusal::Input(what)))
}

fn wrong_node(node: &NodeMeasure) -> Option<String> {
    let name = &node.name;
    if !(node.disk_bytes_per_s.is_finite() && node.disk_bytes_per_s >= 0.0) {
        return Some(format!(
            "{name}: the disk reads {} bytes/s",
            node.disk_bytes_per_s
        ));
    }
    let is_wrong = match &node.speed {
        NodeSpeed::Rates {
            read_bytes_per_s,
            macs_per_s,
        } => !is_rate(*read_bytes_per_s) || !is_rate(*macs_per_s),
        NodeSpeed::Measured {
            layer_bytes,
            points,
        } => *layer_bytes == 0 || !is_ascending(points),
    };
    is_wrong.then(|| format!("{name}: its measured speed is not positive, or not in order"))
}

fn wrong_link(ends: [usize; 2], link: &LinkMeasure, n_nodes: usize) -> Option<String> {
    let is_wrong = ends[0] >= ends[1] || ends[1] >= n_nodes || !is_rate(link.bytes_per_s);
    is_wrong.then(|| format!("the link {ends:?} has no such nodes or no speed"))
}

fn is_rate(rate: f64) -> bool {
    rate.is_finite() && rate > 0.0
}

fn is_ascending(points: &[PassTime]) -> bool {
    let first = points
        .first()
        .is_some_and(|p| p.n_rows > 0 && !p.time.is_zero());
    first
        && points
            .windows(2)
            .all(|p| p[0].n_rows < p[1].n_rows && p[0].time <= p[1].time)
}
