//! The time and memory of a node that holds some layers: the only model of cost.

use std::ops::{Add, Range, Sub};

use super::{
    measure::{Measures, ModelSizes, NodeSpeed, PassTime, PlanRequest},
    report::NodeLoad,
};
use crate::{cut::frame_bytes_of, journal::MAX_JOINING};

/// Memory of a node beside its share, activations and frames, bytes (RING §16): the program, the
/// stacks of its threads, and on the coordinator the vocabulary.
const NODE_BYTES: u64 = 12 << 20;

/// Batches in flight for which windows and recurrent states are counted. A ring has one for each
/// stage; the number is the same for all plans, so that fewer nodes never need less memory each.
const N_FLIGHTS: u64 = 4;

/// Positions whose keys and values are copied at once.
const N_COPIED: u64 = crate::journal::N_COPIED as u64;

/// Positions of a block of the KV cache: a window is kept in whole ones.
const BLOCK: u64 = 32;

/// Sums over some layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Weights, bytes.
    pub weights: u64,
    /// Weights that a batch reads, bytes.
    pub read: u64,
    /// Weights by which measured times are scaled, bytes.
    pub timed: u64,
    /// Multiply-adds of a batch.
    pub macs: u64,
    /// KV cache and states of all sequences, bytes.
    pub kv: u64,
    /// Keys and values that are copied to or from a stage, bytes.
    pub copied: u64,
    /// KV cache that a batch reads, bytes.
    pub kv_read: u64,
}

impl Add for Totals {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            weights: self.weights.saturating_add(other.weights),
            read: self.read.saturating_add(other.read),
            timed: self.timed.saturating_add(other.timed),
            macs: self.macs.saturating_add(other.macs),
            kv: self.kv.saturating_add(other.kv),
            copied: self.copied.saturating_add(other.copied),
            kv_read: self.kv_read.saturating_add(other.kv_read),
        }
    }
}

impl Sub for Totals {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            weights: self.weights.saturating_sub(other.weights),
            read: self.read.saturating_sub(other.read),
            timed: self.timed.saturating_sub(other.timed),
            macs: self.macs.saturating_sub(other.macs),
            kv: self.kv.saturating_sub(other.kv),
            copied: self.copied.saturating_sub(other.copied),
            kv_read: self.kv_read.saturating_sub(other.kv_read),
        }
    }
}

/// The shape of a batch whose time is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchShape {
    /// Rows that pass the layers.
    pub n: u64,
    /// Rows with logits.
    pub n_wanted: u64,
    /// Times that a lap visits each node.
    pub rounds: u64,
}

/// How a node takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Embedding and head, and perhaps layers.
    Lead,
    /// Layers only.
    Stage,
}

/// Time and memory of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeCost {
    /// Computing, ns.
    pub compute: u64,
    /// Reading weights that are not in memory, ns.
    pub read: u64,
    pub load: NodeLoad,
}

/// Costs of one model, wish and batch.
pub(super) struct Costs<'a> {
    pub measures: &'a Measures,
    pub rows: BatchShape,
    model: &'a ModelSizes,
    request: &'a PlanRequest,
    /// Sums over the layers before l, for l in 0..=n_layers.
    sums: Vec<Totals>,
    head: Totals,
    /// The largest layer, bytes.
    largest: u64,
    scratch: u64,
    /// Of all frames of a machine.
    frame_bytes: u64,
    /// Of a row between machines.
    row_bytes: u64,
}

