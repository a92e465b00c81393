//! The query heads that share a KV head, what they see, and where the keys and values they see lie.
//!
//! It knows the pages of the cache and no arithmetic. What is asked once per chunk is not inlined:
//! nothing in it is for an instruction set, and in each of their functions several times it would
//! be 28 KB.

use super::CHUNK;
use super::stored::Stored;
use crate::Kernels;
use crate::attention::{AttnRow, KvElem, KvLayer};
use std::ops::Range;

/// Query heads that share a KV head and a block table: the group of heads of each of a few rows.
pub(crate) struct Query<'a> {
    /// Has the rotation of heads as a function of its own: inlined here, it would be in the
    /// program twice.
    pub(crate) kernels: Kernels,
    pub(crate) kv: &'a KvLayer<'a>,
    pub(crate) kv_head: usize,
    /// Query rows, `[n_rows, n_heads, d_head]`, from the first row of this query on.
    pub(crate) q: &'a [f32],
    pub(crate) n_heads: usize,
    /// What the rows see; with one block table.
    pub(crate) rows: &'a [AttnRow<'a>],
    pub(crate) scale: f32,
    pub(crate) softcap: Option<f32>,
    /// The score of each head's sink, `[n_heads]`.
    pub(crate) sinks: Option<&'a [f32]>,
}

/// A chunk of absolute positions.
pub(super) struct Chunk {
    pub(super) index: usize,
    /// The positions that some row sees, counted from the start of the chunk; not empty.
    pub(super) seen: Range<usize>,
}

impl Query<'_> {
    /// Heads per row.
    #[inline(always)]
    pub(crate) fn group(&self) -> usize {
        self.n_heads / self.kv.n_kv_heads
    }

    /// Head `i % group` of row `i / group`, `[d_head]`.
    #[inline(always)]
    pub(super) fn head(&self, i: usize) -> &[f32] {
        let (group, d) = (self.group(), self.kv.d_head);
        let start = (i / group * self.n_heads + self.kv_head * group + i % group) * d;
        &self.q[start..start + d]
    }

    /// The sink of head `i`, if heads have one.
    #[inline(always)]
    pub(super) fn sink(&self, i: usize) -> Option<f32> {
        self.sinks
            .map(|sinks| sinks[self.kv_head * self.group() + i % self.group()])
    }

    /// All positions that some row sees.
    #[inline(always)]
    pub(super) fn seen(&self) -> Range<usize> {
        let first = self.rows.iter().map(|row| row.first).min().unwrap_or(0);
        first
            ..self
                .rows
                .iter()
                .map(|row| row.last + 1)
                .max()
                .unwrap_or(first)
    }

    /// Chunk `index`, of which some row must see a position.
    #[inline(never)]
    pub(super) fn chunk(&self, index: usize) -> Chunk {
        let (seen, start) = (self.seen(), index * CHUNK);
        Chunk {
            index,
            seen: seen.start.saturating_sub(start)..(seen.end - start).min(CHUNK),
        }
    }

    /// The chunks with a visible position.
    #[inline(never)]
    pub(crate) fn chunks(&self) -> Range<usize> {
        let seen = self.seen();
        seen.start / CHUNK..seen.end.div_ceil(CHUNK)
    }

    /// The positions of a chunk that each of `heads` sees, counted from the start of the chunk. May
    /// be empty.
    #[inline(never)]
    pub(super) fn set_visible(
        &self,
        chunk: &Chunk,
        heads: Range<usize>,
        visible: &mut [Range<usize>],
    ) {
        let start = chunk.index * CHUNK;
        for (visible, i) in visible.iter_mut().zip(heads) {
            let row = &self.rows[i / self.group()];
            let end = (row.last + 1).saturating_sub(start).min(CHUNK);
            *visible = row.first.saturating_sub(start).min(end)..end;
        }
    }

    /// The rows that are seen in a chunk, of the matrix `[n_kv_heads, block_len, d_head]` that lies
    /// at `at` inside each block.
    #[inline(never)]
    pub(super) fn stored(&self, chunk: &Chunk, (at, elem): (usize, KvElem)) -> Stored<'_> {
        let (kv, seen) = (self.kv, &chunk.seen);
        let len = elem.row_bytes(kv.d_head);
        let mut out: Stored<'_> = [&[]; CHUNK];
        let mut i = seen.start;
        while i < seen.end {
            // Positions of one block lie behind each other.
            let p = chunk.index * CHUNK + i;
            let n = (kv.block_len - p % kv.block_len).min(seen.end - i);
            let block = self.rows[0].blocks[p / kv.block_len] as usize * kv.block_bytes;
            let start = block + at + (self.kv_head * kv.block_len + p % kv.block_len) * len;
            let rows = kv.arena[start..start + n * len].chunks_exact(len);
            out[i..i + n]
                .iter_mut()
                .zip(rows)
                .for_each(|(out, row)| *out = row);
            i += n;
        }
        out
    }
}
