//! Scores with float keys: dot products in one order of operations, by two algorithms.
//!
//! Element i of a product goes to lane `i % 16`, and one tree adds the lanes, as `algo/lanes.rs`
//! says. For few heads the lanes are those of a register: keys are read in their order, and the
//! lanes of sixteen products are added at once. For many heads keys are transposed, so that a
//! register holds one lane of sixteen positions; no step adds across lanes, and the tree is walked
//! depth first, so that few of its sums are live at a time. Without the second algorithm, plain
//! code is 18 KB smaller and attention of a prompt a third slower, measured with SSE2: so it is in
//! programs that must stay small, whose keys are seldom floats.

use super::super::kv::widen_floats;
use super::super::lanes::LANES;
use super::query::Chunk;
use super::{AttnBuffers, Keys, Query};
use crate::KvLayer;
use crate::isa::{Codes, Floats};
use std::ops::Range;

/// Heads computed at once if there are few.
const PAIR: usize = 2;
/// Keys computed at once for few heads.
const KEYS: usize = 8;
/// Heads whose queries are interleaved if there are many.
const QUAD: usize = 4;

/// Sixteen elements of a query of each of four heads.
type Quads = [[f32; QUAD]; LANES];

impl AttnBuffers<'_> {
    /// Copies the queries of the heads `heads`. Not inlined: every kernel table would have a copy.
    #[inline(never)]
    pub(super) fn set_queries(&mut self, query: &Query<'_>, heads: Range<usize>) {
        if self.treats_few() {
            for (q, i) in self.q.chunks_exact_mut(self.width).zip(heads) {
                let head = query.head(i);
                q.as_flattened_mut()[..head.len()].copy_from_slice(head);
            }
            return;
        }
        // The last head is repeated to fill its group of four.
        let head = |i: usize| query.head(i.min(heads.end - 1));
        for (quads, i) in self
            .q
            .chunks_exact_mut(QUAD * self.width)
            .zip(heads.clone().step_by(QUAD))
        {
            let elements = head(i)
                .iter()
                .zip(head(i + 1))
                .zip(head(i + 2))
                .zip(head(i + 3));
            for (quad, (((a, b), c), d)) in quads
                .as_flattened_mut()
                .as_chunks_mut::<QUAD>()
                .0
                .iter_mut()
                .zip(elements)
            {
                *quad = [*a, *b, *c, *d];
            }
        }
    }

    /// Dot products of the first `n` heads and the visible keys of a chunk, for few heads.
    #[inline(always)]
    pub(super) fn scores_of_few<I: Codes>(
        &mut self,
        isa: I,
        query: &Query<'_>,
        n: usize,
        chunk: &Chunk,
    ) {
        let kv = query.kv;
        let visible = &chunk.visible;
        let width = self.width;
        let stored = query.stored(chunk, kv.stored_keys());
        let n_vectors = kv.d_head.div_ceil(LANES);
        let prefetch = query.prefetch::<I>(chunk, kv.stored_keys());
        // A few keys at a time for all heads: widened, they stay in L1.
        for p in (visible.start / KEYS * KEYS..visible.end).step_by(KEYS) {
            prefetch.rows(isa, p..p + KEYS);
            self.widen_keys(isa, kv, &stored[p..p + KEYS]);
            for h in (0..n).step_by(PAIR) {
                let q = [
                    &self.q[h * width..][..n_vectors],
                    &self.q[(h + 1) * width..][..n_vectors],
                ];
                let totals = dots(isa, q, width, &self.rows[..KEYS * width]);
                self.scores[h][p..p + KEYS].copy_from_slice(&totals[..KEYS]);
                self.scores[h + 1][p..p + KEYS].copy_from_slice(&totals[KEYS..]);
            }
        }
    }

    /// Dot products of the first `n` heads and the visible keys of a chunk, for many heads.
    #[inline(always)]
    pub(super) fn scores_of_many<I: Codes>(
        &mut self,
        isa: I,
        query: &Query<'_>,
        n: usize,
        chunk: &Chunk,
    ) {
        let kv = query.kv;
        let visible = &chunk.visible;
        let width = self.width;
        let stored = query.stored(chunk, kv.stored_keys());
        let n_vectors = kv.d_head.div_ceil(LANES);
        for first in (visible.start / LANES * LANES..visible.end).step_by(LANES) {
            self.widen_keys(isa, kv, &stored[first..first + LANES]);
            transpose(
                isa,
                width,
                &self.rows[..LANES * width],
                &mut self.keys[..n_vectors],
            );
            match I::ROWS {
                4 => self.scores_of_vector::<I, 4>(isa, n_vectors, n, first),
                _ => self.scores_of_vector::<I, 2>(isa, n_vectors, n, first),
            }
        }
    }

    /// Widens the stored keys `stored` into the first rows of the buffer.
    #[inline(always)]
    fn widen_keys<I: Codes>(&mut self, isa: I, kv: &KvLayer<'_>, stored: &[&[u8]]) {
        for (row, out) in stored.iter().zip(self.rows.chunks_exact_mut(self.width)) {
            let out = &mut out.as_flattened_mut()[..kv.d_head];
            widen_floats(isa, row, out);
        }
    }

    /// Dot products of the first `n` heads and sixteen keys of `n_vectors`, from position `first`
    /// of the chunk on.
    #[inline(always)]
    fn scores_of_vector<I: Floats, const R: usize>(
        &mut self,
        isa: I,
        n_vectors: usize,
        n: usize,
        first: usize,
    ) {
        let keys = &self.keys[..n_vectors];
        for h in (0..n).step_by(R) {
            let is_seen =
                |visible: &Range<usize>| visible.start < first + LANES && first < visible.end;
            if !self.visible[h..h + R].iter().any(is_seen) {
                continue;
            }
            let quads = self.q[(h - h % QUAD) * self.width..]
                .as_flattened()
                .as_chunks()
                .0
                .as_chunks()
                .0;
            let products = products::<I, R>(isa, &quads[..n_vectors], h % QUAD, keys);
            for r in 0..R {
                self.scores[h + r][first..first + LANES]
                    .copy_from_slice(&isa.to_array(products[r]));
            }
        }
    }
}

