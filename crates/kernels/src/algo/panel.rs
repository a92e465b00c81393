//! Several activation rows times a row tile of quantized weight rows: prefill, bound by arithmetic.
//!
//! ```text
//! for each block b of 256 weights, in order:
//!     panel = its rows, transposed (in L1): lane = weight row, word k = codes 4k to 4k + 3
//!     for T activation rows at once:
//!         for each group g: c[r][t] = −offset·sum of x
//!             for each word k: x_t = word k of row t in all lanes;  c[r][t] += panel[k][r]·x_t
//!             isum[r][t] += scale[g][r]·c[r][t]
//!         bias[r][t] = min · (256·high + low of the sums of x), by byte dot products
//!         out[t][r] += f32 rule
//! ```
//! Where bytes are multiplied in pairs (AVX2), c holds two i16 in each lane, as many words as fit
//! are summed in it, and the scale multiplies and widens it: two instructions a word instead of
//! three. Codes of K-quants that are lowered begin with the sums of their halves and wrap around;
//! those of 7 bits and more are made signed, and their signs go to x.
//!
//! Measured on Zen 5 (a probe of the same loop), R = 4, T = 3 of 16-lane vectors: 72-74 % of the
//! peak of byte dot products; R2 T7 71, R4 T4 71, R2 T4 67, R1 T12 64. The panel, which `unpack.rs`
//! fills, lives on the stack.

use super::matmul::RowTile;
use super::unpack::{
    Panel, TilePrefetch, Unpack, as_rows, has_pairs, is_any, is_corrected, rows_at, tails,
};
use crate::activations::{Codes, Quants, Sums};
use crate::format::{KQuant, Quant32, Second};
use crate::isa::Lanes;
use std::ops::Range;

/// Rows of a row tile at most.
pub(super) const ROWS: usize = 64;

/// Of `n` activation rows: how many go in tiles of T, and where the tiles of two behind those end,
/// if there are any; a tile of one waits for its own sums.
#[inline(always)]
fn parts<I: Lanes, const T: usize>(n: usize) -> (usize, usize) {
    let whole = n / T * T;
    if !has_pairs::<I>() {
        return (whole, whole);
    }
    // A row left alone makes two pairs with a tile of three.
    let whole = if T == 3 && n % T == 1 && n > T {
        whole - T
    } else {
        whole
    };
    (whole, n - (n - whole) % 2)
}

/// Tiles that those parts of `n` activation rows are.
#[inline(always)]
fn n_tiles<const T: usize>(n: usize, (whole, pairs): (usize, usize)) -> usize {
    whole / T + (pairs - whole) / 2 + n - pairs
}

/// The rows of a row tile, the last one repeated where there are none left.
#[inline(always)]
pub(super) fn blocks<'a, B>(
    row_tile: &RowTile<'a>,
    of: impl Fn(&'a [u8]) -> &'a [B],
) -> [&'a [B]; ROWS] {
    let w = row_tile.w;
    std::array::from_fn(|r| of(w.row(r.min(w.d_out() - 1))))
}

