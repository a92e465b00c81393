//! Four f32 lanes: four sub-blocks are searched at once, or four candidates compared.
//!
//! Knows no format. The one idea: lanes never interact, so each computes exactly what scalar code
//! would, with the same order and rounding, and the compiler can use the vectors of any machine.

use std::ops::{Add, BitAnd, Div, Mul, Sub};

/// Number of lanes.
pub(crate) const LANES: usize = 4;

/// 1.5 · 2^23. Adding it to a number rounds it to an integer, ties to even, in the lowest bits of
/// the sum.
const MAGIC: f32 = 12_582_912.0;

/// The integer nearest to `x`, ties to even, if |x| is below 2^22. For larger numbers and NaN, the
/// same bits as ggml's `nearest_int`: those below 2^23 of the sum with [`MAGIC`].
#[inline(always)]
pub(crate) fn nearest(x: f32) -> i32 {
    ((x + MAGIC).to_bits() & 0x007f_ffff) as i32 - 0x0040_0000
}

/// The integer nearest to `x` as f32, ties to even, for |x| below 2^22 only.
#[inline(always)]
pub(crate) fn rounded(x: f32) -> f32 {
    (x + MAGIC) - MAGIC
}

/// The low byte of `⌊x⌋`, for `x` from 0 to 2^22; 0 for infinity and NaN.
#[inline(always)]
pub(crate) fn floor_byte(x: f32) -> u8 {
    let near = x + MAGIC;
    (near.to_bits().wrapping_sub(u32::from(near - MAGIC > x))) as u8
}

/// The low byte of the integer nearest to `x`, ties away from zero, for |x| below 2^22; 0 for
/// infinity and NaN.
#[inline(always)]
pub(crate) fn round_byte(x: f32) -> u8 {
    let near = x.abs() + MAGIC;
    let tie_to_even = x.abs() - (near - MAGIC) == 0.5;
    let magnitude = near.to_bits().wrapping_add(u32::from(tie_to_even)) as u8;
    if x < 0.0 {
        magnitude.wrapping_neg()
    } else {
        magnitude
    }
}

/// The largest magnitude. The order of comparisons does not change the result, so lanes can share
/// the work.
#[inline(always)]
pub(crate) fn largest_magnitude(x: &[f32]) -> f32 {
    let lanes = x
        .as_chunks()
        .0
        .iter()
        .fold(Lanes::splat(0.0), |max, &x| Lanes(x).abs().max(max));
    lanes
        .0
        .iter()
        .fold(0.0, |max: f32, &x| if x > max { x } else { max })
}

/// The smallest number and the largest one.
#[inline(always)]
pub(crate) fn least_and_most(x: &[f32]) -> (f32, f32) {
    // Two passes, because LLVM does not vectorize a single one.
    let least = x
        .as_chunks()
        .0
        .iter()
        .fold(Lanes::splat(f32::MAX), |least, &x| Lanes(x).min(least));
    let most = x
        .as_chunks()
        .0
        .iter()
        .fold(Lanes::splat(f32::MIN), |most, &x| Lanes(x).max(most));
    let lower = |a: f32, b: f32| if b < a { b } else { a };
    let higher = |a: f32, b: f32| if b > a { b } else { a };
    let [a, b, c, d] = least.0;
    let [e, f, g, h] = most.0;
    (
        lower(lower(a, b), lower(c, d)),
        higher(higher(e, f), higher(g, h)),
    )
}

/// Four f32 lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes(pub(crate) [f32; LANES]);

/// One boolean per lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mask([bool; LANES]);

/// `N` elements of each of four sub-blocks.
pub(crate) type Tile<const N: usize> = [Lanes; N];

/// Element `i` of lane `k` is `x[N·k + i]`.
#[inline(always)]
pub(crate) fn tile<const N: usize>(x: &[[f32; N]; LANES]) -> Tile<N> {
    let mut out = [Lanes::splat(0.0); N];
    for (k, x) in x.iter().enumerate() {
        for (out, &x) in out.iter_mut().zip(x) {
            out.0[k] = x;
        }
    }
    out
}

impl Lanes {
    /// The same number in each lane.
    #[inline(always)]
    pub(crate) const fn splat(x: f32) -> Self {
        Self([x; LANES])
    }

