//! The inputs and outputs of attention: a paged KV cache, query rows, scratch memory. The
//! arithmetic is in `algo/attention.rs`, the distribution over threads in `schedule.rs`.

mod rows;
mod schedule;

use std::ops::Range;

use crate::algo::attention::{CHUNK, partial_len};
pub use rows::{KvArray, KvElem, KvRole, KvRows};
pub(crate) use rows::{Q4_GROUP, VALUE_MAX};
pub(crate) use schedule::attention;

/// Widest head the kernels handle; they keep the values of a chunk on the stack.
pub const D_HEAD_MAX: usize = 1024;

/// The most rows whose context is split among threads. More rows keep the threads busy without
/// that.
const SPLIT_ROWS: usize = 4;

/// The paged KV cache of one layer. A KV block holds `block_len` positions of all layers of its
/// layer group; inside each block, the keys of this layer begin at byte `k_at` and its values at
/// `v_at`, each `[n_kv_heads]` of the rows of a head, which lie as [`KvRows`] says.
#[derive(Clone, Copy, Debug)]
pub struct KvLayer<'a> {
    /// All blocks, `[n_blocks, block_bytes]`.
    pub arena: &'a [u8],
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Byte of the first key inside a block.
    pub k_at: usize,
    /// Byte of the first value inside a block.
    pub v_at: usize,
    /// Positions per block.
    pub block_len: usize,
    /// Heads of keys and values.
    pub n_kv_heads: usize,
    /// Width of a head, at most 1024.
    pub d_head: usize,
    /// Element type of the keys.
    pub k_elem: KvElem,
    /// Element type of the values.
    pub v_elem: KvElem,
    /// The value of a position is its key from this element on: latent attention. `v_at` is `k_at`
    /// then, and `v_elem` is `k_elem`. With [`KvElem::F16`] the elements of the output before it
    /// are 0, with other types the whole key is the value.
    pub value_from: Option<usize>,
}

impl KvLayer<'_> {
    /// How keys are stored.
    pub fn keys(&self) -> KvRows {
        let role = match self.value_from {
            Some(value_from) => KvRole::Both { value_from },
            None => KvRole::Key,
        };
        KvRows {
            elem: self.k_elem,
            role,
            d: self.d_head,
        }
    }

    /// How values are stored.
    pub fn values(&self) -> KvRows {
        match self.value_from {
            Some(_) => self.keys(),
            None => KvRows {
                elem: self.v_elem,
                role: KvRole::Value,
                d: self.d_head,
            },
        }
    }
}

/// The positions that one query row attends to.
#[derive(Clone, Copy, Debug)]
pub struct AttnRow<'a> {
    /// Block table of its sequence: position p lies in block `blocks[p / block_len]`.
    pub blocks: &'a [u32],
    /// First visible position: 0, or the start of the window.
    pub first: usize,
    /// Last visible position, inclusive: that of the row, or that of the end of an encoder's text.
    pub last: usize,
    /// Position of the row itself.
    pub pos: usize,
    /// Of these, the only visible ones, at least one; `None`: all.
    pub chosen: Option<ChosenBlocks<'a>>,
}

/// Some positions, mostly in blocks of equal length.
#[derive(Clone, Copy, Debug)]
pub struct ChosenBlocks<'a> {
    /// Numbers of blocks, ascending: block `b` begins at position `b * len`.
    pub blocks: &'a [u32],
    /// Positions of a block, at least 1.
    pub len: usize,
    /// All positions from this one on belong to them.
    pub rest: usize,
}

impl ChosenBlocks<'_> {
    /// A bit for each position of the chunk that begins at `start`: whether it belongs to them.
    pub(crate) fn mask(&self, start: usize) -> u128 {
        let mut mask = ones(self.rest.saturating_sub(start)..CHUNK);
        let before = |&block: &u32| (block as usize + 1) * self.len <= start;
        let first = self.blocks.partition_point(before);
        for &block in &self.blocks[first..] {
            let at = block as usize * self.len;
            if at >= start + CHUNK {
                break;
            }
            let end = (at + self.len - start).min(CHUNK);
            mask |= ones(at.saturating_sub(start)..end);
        }
        mask
    }
}

