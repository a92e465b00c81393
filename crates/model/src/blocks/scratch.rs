//! The buffers of a step, allocated once for the largest batch and the widest layer.

use atta_kernels::{Activations, AttnScratch};
use atta_store::{Budget, Reservation};

use super::MoeScratch;
use crate::{Error, spec::ModelSpec};

/// The buffers of a step.
pub(crate) struct Scratch {
    /// The residual stream, `[n_rows, d_model]`.
    pub(crate) x: Vec<f32>,
    /// What a block returned and the residual has yet to take, `[n_rows, d_model]`; empty where it always takes it at once.
    pub(crate) y: Vec<f32>,
    /// Queries, `[n_rows, n_heads, d_head]`.
    pub(crate) q: Vec<f32>,
    /// Keys, `[n_rows, n_kv_heads, d_head]`.
    pub(crate) k: Vec<f32>,
    /// Values, `[n_rows, n_kv_heads, d_head]`.
    pub(crate) v: Vec<f32>,
    /// What the heads return, `[n_rows, n_heads, d_head]`.
    pub(crate) heads: Vec<f32>,
    /// The hidden layer of the perceptron, `[n_rows, d_ff]`; of a group of experts more rows.
    pub(crate) ff: Vec<f32>,
    /// The input of the matmul at hand, quantized.
    pub(crate) act: Activations,
    /// Partial results of attention.
    pub(crate) attn: AttnScratch,
    /// Routes and results of experts.
    pub(crate) moe: MoeScratch,
}

impl Scratch {
    /// Buffers for steps of `n_rows` rows in a context of `n_ctx`, and what they take of the budget: first our own, which
    /// are of the same order as the rest, then the rest exactly. An absurd size is refused before anything is allocated.
    pub(crate) fn reserve(
        spec: &ModelSpec,
        n_threads: usize,
        n_rows: usize,
        n_ctx: usize,
        budget: &Budget,
    ) -> Result<(Self, [Reservation; 2]), Error> {
        let (d_q, d_kv, d_ff) = spec.max_widths();
        // Cosines and sines are counted here too; a head is no wider than all of them.
        let d_aside = if spec.keeps_aside() { spec.d_model } else { 0 };
        let widths = [spec.d_model, d_aside, d_q, d_kv, d_kv, d_q, spec.max_d_rope()];
        let n_act_rows = MoeScratch::n_act_rows(spec, n_rows);
        let per_row = widths.iter().map(|&d| 4 * d as u64).sum::<u64>().saturating_mul(n_rows as u64);
        let ff_bytes = (4 * d_ff as u64).saturating_mul(n_act_rows as u64);
        let own_bytes = per_row.saturating_add(ff_bytes).saturating_add(MoeScratch::bytes(spec, n_rows));
        let own = budget.reserve("activations", own_bytes)?;
        let zeros = |d: usize| vec![0.0; n_rows * d];
        let scratch = Self {
            x: zeros(spec.d_model),
            y: zeros(d_aside),
            q: zeros(d_q),
            k: zeros(d_kv),
            v: zeros(d_kv),
            heads: zeros(d_q),
            ff: vec![0.0; n_act_rows * d_ff],
            act: Activations::new(n_act_rows, spec.d_model.max(d_q).max(d_ff)),
            attn: AttnScratch::new(n_rows, spec.max_heads(), spec.max_d_head(), n_ctx, n_threads),
            moe: MoeScratch::new(spec, n_rows),
        };
        let rest = (scratch.act.heap_bytes() + scratch.attn.heap_bytes()) as u64;
        Ok((scratch, [own, budget.reserve("activations", rest)?]))
    }
}