/// Multiplies a row tile of a K-quant, `R·LANES` rows wide.
#[inline(always)]
pub(crate) fn k_quant<I: Lanes, U: Unpack<I>, F: KQuant, const R: usize, const T: usize>(
    isa: I,
    row_tile: RowTile<'_>,
) {
    let width = R * I::LANES;
    #[cfg(test)]
    crate::testing::ran("panel");
    let (rows, x) = (blocks(&row_tile, F::blocks), row_tile.x.q8_256());
    let (mut panel, mut unpack) = (Panel::<I, R>::new(isa), U::new());
    let (parts, mut ahead) = (
        parts::<I, T>(row_tile.rows.len()),
        TilePrefetch::new(&row_tile, width),
    );
    let n_times = n_tiles::<T>(row_tile.rows.len(), parts) * F::GROUPS;
    let tails = tails::<F, ROWS>(row_tile.w, 0);
    let ends = tails.as_ref().map_or(rows, as_rows);
    for b in 0..rows[0].len() + usize::from(tails.is_some()) {
        let (rows, i) = rows_at::<F, _>(&rows, &ends, b);
        // A quarter while blocks are unpacked, which takes about as much of the time; the rest
        // between products.
        ahead.piece(width * size_of::<F::Block>(), 4 * R);
        for r in 0..R {
            ahead.prefetch(isa);
            unpack.k_quant::<F, R>(isa, &rows[r * I::LANES..], i, &mut panel, r);
        }
        ahead.rest(n_times);
        let x = Inputs::of_block(x, b, &row_tile.rows);
        let (whole, pairs) = parts;
        for t in (0..whole).step_by(T) {
            k_quant_tile::<I, F, R, T>(
                isa,
                &panel,
                &x.at(t),
                &mut ahead,
                &mut row_tile.acc[t * width..],
            );
        }
        if has_pairs::<I>() {
            for t in (whole..pairs).step_by(2) {
                k_quant_tile::<I, F, R, 2>(
                    isa,
                    &panel,
                    &x.at(t),
                    &mut ahead,
                    &mut row_tile.acc[t * width..],
                );
            }
        }
        for t in pairs..row_tile.rows.len() {
            k_quant_tile::<I, F, R, 1>(
                isa,
                &panel,
                &x.at(t),
                &mut ahead,
                &mut row_tile.acc[t * width..],
            );
        }
    }
}

/// A block of some activation rows.
pub(super) struct Inputs<'a, S, M> {
    pub(super) codes: &'a [Codes],
    pub(super) scales: &'a [S],
    pub(super) sums: &'a [M],
}

impl<'a, S: Copy + Send, M: Copy + Send> Inputs<'a, S, M> {
    /// Block `b` of some rows.
    #[inline(always)]
    fn of_block(x: &'a Quants<S, M>, b: usize, rows: &Range<usize>) -> Self {
        let of_block = x.at(b, rows.start)..x.at(b, rows.end);
        Self {
            codes: &x.codes[of_block.clone()],
            scales: &x.scales[of_block.clone()],
            sums: &x.sums[of_block],
        }
    }

    /// From row `t` on.
    #[inline(always)]
    fn at(&self, t: usize) -> Self {
        Self {
            codes: &self.codes[t..],
            scales: &self.scales[t..],
            sums: &self.sums[t..],
        }
    }
}

