//! The choice of the positions that a query sees, as plain data.

/// Sparse attention by blocks of positions (Qwen4Exp; after DeepSeek-V3.2): an indexer, attention
/// without values, gives each earlier block of a layer a score for each query, which sees the best
/// blocks and the positions behind the last whole one. For the query at position t and block b:
///
/// ```text
/// q, k = W_q x, W_k x;  q_h = rope(norm(q_h), t)
/// k_b = rope(norm(mean of k in the block), its first position)
/// score_b = Σ_h max(q_h · k_b, 0)
/// ```
/// Blocks of largest score are chosen, the earlier one on ties. Blocks end at multiples of their
/// length, so that the choice is a function of the sequence alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Indexer {
    /// Heads of queries; keys have one.
    pub n_heads: usize,
    /// Width of a head. Its first elements are rotated as those of the attention.
    pub d_head: usize,
    /// Positions of a block.
    pub block_len: usize,
    /// Blocks that a query sees at most, beside the positions behind the last whole one.
    pub n_blocks: usize,
    /// Of the norms of queries and keys, as in [`Norm::Rms`](super::Norm::Rms).
    pub eps: f32,
}

impl Indexer {
    /// Whole blocks up to a position, its own included.
    pub fn n_whole(&self, pos: usize) -> usize {
        (pos + 1) / self.block_len
    }

    /// Whether the query at a position sees some blocks only.
    pub fn is_sparse_at(&self, pos: usize) -> bool {
        self.n_whole(pos) > self.n_blocks
    }

    /// Width of the queries of a position.
    pub fn d_queries(&self) -> usize {
        self.n_heads * self.d_head
    }
}
