//! Loops over rows of floats and of 16-bit codes, in assembly: norms, quantization, attention, the
//! gate.
//!
//! It refuses to know what rows mean. Floats take the steps of the plain code, in its order, and no
//! multiplication is fused with an addition, so every bit is that of the plain code.

use super::{Rvv, vector};
use crate::algo::math::{EXP_M1, LN_2, ROUND};
use crate::algo::quantize::TINY;
use crate::isa::CodeRows;
use std::ops::Range;

/// The bits of infinity.
const INFINITY: u32 = f32::INFINITY.to_bits();
/// Makes the bits of `2^n` of `n << 23`, when added.
const ONE: u32 = 1_f32.to_bits();

/// [`vector!`] with `e^x` as `y·2^n` in the middle: of `x` in `v4` it makes `y` in `v16` and `n` in
/// the lower bits of `v8`. It overwrites `v12`.
macro_rules! exponential {
    ([$($before:literal),+ $(,)?], [$($after:literal),+ $(,)?], $($operand:tt)*) => {
        vector!(
            $($before,)+
            "vfmul.vf v8, v4, {log2_e}",
            "vfadd.vf v8, v8, {round}",
            "vfsub.vf v12, v8, {round}",
            "vfmul.vf v16, v12, {ln_2}",
            "vfsub.vv v4, v4, v16",
            "vfmul.vf v12, v12, {ln_2_rest}",
            "vfsub.vv v4, v4, v12",
            "vfmul.vf v16, v4, {c0}",
            "vfadd.vf v16, v16, {c1}",
            "vfmul.vv v16, v16, v4",
            "vfadd.vf v16, v16, {c2}",
            "vfmul.vv v16, v16, v4",
            "vfadd.vf v16, v16, {c3}",
            "vfmul.vv v16, v16, v4",
            "vfadd.vf v16, v16, {c4}",
            "vfmul.vv v16, v16, v4",
            "vfadd.vf v16, v16, {c5}",
            "vfmul.vv v12, v4, v4",
            "vfmul.vv v16, v16, v12",
            "vfadd.vv v16, v16, v4",
            "vfadd.vf v16, v16, {one}",
            $($after),+;
            log2_e = in(freg) std::f32::consts::LOG2_E,
            round = in(freg) ROUND,
            ln_2 = in(freg) LN_2[0],
            ln_2_rest = in(freg) LN_2[1],
            c0 = in(freg) EXP_M1[0],
            c1 = in(freg) EXP_M1[1],
            c2 = in(freg) EXP_M1[2],
            c3 = in(freg) EXP_M1[3],
            c4 = in(freg) EXP_M1[4],
            c5 = in(freg) EXP_M1[5],
            one = in(freg) 1_f32,
            $($operand)*
        )
    };
}

impl<const LONG: bool> Rvv<LONG> {
    /// `Σ w·x`.
    #[inline(always)]
    pub(super) fn dot_of_codes<const N: usize>(self, w: &[i16; N], x: &[i8; N]) -> i32 {
        const { assert!(N > 0) };
        let sum: i32;
        // SAFETY: the token proves vectors; reads `N` elements of both arrays.
        unsafe {
            vector!(
                "vsetvli {t}, zero, e32, m8, ta, ma",
                "vmv.v.i v24, 0",
                "2:",
                "vsetvli {t}, {n}, e16, m4, tu, ma",
                "vle8.v v2, ({x})",
                "vle16.v v8, ({w})",
                "vsext.vf2 v4, v2",
                "vwmacc.vv v24, v8, v4",
                "sub {n}, {n}, {t}",
                "add {x}, {x}, {t}",
                "slli {t}, {t}, 1",
                "add {w}, {w}, {t}",
                "bnez {n}, 2b",
                "vsetvli {t}, zero, e32, m8, ta, ma",
                "vmv.s.x v1, zero",
                "vredsum.vs v1, v24, v1",
                "vmv.x.s {sum}, v1";
                w = inout(reg) w.as_ptr() => _,
                x = inout(reg) x.as_ptr() => _,
                n = inout(reg) N => _,
                t = out(reg) _,
                sum = out(reg) sum,
            );
        }
        sum
    }

