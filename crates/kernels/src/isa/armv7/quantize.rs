//! Activations to int8, with the bits of `algo/quantize.rs`.
//!
//! One thread quantizes a row of activations while the others wait to multiply it, so a machine of
//! four cores loses four times as much as this takes.

use super::{Armv7, neon, no_sums};
use crate::activations::{self, QuantRow, Sums};
use crate::algo::quantize;

impl Armv7 {
    /// The bits of the largest magnitude of `x`, whose length is a multiple of 16.
    #[inline(always)]
    fn largest<const N: usize>(self, x: &[f32; N]) -> u32 {
        const { assert!(N > 0 && N.is_multiple_of(16)) };
        let mut out = 0;
        // SAFETY: the token proves NEON. `x` is read in steps of 16, and `out` written.
        unsafe {
            neon!(
                [
                    no_sums!(),
                    "2:",
                    "vld1.32 {{d16-d19}}, [{x}]!",
                    "vld1.32 {{d20-d23}}, [{x}]!",
                    "vbic.i32 q8, #0x80000000",
                    "vbic.i32 q9, #0x80000000",
                    "vbic.i32 q10, #0x80000000",
                    "vbic.i32 q11, #0x80000000",
                    "vmax.u32 q0, q0, q8",
                    "vmax.u32 q1, q1, q9",
                    "vmax.u32 q2, q2, q10",
                    "vmax.u32 q3, q3, q11",
                    "subs {n}, {n}, #1",
                    "bne 2b",
                    "vmax.u32 q0, q0, q1",
                    "vmax.u32 q2, q2, q3",
                    "vmax.u32 q0, q0, q2",
                    "vpmax.u32 d0, d0, d1",
                    "vpmax.u32 d0, d0, d0",
                    "vst1.32 {{d0[0]}}, [{out}]",
                ]
                x = inout(reg) x.as_ptr() => _,
                n = inout(reg) N / 16 => _,
                out = in(reg) &raw mut out,
            );
        }
        out
    }

    /// `x·inverse` rounded to codes, at least −127. A product that NEON takes for zero is one that
    /// rounds to zero.
    #[inline(always)]
    fn round<const N: usize>(self, x: &[f32; N], inverse: f32, codes: &mut [i8; N]) {
        const { assert!(N > 0 && N.is_multiple_of(16)) };
        // SAFETY: the token proves NEON. `x` is read and `codes` are written in steps of 16.
        unsafe {
            neon!(
                [
                    "vdup.32 q0, {inverse}",
                    "vdup.32 q1, {round}",
                    "vmov.i8 q2, #0x81",
                    "2:",
                    "vld1.32 {{d16-d19}}, [{x}]!",
                    "vld1.32 {{d20-d23}}, [{x}]!",
                    "vmul.f32 q8, q8, q0",
                    "vmul.f32 q9, q9, q0",
                    "vmul.f32 q10, q10, q0",
                    "vmul.f32 q11, q11, q0",
                    "vadd.f32 q8, q8, q1",
                    "vadd.f32 q9, q9, q1",
                    "vadd.f32 q10, q10, q1",
                    "vadd.f32 q11, q11, q1",
                    "vsub.i32 q8, q8, q1",
                    "vsub.i32 q9, q9, q1",
                    "vsub.i32 q10, q10, q1",
                    "vsub.i32 q11, q11, q1",
                    "vmovn.i32 d24, q8",
                    "vmovn.i32 d25, q9",
                    "vmovn.i32 d26, q10",
                    "vmovn.i32 d27, q11",
                    "vmovn.i16 d24, q12",
                    "vmovn.i16 d25, q13",
                    "vmax.s8 q12, q12, q2",
                    "vst1.8 {{d24-d25}}, [{codes}]!",
                    "subs {n}, {n}, #1",
                    "bne 2b",
                ]
                inverse = in(reg) inverse.to_bits(),
                round = in(reg) quantize::ROUND.to_bits(),
                x = inout(reg) x.as_ptr() => _,
                codes = inout(reg) codes.as_mut_ptr() => _,
                n = inout(reg) N / 16 => _,
            );
        }
    }

    /// As [`quantize::quantize`].
    #[inline(always)]
    fn quantize<const N: usize>(self, x: &[f32; N], codes: &mut [i8; N]) -> f32 {
        let amax = f32::from_bits(self.largest(x));
        if !amax.is_finite() {
            return quantize::quantize(x, codes);
        }
        if amax < quantize::TINY {
            *codes = [0; N];
            return 0.0;
        }
        let scale = amax / 127.0;
        self.round(x, 1.0 / scale, codes);
        scale
    }
}

/// Quantizes a row with one scale for 256 values.
///
/// # Safety
/// The CPU must have NEON.
pub(crate) unsafe fn quantize_256(x: &[f32], out: QuantRow<'_, f32, Sums>) {
    // SAFETY: the caller's obligation.
    let isa = unsafe { Armv7::assume() };
    let (mut codes, (mut scales, mut sums)) = out;
    activations::for_each_block(x, |b, x| {
        let codes = &mut codes.block(b).0;
        *scales.block(b) = isa.quantize(x, codes);
        *sums.block(b) = quantize::sums(codes);
    });
}

/// Quantizes a row with one scale for 32 values.
///
/// # Safety
/// The CPU must have NEON.
pub(crate) unsafe fn quantize_32(x: &[f32], out: QuantRow<'_, [f32; 8], [i16; 8]>) {
    // SAFETY: the caller's obligation.
    let isa = unsafe { Armv7::assume() };
    let (mut codes, (mut scales, mut sums)) = out;
    activations::for_each_block(x, |b, x| {
        let codes = &mut codes.block(b).0;
        let parts = x.as_chunks::<32>().0.iter();
        let parts = parts.zip(codes.as_chunks_mut::<32>().0);
        for ((x, codes), scale) in parts.zip(scales.block(b)) {
            *scale = isa.quantize(x, codes);
        }
        *sums.block(b) = quantize::sums_of_32(codes);
    });
}