/// The first T activation rows of `x`; `acc` is `[T, R·LANES]`.
#[inline(always)]
fn k_quant_tile<I: Lanes, F: KQuant, const R: usize, const T: usize>(
    isa: I,
    panel: &Panel<I, R>,
    x: &Inputs<'_, f32, Sums>,
    ahead: &mut TilePrefetch<'_>,
    acc: &mut [f32],
) {
    let codes: [&[[i8; 4]; 64]; T] = words_of(x.codes);
    let sums: [&Sums; T] = std::array::from_fn(|t| &x.sums[t]);
    let words = 64 / F::GROUPS;
    // Sums of offset-corrected codes wrap around on the way, so a whole group is summed at once.
    let at_once = const {
        words_at_once::<I>(if F::OFFSET == 0 {
            F::LARGEST
        } else {
            magnitude(F::OFFSET, F::LARGEST)
        })
    };
    const {
        assert!(
            !I::PAIRS
                || F::OFFSET == 0
                || is_any::<I>(F::OFFSET)
                || words_at_once::<I>(magnitude(F::OFFSET, F::LARGEST)) >= 64 / F::GROUPS
        )
    };
    let at_once = at_once.min(words);
    let mut isum = [[isa.splat(0); T]; R];
    for g in 0..F::GROUPS {
        ahead.prefetch(isa);
        let mut sum = [[isa.widen_start(isa.splat(0)).1; T]; R];
        if is_corrected::<I>(F::OFFSET) {
            for t in 0..T {
                let (whole, halves) =
                    (sums[t].of(F::GROUPS).whole[g], sums[t].halves(F::GROUPS, g));
                (0..R).for_each(|r| sum[r][t] = isa.offset_correction(F::OFFSET, whole, halves));
            }
        }
        for first in (g * words..(g + 1) * words).step_by(at_once) {
            multiply::<I, R, T>(
                isa,
                (panel, F::OFFSET),
                codes,
                first..first + at_once,
                &mut sum,
            );
            for r in 0..R {
                for t in 0..T {
                    isum[r][t] = isa.widen_add_scaled(isum[r][t], sum[r][t], panel.scale[g][r]);
                    sum[r][t] = isa.widen_start(isa.splat(0)).1;
                }
            }
        }
    }
    let width = R * I::LANES;
    let bias = if F::MINS {
        bias::<I, F, R, T>(isa, panel, sums)
    } else {
        [[isa.splat(0); T]; R]
    };
    for t in 0..T {
        let dx = isa.splat_float(x.scales[t]);
        for r in 0..R {
            let mut v = isa.mul_lanes(panel.d[0][r], isa.to_floats(isum[r][t]));
            if F::MINS {
                v = isa.sub_lanes(v, isa.mul_lanes(panel.d[1][r], isa.to_floats(bias[r][t])));
            }
            let out = &mut acc[t * width + r * I::LANES..][..I::LANES];
            isa.store_to(isa.add_lanes(isa.load_from(out), isa.mul_lanes(dx, v)), out);
        }
    }
}

/// The largest magnitude of codes up to `largest`, less `offset`.
const fn magnitude(offset: i16, largest: i16) -> i16 {
    if offset > largest - offset {
        offset
    } else {
        largest - offset
    }
}

/// Words of weights up to `largest` in magnitude whose products with activations [`Lanes::P`]
/// holds.
const fn words_at_once<I: Lanes>(largest: i16) -> usize {
    if !I::PAIRS {
        return 64;
    }
    let n = i16::MAX as usize / (2 * 127 * largest as usize);
    assert!(n > 0);
    if n > 64 { 64 } else { 1 << n.ilog2() }
}

/// Adds the products of some words; those of weights are codes biased by `offset`.
#[inline(always)]
fn multiply<I: Lanes, const R: usize, const T: usize>(
    isa: I,
    (panel, offset): (&Panel<I, R>, i16),
    codes: [&[[i8; 4]; 64]; T],
    words: Range<usize>,
    sum: &mut [[I::P; T]; R],
) {
    let unrolled = words.len().min(4);
    for first in words.step_by(unrolled) {
        for k in first..first + unrolled {
            let x: [I::W; T] = std::array::from_fn(|t| isa.splat4(&codes[t][k]));
            for r in 0..R {
                for t in 0..T {
                    let w = panel.codes[k][r];
                    sum[r][t] = if is_any::<I>(offset) {
                        isa.dot4_bytes(sum[r][t], w, x[t])
                    } else {
                        isa.dot4(sum[r][t], w, x[t])
                    };
                }
            }
        }
    }
}

/// The codes of T activation rows, in words.
#[inline(always)]
fn words_of<const T: usize>(codes: &[Codes]) -> [&[[i8; 4]; 64]; T] {
    std::array::from_fn(|t| {
        codes[t]
            .0
            .as_chunks::<4>()
            .0
            .first_chunk()
            .expect("256 codes are 64 words")
    })
}