    /// The lanes of `Σ (x + shift)²`.
    #[inline(always)]
    pub(super) fn sums_of_squares(self, x: &[[f32; 16]], shift: f32) -> [f32; 16] {
        let mut lanes = [0.0; 16];
        if x.is_empty() {
            return lanes;
        }
        // SAFETY: the token proves vectors; reads `x` and writes the lanes, 16 floats at a time.
        unsafe {
            vector!(
                "vsetivli zero, 16, {words}",
                "vmv.v.i v8, 0",
                "2:",
                "vle32.v v4, ({x})",
                "addi {x}, {x}, 64",
                "vfadd.vf v4, v4, {shift}",
                "vfmul.vv v4, v4, v4",
                "vfadd.vv v8, v8, v4",
                "addi {n}, {n}, -1",
                "bnez {n}, 2b",
                "vse32.v v8, ({lanes})";
                words = const Self::WORDS_16,
                x = inout(reg) x.as_ptr() => _,
                n = inout(reg) x.len() => _,
                shift = in(freg) shift,
                lanes = in(reg) lanes.as_mut_ptr(),
            );
        }
        lanes
    }

    /// `x = e^(x − max)` as [`exp_weight`](crate::algo::math::exp_weight) computes it; returns the
    /// lanes of `Σ x`.
    #[inline(always)]
    pub(super) fn exponentials(self, x: &mut [[f32; 16]], max: f32) -> [f32; 16] {
        let mut lanes = [0.0; 16];
        if x.is_empty() {
            return lanes;
        }
        // SAFETY: the token proves vectors; reads and writes `x` and writes the lanes, 16 floats at
        // a time.
        unsafe {
            exponential!(
                [
                    "vsetivli zero, 16, {words}",
                    "vmv.v.i v20, 0",
                    "2:",
                    "vle32.v v4, ({x})",
                    "vfsub.vf v4, v4, {max}",
                    "vmflt.vf v0, v4, {least}",
                    "vfmerge.vfm v4, v4, {least}, v0",
                ],
                [
                    "vsll.vi v8, v8, 23",
                    "vadd.vx v8, v8, {exponent}",
                    "vfmul.vv v16, v16, v8",
                    "vmerge.vim v16, v16, 0, v0",
                    "vse32.v v16, ({x})",
                    "addi {x}, {x}, 64",
                    "vfadd.vv v20, v20, v16",
                    "addi {n}, {n}, -1",
                    "bnez {n}, 2b",
                    "vse32.v v20, ({lanes})",
                ],
                words = const Self::WORDS_16,
                x = inout(reg) x.as_mut_ptr() => _,
                n = inout(reg) x.len() => _,
                max = in(freg) max,
                least = in(freg) -87_f32,
                exponent = in(reg) ONE,
                lanes = in(reg) lanes.as_mut_ptr(),
            );
        }
        lanes
    }

    /// `gate = gate/(1 + e^−gate)·up`; both of the same length.
    #[inline(always)]
    pub(crate) fn silu_products(self, gate: &mut [f32], up: &[f32]) {
        assert_eq!(gate.len(), up.len(), "a gate of another length");
        if gate.is_empty() {
            return;
        }
        // SAFETY: the token proves vectors; reads both slices and writes the first, `n` floats.
        unsafe {
            exponential!(
                [
                    "2:",
                    "vsetvli {t}, {n}, e32, m4, ta, mu",
                    "vle32.v v20, ({gate})",
                    "vfneg.v v4, v20",
                    "vmflt.vf v0, v4, {least}",
                    "vfmerge.vfm v4, v4, {least}, v0",
                    "vmfgt.vf v0, v4, {most}",
                    "vfmerge.vfm v4, v4, {most}, v0",
                ],
                [
                    // 2^n in two steps.
                    "vsub.vx v8, v8, {round_bits}",
                    "vsra.vi v12, v8, 1",
                    "vsub.vv v8, v8, v12",
                    "vsll.vi v12, v12, 23",
                    "vsll.vi v8, v8, 23",
                    "vadd.vx v12, v12, {exponent}",
                    "vadd.vx v8, v8, {exponent}",
                    "vfmul.vv v16, v16, v12",
                    "vfmul.vv v16, v16, v8",
                    "vfadd.vf v16, v16, {one}",
                    "vfrdiv.vf v16, v16, {one}",
                    "vfmul.vv v16, v16, v20",
                    "vle32.v v24, ({up})",
                    "vfmul.vv v16, v16, v24",
                    "vse32.v v16, ({gate})",
                    "sub {n}, {n}, {t}",
                    "slli {t}, {t}, 2",
                    "add {gate}, {gate}, {t}",
                    "add {up}, {up}, {t}",
                    "bnez {n}, 2b",
                ],
                gate = inout(reg) gate.as_mut_ptr() => _,
                up = inout(reg) up.as_ptr() => _,
                n = inout(reg) gate.len() => _,
                t = out(reg) _,
                least = in(freg) -104_f32,
                most = in(freg) 89_f32,
                round_bits = in(reg) ROUND.to_bits(),
                exponent = in(reg) ONE,
            );
        }
    }

