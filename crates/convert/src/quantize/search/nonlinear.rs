//! Searches a scale for a sub-block of codes of a table, `x ≈ scale·IQ4_VALUES[code]`.
//!
//! Minimises the same error as [`super::scale()`]. Candidates map the largest weight to −127 ± 7.

use atta_formats::layout::IQ4_VALUES;

use super::{
    LEAST, extreme,
    lanes::{Lanes, Tile},
};

const ZERO: Lanes = Lanes::splat(0.0);

/// Midpoints: from this number on, code `i + 1` is nearer than code `i`.
const BORDERS: [f32; 15] = {
    let mut borders = [0.0; 15];
    let mut i = 0;
    while i < 15 {
        borders[i] = (IQ4_VALUES[i] as f32 + IQ4_VALUES[i + 1] as f32) / 2.0;
        i += 1;
    }
    borders
};

/// The code of the number nearest to `x`, the higher one of two; the last code for NaN.
#[inline(always)]
pub(crate) fn index(x: f32) -> u8 {
    15 - BORDERS
        .iter()
        .map(|&border| u8::from(x < border))
        .sum::<u8>()
}

/// Finds a scale for each of four sub-blocks `x` with `weights`.
#[inline(always)]
pub(crate) fn nonlinear_scale<const N: usize>(x: &Tile<N>, weights: &Tile<N>) -> Lanes {
    let extreme = extreme(x);
    let lowest = f32::from(IQ4_VALUES[0]);
    let widest = extreme.negated() / Lanes::splat(lowest);
    let (xq, qq) = sums(x, weights, Lanes::splat(1.0) / widest);
    let mut scale = qq.above(ZERO).choose(xq / qq, ZERO);
    let mut best = scale * xq;
    for step in -7i8..=7 {
        let (xq, qq) = sums(x, weights, Lanes::splat(f32::from(step) + lowest) / extreme);
        let better = qq.above(ZERO) & (xq * xq).above(best * qq);
        scale = better.choose(xq / qq, scale);
        best = better.choose(scale * xq, best);
    }
    Lanes::splat(LEAST).above(extreme.abs()).choose(ZERO, scale)
}

/// `Σ w·q·x` and `Σ w·q²`.
#[inline(always)]
fn sums<const N: usize>(x: &Tile<N>, weights: &Tile<N>, per_weight: Lanes) -> (Lanes, Lanes) {
    let mut xq = ZERO;
    let mut qq = ZERO;
    for (&x, &w) in x.iter().zip(weights) {
        let q = nearest_number(per_weight * x);
        let wq = w * q;
        xq = xq + wq * x;
        qq = qq + wq * q;
    }
    (xq, qq)
}

/// The number of the table nearest to `x`, the higher one of two.
#[inline(always)]
fn nearest_number(x: Lanes) -> Lanes {
    let mut number = Lanes::splat(f32::from(IQ4_VALUES[0]));
    for (pair, &border) in IQ4_VALUES.windows(2).zip(&BORDERS) {
        let step = Lanes::splat(f32::from(pair[1]) - f32::from(pair[0]));
        number = number + Lanes::splat(border).above(x).choose(ZERO, step);
    }
    number
}
