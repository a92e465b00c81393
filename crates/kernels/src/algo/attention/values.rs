//! Weighted sums of float values: rows times weights, added in order of position, and merged into
//! the sums of earlier chunks.
//!
//! A few heads share every load of a value, and their sums stay in registers over the chunk. Values
//! that a head does not see may be infinite, so they must not even be multiplied by 0: the
//! positions that all of the heads see are added for all at once, if the heads begin at the same
//! position, and further positions one head at a time.

use super::super::kv::widen_floats;
use super::super::lanes::LANES;
use super::prefetch::Prefetch;
use super::query::Chunk;
use super::{AttnBuffers, CHUNK, MANY, Query};
use crate::isa::{Codes, Floats};
use std::ops::Range;

/// Positions between two prefetches of the next values.
const PREFETCH_STEP: usize = 8;

/// MergeFactors of the sums of earlier chunks, and of those of this chunk, per head.
type MergeFactors = [[f32; MANY]; 2];

impl AttnBuffers<'_> {
    /// `values = values·a + (Σ weight·value)·b` for the first `n` heads and the values of a chunk,
    /// `[a, b]` being `factors`.
    #[inline(always)]
    pub(super) fn add_values<I: Codes>(
        &mut self,
        isa: I,
        query: &Query<'_>,
        chunk: &Chunk,
        n: usize,
        factors: &MergeFactors,
    ) {
        let kv = query.kv;
        let visible = &chunk.visible;
        let width = self.width;
        let stored = &query.stored(chunk, kv.stored_values());
        let rows = self.rows[visible.start * width..].chunks_exact_mut(width);
        for (row, out) in stored[visible.clone()].iter().zip(rows) {
            widen_floats(isa, row, &mut out.as_flattened_mut()[..kv.d_head]);
        }
        WeightedSums {
            width,
            n_vectors: kv.d_head.div_ceil(LANES),
            rows: self.rows,
            scores: self.scores,
            visible: &self.visible[..n],
            values: self.values,
            factors,
            prefetch: query.prefetch::<I>(chunk, kv.stored_values()),
        }
        .add(isa);
    }
}

/// Weighted sums of values of some heads, with the weights and visible positions of the heads.
struct WeightedSums<'a> {
    width: usize,
    n_vectors: usize,
    /// Values, `[CHUNK, width]`.
    rows: &'a [[f32; LANES]],
    /// Weights, `[heads, CHUNK]`.
    scores: &'a [[f32; CHUNK]],
    visible: &'a [Range<usize>],
    /// `[heads, width]`.
    values: &'a mut [[f32; LANES]],
    factors: &'a MergeFactors,
    prefetch: Prefetch<'a>,
}

impl WeightedSums<'_> {
    #[inline(always)]
    fn add<I: Codes>(&mut self, isa: I) {
        match (I::ROWS, I::VECTORS) {
            (4, 4) => self.add_all::<I, 4, 4>(isa),
            (4, _) => self.add_all::<I, 4, 1>(isa),
            _ => self.add_all::<I, 2, 1>(isa),
        }
    }

    /// Adds `V` vectors of all values at a time for all heads: that part of the chunk stays in L1.
    #[inline(always)]
    fn add_all<I: Codes, const R: usize, const V: usize>(&mut self, isa: I) {
        let n = self.visible.len();
        for v in (0..self.n_vectors).step_by(V) {
            for h in (0..n).step_by(R) {
                self.add_vectors::<I, R, V>(isa, v, h..n.min(h + R));
            }
        }
    }

    /// Adds `V` vectors from `v` on for up to `R` heads.
    #[inline(always)]
    fn add_vectors<I: Codes, const R: usize, const V: usize>(
        &mut self,
        isa: I,
        v: usize,
        heads: Range<usize>,
    ) {
        let rows = Rows {
            width: self.width,
            rows: self.rows,
            v,
        };
        let common = common::<R>(&self.visible[heads.clone()]);
        let weights: &[_; R] = self.scores[heads.start..]
            .first_chunk()
            .expect("heads come in sixteens");
        let mut sums = [[isa.zeros(); V]; R];
        let asks = I::ASKS && self.prefetch.is_some() && v == 0 && heads.start == 0;
        let n_at_once = if asks { PREFETCH_STEP } else { CHUNK };
        for start in (0..CHUNK).step_by(n_at_once) {
            if asks {
                self.prefetch.rows(isa, start..start + PREFETCH_STEP);
            }
            let positions = common.start.max(start)..common.end.min(start + n_at_once);
            sums = weighted(isa, rows, weights.each_ref(), positions, sums);
        }
        for (h, sums) in heads.zip(sums) {
            let visible = self.visible[h].clone();
            let others = if common.is_empty() {
                visible.clone()
            } else {
                common.end..visible.end
            };
            let [sums] = weighted(isa, rows, [&self.scores[h]], others, [sums]);
            if !visible.is_empty() {
                let values = &mut self.values[h * self.width + v..][..V];
                merge(isa, values, sums, [self.factors[0][h], self.factors[1][h]]);
            }
        }
    }
}

/// Some vectors of the values of a chunk, from `v` on.
#[derive(Clone, Copy)]
struct Rows<'a> {
    width: usize,
    rows: &'a [[f32; LANES]],
    v: usize,
}

/// The positions that all of `R` heads see, if they begin at the same position; empty otherwise,
/// and for fewer heads.
#[inline(always)]
fn common<const R: usize>(visible: &[Range<usize>]) -> Range<usize> {
    let start = visible[0].start;
    let mut end = visible[0].end;
    for visible in visible {
        end = if visible.start == start {
            end.min(visible.end)
        } else {
            start
        };
    }
    if visible.len() == R {
        start..end.max(start)
    } else {
        start..start
    }
}

/// `sums + Σ weight·row` over `positions`, in order, for `R` heads, in `V` vectors.
#[inline(always)]
fn weighted<I: Codes, const R: usize, const V: usize>(
    isa: I,
    rows: Rows<'_>,
    weights: [&[f32; CHUNK]; R],
    positions: Range<usize>,
    mut sums: [[I::F; V]; R],
) -> [[I::F; V]; R] {
    for p in positions {
        let mut row = [isa.zeros(); V];
        for i in 0..V {
            row[i] = isa.floats(&rows.rows[p * rows.width + rows.v + i]);
        }
        for r in 0..R {
            let weight = isa.splat_all(weights[r][p]);
            for i in 0..V {
                sums[r][i] = isa.sum_f(sums[r][i], isa.product(weight, row[i]));
            }
        }
    }
    sums
}

/// `values = values·a + sums·b`.
#[inline(always)]
fn merge<I: Floats, const V: usize>(
    isa: I,
    values: &mut [[f32; LANES]],
    sums: [I::F; V],
    [a, b]: [f32; 2],
) {
    let a = isa.splat_all(a);
    let b = isa.splat_all(b);
    for (values, sums) in values.iter_mut().zip(sums) {
        *values = isa.to_array(isa.sum_f(isa.product(isa.floats(values), a), isa.product(sums, b)));
    }
}