    /// Codes of `x` and their scale, as the plain quantizer makes them.
    #[inline(always)]
    pub(super) fn codes_of<const N: usize>(self, x: &[f32; N], codes: &mut [i8; N]) -> f32 {
        let largest = match self.largest_magnitude(x) {
            bits if bits < INFINITY => f32::from_bits(bits),
            _ => f32::NAN,
        };
        if largest < TINY {
            *codes = [0; N];
            return 0.0;
        }
        let scale = largest / 127.0;
        self.rounded(x, 1.0 / scale, codes);
        scale
    }

    /// The bits of the largest magnitude, those of NaN above all others.
    #[inline(always)]
    fn largest_magnitude<const N: usize>(self, x: &[f32; N]) -> u32 {
        const { assert!(N > 0 && N.is_multiple_of(32)) };
        let twice: u64;
        // SAFETY: the token proves vectors; reads the `N` floats, 32 at a time.
        unsafe {
            vector!(
                "vsetvli zero, {at_once}, {words}",
                "vmv.v.i v8, 0",
                "2:",
                "vle32.v v16, ({x})",
                "addi {x}, {x}, 128",
                "vadd.vv v16, v16, v16",
                "vmaxu.vv v8, v8, v16",
                "addi {n}, {n}, -1",
                "bnez {n}, 2b",
                "vmv.s.x v1, zero",
                "vredmaxu.vs v1, v8, v1",
                "vmv.x.s {twice}, v1";
                words = const Self::WORDS_32,
                at_once = in(reg) 32_usize,
                x = inout(reg) x.as_ptr() => _,
                n = inout(reg) N / 32 => _,
                twice = out(reg) twice,
            );
        }
        twice as u32 >> 1
    }

    /// `x·inverse`, rounded to nearest even, at least −127.
    #[inline(always)]
    fn rounded<const N: usize>(self, x: &[f32; N], inverse: f32, codes: &mut [i8; N]) {
        const { assert!(N > 0 && N.is_multiple_of(32)) };
        // SAFETY: the token proves vectors; reads `N` floats and writes `N` codes, 32 at a time.
        unsafe {
            vector!(
                "2:",
                "vsetvli zero, {at_once}, {words}",
                "vle32.v v8, ({x})",
                "addi {x}, {x}, 128",
                "vfmul.vf v8, v8, {inverse}",
                "vfadd.vf v8, v8, {round}",
                "vsetvli zero, {at_once}, {halves}",
                "vnsrl.wi v16, v8, 0",
                "vsetvli zero, {at_once}, {bytes}",
                "vnsrl.wi v24, v16, 0",
                "vmax.vx v24, v24, {least}",
                "vse8.v v24, ({codes})",
                "addi {codes}, {codes}, 32",
                "addi {n}, {n}, -1",
                "bnez {n}, 2b";
                bytes = const Self::BYTES_32,
                halves = const Self::HALVES_32,
                words = const Self::WORDS_32,
                at_once = in(reg) 32_usize,
                x = inout(reg) x.as_ptr() => _,
                codes = inout(reg) codes.as_mut_ptr() => _,
                n = inout(reg) N / 32 => _,
                inverse = in(freg) inverse,
                round = in(freg) ROUND,
                least = in(reg) -127,
            );
        }
    }

    /// `Σ row·x`, which wraps around; `x` are pairs.
    #[inline(always)]
    pub(super) fn dot_of_row(self, row: &[[u8; 2]], x: &[i32]) -> i32 {
        assert!(row.len() <= 2 * x.len(), "a row longer than its factor");
        if row.is_empty() || !row.as_ptr().cast::<i16>().is_aligned() {
            return plain_dot(row, x);
        }
        let sum: i32;
        // SAFETY: the token proves vectors; reads `n` aligned elements of 16 bits of both slices,
        // which have as many.
        unsafe {
            vector!(
                "vsetvli {t}, zero, e32, m8, ta, ma",
                "vmv.v.i v24, 0",
                "2:",
                "vsetvli {t}, {n}, e16, m4, tu, ma",
                "vle16.v v4, ({row})",
                "vle16.v v8, ({x})",
                "vwmacc.vv v24, v4, v8",
                "sub {n}, {n}, {t}",
                "slli {t}, {t}, 1",
                "add {row}, {row}, {t}",
                "add {x}, {x}, {t}",
                "bnez {n}, 2b",
                "vsetvli {t}, zero, e32, m8, ta, ma",
                "vmv.s.x v1, zero",
                "vredsum.vs v1, v24, v1",
                "vmv.x.s {sum}, v1";
                row = inout(reg) row.as_ptr() => _,
                x = inout(reg) x.as_ptr() => _,
                n = inout(reg) row.len() => _,
                t = out(reg) _,
                sum = out(reg) sum,
            );
        }
        sum
    }

