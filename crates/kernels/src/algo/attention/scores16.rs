//! Scores with keys of 16-bit codes.
//!
//! ```text
//! query:  q ≈ scale_q·x, one scale for the head;  t = scale·scale_q
//! score = ((Σ code·x)·scale_0 + (Σ code·x)·scale_1 + …)·t      by sections of 128 elements
//! ```
//! Sums of codes are exact in any order, and the definition of codes bounds them; the f32 steps are
//! never fused. Keys are transposed by pairs of elements, sixteen keys a vector, so that no step
//! adds across lanes; four heads times 64 keys are a tile whose sums stay in registers. Positions
//! that no row sees may hold any codes and scales: their scores are replaced by −∞.

use super::super::codes16::{encode, key_scale};
use super::super::lanes::LANES;
use super::query::Chunk;
use super::{AttnBuffers, Query};
use crate::attention::KvRows;
use crate::isa::{Floats, PairCodes, Pairs};
use std::ops::Range;

/// Bytes of sixteen pairs of codes.
const PAIRS_BYTES: usize = 64;

/// Memory for queries and keys of 16-bit codes; padded with zeros.
pub(super) struct PairBuffers<'a> {
    /// Pairs of a row.
    pub(super) width: usize,
    /// Pairs of codes of the queries, `[heads, width]`.
    pub(super) q: &'a mut [i32],
    /// Scales of the queries times that of all scores, `[heads]`.
    pub(super) scales: &'a mut [f32],
    /// Pairs of codes of 64 keys: `[4, width]` vectors of sixteen keys.
    pub(super) keys: &'a mut [PairCodes],
}

/// Two codes in a word.
#[inline(always)]
pub(super) fn pair(first: i16, second: i16) -> i32 {
    i32::from(first.cast_unsigned()) | i32::from(second) << 16
}

impl PairBuffers<'_> {
    /// Encodes the query `q` as head `h`. `scale` is that of all scores.
    #[inline(always)]
    fn set_query<I: Floats>(&mut self, isa: I, q: &[f32], h: usize, scale: f32) {
        let of_query = key_scale(isa, q);
        self.scales[h] = scale * of_query;
        let mut codes = [0; crate::D_HEAD_MAX];
        encode(q, of_query, &mut codes, |code| code);
        let pairs = codes.as_chunks::<2>().0[..q.len().div_ceil(2)].iter();
        for (out, [first, second]) in self.q[h * self.width..].iter_mut().zip(pairs) {
            *out = pair(*first, *second);
        }
    }
}

