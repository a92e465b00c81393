//! The kernels of attention: partial results of chunks, and their merge.
//!
//! A row of the tables says what a row sees: first and last visible position, its own position, and
//! the word of the tables where its block table begins, four words in all. Chunks are those of the
//! CPU, 128 absolute positions, so that any division of the work has the same bits.

use crate::heads::HeadPowers;
use crate::host::PARAM_WORDS;
use crate::quantize::NONE;
use crate::{Bindings, Dispatch, GpuKv, HeadRole, PipelineId};

/// Positions of a chunk.
pub const CHUNK: usize = 128;

/// Attention of rows over the KV cache, chunk by chunk.
#[derive(Clone, Copy, Debug)]
pub struct Attend {
    /// First word of the queries among the values, `[n_rows, n_heads, d_head]`.
    pub q: u32,
    /// Rows.
    pub n_rows: u32,
    /// First word of the rows among the tables, four words each.
    pub rows: u32,
    /// Query heads, a multiple of `n_kv_heads`.
    pub n_heads: u32,
    /// Heads of keys and values.
    pub n_kv_heads: u32,
    /// Width of a head: one that [`GpuKv::of`] takes.
    pub d_head: u32,
    /// Positions of a KV block.
    pub block_len: u32,
    /// Words of a KV block.
    pub block_words: u32,
    /// First word of the keys of this layer in a block.
    pub k: u32,
    /// First word of its values.
    pub v: u32,
    /// First word of the partial results among the activations.
    pub partials: u32,
    /// Chunks of the longest row.
    pub n_chunks: u32,
    /// Factor of the scores.
    pub scale: f32,
    /// Limits scores to ±cap.
    pub softcap: Option<f32>,
    /// First word among the weights of how fast scores fall with distance, `[n_heads]` f32.
    pub slopes: Option<u32>,
    /// First element of the value in a key that is one, for latent attention; `v` is `k` then.
    pub value_from: Option<u32>,
}

impl Attend {
    /// Words of all partial results: of each row, head and chunk the maximum, the sum of the
    /// weights, and the weighted values.
    pub fn partial_words(&self) -> usize {
        let n = self.n_rows as usize * self.n_heads as usize * self.n_chunks as usize;
        n * (2 + self.d_head as usize)
    }

    /// The run of the kernel [`Shader::attention`](crate::Shader::attention), or of
    /// [`Shader::latent_attention`](crate::Shader::latent_attention).
    pub fn dispatch(&self, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let mut params: [u32; PARAM_WORDS] = [0; PARAM_WORDS];
        params[1..8].copy_from_slice(&[
            self.q,
            self.n_heads,
            self.n_kv_heads,
            self.d_head,
            self.rows,
            self.block_len,
            self.k,
        ]);
        params[8..16].copy_from_slice(&[
            self.v,
            self.partials,
            self.n_chunks,
            self.slopes.unwrap_or(NONE),
            self.scale.to_bits(),
            self.softcap.unwrap_or(0.0).to_bits(),
            self.block_words,
            self.value_from.unwrap_or(NONE),
        ]);
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: [self.n_rows, self.n_heads, self.n_chunks],
        }
    }

    /// The merge of the partial results into values from word `out` on; `values` is how the KV
    /// cache holds values.
    pub fn merge(&self, values: GpuKv, out: u32) -> Merge {
        let role = match self.value_from {
            Some(_) => HeadRole::Key,
            None => HeadRole::Value,
        };
        Merge {
            attend: *self,
            sinks: None,
            out,
            rotation: values.rotation(role, self.d_head as usize),
            powers: None,
        }
    }
}

/// The merge of partial results, `[n_rows, n_heads, d_head]`.
#[derive(Clone, Copy, Debug)]
pub struct Merge {
    /// What made them.
    pub attend: Attend,
    /// First word among the weights of a score without a value for each head, `[n_heads]` f32.
    pub sinks: Option<u32>,
    /// First word of the results among the values.
    pub out: u32,
    /// Elements of a block of the rotation that stored values have; 0: none.
    pub rotation: u32,
    /// Powers of two that multiply the channels of the results.
    pub powers: Option<HeadPowers>,
}

impl Merge {
    /// The run of the kernel [`Shader::merge`](crate::Shader::merge).
    pub fn dispatch(&self, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let Attend {
            n_heads,
            d_head,
            rows,
            partials,
            n_chunks,
            n_rows,
            ..
        } = self.attend;
        let [powers, n_powers, group] = HeadPowers::words(self.powers);
        let mut params = [0; PARAM_WORDS];
        params[1..6].copy_from_slice(&[n_heads, d_head, rows, partials, n_chunks]);
        params[6..12].copy_from_slice(&[
            self.sinks.unwrap_or(NONE),
            self.out,
            self.rotation,
            powers,
            n_powers,
            group,
        ]);
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: [n_rows, n_heads, 1],
        }
    }
}
