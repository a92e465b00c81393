//! The time and memory of a node that holds some layers: the only model of cost.

use std::ops::{Add, Range, Sub};

use super::{
    measure::{Measures, ModelSizes, NodeSpeed, PassTime, PlanRequest},
    report::NodeLoad,
};

/// Memory of a node beside its share, activations and frames, bytes (RING §16).
const NODE_BYTES: u64 = 12 << 20;

/// Frames that a node holds at once: one in, one out, one under computation, and those in pieces.
const N_FRAMES: u64 = 6;

/// Bytes of a frame beside its rows: header, checksum, operations and runs.
const FRAME_BYTES: u64 = 64 << 10;

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
    /// KV cache and states of all sequences, and their copies, bytes.
    pub kv: u64,
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
    /// Most rows of any batch of the plan: scratch and frames are made for them.
    pub chunk: u64,
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
    /// Sums over the layers before l, for l in 0..=n_layers.
    sums: Vec<Totals>,
    head: Totals,
    embed_bytes: u64,
    /// The largest layer, bytes.
    largest: u64,
    scratch: u64,
    frame_bytes: u64,
    /// Of a row between machines.
    row_bytes: u64,
}

impl<'a> Costs<'a> {
    pub(super) fn new(
        model: &ModelSizes,
        measures: &'a Measures,
        request: &PlanRequest,
        rows: BatchShape,
    ) -> Self {
        let frame_row_bytes = model.d_model.saturating_mul(4);
        let d_row = u16::try_from(model.d_model).unwrap_or(u16::MAX);
        let row_bytes = request.wire.row_bytes(d_row).unwrap_or(0) as u64;
        let n_states = N_FLIGHTS.saturating_add(model.n_states);
        let n_states = n_states.saturating_mul(request.n_seqs);
        let margin = rows.chunk.saturating_mul(N_FLIGHTS).saturating_add(BLOCK);
        let mut sums = vec![Totals::default()];
        for layer in &model.layers {
            let held = |n: u64| layer.window.map_or(n, |w| n.min(w.saturating_add(margin)));
            let kv = layer.kv_bytes.saturating_mul(held(request.n_ctx));
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
                kv: kv
                    .saturating_mul(request.n_seqs)
                    .saturating_add(states)
                    .saturating_add(copied),
                kv_read: layer.kv_bytes.saturating_mul(past).saturating_mul(rows.n),
            };
            sums.push(sums[sums.len() - 1] + next);
        }
        let largest = model.layers.iter().map(|layer| layer.weight_bytes).max();
        Self {
            measures,
            rows,
            sums,
            head: head(model, rows),
            embed_bytes: model.embed_bytes,
            largest: largest.unwrap_or(0),
            scratch: model
                .scratch_row_bytes
                .saturating_mul(rows.chunk)
                .saturating_add(model.fixed_bytes),
            frame_bytes: frame_row_bytes
                .saturating_mul(rows.chunk)
                .saturating_add(FRAME_BYTES),
            row_bytes,
        }
    }

    /// The sums over a range of layers.
    pub(super) fn totals(&self, layers: &Range<usize>) -> Totals {
        self.sums[layers.end] - self.sums[layers.start]
    }

    /// Time and memory of a node with these layers; `None` if they do not fit, not even streamed.
    ///
    /// Memory: `fixed = 12 MiB + scratch + 6 frames + KV + copies (+ embedding)`. With
    /// `free = ram − fixed` and weights `w`:
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
        let load = self.load(node, totals, part)?;
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

    fn load(&self, node: usize, totals: Totals, part: Part) -> Option<NodeLoad> {
        let measure = &self.measures.nodes[node];
        let (embed, largest) = match part {
            Part::Lead => (self.embed_bytes, self.largest.max(self.head.weights)),
            Part::Stage => (0, self.largest),
        };
        let fixed = [
            NODE_BYTES,
            self.scratch,
            self.frame_bytes.saturating_mul(N_FRAMES),
            totals.kv,
            embed,
        ];
        let fixed = fixed.into_iter().fold(0, u64::saturating_add);
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