/// Transposes sixteen keys, rows of `width` vectors: element i of each key into row i of `out`, for
/// the vectors that `out` holds.
#[inline(always)]
fn transpose<I: Floats>(isa: I, width: usize, keys: &[[f32; LANES]], out: &mut [Keys]) {
    for (k, out) in out.iter_mut().enumerate() {
        let mut rows = [isa.zeros(); LANES];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = isa.floats(&keys[i * width + k]);
        }
        let columns = isa.transposed(rows);
        for j in 0..LANES {
            out[j] = isa.to_array(columns[j]);
        }
    }
}

/// Lane `j` of the dot products of `R` heads, those of `q` from `first` on, and sixteen keys.
#[inline(always)]
fn lane<I: Floats, const R: usize>(
    isa: I,
    q: &[Quads],
    first: usize,
    keys: &[Keys],
    j: usize,
) -> [I::F; R] {
    let mut sums = [isa.zeros(); R];
    for (k, (q, keys)) in q.iter().zip(keys).enumerate() {
        let key = isa.floats(&keys[j]);
        for r in 0..R {
            let product = isa.product(isa.splat_all(q[j][first + r]), key);
            sums[r] = if k == 0 {
                product
            } else {
                isa.sum_f(sums[r], product)
            };
        }
    }
    sums
}

/// `x + y`.
#[inline(always)]
fn sum<I: Floats, const R: usize>(isa: I, mut x: [I::F; R], y: [I::F; R]) -> [I::F; R] {
    for r in 0..R {
        x[r] = isa.sum_f(x[r], y[r]);
    }
    x
}

/// The sum of the lanes `j`, `j + 4`, `j + 8` and `j + 12`.
#[inline(always)]
fn quarter<I: Floats, const R: usize>(
    isa: I,
    q: &[Quads],
    first: usize,
    keys: &[Keys],
    j: usize,
) -> [I::F; R] {
    let even = sum(
        isa,
        lane(isa, q, first, keys, j),
        lane(isa, q, first, keys, j + 8),
    );
    sum(
        isa,
        even,
        sum(
            isa,
            lane(isa, q, first, keys, j + 4),
            lane(isa, q, first, keys, j + 12),
        ),
    )
}

/// Dot products of `R` heads and sixteen keys; the tree is that of `lanes::total`.
#[inline(always)]
fn products<I: Floats, const R: usize>(
    isa: I,
    q: &[Quads],
    first: usize,
    keys: &[Keys],
) -> [I::F; R] {
    let even = sum(
        isa,
        quarter(isa, q, first, keys, 0),
        quarter(isa, q, first, keys, 2),
    );
    sum(
        isa,
        even,
        sum(
            isa,
            quarter(isa, q, first, keys, 1),
            quarter(isa, q, first, keys, 3),
        ),
    )
}

/// Dot products of two heads and eight keys, rows of `width` vectors: those of the first head, then
/// those of the second.
#[inline(always)]
fn dots<I: Floats>(
    isa: I,
    q: [&[[f32; LANES]]; PAIR],
    width: usize,
    keys: &[[f32; LANES]],
) -> [f32; 16] {
    let mut lanes = [isa.zeros(); 16];
    // A few keys at a time, so that their sums stay in the registers of every ISA.
    for start in (0..KEYS).step_by(I::KEYS) {
        for (k, q) in q[0].iter().zip(q[1]).enumerate() {
            let q = [isa.floats(q.0), isa.floats(q.1)];
            for p in start..start + I::KEYS {
                let key = isa.floats(&keys[p * width + k]);
                lanes[p] = isa.sum_f(lanes[p], isa.product(q[0], key));
                lanes[KEYS + p] = isa.sum_f(lanes[KEYS + p], isa.product(q[1], key));
            }
        }
    }
    isa.to_array(isa.totals_of_16(lanes))
}
