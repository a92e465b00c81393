//! Scores with quantized keys: integer dot products of codes, and a few f32 steps in a fixed order.
//!
//! ```text
//! query:  q ≈ scale_q·x, int8, one scale for the head, after the rotation of the keys Q8:
//! score = (Σ code·x)·(scale_q·scale) Q4:     score = scale_q·(0 + (scale_0·Σ code·x + min_0·Σ x) +
//! (scale_1·Σ code·x + min_1·Σ x) + …), by groups
//! ```
//! Sums of codes are exact in any order; the f32 steps are never fused. Sixteen keys are computed
//! at once, one in each lane, for few heads and for many: words of four codes of each key are
//! transposed, so that no step adds across lanes.

use super::super::kv::quantize_query;
use super::super::lanes::LANES;
use super::query::Chunk;
use super::stored::{read_scales, take_codes};
use super::{AttnBuffers, CHUNK, Query};
use crate::isa::{Codes, KeyCodes};
use crate::{KvElem, KvLayer};
use std::ops::Range;

/// Memory for the operands of integer products; padded with zeros.
pub(super) struct CodeBuffers<'a> {
    /// Vectors of a row.
    pub(super) width: usize,
    /// Codes of the queries, `[heads, width]`.
    pub(super) q: &'a mut [[i8; LANES]],
    /// The sum of each sixteen codes of the queries, `[heads, width]`.
    pub(super) sums: &'a mut [f32],
    /// Scales of the queries, `[heads]`.
    pub(super) scales: &'a mut [f32],
    /// Codes of sixteen keys, arranged, `[width]`.
    pub(super) keys: &'a mut [KeyCodes],
}

impl CodeBuffers<'_> {
    /// Quantizes the rotated query `q` as head `h`.
    #[inline(always)]
    pub(super) fn set_query(&mut self, q: &[f32], h: usize) {
        let width = self.width;
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

impl AttnBuffers<'_> {
    /// Dot products of the first `n` heads and the visible keys of a chunk.
    #[inline(always)]
    pub(super) fn scores_of_codes<I: Codes>(
        &mut self,
        isa: I,
        query: &Query<'_>,
        n: usize,
        chunk: &Chunk,
    ) {
        let kv = query.kv;
        let visible = &chunk.visible;
        let rows = query.stored(chunk, kv.stored_keys());
        read_scales(isa, &rows, visible, kv.k_elem, kv.d_head, self.scales);
        let prefetch = query.prefetch::<I>(chunk, kv.stored_keys());
        for first in (visible.start / LANES * LANES..visible.end).step_by(LANES) {
            prefetch.rows(isa, first..first + LANES);
            let rows = &rows.as_chunks().0[first / LANES];
            take_codes(isa, rows, kv.k_elem, kv.d_head, self.codes.keys);
            match I::ROWS {
                4 => self.scores_of_sixteen::<I, 4>(isa, kv, n, first),
                _ => self.scores_of_sixteen::<I, 2>(isa, kv, n, first),
            }
        }
    }

    /// Dot products of the first `n` heads and the sixteen keys from position `first` of the chunk
    /// on.
    #[inline(always)]
    fn scores_of_sixteen<I: Codes, const R: usize>(
        &mut self,
        isa: I,
        kv: &KvLayer<'_>,
        n: usize,
        first: usize,
    ) {
        for h in (0..n).step_by(R) {
            let is_seen =
                |visible: &Range<usize>| visible.start < first + LANES && first < visible.end;
            if !self.visible[h..h + R].iter().any(is_seen) {
                continue;
            }
            let scales = KeyScales {
                scales: self.scales,
                first,
            };
            let d = kv.d_head;
            let scores: [I::F; R] = match kv.k_elem {
                KvElem::Q4 => products_of_q4(isa, &self.codes, h, d.div_ceil(2 * LANES), scales),
                _ => products_of_q8(isa, &self.codes, h, d.div_ceil(LANES), scales),
            };
            for r in 0..R {
                self.scores[h + r][first..first + LANES].copy_from_slice(&isa.to_array(scores[r]));
            }
        }
    }

    /// Rotates and quantizes the heads `heads` of a query whose keys are quantized.
    #[cfg_attr(feature = "avx512", inline(always))]
    #[cfg_attr(not(feature = "avx512"), inline(never))]
    pub(super) fn set_codes(&mut self, query: &Query<'_>, heads: Range<usize>) {
        for (h, i) in heads.enumerate() {
            let q = query.head(i);
            let rotated = &mut self.q[h * self.width..].as_flattened_mut()[..q.len()];
            rotated.copy_from_slice(q);
            query.kernels.hadamard(rotated);
            self.codes.set_query(rotated, h);
        }
    }
}

