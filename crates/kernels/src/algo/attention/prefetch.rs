//! Prefetches the keys and values of the next chunk while a chunk is computed.
//!
//! The rows of a head in a block are a few KB, so a hardware prefetcher has hardly begun when they
//! end. The next chunk is therefore prefetched by rows of its four quarters in turn: four streams,
//! as in `algo/unpack.rs`. Only for few heads, which wait for memory; many heads compute long
//! enough. A row over 4,096 positions, f16, 32 heads on 8 of width 64, a core with AVX-512: 7.9
//! instead of 5.7 GB/s of keys and values.

use super::query::{Chunk, StoredRows};
use super::{CHUNK, FEW, Query};
use crate::isa::Codes;
use std::ops::Range;

const STREAMS: usize = 4;
/// Positions of a stream.
const QUARTER: usize = CHUNK / STREAMS;
/// Bytes of a cache line.
const LINE: usize = 64;

/// The stored rows to prefetch: keys or values of the chunk that the thread probably computes next.
pub(super) struct Prefetch<'a> {
    /// The visible rows of each quarter of the chunk.
    streams: [&'a [u8]; STREAMS],
    row_bytes: usize,
}

impl Prefetch<'_> {
    pub(super) const NONE: Self = Self {
        streams: [&[]; STREAMS],
        row_bytes: 0,
    };

    /// Whether there is anything to prefetch.
    #[inline(always)]
    pub(super) fn is_some(&self) -> bool {
        self.row_bytes > 0
    }

    /// Prefetches the next chunk's share for these positions of the current one: for position `i`,
    /// row `i / 4` of quarter `i % 4`.
    #[inline(always)]
    pub(super) fn rows<I: Codes>(&self, isa: I, positions: Range<usize>) {
        if !I::ASKS || !self.is_some() {
            return;
        }
        for i in positions {
            let stream = self.streams[i % STREAMS];
            let row = i / STREAMS;
            let rows = row * self.row_bytes..stream.len().min((row + 1) * self.row_bytes);
            for line in rows.start.div_ceil(LINE)..rows.end.div_ceil(LINE) {
                isa.prefetch(stream, line * LINE);
            }
        }
    }
}

impl Query<'_> {
    /// The rows behind a chunk, of keys or of values.
    #[inline(always)]
    pub(super) fn prefetch<I: Codes>(&self, chunk: &Chunk, rows: StoredRows) -> Prefetch<'_> {
        if I::ASKS && self.rows.len() * self.group() <= FEW {
            self.next_chunk(chunk, rows)
        } else {
            Prefetch::NONE
        }
    }

    /// The rows of the next chunk of the same head, or of the first chunk of the next head. In a
    /// quarter that spans two blocks, rows of the wrong block may be prefetched.
    #[inline(never)]
    fn next_chunk(&self, chunk: &Chunk, rows: StoredRows) -> Prefetch<'_> {
        let kv = self.kv;
        let chunks = self.chunks();
        let Some(array) = rows.rows.arrays(kv.block_len).next() else {
            return Prefetch::NONE;
        };
        let (head, index) = match chunk.index + 1 {
            next if next < chunks.end => (self.kv_head, next),
            _ => (self.kv_head + 1, chunks.start),
        };
        if head == kv.n_kv_heads {
            return Prefetch::NONE;
        }
        let visible = self.visible();
        let stream = |quarter: usize| {
            let p = index * CHUNK + quarter * QUARTER;
            let n = if visible.start < p + QUARTER {
                visible.end.saturating_sub(p).min(QUARTER)
            } else {
                0
            };
            let block = *self.rows[0].blocks.get(p / kv.block_len)? as usize;
            let start = block.checked_mul(kv.block_bytes)?
                + rows.at
                + head * kv.block_len * rows.rows.row_bytes();
            let inside = p % kv.block_len;
            kv.arena.get(start..)?.get(array.rows(inside..inside + n))
        };
        Prefetch {
            streams: std::array::from_fn(|quarter| stream(quarter).unwrap_or_default()),
            row_bytes: array.row_bytes,
        }
    }
}