impl<'a> Costs<'a> {
    pub(super) fn new(
        model: &'a ModelSizes,
        measures: &'a Measures,
        request: &'a PlanRequest,
        rows: BatchShape,
    ) -> Self {
        let d_row = u16::try_from(model.d_model).unwrap_or(u16::MAX);
        let row_bytes = request.wire.row_bytes(d_row).unwrap_or(0) as u64;
        let n_states = N_FLIGHTS.saturating_add(model.n_states);
        let n_states = n_states.saturating_mul(request.n_seqs);
        let margin = request
            .n_batch
            .saturating_mul(N_FLIGHTS)
            .saturating_add(BLOCK);
        let mut sums = vec![Totals::default()];
        for layer in &model.layers {
            let held = |n: u64| layer.window.map_or(n, |w| n.min(w.saturating_add(margin)));
            let n_held = pool(request, held(request.n_ctx));
            let states = layer.state_bytes.saturating_mul(n_states);
            let copied = layer.kv_bytes.saturating_mul(request.n_ctx.min(N_COPIED));
            let past = layer.window.unwrap_or(u64::MAX).min(request.n_past);
            let next = Totals {
                weights: layer.weight_bytes,
                read: layer
                    .row_bytes
                    .saturating_mul(rows.n)
                    .min(layer.weight_bytes),
                timed: layer.weight_bytes,
                macs: layer.macs.saturating_mul(rows.n),
                kv: layer.kv_bytes.saturating_mul(n_held).saturating_add(states),
                copied,
                kv_read: layer.kv_bytes.saturating_mul(past).saturating_mul(rows.n),
            };
            sums.push(sums[sums.len() - 1] + next);
        }
        let largest = model.layers.iter().map(|layer| layer.weight_bytes).max();
        Self {
            measures,
            rows,
            model,
            request,
            sums,
            head: head(model, rows),
            largest: largest.unwrap_or(0),
            scratch: model
                .scratch_row_bytes
                .saturating_mul(request.n_batch)
                .saturating_add(model.fixed_bytes),
            frame_bytes: frame_bytes_of(model.d_model, request.n_batch),
            row_bytes,
        }
    }

    /// The sums over a range of layers.
    pub(super) fn totals(&self, layers: &Range<usize>) -> Totals {
        self.sums[layers.end] - self.sums[layers.start]
    }

    /// Time and memory of a node with these layers; `None` if they do not fit, not even streamed.
    ///
    /// Memory: `fixed = 12 MiB + scratch + KV`, and besides
    /// - of a stage its 6 frames, links, and copies of keys and values, 64 MiB at most;
    /// - of the coordinator embedding and logits, and in a ring the scratch of the head, 6 frames,
    ///   links and the journal.
    ///
    /// With `free = ram − fixed` and weights `w`:
    /// - `w ≤ free`: all resident;
    /// - else, one round: a buffer of the largest layer or head, `streamed = w − (free − buffer)`;
    /// - else, r rounds: the buffer holds the next round's streamed piece, so that reading goes on
    ///   while other nodes compute: `streamed = (w − free) · r/(r − 1)`, buffer `streamed / r`.
    ///
    /// Time: `compute = max((read + kv) / memory rate, macs / mac rate)`, or T(c) in proportion to
    /// the weights; `read = streamed · min(1, read / w) / disk rate`.
    pub(super) fn node(&self, node: usize, layers: Totals, part: Part) -> Option<NodeCost> {
        let totals = match part {
            Part::Lead => layers + self.head,
            Part::Stage => layers,
        };
        let fixed = self.fixed(layers, part);
        let load = self.load(node, totals, part, fixed)?;
        let measure = &self.measures.nodes[node];
        let share = (totals.read as f64 / totals.weights.max(1) as f64).min(1.0);
        let per_pass = load.streamed_bytes as f64 * share;
        let read = match load.streamed_bytes {
            0 => 0,
            _ => nanoseconds(per_pass / measure.disk_bytes_per_s),
        };
        Some(NodeCost {
            compute: nanoseconds(self.compute(&measure.speed, totals)),
            read,
            load,
        })
    }

    /// Memory of a node with these layers beside their weights, bytes.
    fn fixed(&self, layers: Totals, part: Part) -> u64 {
        let Self { model, request, .. } = self;
        let lead = [model.embed_bytes, model.output_bytes];
        let ring = [
            self.scratch,
            self.frame_bytes,
            request.lead_link_bytes,
            model.journal_bytes,
        ];
        let stage = [
            self.frame_bytes,
            request.stage_link_bytes,
            layers.copied.min(MAX_JOINING as u64),
        ];
        let is_alone = self.sums.last() == Some(&layers);
        let beside = match part {
            Part::Stage => stage.to_vec(),
            Part::Lead if is_alone => lead.to_vec(),
            Part::Lead => lead.into_iter().chain(ring).collect(),
        };
        let all = [NODE_BYTES, self.scratch, layers.kv].into_iter();
        all.chain(beside).fold(0, u64::saturating_add)
    }