    #[inline(always)]
    fn map(self, f: impl Fn(f32) -> f32) -> Self {
        Self(std::array::from_fn(|k| f(self.0[k])))
    }

    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|k| f(self.0[k], other.0[k])))
    }

    #[inline(always)]
    pub(crate) fn abs(self) -> Self {
        self.map(f32::abs)
    }

    #[inline(always)]
    pub(crate) fn negated(self) -> Self {
        self.map(|x| -x)
    }

    #[inline(always)]
    pub(crate) fn sqrt(self) -> Self {
        self.map(f32::sqrt)
    }

    /// [`rounded`].
    #[inline(always)]
    pub(crate) fn rounded(self) -> Self {
        self.map(rounded)
    }

    /// [`nearest`].
    #[inline(always)]
    pub(crate) fn nearest(self) -> Self {
        self.map(|x| nearest(x) as f32)
    }

    /// The larger number; `other` if `self` is NaN.
    #[inline(always)]
    pub(crate) fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }

    /// The smaller number; `other` if `self` is NaN.
    #[inline(always)]
    pub(crate) fn min(self, other: Self) -> Self {
        self.zip(other, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    pub(crate) fn above(self, other: Self) -> Mask {
        Mask(std::array::from_fn(|k| self.0[k] > other.0[k]))
    }

    #[inline(always)]
    pub(crate) fn equals(self, other: Self) -> Mask {
        Mask(std::array::from_fn(|k| self.0[k] == other.0[k]))
    }

    #[inline(always)]
    pub(crate) fn differs(self, other: Self) -> Mask {
        Mask(std::array::from_fn(|k| self.0[k] != other.0[k]))
    }
}

impl Mask {
    /// Takes lanes of `yes` where the mask is true, and of `no` elsewhere.
    #[inline(always)]
    pub(crate) fn choose(self, yes: Lanes, no: Lanes) -> Lanes {
        Lanes(std::array::from_fn(|k| {
            if self.0[k] { yes.0[k] } else { no.0[k] }
        }))
    }

    #[inline(always)]
    pub(crate) fn all(self) -> bool {
        self.0.iter().fold(true, |all, &one| all & one)
    }

    #[inline(always)]
    pub(crate) fn any(self) -> bool {
        self.0.iter().fold(false, |any, &one| any | one)
    }
}

impl BitAnd for Mask {
    type Output = Self;

    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        Self(std::array::from_fn(|k| self.0[k] & other.0[k]))
    }
}

macro_rules! by_lane {
    ($($op:ident $f:ident $sign:tt)*) => {
        $(impl $op for Lanes {
            type Output = Self;

            #[inline(always)]
            fn $f(self, other: Self) -> Self {
                self.zip(other, |a, b| a $sign b)
            }
        })*
    };
}

by_lane! { Add add + Sub sub - Mul mul * Div div / }

#[cfg(test)]
mod tests {
    use super::*;

    const TIES: [f32; 9] = [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 126.5, -126.5, 0.49999997];

    #[test]
    fn ties_go_to_even_numbers_or_away_from_zero() {
        for x in TIES
            .iter()
            .copied()
            .chain((-4000..4000).map(|i| i as f32 * 0.03125))
        {
            assert_eq!(nearest(x), x.round_ties_even() as i32, "{x}");
            assert_eq!(rounded(x), x.round_ties_even(), "{x}");
            assert_eq!(round_byte(x), x.round() as i8 as u8, "{x}");
            assert_eq!(floor_byte(x.abs()), x.abs().floor() as u8, "{x}");
        }
    }

    #[test]
    fn nan_and_large_numbers_round_as_in_llama_cpp() {
        for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!((floor_byte(x), round_byte(x)), (0, 0));
        }
        assert_eq!(
            (nearest(f32::NAN), nearest(f32::INFINITY), nearest(3e9)),
            (0, -0x40_0000, -815_010)
        );
    }

    #[test]
    fn lanes_of_a_tile_are_sub_blocks() {
        let tile = tile(&[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]);
        assert_eq!(
            tile.map(|lanes| lanes.0),
            [[1.0, 3.0, 5.0, 7.0], [2.0, 4.0, 6.0, 8.0]]
        );
    }
}
