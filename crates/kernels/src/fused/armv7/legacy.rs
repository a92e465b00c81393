//! Blocks of 32 weights: Q4_0 and Q8_0, four weight rows at a time.
//!
//! Horizontal sums of four rows end in one register, lane = weight row: the f32 steps need none.
//! Those are VFP instructions: a product of two scales may be subnormal. Scales are widened by
//! integer instructions, which every NEON has, and by a few floats that are never subnormal.

use super::{Block32, EightGroups};
use crate::format::{Q4_0, Q8_0};
use crate::isa::armv7::{Armv7, neon};

impl Block32 for Q4_0 {
    #[inline(always)]
    fn add_groups(isa: Armv7, rows: [&[[u8; 18]]; 4], x: &EightGroups<'_>, acc: &mut [f32; 4]) {
        q4_0(isa, rows, x, acc);
    }
}

impl Block32 for Q8_0 {
    #[inline(always)]
    fn add_groups(isa: Armv7, rows: [&[[u8; 34]]; 4], x: &EightGroups<'_>, acc: &mut [f32; 4]) {
        q8_0(isa, rows, x, acc);
    }
}

/// Loads what [`add_products!`] reads: constants into q0 to q2, and the sums of the four rows.
macro_rules! start {
    () => {
        "vmov.i32 q0, #0x38000000
        vmov.i32 q1, #0x38000000
        vmov.i32 q2, #0x47000000
        vorr.i32 q1, #0x00800000
        vorr.i32 q2, #0x00800000
        vld1.32 {{d14-d15}}, [{acc}]"
    };
}

/// `acc = acc + (d·dx)·isum` of four rows: the f16 in d9, the next of the scales `dx`, and q6.
///
/// The number n whose exponent is rebiased by 112 is right, but if the f16 was subnormal or zero:
/// then it is 2⁻¹⁵ + h·2⁻²⁵ in place of h·2⁻²⁴ = 2n − 2⁻¹⁴, which is less there and nowhere else.
/// Infinity and NaN, from 2¹⁶ on, are rebiased once more.
macro_rules! add_products {
    () => {
        "vshl.i16 d24, d9, #1
        vshr.u16 d26, d9, #15
        vldmia {dx}!, {{s16}}
        vshll.u16 q12, d24, #12
        vmovl.u16 q13, d26
        vadd.i32 q12, q12, q0
        vcvt.f32.s32 q6, q6
        vadd.f32 q5, q12, q12
        vsub.f32 q5, q5, q1
        vmin.f32 q5, q5, q12
        vcge.u32 q12, q12, q2
        vand q12, q12, q0
        vadd.i32 q5, q5, q12
        vsli.32 q5, q13, #31
        vmul.f32 s20, s20, s16
        vmul.f32 s21, s21, s16
        vmul.f32 s22, s22, s16
        vmul.f32 s23, s23, s16
        vmul.f32 s20, s20, s24
        vmul.f32 s21, s21, s25
        vmul.f32 s22, s22, s26
        vmul.f32 s23, s23, s27
        vadd.f32 s28, s28, s20
        vadd.f32 s29, s29, s21
        vadd.f32 s30, s30, s22
        vadd.f32 s31, s31, s23"
    };
}

/// The sums of products of two rows of Q8_0 and the activations in d16 to d19, into `out`.
macro_rules! two_rows_of_q8_0 {
    ($a:literal, $b:literal, [$lane_a:literal $lane_b:literal], $out:literal) => {
        concat! {
            "vld1.16 {{d9[", $lane_a, "]}}, [{", $a, "}]!
            vld1.8 {{d20-d23}}, [{", $a, "}]!
            vld1.16 {{d9[", $lane_b, "]}}, [{", $b, "}]!
            vld1.8 {{d28-d31}}, [{", $b, "}]!
            vmull.s8 q12, d20, d16
            vmull.s8 q13, d22, d18
            vmlal.s8 q12, d21, d17
            vmlal.s8 q13, d23, d19
            vmull.s8 q5, d28, d16
            vmull.s8 q10, d30, d18
            vmlal.s8 q5, d29, d17
            vmlal.s8 q10, d31, d19
            vpaddl.s16 q12, q12
            vpaddl.s16 q5, q5
            vpadal.s16 q12, q13
            vpadal.s16 q5, q10
            vpadd.i32 d24, d24, d25
            vpadd.i32 d25, d10, d11
            vpadd.i32 ", $out, ", d24, d25",
        }
    };
}

