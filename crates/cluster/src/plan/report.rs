//! The plan that a caller gets, and its sentence.

use std::{fmt, ops::Range, time::Duration};

use super::{
    all_nodes, mask_of,
    measure::Objective,
    predict,
    search::{Candidate, Planner, layers_of},
};

/// Layers that one node computes in one visit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedStage {
    /// Index of the node.
    pub node: usize,
    /// Layers; empty for a lead that holds embedding and head only.
    pub layers: Range<usize>,
}

/// Planned memory of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLoad {
    /// Index of the node.
    pub node: usize,
    /// Weights in memory, the lead's embedding and head among them, bytes.
    pub resident_bytes: u64,
    /// Weights that each pass reads from disk, bytes; 0 where all are resident.
    pub streamed_bytes: u64,
    /// KV cache and states of all sequences, bytes.
    pub kv_bytes: u64,
    /// All memory, with activations, frames and the buffer of a node that streams, bytes.
    pub ram_bytes: u64,
    /// Memory of the node that the plan leaves, bytes.
    pub ram_left_bytes: u64,
}

/// Predicted speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// Tokens of one text, 1/s.
    pub decode_tok_s: f64,
    /// Tokens of the request's prompt, 1/s.
    pub prompt_tok_s: f64,
    /// Tokens of `n_seqs` texts together, 1/s.
    pub users_tok_s: f64,
    /// One token's way round the ring.
    pub lap: Duration,
    /// The part of the lap on the slowest node or link.
    pub slowest_stage: Duration,
}

/// The fastest node without a ring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alone {
    /// Index of the node.
    pub node: usize,
    /// Its speed.
    pub predicted: Predicted,
    /// Whether it reads weights from disk in each pass.
    pub is_streamed: bool,
}

/// A node that the plan does not use.
#[derive(Clone, Debug, PartialEq)]
pub struct IdleNode {
    /// Index of the node.
    pub node: usize,
    /// Why.
    pub reason: IdleReason,
}

/// Why a node does not help.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IdleReason {
    /// The best ring with this node is not faster.
    Slower {
        /// Its speed in the number that the request is about, tokens/s.
        with_it_tok_s: f64,
    },
    /// It has no memory for a single layer with its part of the KV cache, and no disk to stream.
    TooLittleRam,
    /// No ring passes over its links.
    NotConnected,
    /// The layers cannot be divided among so many machines.
    NotDivisible,
}

/// A plan: who computes what, and how fast that will be.
#[derive(Clone, Debug, PartialEq)]
pub struct RingPlan {
    /// The stages of a lap in order. The first one is the coordinator's and may be empty; with
    /// several rounds a node occurs more than once.
    pub stages: Vec<PlannedStage>,
    /// Memory of every node in use, the coordinator first.
    pub loads: Vec<NodeLoad>,
    /// The coordinator: embedding, head and sampling.
    pub lead: usize,
    /// Visits of a lap to each node.
    pub rounds: u64,
    /// Rows of a chunk of a prompt.
    pub chunk: u64,
    /// Chunks of a prompt in flight.
    pub prompt_depth: u64,
    /// Batches of decoding rows in flight.
    pub decode_depth: u64,
    /// Longest time that a chunk's frame is on a link. Above 0.2 s a lane with a deadline for each
    /// message must not carry it in one message.
    pub frame_time: Duration,
    /// Predicted speed.
    pub predicted: Predicted,
    /// The fastest node alone, if one can run the model.
    pub alone: Option<Alone>,
    /// Nodes that are not used.
    pub idle: Vec<IdleNode>,
    /// Names of all nodes, by index.
    pub names: Vec<String>,
    objective: Objective,
}

impl RingPlan {
    /// Whether one node does it all.
    pub fn is_alone(&self) -> bool {
        self.loads.len() == 1
    }

    /// The predicted number that the request is about, tokens/s.
    pub fn tok_s(&self) -> f64 {
        self.predicted.tok_s(self.objective)
    }

    /// The layers of a node in all rounds, in order.
    pub fn layers_of(&self, node: usize) -> impl Iterator<Item = &Range<usize>> {
        layers_of(&self.stages, node)
    }
}

impl Predicted {
    fn tok_s(&self, objective: Objective) -> f64 {
        match objective {
            Objective::Latency => self.decode_tok_s,
            Objective::Prompt => self.prompt_tok_s,
            Objective::Users => self.users_tok_s,
        }
    }
}

