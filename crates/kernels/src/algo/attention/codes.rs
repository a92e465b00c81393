//! Scores with quantized keys: integer products of codes, and a few f32 steps in one order.
//!
//! ```text
//! query:  q ≈ scale_q·x, int8, one scale for the head, which is rotated as the keys are
//! Q8:     score = (Σ code·x)·(scale_q·scale)
//! Q4:     score = scale_q·(0 + (scale_0·Σ code·x + min_0·Σ x) + (scale_1·Σ code·x + min_1·Σ x) + …), by groups
//! ```
//! Sums of codes are exact in any order; the f32 steps are never fused. Sixteen keys are treated at
//! once, one in each lane, for few heads and for many: words of four codes of each key are
//! transposed, so that nothing is added across lanes.

use super::super::kv::quantize_query;
use super::super::lanes::LANES;
use super::query::Chunk;
use super::stored::{read_scales, take_codes};
use super::{CHUNK, Query, Work};
use crate::KvElem;
use crate::isa::{Codes, KeyCodes};
use std::ops::Range;

/// Memory for what is multiplied in integers; padded with zeros.
pub(super) struct Ints<'a> {
    /// Codes of the queries, `[heads, width]`.
    pub(super) q: &'a mut [[i8; LANES]],
    /// Sums of sixteen of them each, `[heads, width]`.
    pub(super) sums: &'a mut [f32],
    /// Their scales, `[heads]`.
    pub(super) scales: &'a mut [f32],
    /// Codes of sixteen keys, arranged, `[width]`.
    pub(super) keys: &'a mut [KeyCodes],
}

impl Ints<'_> {
    /// Takes the query `q`, which is rotated already, as head `h`.
    #[inline(always)]
    pub(super) fn set_query(&mut self, q: &[f32], (h, width): (usize, usize)) {
        let codes = &mut self.q[h * width..(h + 1) * width];
        self.scales[h] = quantize_query(q, &mut codes.as_flattened_mut()[..q.len()]);
        for (sum, codes) in self.sums[h * width..].iter_mut().zip(codes) {
            *sum = codes
                .iter()
                .map(|&code| i16::from(code))
                .sum::<i16>()
                .into();
        }
    }
}

impl Work<'_> {
    /// Products of the first `n` heads and the keys that are seen in a chunk.
    #[inline(always)]
    pub(super) fn scores_of_codes<I: Codes>(
        &mut self,
        isa: I,
        query: &Query<'_>,
        n: usize,
        chunk: &Chunk,
    ) {
        let (kv, seen) = (query.kv, &chunk.seen);
        let (rows, shape) = (
            query.stored(chunk, (kv.k_at, kv.k_elem)),
            (kv.k_elem, kv.d_head),
        );
        read_scales(isa, &rows, seen, shape, self.scales);
        let ahead = query.ahead::<I>(chunk, (kv.k_at, kv.k_elem));
        for first in (seen.start / LANES * LANES..seen.end).step_by(LANES) {
            ahead.ask(isa, first..first + LANES);
            take_codes(
                isa,
                &rows.as_chunks().0[first / LANES],
                shape,
                self.ints.keys,
            );
            match I::ROWS {
                4 => self.scores_of_sixteen::<I, 4>(isa, shape, n, first),
                _ => self.scores_of_sixteen::<I, 2>(isa, shape, n, first),
            }
        }
    }

    /// Products of the first `n` heads and the sixteen keys from position `first` of the chunk on.
    #[inline(always)]
    fn scores_of_sixteen<I: Codes, const R: usize>(
        &mut self,
        isa: I,
        (elem, d): (KvElem, usize),
        n: usize,
        first: usize,
    ) {
        for h in (0..n).step_by(R) {
            let seen =
                |visible: &Range<usize>| visible.start < first + LANES && first < visible.end;
            if !self.visible[h..h + R].iter().any(seen) {
                continue;
            }
            let (ints, scales) = (&self.ints, (&*self.scales, first));
            let scores = match elem {
                KvElem::Q4 => products_of_q4::<I, R>(
                    isa,
                    ints,
                    (h, self.width),
                    d.div_ceil(2 * LANES),
                    scales,
                ),
                _ => products_of_q8::<I, R>(isa, ints, (h, self.width), d.div_ceil(LANES), scales),
            };
            for r in 0..R {
                self.scores[h + r][first..first + LANES].copy_from_slice(&isa.to_array(scores[r]));
            }
        }
    }

    /// Takes the heads `heads` of a query whose keys are quantized.
    #[inline(always)]
    pub(super) fn set_codes(&mut self, query: &Query<'_>, heads: Range<usize>) {
        for (h, i) in heads.enumerate() {
            let q = query.head(i);
            let rotated = &mut self.q[h * self.width..].as_flattened_mut()[..q.len()];
            rotated.copy_from_slice(q);
            query.kernels.hadamard(rotated);
            self.ints.set_query(rotated, (h, self.width));
        }
    }
}