/// A number with these bits, of those of a chunk.
pub(crate) fn ones(bits: Range<usize>) -> u128 {
    const { assert!(CHUNK == u128::BITS as usize) };
    match bits.is_empty() {
        true => 0,
        false => (u128::MAX >> (CHUNK - bits.len())) << bits.start,
    }
}

/// Attention of query rows over cached keys and values, which include those of the rows themselves.
pub struct Attention<'a> {
    /// Keys and values.
    pub kv: KvLayer<'a>,
    /// Queries after rope, `[n_rows, n_heads, d_head]`.
    pub q: &'a [f32],
    /// Returns the positions of row `t`. Called several times per row, so it should be cheap.
    pub rows: &'a (dyn Fn(usize) -> AttnRow<'a> + Sync),
    /// Query heads, a multiple of `kv.n_kv_heads`; neighbours share a KV head.
    pub n_heads: usize,
    /// Factor of the scores, mostly `1/√d_head`.
    pub scale: f32,
    /// Limits scores to ±cap by `cap·tanh(score/cap)`. Gemma 2, section 2.
    pub softcap: Option<f32>,
    /// Lowers the capped score of head `h` at distance `d` by `slopes(h)·d` (ALiBi, Press et al.
    /// 2022). Called once per head and chunk.
    pub slopes: Option<&'a (dyn Fn(usize) -> f32 + Sync)>,
    /// Attention sinks, `[n_heads]`: one more score per head in the softmax, without a value, so
    /// that a head can attend to nothing. Sinks are neither scaled nor capped.
    pub sinks: Option<&'a [f32]>,
    /// Weighted values, `[n_rows, n_heads, d_head]`.
    pub out: &'a mut [f32],
    /// Memory for partial results.
    pub scratch: &'a mut AttnScratch,
}

impl std::fmt::Debug for Attention<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attention")
            .field("n_heads", &self.n_heads)
            .field("scale", &self.scale)
            .finish_non_exhaustive()
    }
}

/// Memory for partial results of [`Kernels::attention`](crate::Kernels::attention).
pub struct AttnScratch {
    /// The softmax state of each chunk, `[rows, n_kv_heads, n_chunks, partial]`.
    partials: Vec<f32>,
}

impl std::fmt::Debug for AttnScratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AttnScratch")
            .field("n_partials", &self.partials.len())
            .finish_non_exhaustive()
    }
}

impl AttnScratch {
    /// Allocates memory for calls up to these sizes; none for one thread.
    pub fn new(
        n_rows_max: usize,
        n_heads: usize,
        d_head: usize,
        n_ctx_max: usize,
        n_threads: usize,
    ) -> Self {
        Self {
            partials: vec![
                0.0;
                Self::n_partials(n_rows_max, n_heads, d_head, n_ctx_max, n_threads)
            ],
        }
    }

    /// Bytes that [`new`](Self::new) allocates.
    pub fn bytes(
        n_rows_max: usize,
        n_heads: usize,
        d_head: usize,
        n_ctx_max: usize,
        n_threads: usize,
    ) -> u64 {
        4 * Self::n_partials(n_rows_max, n_heads, d_head, n_ctx_max, n_threads) as u64
    }

    fn n_partials(
        n_rows_max: usize,
        n_heads: usize,
        d_head: usize,
        n_ctx_max: usize,
        n_threads: usize,
    ) -> usize {
        let rows = if n_threads > 1 {
            n_rows_max.min(SPLIT_ROWS)
        } else {
            0
        };
        n_ctx_max
            .div_ceil(CHUNK)
            .saturating_mul(partial_len(n_heads, d_head))
            .saturating_mul(rows)
    }
}

#[cfg(test)]
mod tests;