impl AttnBuffers<'_> {
    /// Encodes the heads `heads` of a query whose keys are 16-bit codes.
    #[inline(always)]
    pub(super) fn set_pairs<I: Floats>(&mut self, isa: I, query: &Query<'_>, heads: Range<usize>) {
        for (h, i) in heads.enumerate() {
            self.pairs.set_query(isa, query.head(i), h, query.scale);
        }
    }

    /// Scores of the first `n` heads and the visible keys of a chunk.
    #[inline(always)]
    pub(super) fn scores_of_pairs<I: Pairs>(
        &mut self,
        isa: I,
        query: &Query<'_>,
        n: usize,
        chunk: &Chunk,
    ) {
        #[cfg(target_arch = "riscv64")]
        if I::BY_ROWS {
            return self.scores_of_rows(isa, query, n, chunk);
        }
        let keys = query.kv.stored_keys();
        let visible = &chunk.visible;
        let stored = query.stored(chunk, keys);
        query.copy_scales(chunk, keys, self.scales);
        let prefetch = query.prefetch::<I>(chunk, keys);
        let width = self.pairs.width;
        let step = I::TILE * LANES;
        for first in (visible.start / step * step..visible.end).step_by(step) {
            prefetch.rows(isa, first..first + step);
            let sixteens = stored[first..first + step].as_chunks::<LANES>().0;
            for (rows, out) in sixteens.iter().zip(self.pairs.keys.chunks_mut(width)) {
                transpose(isa, rows, keys.rows.d, out);
            }
            match I::TILE {
                4 => self.score_tiles::<I, 4>(isa, keys.rows, n, first),
                _ => self.score_tiles::<I, 1>(isa, keys.rows, n, first),
            }
        }
    }

    /// Scores of the first `n` heads and `16·B` keys from position `first` of the chunk on.
    #[inline(always)]
    fn score_tiles<I: Pairs, const B: usize>(
        &mut self,
        isa: I,
        rows: KvRows,
        n: usize,
        first: usize,
    ) {
        let mut h = 0;
        while h < n {
            let heads = h..n.min(h + 4);
            let is_seen =
                |visible: &Range<usize>| visible.start < first + B * LANES && first < visible.end;
            if self.visible[heads.clone()].iter().any(is_seen) {
                match heads.len() {
                    1 => self.score_tile::<I, 1, B>(isa, rows, h, first),
                    2 => self.score_tile::<I, 2, B>(isa, rows, h, first),
                    _ => self.score_tile::<I, 4, B>(isa, rows, h, first),
                }
            }
            h = heads.end;
        }
    }

    /// Scores of `R` heads from `h` on and `16·B` keys.
    #[inline(always)]
    fn score_tile<I: Pairs, const R: usize, const B: usize>(
        &mut self,
        isa: I,
        rows: KvRows,
        h: usize,
        first: usize,
    ) {
        let mut scores = [[isa.zeros(); B]; R];
        for j in 0..rows.n_sections() {
            let section = rows.section(j);
            let pairs = section.start / 2..section.end.div_ceil(2);
            let sums: [[I::Sums; B]; R] = self.pairs.products(isa, h, pairs);
            for b in 0..B {
                let scale = self.scales[j][first + b * LANES..].first_chunk();
                let scale = isa.floats(scale.expect("positions come in sixteens"));
                for r in 0..R {
                    let sum = isa.as_floats(isa.lane_totals(sums[r][b]));
                    let part = isa.product(sum, scale);
                    scores[r][b] = match j {
                        0 => part,
                        _ => isa.sum_f(scores[r][b], part),
                    };
                }
            }
        }
        for r in 0..R {
            let scale = isa.splat_all(self.pairs.scales[h + r]);
            let out = &mut self.scores[h + r][first..first + B * LANES];
            for (out, score) in out.as_chunks_mut::<LANES>().0.iter_mut().zip(scores[r]) {
                *out = isa.to_array(isa.product(score, scale));
            }
        }
    }
}

impl PairBuffers<'_> {
    /// Sums of the products of these pairs of `R` heads from `h` on and `16·B` keys.
    #[inline(always)]
    fn products<I: Pairs, const R: usize, const B: usize>(
        &self,
        isa: I,
        h: usize,
        pairs: Range<usize>,
    ) -> [[I::Sums; B]; R] {
        let n = pairs.len();
        let mut q: [&[i32]; R] = [&[]; R];
        for r in 0..R {
            q[r] = &self.q[(h + r) * self.width + pairs.start..][..n];
        }
        let mut keys: [&[[PairCodes; 1]]; B] = [&[]; B];
        for b in 0..B {
            keys[b] = self.keys[b * self.width + pairs.start..][..n].as_chunks().0;
        }
        isa.sums_of_pairs(keys, [0; B], q)
    }
}

/// Transposes the codes of sixteen keys of width `d` by pairs: pair i of each key in vector i.
#[inline(always)]
fn transpose<I: Pairs>(isa: I, rows: &[&[u8]; LANES], d: usize, out: &mut [PairCodes]) {
    for v in 0..d.div_ceil(2 * LANES) {
        let mut columns = [isa.zeros(); LANES];
        for (column, row) in columns.iter_mut().zip(rows) {
            *column = match row.get(v * PAIRS_BYTES..) {
                Some(bytes) => sixteen_pairs(isa, bytes),
                None => isa.zeros(),
            };
        }
        let columns = isa.transposed(columns);
        for j in 0..LANES {
            out[v * LANES + j] = isa.bits_of(columns[j]);
        }
    }
}

/// The first sixteen pairs of `bytes`, padded with zeros, as floats: they are only moved.
#[inline(always)]
fn sixteen_pairs<I: Pairs>(isa: I, bytes: &[u8]) -> I::F {
    let mut padded = [0; PAIRS_BYTES];
    let whole = match bytes.first_chunk::<PAIRS_BYTES>() {
        Some(whole) => whole,
        None => {
            padded[..bytes.len()].copy_from_slice(bytes);
            &padded
        }
    };
    let words = whole.as_chunks().0.first_chunk();
    isa.singles(words.expect("64 bytes are sixteen words"))
}