/// `ring: lap 8 layers + head, pi1 13, pi2 11; expecting 2.6 tokens/s (lap alone: 0.4, streamed);
/// pi3 would not help`
impl fmt::Display for RingPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |node: usize| &self.names[node];
        f.write_str(if self.is_alone() {
            "no ring: "
        } else {
            "ring: "
        })?;
        for (i, load) in self.loads.iter().enumerate() {
            let n_layers: usize = self.layers_of(load.node).map(Range::len).sum();
            match i {
                0 => write!(f, "{} {n_layers} layers + head", name(load.node))?,
                _ => write!(f, ", {} {n_layers}", name(load.node))?,
            }
            if load.streamed_bytes > 0 {
                f.write_str(" (streamed)")?;
            }
        }
        if self.rounds > 1 {
            write!(f, ", in {} rounds", self.rounds)?;
        }
        write!(f, "; expecting {:.2} tokens/s", self.tok_s())?;
        if let Some(alone) = self.alone.filter(|_| !self.is_alone()) {
            let tok_s = alone.predicted.tok_s(self.objective);
            let streamed = if alone.is_streamed { ", streamed" } else { "" };
            write!(f, " ({} alone: {tok_s:.2}{streamed})", name(alone.node))?;
        }
        self.idle
            .iter()
            .try_for_each(|idle| write!(f, "; {} {}", name(idle.node), idle.reason))
    }
}

impl fmt::Display for IdleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slower { with_it_tok_s } => {
                write!(f, "would not help ({with_it_tok_s:.2} tokens/s with it)")
            }
            Self::TooLittleRam => f.write_str("has too little memory for one layer"),
            Self::NotConnected => f.write_str("has no usable link"),
            Self::NotDivisible => f.write_str("cannot help: the layers cannot be divided so"),
        }
    }
}

/// Writes out the best candidate.
pub(super) fn report(planner: &Planner<'_>, best: Candidate) -> RingPlan {
    let predicted = promise(planner, &best);
    let nodes = planner.measures.nodes.iter();
    let n_nodes = nodes.len();
    let used = best.mask();
    let costs = planner.costs_of(best.setting, best.setting.chunk, 0);
    let next = best
        .stages
        .iter()
        .skip(1)
        .map(|stage| stage.node)
        .chain([best.setting.lead]);
    let hops = best.stages.iter().map(|stage| stage.node).zip(next);
    let frame_ns = hops.filter_map(|(from, to)| costs.transfer(from, to)).max();
    let idle = (0..n_nodes).filter(|node| used & 1 << node == 0);
    RingPlan {
        idle: idle.map(|node| idle_node(planner, node)).collect(),
        lead: best.setting.lead,
        rounds: best.setting.rounds,
        chunk: best.setting.chunk,
        prompt_depth: predict::prompt_depth(&best.stages).max(1),
        decode_depth: best.setting.depth,
        frame_time: Duration::from_nanos(frame_ns.unwrap_or(0)),
        predicted,
        alone: alone(planner),
        names: nodes.map(|node| node.name.clone()).collect(),
        objective: planner.request.objective,
        stages: best.stages,
        loads: best.loads,
    }
}

fn promise(planner: &Planner<'_>, candidate: &Candidate) -> Predicted {
    predict::predicted(planner, candidate).expect("a candidate was judged by the same costs")
}

/// The fastest node alone; where the coordinator is given, only that one.
fn alone(planner: &Planner<'_>) -> Option<Alone> {
    let nodes = 0..planner.measures.nodes.len();
    let found = nodes.filter_map(|node| planner.search(1 << node, 0));
    let best = found.min_by(|a, b| a.score.cmp(&b.score))?;
    Some(Alone {
        node: best.setting.lead,
        predicted: promise(planner, &best),
        is_streamed: best.loads[0].streamed_bytes > 0,
    })
}

/// Why a node is not used: plans again with it.
fn idle_node(planner: &Planner<'_>, node: usize) -> IdleNode {
    let must = mask_of(&planner.request.must_use) | 1 << node;
    let forced = planner.search(all_nodes(planner.measures), must);
    let reason = match forced {
        Some(forced) => IdleReason::Slower {
            with_it_tok_s: promise(planner, &forced).tok_s(planner.request.objective),
        },
        None if planner.n_others(must) > planner.most_others() => IdleReason::NotDivisible,
        None if planner.fits_a_layer(node) => IdleReason::NotConnected,
        None => IdleReason::TooLittleRam,
    };
    IdleNode { node, reason }
}