/// `Σ min·sum`, by the bytes of the sums.
#[inline(always)]
fn bias<I: Lanes, F: KQuant, const R: usize, const T: usize>(
    isa: I,
    panel: &Panel<I, R>,
    sums: [&Sums; T],
) -> [[I::N; T]; R] {
    let mut bias = [[isa.splat(0); T]; R];
    for low in [false, true] {
        for t in 0..T {
            let sums = sums[t].of(F::GROUPS);
            let bytes = if low { &sums.low } else { &sums.high };
            for r in 0..R {
                let (mut n, mut p) = isa.widen_start(isa.times_256(bias[r][t]));
                for c in 0..F::GROUPS / 4 {
                    p = isa.dot4(p, panel.min[c][r], isa.splat4(&bytes.as_chunks::<4>().0[c]));
                    // Minima are at most 63, and bytes at most 128.
                    if I::PAIRS && c % 2 == 1 {
                        (n, p) = isa.widen_start(isa.widen_add(n, p));
                    }
                }
                bias[r][t] = if I::PAIRS { n } else { isa.widen_add(n, p) };
            }
        }
    }
    bias
}

/// Multiplies a row tile of a format with blocks of 32, `R·LANES` rows wide.
#[inline(always)]
pub(crate) fn quant_32<I: Lanes, U: Unpack<I>, F: Quant32, const R: usize, const T: usize>(
    isa: I,
    row_tile: RowTile<'_>,
) {
    let (rows, x) = (blocks(&row_tile, F::blocks), row_tile.x.q8_32());
    let (mut panel, mut unpack) = (Panel::<I, R>::new(isa), U::new());
    let (parts, mut ahead) = (
        parts::<I, T>(row_tile.rows.len()),
        TilePrefetch::new(&row_tile, R * I::LANES),
    );
    let n_tiles = n_tiles::<T>(row_tile.rows.len(), parts);
    let n_groups_of_row = rows[0].len() * F::GROUPS;
    for b in 0..n_groups_of_row.div_ceil(8) {
        let n_groups = (n_groups_of_row - 8 * b).min(8);
        let n_bytes = n_groups * size_of::<F::Block>() / F::GROUPS;
        ahead.piece(R * I::LANES * n_bytes, 4 * R);
        for r in 0..R {
            ahead.prefetch(isa);
            unpack.quant_32::<F, R>(
                isa,
                &rows[r * I::LANES..],
                8 * b..8 * b + n_groups,
                &mut panel,
                r,
            );
        }
        ahead.rest(n_tiles * n_groups);
        let x = Inputs::of_block(x, b, &row_tile.rows);
        let (whole, pairs) = parts;
        for t in (0..whole).step_by(T) {
            quant_32_tile::<I, F, R, T>(
                isa,
                (&panel, n_groups),
                &x.at(t),
                &mut ahead,
                &mut row_tile.acc[t * R * I::LANES..],
            );
        }
        if has_pairs::<I>() {
            for t in (whole..pairs).step_by(2) {
                quant_32_tile::<I, F, R, 2>(
                    isa,
                    (&panel, n_groups),
                    &x.at(t),
                    &mut ahead,
                    &mut row_tile.acc[t * R * I::LANES..],
                );
            }
        }
        for t in pairs..row_tile.rows.len() {
            quant_32_tile::<I, F, R, 1>(
                isa,
                (&panel, n_groups),
                &x.at(t),
                &mut ahead,
                &mut row_tile.acc[t * R * I::LANES..],
            );
        }
    }
}