    /// `sums += Σ weight·row`, the sum in integers; `weights` are pairs, and those at `positions`
    /// belong to the rows.
    #[inline(always)]
    pub(super) fn add_weighted(
        self,
        rows: CodeRows<'_>,
        weights: &[i32],
        positions: Range<usize>,
        sums: &mut [f32],
    ) {
        let CodeRows { bytes, row_bytes } = rows;
        assert!(positions.end <= 2 * weights.len(), "rows without weights");
        let last = row_bytes * positions.len().saturating_sub(1);
        assert!(last + 2 * sums.len() <= bytes.len(), "rows that are cut");
        let is_aligned = bytes.as_ptr().cast::<i16>().is_aligned() && row_bytes.is_multiple_of(2);
        if positions.is_empty() || !is_aligned {
            return plain_sums(rows, weights, positions, sums);
        }
        let weights = weights.as_ptr().cast::<i16>().wrapping_add(positions.start);
        for (i, sums) in sums.chunks_mut(32).enumerate() {
            let codes = bytes.as_ptr().wrapping_add(64 * i);
            // SAFETY: the token proves vectors; reads as many weights as there are positions and,
            // `row_bytes` apart, as many codes as there are sums: both were found above to be there
            // and aligned. Reads and writes the sums.
            unsafe {
                vector!(
                    "vsetvli zero, {columns}, {words}",
                    "vmv.v.i v24, 0",
                    "vsetvli zero, {columns}, {halves}",
                    "2:",
                    "vle16.v v0, ({codes})",
                    "add {codes}, {codes}, {row_bytes}",
                    "lh {t}, 0({weights})",
                    "addi {weights}, {weights}, 2",
                    "addi {n}, {n}, -1",
                    "vwmacc.vx v24, {t}, v0",
                    "bnez {n}, 2b",
                    "vsetvli zero, {columns}, {words}",
                    "vle32.v v16, ({sums})",
                    "vfcvt.f.x.v v24, v24",
                    "vfadd.vv v16, v16, v24",
                    "vse32.v v16, ({sums})";
                    halves = const Self::HALVES_32,
                    words = const Self::WORDS_32,
                    columns = in(reg) sums.len(),
                    codes = inout(reg) codes => _,
                    row_bytes = in(reg) row_bytes,
                    weights = inout(reg) weights => _,
                    n = inout(reg) positions.len() => _,
                    t = out(reg) _,
                    sums = in(reg) sums.as_mut_ptr(),
                );
            }
        }
    }
}

/// Code `i` of pairs.
fn code(pairs: &[i32], i: usize) -> i32 {
    i32::from((pairs[i / 2] >> (16 * (i % 2))) as i16)
}

/// [`Rvv::dot_of_row`] of rows that are not aligned.
#[cold]
fn plain_dot(row: &[[u8; 2]], x: &[i32]) -> i32 {
    let products = row.iter().enumerate().map(|(i, &bytes)| {
        let element = i32::from(i16::from_le_bytes(bytes));
        element.wrapping_mul(code(x, i))
    });
    products.fold(0, i32::wrapping_add)
}

/// [`Rvv::add_weighted`] of rows that are not aligned.
#[cold]
fn plain_sums(rows: CodeRows<'_>, weights: &[i32], positions: Range<usize>, sums: &mut [f32]) {
    for (c, sum) in sums.iter_mut().enumerate() {
        let products = positions.clone().enumerate().map(|(i, p)| {
            let at = i * rows.row_bytes + 2 * c;
            let element = i16::from_le_bytes([rows.bytes[at], rows.bytes[at + 1]]);
            i32::from(element).wrapping_mul(code(weights, p))
        });
        *sum += products.fold(0, i32::wrapping_add) as f32;
    }
}

#[cfg(test)]
mod tests;