    fn load(&self, node: usize, totals: Totals, part: Part, fixed: u64) -> Option<NodeLoad> {
        let measure = &self.measures.nodes[node];
        let embed = match part {
            Part::Lead => self.model.embed_bytes,
            Part::Stage => 0,
        };
        let largest = match part {
            Part::Lead => self.largest.max(self.head.weights),
            Part::Stage => self.largest,
        };
        let free = measure.ram_bytes.checked_sub(fixed)?;
        let missing = totals.weights.saturating_sub(free);
        let (streamed, buffer) = match missing {
            0 => (0, 0),
            _ if measure.disk_bytes_per_s <= 0.0 => return None,
            _ if self.rows.rounds == 1 => (missing.saturating_add(largest), largest),
            _ => {
                let part = missing.div_ceil(self.rows.rounds - 1);
                (missing.saturating_add(part), part)
            }
        };
        // No more can be streamed than there is, and the buffer must be free.
        if streamed > totals.weights || buffer > free {
            return None;
        }
        let resident_bytes = totals.weights - streamed;
        let ram_bytes = fixed + resident_bytes + buffer;
        Some(NodeLoad {
            node,
            resident_bytes: resident_bytes + embed,
            streamed_bytes: streamed,
            kv_bytes: totals.kv,
            ram_bytes,
            ram_left_bytes: measure.ram_bytes.checked_sub(ram_bytes)?,
        })
    }

    /// Time of computing, s.
    fn compute(&self, speed: &NodeSpeed, totals: Totals) -> f64 {
        match speed {
            NodeSpeed::Rates {
                read_bytes_per_s,
                macs_per_s,
            } => {
                let bytes = totals.read as f64 + totals.kv_read as f64;
                (bytes / read_bytes_per_s).max(totals.macs as f64 / macs_per_s)
            }
            NodeSpeed::Measured {
                layer_bytes,
                points,
            } => {
                let n_layers = totals.timed as f64 / *layer_bytes as f64;
                n_layers * pass_time(points, self.rows.n)
            }
        }
    }

    /// Time of a batch from node to node, ns: half a round trip, and the rows' bytes over the
    /// link; `None` without a link. A node hands rows to itself in no time.
    pub(super) fn hop(&self, from: usize, to: usize) -> Option<u64> {
        if from == to {
            return Some(0);
        }
        let half = self.measures.link(from, to)?.rtt().div_f64(2.0);
        let transfer = self.transfer(from, to)?;
        Some(transfer.saturating_add(nanoseconds(half.as_secs_f64())))
    }

    /// Time for which a batch keeps a link busy, ns.
    pub(super) fn transfer(&self, from: usize, to: usize) -> Option<u64> {
        if from == to {
            return Some(0);
        }
        let link = self.measures.link(from, to)?;
        let bytes = self.row_bytes as f64 * self.rows.n as f64;
        Some(nanoseconds(bytes / link.bytes_per_s))
    }
}

/// Positions of all sequences, each with `n` at most. In a shared pool each may have a last block
/// that is not full.
fn pool(request: &PlanRequest, n: u64) -> u64 {
    let all = n.saturating_mul(request.n_seqs);
    let blocks = request.n_seqs.saturating_mul(BLOCK);
    let shared = |n_shared: u64| n_shared.saturating_add(blocks).max(n).min(all);
    request.n_shared.map_or(all, shared)
}

fn head(model: &ModelSizes, rows: BatchShape) -> Totals {
    let read = match rows.n_wanted {
        0 => 0,
        _ => model.head_read_bytes,
    };
    Totals {
        weights: model.head_bytes,
        read,
        timed: read,
        macs: model.head_macs.saturating_mul(rows.n_wanted),
        ..Totals::default()
    }
}

/// T(c) of the measured layer, s.
fn pass_time(points: &[PassTime], n_rows: u64) -> f64 {
    let time = |point: &PassTime| point.time.as_secs_f64();
    let after = points.partition_point(|point| point.n_rows < n_rows);
    match (after.checked_sub(1).map(|i| &points[i]), points.get(after)) {
        (Some(a), Some(b)) => {
            let part = (n_rows - a.n_rows) as f64 / (b.n_rows - a.n_rows) as f64;
            time(a) + part * (time(b) - time(a))
        }
        (Some(a), None) => time(a) * n_rows as f64 / a.n_rows as f64,
        (None, point) => point.map_or(0.0, time),
    }
}

/// Whole nanoseconds, rounded up; at most 2^56, two years, so that sums do not overflow.
fn nanoseconds(seconds: f64) -> u64 {
    ((seconds * 1e9).ceil() as u64).min(1 << 56)
}
