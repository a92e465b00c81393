//! The query heads that share a KV head, the positions that they see, and the stored rows of these
//! positions.
//!
//! It knows the paged KV cache and no arithmetic. Functions called once per chunk are not inlined:
//! they use no instruction set, and inlining them into the functions of each would take 28 KB.

use super::CHUNK;
use super::stored::Stored;
use crate::Kernels;
use crate::attention::{AttnRow, KvArray, KvLayer, KvRows, ones};
use std::ops::Range;

/// Query heads that share a KV head and a block table: the group of heads of each of a few rows.
pub(crate) struct Query<'a> {
    /// Calls the rotation of heads as a function; inlined, it would be in the program twice.
    pub(crate) kernels: Kernels,
    pub(crate) kv: &'a KvLayer<'a>,
    pub(crate) kv_head: usize,
    /// Query rows, `[n_rows, n_heads, d_head]`, beginning with the first row of this query.
    pub(crate) q: &'a [f32],
    pub(crate) n_heads: usize,
    /// The positions that the rows see; all rows have the same block table.
    pub(crate) rows: &'a [AttnRow<'a>],
    pub(crate) scale: f32,
    pub(crate) softcap: Option<f32>,
    /// How fast the scores of each head fall with the distance.
    pub(crate) slopes: Option<&'a (dyn Fn(usize) -> f32 + Sync)>,
    /// Attention sinks, `[n_heads]`.
    pub(crate) sinks: Option<&'a [f32]>,
}

/// A chunk of absolute positions.
pub(super) struct Chunk {
    pub(super) index: usize,
    /// The positions that some row sees, counted from the start of the chunk; not empty.
    pub(super) visible: Range<usize>,
}

/// The keys or the values of a layer: where they begin in each KV block, and how they lie there.
#[derive(Clone, Copy)]
pub(super) struct StoredRows {
    pub(super) at: usize,
    pub(super) rows: KvRows,
}

