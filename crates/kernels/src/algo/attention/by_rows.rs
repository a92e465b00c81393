//! Scores and weighted sums of 16-bit codes, row by row as they lie in the KV cache.
//!
//! ```text
//! score = ((Σ code·x)·scale_0 + (Σ code·x)·scale_1 + …)·t      by sections, as in scores16.rs
//! o = Σ weight·code of 32 positions + Σ of the next 32 + …      as in values16.rs
//! ```
//! It refuses to know how a row is multiplied ([`Pairs::dot_row`], [`Pairs::add_rows`]). The one
//! idea: integer sums are exact in any order, so an instruction set whose loops read memory by
//! themselves needs no row transposed or interleaved.

use super::super::lanes::LANES;
use super::query::Chunk;
use super::values16::{COLUMNS, GROUP, merge};
use super::{AttnBuffers, MANY, Query};
use crate::KvRole;
use crate::attention::{KvElem, KvRows};
use crate::isa::{CodeRows, Pairs};
use std::ops::Range;

/// Vectors of the columns that are added at once.
const VECTORS: usize = COLUMNS / LANES;
/// Sums of a head's columns; those behind the last one are 0.
type Columns = [[f32; LANES]; VECTORS];

impl Query<'_> {
    /// Whether the values are added row by row: 16-bit codes in KV blocks of whole groups.
    #[inline(always)]
    pub(super) fn adds_rows(&self) -> bool {
        let rows = self.kv.values();
        let is_plain = rows.elem == KvElem::F16 && rows.role == KvRole::Value;
        is_plain && self.kv.block_len.is_multiple_of(GROUP)
    }
}

impl AttnBuffers<'_> {
    /// Scores of the first `n` heads and the visible keys of a chunk.
    #[inline(always)]
    pub(super) fn scores_of_rows<I: Pairs>(
        &mut self,
        isa: I,
        query: &Query<'_>,
        n: usize,
        chunk: &Chunk,
    ) {
        let keys = query.kv.stored_keys();
        let stored = query.stored(chunk, keys);
        query.copy_scales(chunk, keys, self.scales);
        for p in chunk.visible.clone() {
            for h in 0..n {
                self.scores[h][p] = self.score(isa, keys.rows, h, stored[p], p);
            }
        }
    }

    /// The score of head `h` and the key `row` at position `p`.
    #[inline(always)]
    fn score<I: Pairs>(&self, isa: I, rows: KvRows, h: usize, row: &[u8], p: usize) -> f32 {
        let codes = row.as_chunks().0;
        let q = &self.pairs.q[h * self.pairs.width..];
        let mut score = 0.0;
        for j in 0..rows.n_sections() {
            let section = rows.section(j);
            let sum = isa.dot_row(&codes[section.clone()], &q[section.start / 2..]);
            let part = sum as f32 * self.scales[j][p];
            score = if j == 0 { part } else { score + part };
        }
        score * self.pairs.scales[h]
    }

    /// As [`add_value_codes`](Self::add_value_codes), when the weights are codes already.
    #[inline(always)]
    pub(super) fn add_value_rows<I: Pairs>(
        &mut self,
        isa: I,
        query: &Query<'_>,
        chunk: &Chunk,
        n: usize,
        factors: &[[f32; MANY]; 2],
    ) {
        for h in (0..n).filter(|&h| !self.visible[h].is_empty()) {
            let factors = [factors[0][h], factors[1][h]];
            let ratio = self.value_codes.ratios[h];
            for v in (0..query.kv.values().d).step_by(COLUMNS) {
                let columns = self.column_sums(isa, query, chunk, h, v);
                let mut sums = [isa.zeros(); VECTORS];
                for (sum, column) in sums.iter_mut().zip(&columns) {
                    *sum = isa.floats(column);
                }
                let values = &mut self.values[h * self.width + v / LANES..][..VECTORS];
                merge(isa, values, sums, ratio, factors);
            }
        }
    }

    /// Sums of the columns from `v` on, at most [`COLUMNS`], of the values that head `h` sees.
    #[inline(always)]
    fn column_sums<I: Pairs>(
        &self,
        isa: I,
        query: &Query<'_>,
        chunk: &Chunk,
        h: usize,
        v: usize,
    ) -> Columns {
        let mut sums = [[0.0; LANES]; VECTORS];
        let kv = query.kv.stored_values();
        let columns = &mut sums.as_flattened_mut()[..COLUMNS.min(kv.rows.d - v)];
        let codes = kv.rows.arrays(query.kv.block_len).next();
        let codes = codes.expect("codes come first");
        let weights = &self.value_codes.weights[h];
        for (run, bytes) in query.runs(chunk, kv, codes) {
            for group in groups(&run, &self.visible[h]) {
                let at = codes.row_bytes * (group.start - run.start) + 2 * v;
                let rows = CodeRows {
                    bytes: &bytes[at..],
                    row_bytes: codes.row_bytes,
                };
                isa.add_rows(rows, weights, group, columns);
            }
        }
        sums
    }
}

/// The positions in both ranges, cut where groups end.
fn groups(
    run: &Range<usize>,
    visible: &Range<usize>,
) -> impl Iterator<Item = Range<usize>> + use<> {
    let mut start = run.start.max(visible.start);
    let end = run.end.min(visible.end);
    std::iter::from_fn(move || {
        let group = start..end.min((start / GROUP + 1) * GROUP);
        start = group.end;
        (!group.is_empty()).then_some(group)
    })
}
