//! The blocks of a layer, each in one file that reads like its equation.
//!
//! A block gets a [`Pass`]: the rows of this step, the buffers, and where weights and state are. It adds its result to the
//! residual stream and knows nothing of the other blocks.

mod attention;
mod mlp;
mod norm;
mod rope;

use atta_kernels::{Activations, AttnScratch, Kernels, Pool};

use crate::{Model, Observer, Row, kv::Cache};

pub(crate) use attention::attention;
pub(crate) use mlp::mlp;
pub(crate) use norm::Normalize;
pub(crate) use rope::RopeTables;

/// One step on its way through the layers.
pub(crate) struct Pass<'a> {
    pub(crate) model: &'a Model,
    pub(crate) kernels: Kernels,
    pub(crate) pool: &'a Pool,
    pub(crate) rows: &'a [Row],
    pub(crate) cache: &'a mut Cache,
    pub(crate) ropes: &'a RopeTables,
    pub(crate) s: &'a mut Scratch,
    pub(crate) observer: &'a mut dyn Observer,
}

/// The buffers of a step, for the largest batch and the widest layer.
pub(crate) struct Scratch {
    /// The residual stream, [n_rows, d_model].
    pub(crate) x: Vec<f32>,
    /// Queries, [n_rows, n_heads, d_head].
    pub(crate) q: Vec<f32>,
    /// Keys, [n_rows, n_kv_heads, d_head].
    pub(crate) k: Vec<f32>,
    /// Values, [n_rows, n_kv_heads, d_head].
    pub(crate) v: Vec<f32>,
    /// What the heads return, [n_rows, n_heads, d_head].
    pub(crate) heads: Vec<f32>,
    /// The hidden layer of the perceptron, [n_rows, d_ff].
    pub(crate) ff: Vec<f32>,
    /// The input of the matmul at hand, quantized.
    pub(crate) act: Activations,
    /// Partial results of attention.
    pub(crate) attn: AttnScratch,
}