/// Vector `v` of the codes of `R` heads from `h` on.
#[inline(always)]
fn codes_of<const R: usize>(
    q: &[[i8; LANES]],
    (h, width): (usize, usize),
    v: usize,
) -> [&[i8; LANES]; R] {
    std::array::from_fn(|r| &q[(h + r) * width + v])
}

/// Scale or minimum `j` of sixteen keys.
#[inline(always)]
fn sixteen<I: Codes>(isa: I, (scales, first): (&[[f32; CHUNK]], usize), j: usize) -> I::F {
    isa.floats(
        scales[j][first..]
            .first_chunk()
            .expect("positions come in sixteens"),
    )
}

/// Scores of `R` heads from `h` on and sixteen keys of `n` vectors.
#[inline(always)]
fn products_of_q8<I: Codes, const R: usize>(
    isa: I,
    ints: &Ints<'_>,
    (h, width): (usize, usize),
    n: usize,
    scales: (&[[f32; CHUNK]], usize),
) -> [I::F; R] {
    let mut sums = [isa.no_sums(); R];
    for (v, keys) in ints.keys[..n].iter().enumerate() {
        sums = isa.dots(sums, keys, codes_of(ints.q, (h, width), v));
    }
    let (scale, mut out) = (sixteen(isa, scales, 0), [isa.zeros(); R]);
    for r in 0..R {
        let both = isa.product(isa.splat_all(ints.scales[h + r]), scale);
        out[r] = isa.product(isa.as_floats(sums[r]), both);
    }
    out
}

/// Scores of `R` heads from `h` on and sixteen keys of `n` groups.
#[inline(always)]
fn products_of_q4<I: Codes, const R: usize>(
    isa: I,
    ints: &Ints<'_>,
    (h, width): (usize, usize),
    n: usize,
    scales: (&[[f32; CHUNK]], usize),
) -> [I::F; R] {
    let mut out = [isa.zeros(); R];
    for (g, keys) in ints.keys.as_chunks::<2>().0[..n].iter().enumerate() {
        let sums = isa.dots_of_nibbles(
            [isa.no_sums(); R],
            &keys[0],
            codes_of(ints.q, (h, width), 2 * g),
        );
        let sums = isa.dots_of_nibbles(sums, &keys[1], codes_of(ints.q, (h, width), 2 * g + 1));
        let (scale, min) = (sixteen(isa, scales, 2 * g), sixteen(isa, scales, 2 * g + 1));
        for r in 0..R {
            let of_16 = &ints.sums[(h + r) * width + 2 * g..][..2];
            let codes = isa.product(scale, isa.as_floats(sums[r]));
            let minima = isa.product(min, isa.splat_all(of_16[0] + of_16[1]));
            out[r] = isa.sum_f(out[r], isa.sum_f(codes, minima));
        }
    }
    for r in 0..R {
        out[r] = isa.product(isa.splat_all(ints.scales[h + r]), out[r]);
    }
    out
}