/// [`Block32::add_groups`]. Two products of bytes of any value fit 16 bits, as no activation is
/// −128.
#[inline(always)]
fn q8_0(_: Armv7, rows: [&[[u8; 34]]; 4], x: &EightGroups<'_>, acc: &mut [f32; 4]) {
    let n = n_groups(rows);
    // SAFETY: the token proves NEON. All `n` blocks of each row are read, codes and scales of as
    // many of the eight groups, and `acc`, which is written.
    unsafe {
        neon!(
            [
                start!(),
                "2:",
                "vld1.8 {{d16-d19}}, [{x}]!",
                two_rows_of_q8_0!("w0", "w1", ["0" "1"], "d12"),
                two_rows_of_q8_0!("w2", "w3", ["2" "3"], "d13"),
                add_products!(),
                "subs {n}, {n}, #1",
                "bne 2b",
                "vst1.32 {{d14-d15}}, [{acc}]",
            ]
            w0 = inout(reg) rows[0].as_ptr() => _,
            w1 = inout(reg) rows[1].as_ptr() => _,
            w2 = inout(reg) rows[2].as_ptr() => _,
            w3 = inout(reg) rows[3].as_ptr() => _,
            x = inout(reg) x.codes.as_ptr() => _,
            dx = inout(reg) x.scales.as_ptr() => _,
            n = inout(reg) n => _,
            acc = in(reg) acc.as_mut_ptr(),
        );
    }
}

/// The sums of products of two rows of Q4_0 and the activations in d16 to d19, two of 16 bits for
/// each row.
macro_rules! two_rows_of_q4_0 {
    ($a:literal, $b:literal, [$lane_a:literal $lane_b:literal], $out:literal) => {
        concat! {
            "vld1.16 {{d9[", $lane_a, "]}}, [{", $a, "}]!
            vld1.8 {{d20-d21}}, [{", $a, "}]!
            vld1.16 {{d9[", $lane_b, "]}}, [{", $b, "}]!
            vld1.8 {{d22-d23}}, [{", $b, "}]!
            vand q12, q10, q3
            vshr.u8 q10, q10, #4
            vand q13, q11, q3
            vshr.u8 q11, q11, #4
            vmull.s8 q14, d24, d16
            vmull.s8 q15, d26, d16
            vmlal.s8 q14, d25, d17
            vmlal.s8 q15, d27, d17
            vmlal.s8 q14, d20, d18
            vmlal.s8 q15, d22, d18
            vmlal.s8 q14, d21, d19
            vmlal.s8 q15, d23, d19
            vpadd.i16 d28, d28, d29
            vpadd.i16 d29, d30, d31
            vpadd.i16 ", $out, ", d28, d29",
        }
    };
}

/// [`Block32::add_groups`]. Sixteen products of codes up to 15 fit 16 bits.
#[inline(always)]
fn q4_0(_: Armv7, rows: [&[[u8; 18]]; 4], x: &EightGroups<'_>, acc: &mut [f32; 4]) {
    let n = n_groups(rows);
    // SAFETY: the token proves NEON. All `n` blocks of each row are read, codes, scales and sums of
    // as many of the eight groups, and `acc`, which is written.
    unsafe {
        neon!(
            [
                start!(),
                "vmov.i8 q3, #15",
                "2:",
                "vld1.8 {{d16-d19}}, [{x}]!",
                two_rows_of_q4_0!("w0", "w1", ["0" "1"], "d8"),
                two_rows_of_q4_0!("w2", "w3", ["2" "3"], "d28"),
                "vld1.16 {{d24[]}}, [{sums}]!",
                "vpaddl.s16 d12, d8",
                "vpaddl.s16 d13, d28",
                "vshll.s16 q12, d24, #3",
                "vsub.i32 q6, q6, q12",
                add_products!(),
                "subs {n}, {n}, #1",
                "bne 2b",
                "vst1.32 {{d14-d15}}, [{acc}]",
            ]
            w0 = inout(reg) rows[0].as_ptr() => _,
            w1 = inout(reg) rows[1].as_ptr() => _,
            w2 = inout(reg) rows[2].as_ptr() => _,
            w3 = inout(reg) rows[3].as_ptr() => _,
            x = inout(reg) x.codes.as_ptr() => _,
            dx = inout(reg) x.scales.as_ptr() => _,
            sums = inout(reg) x.sums.as_ptr() => _,
            n = inout(reg) n => _,
            acc = in(reg) acc.as_mut_ptr(),
        );
    }
}

/// The number of groups of each row, from 1 to 8.
#[inline(always)]
fn n_groups<B>(rows: [&[B]; 4]) -> usize {
    let n = rows[0].len();
    assert!((1..=8).contains(&n) && rows.iter().all(|row| row.len() == n));
    n
}