/// As [`k_quant_tile`]: `out += (d·dx)·isum`, then `out += (m·dx)·sum of x`, for each group.
#[inline(always)]
fn quant_32_tile<I: Lanes, F: Quant32, const R: usize, const T: usize>(
    isa: I,
    (panel, n_groups): (&Panel<I, R>, usize),
    x: &Inputs<'_, [f32; 8], [i16; 8]>,
    ahead: &mut TilePrefetch<'_>,
    acc: &mut [f32],
) {
    let codes: [&[[i8; 4]; 64]; T] = words_of(x.codes);
    let width = R * I::LANES;
    let mut out = [[isa.splat_float(0.0); T]; R];
    for r in 0..R {
        for t in 0..T {
            out[r][t] = isa.load_from(&acc[t * width + r * I::LANES..][..I::LANES]);
        }
    }
    for g in 0..n_groups {
        ahead.prefetch(isa);
        if F::SECOND == Second::Scale {
            for (half, d) in [&panel.d[g], &panel.second[g]].into_iter().enumerate() {
                let words = 8 * g + 4 * half..8 * g + 4 * half + 4;
                let sums = std::array::from_fn(|t| sum_of(&codes[t][words.clone()]));
                let c = products_32::<I, F, R, T>(isa, panel, codes, words, sums);
                add_products(isa, d, x, g, &c, &mut out);
            }
            continue;
        }
        let sums = std::array::from_fn(|t| x.sums[t][g]);
        let c = products_32::<I, F, R, T>(isa, panel, codes, 8 * g..8 * g + 8, sums);
        add_products(isa, &panel.d[g], x, g, &c, &mut out);
        if F::SECOND == Second::Minimum {
            for t in 0..T {
                let (dx, sum) = (
                    isa.splat_float(x.scales[t][g]),
                    isa.splat_float(f32::from(x.sums[t][g])),
                );
                for r in 0..R {
                    out[r][t] = isa.add_lanes(
                        out[r][t],
                        isa.mul_lanes(isa.mul_lanes(panel.second[g][r], dx), sum),
                    );
                }
            }
        }
    }
    for r in 0..R {
        for t in 0..T {
            isa.store_to(out[r][t], &mut acc[t * width + r * I::LANES..][..I::LANES]);
        }
    }
}

/// `Σ (code − offset)·x` of the words `words` of T activation rows, whose codes there sum to
/// `sums`.
#[inline(always)]
fn products_32<I: Lanes, F: Quant32, const R: usize, const T: usize>(
    isa: I,
    panel: &Panel<I, R>,
    codes: [&[[i8; 4]; 64]; T],
    words: Range<usize>,
    sums: [i16; T],
) -> [[I::N; T]; R] {
    let largest = if is_any::<I>(F::OFFSET) {
        magnitude(F::OFFSET, F::LARGEST)
    } else {
        F::LARGEST
    };
    let at_once = words_at_once::<I>(largest).min(words.len());
    let zero = isa.splat(0);
    let (mut c, mut sum) = ([[zero; T]; R], [[isa.widen_start(zero).1; T]; R]);
    if is_corrected::<I>(F::OFFSET) {
        for t in 0..T {
            let first = isa.widen_start(isa.splat(-i32::from(F::OFFSET) * i32::from(sums[t])));
            (0..R).for_each(|r| (c[r][t], sum[r][t]) = first);
        }
    }
    for first in words.step_by(at_once) {
        multiply::<I, R, T>(
            isa,
            (panel, F::OFFSET),
            codes,
            first..first + at_once,
            &mut sum,
        );
        for r in 0..R {
            for t in 0..T {
                c[r][t] = isa.widen_add(c[r][t], sum[r][t]);
                sum[r][t] = isa.widen_start(zero).1;
            }
        }
    }
    c
}

/// `out += (d·dx)·isum` for group `g`.
#[inline(always)]
fn add_products<I: Lanes, const R: usize, const T: usize>(
    isa: I,
    d: &[I::L; R],
    x: &Inputs<'_, [f32; 8], [i16; 8]>,
    g: usize,
    isum: &[[I::N; T]; R],
    out: &mut [[I::L; T]; R],
) {
    for t in 0..T {
        let dx = isa.splat_float(x.scales[t][g]);
        for r in 0..R {
            let scale = isa.mul_lanes(d[r], dx);
            out[r][t] = isa.add_lanes(out[r][t], isa.mul_lanes(scale, isa.to_floats(isum[r][t])));
        }
    }
}

/// The sum of the codes of some words.
#[inline(always)]
fn sum_of(words: &[[i8; 4]]) -> i16 {
    words
        .as_flattened()
        .iter()
        .map(|&code| i16::from(code))
        .sum()
}
