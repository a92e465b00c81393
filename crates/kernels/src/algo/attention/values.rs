//! Values: rows times weights, added in order of position, and merged into those of the chunks
//! before.
//!
//! A few heads share every load of a value, and their sums stay in registers over the chunk. What a
//! head does not see must not even be multiplied by 0, as it may be infinite; so the positions that
//! all of them see are added together, if they begin at the same one, and what some of them see
//! besides one head at a time.

use super::super::kv::widen;
use super::super::lanes::LANES;
use super::ahead::Ahead;
use super::query::Chunk;
use super::stored::{Halves, Q4, Q8, Source, Widened, read_scales};
use super::{CHUNK, MANY, Query, Work};
use crate::isa::{Codes, Floats};
use crate::{KvElem, Q4_GROUP};
use std::ops::Range;

/// Positions after which more of the values that come next are asked for.
const PIECE: usize = 8;

/// What the values before and those of the chunk are multiplied by, per head.
type Factors = [[f32; MANY]; 2];

impl Work<'_> {
    /// `values = values·a + (Σ weight·value)·b` for the first `n` heads and the values of a chunk,
    /// `[a, b]` being `factors`.
    #[inline(always)]
    pub(super) fn add_values<I: Codes>(
        &mut self,
        isa: I,
        query: &Query<'_>,
        chunk: &Chunk,
        n: usize,
        factors: &Factors,
    ) {
        let (kv, seen, width) = (query.kv, &chunk.seen, self.width);
        let stored = &query.stored(chunk, (kv.v_at, kv.v_elem));
        let ahead = query.ahead::<I>(chunk, (kv.v_at, kv.v_elem));
        let directly =
            I::WIDENS_OFTEN && self.treats_few() && kv.d_head.is_multiple_of(LANES * I::VECTORS);
        let n_vectors = kv.d_head.div_ceil(LANES);
        let (scores, visible, values) = (&*self.scores, &self.visible[..n], &mut *self.values);
        let mut sums = Sums {
            width,
            n_vectors,
            scores,
            visible,
            values,
            factors,
            ahead,
        };
        match kv.v_elem {
            KvElem::F16 if directly => sums.add(isa, &Halves(stored)),
            KvElem::Q8 if directly => {
                read_scales(isa, stored, seen, (kv.v_elem, kv.d_head), self.scales);
                sums.add(isa, &Q8(stored, self.scales));
            }
            KvElem::Q4 if directly && kv.d_head.is_multiple_of(Q4_GROUP) => {
                read_scales(isa, stored, seen, (kv.v_elem, kv.d_head), self.scales);
                sums.add(isa, &Q4(stored, self.scales));
            }
            elem => {
                for (row, out) in stored[seen.clone()]
                    .iter()
                    .zip(self.rows[seen.start * width..].chunks_exact_mut(width))
                {
                    widen(isa, row, elem, &mut out.as_flattened_mut()[..kv.d_head]);
                }
                sums.add(
                    isa,
                    &Widened {
                        width,
                        rows: self.rows,
                    },
                );
            }
        }
    }
}

/// Where weighted values are added: heads with their weights and what they see of the chunk.
struct Sums<'a> {
    width: usize,
    n_vectors: usize,
    /// Weights, `[heads, CHUNK]`.
    scores: &'a [[f32; CHUNK]],
    visible: &'a [Range<usize>],
    /// `[heads, width]`.
    values: &'a mut [[f32; LANES]],
    factors: &'a Factors,
    ahead: Ahead<'a>,
}

impl Sums<'_> {
    #[inline(always)]
    fn add<I: Codes>(&mut self, isa: I, source: &impl Source<I>) {
        match (I::ROWS, I::VECTORS) {
            (4, 4) => self.add_strips::<I, 4, 4>(isa, source),
            (4, _) => self.add_strips::<I, 4, 1>(isa, source),
            _ => self.add_strips::<I, 2, 1>(isa, source),
        }
    }

    /// A strip of `V` vectors of the values at a time for all heads: that part of the chunk stays
    /// in L1.
    #[inline(always)]
    fn add_strips<I: Codes, const R: usize, const V: usize>(
        &mut self,
        isa: I,
        source: &impl Source<I>,
    ) {
        let n = self.visible.len();
        for v in (0..self.n_vectors).step_by(V) {
            for h in (0..n).step_by(R) {
                self.add_strip::<I, R, V>(isa, source, v, h..n.min(h + R));
            }
        }
    }

    /// Up to `R` heads and `V` vectors from `v` on.
    #[inline(always)]
    fn add_strip<I: Codes, const R: usize, const V: usize>(
        &mut self,
        isa: I,
        source: &impl Source<I>,
        v: usize,
        heads: Range<usize>,
    ) {
        let common = common::<R>(&self.visible[heads.clone()]);
        let weights: &[_; R] = self.scores[heads.start..]
            .first_chunk()
            .expect("heads come in sixteens");
        let mut sums = [[isa.zeros(); V]; R];
        let asks = I::ASKS && self.ahead.asks() && v == 0 && heads.start == 0;
        let n_at_once = if asks { PIECE } else { CHUNK };
        for start in (0..CHUNK).step_by(n_at_once) {
            if asks {
                self.ahead.ask(isa, start..start + PIECE);
            }
            let positions = common.start.max(start)..common.end.min(start + n_at_once);
            sums = weighted(isa, (source, v), weights.each_ref(), positions, sums);
        }
        for (h, sums) in heads.zip(sums) {
            let visible = self.visible[h].clone();
            let besides = if common.is_empty() {
                visible.clone()
            } else {
                common.end..visible.end
            };
            let [sums] = weighted(isa, (source, v), [&self.scores[h]], besides, [sums]);
            if !visible.is_empty() {
                let values = &mut self.values[h * self.width + v..][..V];
                merge(isa, values, sums, [self.factors[0][h], self.factors[1][h]]);
            }
        }
    }
}

/// What `R` heads see together from the first position on that each of them sees; nothing if these
/// differ, or for fewer heads.
#[inline(always)]
fn common<const R: usize>(visible: &[Range<usize>]) -> Range<usize> {
    let (start, mut end) = (visible[0].start, visible[0].end);
    for visible in visible {
        end = if visible.start == start {
            end.min(visible.end)
        } else {
            start
        };
    }
    start..if visible.len() == R {
        end.max(start)
    } else {
        start
    }
}

/// `sums + Σ weight·row` over `positions`, in order, for `R` heads; of the rows, `V` vectors from
/// `v` on.
#[inline(always)]
fn weighted<I: Codes, const R: usize, const V: usize>(
    isa: I,
    (source, v): (&impl Source<I>, usize),
    weights: [&[f32; CHUNK]; R],
    positions: Range<usize>,
    mut sums: [[I::F; V]; R],
) -> [[I::F; V]; R] {
    for p in positions {
        let mut row = [isa.zeros(); V];
        for i in 0..V {
            row[i] = source.vector(isa, p, v + i);
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
    let (a, b) = (isa.splat_all(a), isa.splat_all(b));
    for (values, sums) in values.iter_mut().zip(sums) {
        *values = isa.to_array(isa.sum_f(isa.product(isa.floats(values), a), isa.product(sums, b)));
    }
}
