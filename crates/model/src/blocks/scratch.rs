//! The buffers of a step, allocated once for the largest batch and the widest layer.

use atta_kernels::{Activations, AttnScratch};

use super::{IndexerScratch, MoeScratch, StreamsScratch};
use crate::spec::{Attention, Latent, ModelSpec};

/// The buffers of a step.
pub(crate) struct Scratch {
    /// The residual stream, `[n_rows, d_model]`; of several, what layers and the head read of them.
    pub(crate) x: Vec<f32>,
    /// The deferred result of a sublayer, and sums that are normalized, `[n_rows, d_model]`; empty
    /// if there are none.
    pub(crate) y: Vec<f32>,
    /// Queries, `[n_rows, n_heads, d_head]`.
    pub(crate) q: Vec<f32>,
    /// Keys, `[n_rows, n_kv_heads, d_head]`.
    pub(crate) k: Vec<f32>,
    /// Values, `[n_rows, n_kv_heads, d_head]`.
    pub(crate) v: Vec<f32>,
    /// Other projections of a mixer's input, `[n_rows, max_d_mixer]`; empty without any.
    pub(crate) mixer: Vec<f32>,
    /// Results of the heads, `[n_rows, n_heads, d_head]`.
    pub(crate) heads: Vec<f32>,
    /// The hidden layer of the MLP, `[n_rows, d_ff]`; a group of experts may have more rows.
    pub(crate) ff: Vec<f32>,
    /// Gates of sparse MLPs, `[n_rows, d_ff]`; empty without any.
    pub(crate) gates: Vec<f32>,
    /// Results of the low-rank layer beside a mixer, `[n_rows, d_model]`; empty without any.
    pub(crate) laurel: Vec<f32>,
    /// Streams of alternating updates, `[n_rows, n, d_model]`; empty for a model without.
    pub(crate) alternating: Vec<f32>,
    /// The embeddings of all layers, `[n_rows, n_layers, d]`; empty for a model without.
    pub(crate) layer_inputs: Vec<f32>,
    /// A row of the table of these embeddings, decoded, `[n_layers, d]`.
    pub(crate) layer_token: Vec<f32>,
    /// Rows of the tables of n-grams, `[n_rows, n_tables]`; empty for a model without.
    pub(crate) table_rows: Vec<u32>,
    /// The input of the current matmul, quantized.
    pub(crate) act: Activations,
    /// Partial results of attention.
    pub(crate) attn: AttnScratch,
    /// Positions that queries see.
    pub(crate) indexer: IndexerScratch,
    /// Bounds of the rows of each head in `act`, `[n_heads + 1]`; no more than that is allocated.
    pub(crate) bounds: Vec<usize>,
    /// Routes and results of experts.
    pub(crate) moe: MoeScratch,
    /// Several residual streams.
    pub(crate) streams: StreamsScratch,
    /// Embedding and hidden state of a draft head, `[n_rows, 2 d_model]`; empty for other models.
    pub(crate) joined: Vec<f32>,
    /// A row as the head reads it, `[d_model]`; empty until a mean row is multiplied by it.
    pub(crate) normed: Vec<f32>,
}

/// The size of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScratchSize {
    pub(crate) n_threads: usize,
    /// Rows of a step.
    pub(crate) n_rows: usize,
    /// Positions of the context.
    pub(crate) n_ctx: usize,
}

impl Scratch {
    /// Buffers for steps of this size.
    pub(crate) fn new(spec: &ModelSpec, size: ScratchSize) -> Self {
        let ScratchSize {
            n_threads,
            n_rows,
            n_ctx,
        } = size;
        let (d_q, d_kv, d_ff) = spec.max_widths();
        let n_act_rows = MoeScratch::n_act_rows(spec, n_rows);
        let zeros = |d: usize| vec![0.0; n_rows * d];
        Self {
            x: zeros(spec.d_model),
            y: zeros(d_deferred(spec)),
            q: zeros(d_q),
            k: zeros(d_kv),
            v: zeros(d_kv),
            mixer: zeros(spec.max_d_mixer()),
            heads: zeros(spec.max_d_heads()),
            ff: vec![0.0; n_act_rows * d_ff],
            gates: zeros(spec.max_d_sparse()),
            laurel: zeros(d_laurel(spec)),
            alternating: zeros(d_alternating(spec)),
            layer_inputs: zeros(spec.d_layer_inputs()),
            layer_token: vec![0.0; spec.d_layer_inputs()],
            table_rows: vec![0; n_rows * n_tables(spec)],
            act: Activations::new(n_act_rows, d_act(spec)),
            attn: AttnScratch::new(
                n_rows,
                spec.max_heads(),
                spec.max_d_head(),
                n_ctx,
                n_threads,
            ),
            indexer: IndexerScratch::new(spec, n_rows, n_ctx),
            bounds: Vec::with_capacity(n_bounds(spec)),
            moe: MoeScratch::new(spec, n_rows),
            streams: StreamsScratch::new(spec, n_rows),
            joined: zeros(d_joined(spec)),
            normed: Vec::new(),
        }
    }