impl KvLayer<'_> {
    pub(super) fn stored_keys(&self) -> StoredRows {
        StoredRows {
            at: self.k_at,
            rows: self.keys(),
        }
    }

    pub(super) fn stored_values(&self) -> StoredRows {
        StoredRows {
            at: self.v_at,
            rows: self.values(),
        }
    }
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
        let group = self.group();
        let d = self.kv.d_head;
        let start = (i / group * self.n_heads + self.kv_head * group + i % group) * d;
        &self.q[start..start + d]
    }

    /// The sink of head `i`, if heads have one.
    #[inline(always)]
    pub(super) fn sink(&self, i: usize) -> Option<f32> {
        self.sinks
            .map(|sinks| sinks[self.kv_head * self.group() + i % self.group()])
    }

    /// Lowers the capped scores of head `i` in a chunk by their distances from its row.
    #[inline(never)]
    pub(super) fn lower_by_distance(
        &self,
        chunk: &Chunk,
        i: usize,
        scores: &mut [f32; CHUNK],
        visible: &Range<usize>,
    ) {
        let Some(slopes) = self.slopes else { return };
        let group = self.group();
        let slope = slopes(self.kv_head * group + i % group);
        let pos = self.rows[i / group].pos;
        let positions = chunk.index * CHUNK + visible.start..;
        for (score, p) in scores[visible.clone()].iter_mut().zip(positions) {
            *score -= slope * pos.abs_diff(p) as f32;
        }
    }

    /// All positions that some row sees.
    #[inline(always)]
    pub(super) fn visible(&self) -> Range<usize> {
        let first = self.rows.iter().map(|row| row.first).min().unwrap_or(0);
        let end = self.rows.iter().map(|row| row.last + 1).max();
        first..end.unwrap_or(first)
    }

    /// Chunk `index`; some row must see a position of it.
    #[inline(never)]
    pub(super) fn chunk(&self, index: usize) -> Chunk {
        let visible = self.visible();
        let start = index * CHUNK;
        Chunk {
            index,
            visible: visible.start.saturating_sub(start)..(visible.end - start).min(CHUNK),
        }
    }

    /// The chunks with a visible position.
    #[inline(never)]
    pub(crate) fn chunks(&self) -> Range<usize> {
        let visible = self.visible();
        visible.start / CHUNK..visible.end.div_ceil(CHUNK)
    }

    /// Sets the positions of a chunk that each of `heads` sees, counted from the start of the
    /// chunk, maybe none; and a mask of those of them that were chosen.
    #[inline(never)]
    pub(super) fn set_visible(
        &self,
        chunk: &Chunk,
        heads: Range<usize>,
        visible: &mut [Range<usize>],
        masks: &mut [u128],
    ) {
        let start = chunk.index * CHUNK;
        for ((visible, mask), i) in visible.iter_mut().zip(masks).zip(heads) {
            let row = &self.rows[i / self.group()];
            let end = (row.last + 1).saturating_sub(start).min(CHUNK);
            *visible = row.first.saturating_sub(start).min(end)..end;
            *mask = u128::MAX;
            if let Some(chosen) = row.chosen {
                *mask = chosen.mask(start) & ones(visible.clone());
                let end = CHUNK - mask.leading_zeros() as usize;
                *visible = (mask.trailing_zeros() as usize).min(end)..end;
            }
        }
    }

    /// Leaves of a chunk's positions those that some of these heads see; whether there are any.
    #[inline(never)]
    pub(super) fn narrow(&self, chunk: &mut Chunk, visible: &[Range<usize>]) -> bool {
        if self.rows.iter().all(|row| row.chosen.is_none()) {
            return true;
        }
        let seen = || visible.iter().filter(|visible| !visible.is_empty());
        let start = seen().map(|visible| visible.start).min().unwrap_or(0);
        let end = seen().map(|visible| visible.end).max().unwrap_or(0);
        chunk.visible = start..end;
        start < end
    }

    /// The visible keys or values of a chunk, without scales that have arrays of their own.
    #[inline(never)]
    pub(super) fn stored(&self, chunk: &Chunk, rows: StoredRows) -> Stored<'_> {
        let mut out: Stored<'_> = [&[]; CHUNK];
        let array = rows.rows.arrays(self.kv.block_len).next();
        let Some(array) = array.filter(|array| array.row_bytes > 0) else {
            return out;
        };
        for (positions, bytes) in self.runs(chunk, rows, array) {
            let rows = bytes.chunks_exact(array.row_bytes);
            out[positions]
                .iter_mut()
                .zip(rows)
                .for_each(|(out, row)| *out = row);
        }
        out
    }

    /// Copies the visible scales that have arrays of their own, one array in each of `scales`;
    /// those of other positions stay as they were.
    #[inline(never)]
    pub(super) fn copy_scales(&self, chunk: &Chunk, rows: StoredRows, scales: &mut [[f32; CHUNK]]) {
        let arrays = rows.rows.arrays(self.kv.block_len).skip(1);
        for (scales, array) in scales.iter_mut().zip(arrays) {
            for (positions, bytes) in self.runs(chunk, rows, array) {
                for (scale, bytes) in scales[positions].iter_mut().zip(bytes.as_chunks().0) {
                    *scale = f32::from_le_bytes(*bytes);
                }
            }
        }
    }

    /// The visible positions of a chunk, counted from its start, and their bytes in an array: a
    /// range of each block.
    pub(super) fn runs(
        &self,
        chunk: &Chunk,
        rows: StoredRows,
        array: KvArray,
    ) -> impl Iterator<Item = (Range<usize>, &[u8])> {
        let kv = self.kv;
        let start = chunk.index * CHUNK;
        let head = rows.at + self.kv_head * kv.block_len * rows.rows.row_bytes();
        let end = chunk.visible.end;
        let mut i = chunk.visible.start;
        std::iter::from_fn(move || {
            let p = start + i;
            let inside = p % kv.block_len;
            let n = (kv.block_len - inside).min(end - i);
            let positions = i..i + n;
            i += n;
            (n > 0).then(|| {
                let block = self.rows[0].blocks[p / kv.block_len] as usize * kv.block_bytes;
                let bytes = array.rows(inside..inside + n);
                (positions, &kv.arena[block + head..][bytes])
            })
        })
    }
}