impl CodeBuffers<'_> {
    /// Vector `v` of the codes of `R` heads from `h` on.
    #[inline(always)]
    fn queries<const R: usize>(&self, h: usize, v: usize) -> [&[i8; LANES]; R] {
        std::array::from_fn(|r| &self.q[(h + r) * self.width + v])
    }
}

/// The scales of sixteen keys, those of the positions of a chunk from `first` on.
#[derive(Clone, Copy)]
struct KeyScales<'a> {
    /// As [`read_scales`] stores them.
    scales: &'a [[f32; CHUNK]],
    first: usize,
}

impl KeyScales<'_> {
    /// Scale or minimum `j` of each key.
    #[inline(always)]
    fn sixteen<I: Codes>(self, isa: I, j: usize) -> I::F {
        let scales = self.scales[j][self.first..].first_chunk();
        isa.floats(scales.expect("positions come in sixteens"))
    }
}

/// Scores of `R` heads from `h` on and sixteen keys of `n` vectors.
#[inline(always)]
fn products_of_q8<I: Codes, const R: usize>(
    isa: I,
    codes: &CodeBuffers<'_>,
    h: usize,
    n: usize,
    scales: KeyScales<'_>,
) -> [I::F; R] {
    let mut sums = [isa.no_sums(); R];
    for (v, keys) in codes.keys[..n].iter().enumerate() {
        sums = isa.dots(sums, keys, codes.queries(h, v));
    }
    let scale = scales.sixteen(isa, 0);
    let mut out = [isa.zeros(); R];
    for r in 0..R {
        let both = isa.product(isa.splat_all(codes.scales[h + r]), scale);
        out[r] = isa.product(isa.as_floats(sums[r]), both);
    }
    out
}

/// Scores of `R` heads from `h` on and sixteen keys of `n` groups.
#[inline(always)]
fn products_of_q4<I: Codes, const R: usize>(
    isa: I,
    codes: &CodeBuffers<'_>,
    h: usize,
    n: usize,
    scales: KeyScales<'_>,
) -> [I::F; R] {
    let mut out = [isa.zeros(); R];
    for (g, keys) in codes.keys.as_chunks::<2>().0[..n].iter().enumerate() {
        let sums = isa.dots_of_nibbles([isa.no_sums(); R], &keys[0], codes.queries(h, 2 * g));
        let sums = isa.dots_of_nibbles(sums, &keys[1], codes.queries(h, 2 * g + 1));
        let scale = scales.sixteen(isa, 2 * g);
        let min = scales.sixteen(isa, 2 * g + 1);
        for r in 0..R {
            let of_16 = &codes.sums[(h + r) * codes.width + 2 * g..][..2];
            let scaled = isa.product(scale, isa.as_floats(sums[r]));
            let minima = isa.product(min, isa.splat_all(of_16[0] + of_16[1]));
            out[r] = isa.sum_f(out[r], isa.sum_f(scaled, minima));
        }
    }
    for r in 0..R {
        out[r] = isa.product(isa.splat_all(codes.scales[h + r]), out[r]);
    }
    out
}