    /// Bytes of the buffers, including cosines and sines.
    pub(crate) fn bytes(spec: &ModelSpec, size: ScratchSize) -> u64 {
        let ScratchSize {
            n_threads,
            n_rows,
            n_ctx,
        } = size;
        let (d_q, d_kv, d_ff) = spec.max_widths();
        let n_act_rows = MoeScratch::n_act_rows(spec, n_rows);
        let widths = [
            spec.d_model,
            d_deferred(spec),
            d_q,
            d_kv,
            d_kv,
            spec.max_d_heads(),
            spec.max_d_mixer(),
            spec.max_d_rope(),
            spec.max_d_sparse(),
            d_laurel(spec),
            d_alternating(spec),
            spec.d_layer_inputs(),
            n_tables(spec),
            StreamsScratch::n_floats(spec),
            d_joined(spec),
        ];
        let floats = |d: usize, n: usize| (4 * d as u64).saturating_mul(n as u64);
        let parts = [
            widths
                .iter()
                .map(|&d| floats(d, n_rows))
                .fold(0, u64::saturating_add),
            floats(d_ff, n_act_rows),
            floats(spec.d_layer_inputs(), 1),
            Activations::bytes(n_act_rows, d_act(spec)),
            AttnScratch::bytes(
                n_rows,
                spec.max_heads(),
                spec.max_d_head(),
                n_ctx,
                n_threads,
            ),
            size_of::<usize>() as u64 * n_bounds(spec) as u64,
            MoeScratch::bytes(spec, n_rows),
            IndexerScratch::bytes(spec, n_rows, n_ctx),
        ];
        parts.into_iter().fold(0, u64::saturating_add)
    }
}

/// Width of deferred results.
fn d_deferred(spec: &ModelSpec) -> usize {
    if spec.defers_residual() || spec.embed_norm.is_some() {
        spec.d_model
    } else {
        0
    }
}

/// Width of an embedding and a hidden state together.
fn d_joined(spec: &ModelSpec) -> usize {
    spec.join.as_ref().map_or(0, |_| 2 * spec.d_model)
}

/// Width of the results of low-rank layers.
fn d_laurel(spec: &ModelSpec) -> usize {
    if spec.has_laurel() { spec.d_model } else { 0 }
}

/// Width of all streams of the residual.
fn d_alternating(spec: &ModelSpec) -> usize {
    spec.alt_up.map_or(0, |alt| alt.n * spec.d_model)
}

/// Tables of n-grams.
fn n_tables(spec: &ModelSpec) -> usize {
    spec.ngrams().map_or(0, |(_, ngrams)| ngrams.tables.len())
}

/// Bounds of the heads of latent attention.
fn n_bounds(spec: &ModelSpec) -> usize {
    let latent = spec.attentions().filter(|a| a.latent().is_some());
    latent.map(|a| a.n_heads + 1).max().unwrap_or(0)
}

/// Width of the widest input of a matmul.
fn d_act(spec: &ModelSpec) -> usize {
    let (_, _, d_ff) = spec.max_widths();
    let latents = spec.attentions().filter_map(Attention::latent);
    let d_latent = |l: &Latent| l.d_query.unwrap_or(0).max(l.d_latent).max(l.d_key);
    let d_latent = latents.map(d_latent).max().unwrap_or(0);
    let d_ngrams = spec.ngrams().map_or(0, |(_, ngrams)| ngrams.d_embed());
    let d_streams = StreamsScratch::d_act(spec);
    let join = spec.join.as_ref();
    let d_states = join.map_or(0, |join| join.taps.len() * join.d_target);
    let d_join = d_joined(spec).max(d_states);
    [
        spec.max_d_mixed(),
        d_ff,
        d_latent,
        d_ngrams,
        d_streams,
        d_join,
    ]
    .into_iter()
    .fold(spec.d_model, usize::max)
}
