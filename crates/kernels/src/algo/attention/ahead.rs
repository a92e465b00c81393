//! Keys and values that come next, asked for from memory while those of a chunk are computed.
//!
//! A head's run in a block is a few KB, so a processor's own prefetcher has hardly begun when it
//! ends. The next chunk is therefore asked for a row of each quarter in turn: four streams, as in
//! `algo/unpack.rs`. It is for few heads, where memory is waited for; many heads compute long
//! enough. A row over 4,096 positions, f16, 32 heads on 8 of width 64, a core with AVX-512: 7.9
//! instead of 5.7 GB/s of keys and values.

use super::query::Chunk;
use super::{CHUNK, FEW, Query};
use crate::attention::KvElem;
use crate::isa::Codes;
use std::ops::Range;

const STREAMS: usize = 4;
/// Positions of a stream.
const QUARTER: usize = CHUNK / STREAMS;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Stored rows of one matrix, of the chunk that the thread computes next, as far as can be told.
pub(super) struct Ahead<'a> {
    /// The rows that are seen of each quarter of the chunk.
    streams: [&'a [u8]; STREAMS],
    row_bytes: usize,
}

impl Ahead<'_> {
    const NOTHING: Self = Self {
        streams: [&[]; STREAMS],
        row_bytes: 0,
    };

    /// Whether there is anything to ask for.
    #[inline(always)]
    pub(super) fn asks(&self) -> bool {
        self.row_bytes > 0
    }

    /// Asks for some rows of the chunk, of which row `i / 4` of quarter `i % 4` is the one of turn
    /// `i`. Who sees a part of a chunk has a part of the turns, and so asks for a part of the
    /// next one.
    #[inline(always)]
    pub(super) fn ask<I: Codes>(&self, isa: I, turns: Range<usize>) {
        if !I::ASKS || !self.asks() {
            return;
        }
        for i in turns {
            let (stream, row) = (self.streams[i % STREAMS], i / STREAMS);
            let rows = row * self.row_bytes..stream.len().min((row + 1) * self.row_bytes);
            for line in rows.start.div_ceil(LINE)..rows.end.div_ceil(LINE) {
                isa.prefetch(stream, line * LINE);
            }
        }
    }
}

impl Query<'_> {
    /// What comes behind a chunk; `matrix` says where it lies inside each block, and its type.
    #[inline(always)]
    pub(super) fn ahead<I: Codes>(&self, chunk: &Chunk, matrix: (usize, KvElem)) -> Ahead<'_> {
        if I::ASKS && self.rows.len() * self.group() <= FEW {
            self.next_chunk(chunk, matrix)
        } else {
            Ahead::NOTHING
        }
    }

    /// The next chunk of the same head, or the first of the next head. Of a quarter that lies in
    /// two blocks, the rows behind those of the first one are others.
    #[inline(never)]
    fn next_chunk(&self, chunk: &Chunk, (at, elem): (usize, KvElem)) -> Ahead<'_> {
        let (kv, chunks, row_bytes) = (self.kv, self.chunks(), elem.row_bytes(self.kv.d_head));
        let (head, index) = match chunk.index + 1 {
            next if next < chunks.end => (self.kv_head, next),
            _ => (self.kv_head + 1, chunks.start),
        };
        if head == kv.n_kv_heads {
            return Ahead::NOTHING;
        }
        let seen = self.seen();
        let stream = |quarter: usize| {
            let p = index * CHUNK + quarter * QUARTER;
            let n = if seen.start < p + QUARTER {
                seen.end.saturating_sub(p).min(QUARTER)
            } else {
                0
            };
            let block = *self.rows[0].blocks.get(p / kv.block_len)? as usize;
            let start = block.checked_mul(kv.block_bytes)?
                + at
                + (head * kv.block_len + p % kv.block_len) * row_bytes;
            kv.arena.get(start..start + n * row_bytes)
        };
        Ahead {
            streams: std::array::from_fn(|quarter| stream(quarter).unwrap_or_default()),
            row_bytes,
        }
    }
}
