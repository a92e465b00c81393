//! Blocks of 256 weights: Q4_K, Q5_K and Q6_K.
//!
//! Products of two and four bytes fit 16 bits, because codes are at most 63; scales multiply and
//! widen them. Scales lie in q0, whose lanes `vmlal` can name. A block is written out, and the next
//! 64 weights and activations are loaded before the sums of these are scaled. The loop is over
//! blocks, so headers are unpacked by NEON, too: by plain code they took as long as the products.

use super::{Block256, BlocksOfRow};
use crate::format::{Q4_K, Q5_K, Q6_K};
use crate::isa::armv7::{Armv7, neon};

/// [`Block256::add_blocks`] of a format with minima; the macro `$add` adds 64 weights.
macro_rules! blocks_with_minima {
    ($format:ident, $mask:literal, [$($high:literal)?], $add:ident) => {
        impl Block256 for $format {
            #[inline(always)]
            fn add_blocks(
                _: Armv7,
                blocks: &[Self::Block],
                x: &BlocksOfRow<'_>,
                acc: &mut f32,
            ) {
                x.assert_blocks(blocks.len());
                // SAFETY: the token proves NEON. All blocks are read, each from end to end, and as
                // many of `x`, which are there; `acc` is read and written.
                unsafe {
                    neon!(
                        [
                            "vldr s21, [{acc}]",
                            "2:",
                            "mov {y}, {x}",
                            header!(),
                            $($high,)?
                            load_64!(),
                            minima!(),
                            concat!("vmov.i8 q1, #", $mask),
                            $add!("d0[0]", "d0[1]", load_64!()),
                            $add!("d0[2]", "d0[3]", load_64!()),
                            $add!("d1[0]", "d1[1]", load_64!()),
                            $add!("d1[2]", "d1[3]", ""),
                            "vadd.i32 d8, d8, d9",
                            "vpadd.i32 d8, d8, d8",
                            "vldr s18, [{dx}]",
                            "vcvt.f32.s32 d8, d8",
                            "add {x}, {x}, {stride}, lsl #8",
                            "add {sums}, {sums}, {stride}, lsl #7",
                            "add {sums}, {sums}, {stride}, lsl #6",
                            "add {dx}, {dx}, {stride}, lsl #2",
                            "vmul.f32 s16, s22, s16",
                            "vsub.f32 s16, s16, s20",
                            "vmul.f32 s16, s18, s16",
                            "vadd.f32 s21, s21, s16",
                            "subs {n}, {n}, #1",
                            "bne 2b",
                            "vstr s21, [{acc}]",
                        ]
                        w = inout(reg) blocks.as_ptr() => _,
                        x = inout(reg) x.codes.as_ptr() => _,
                        y = out(reg) _,
                        sums = inout(reg) &raw const x.sums[0].of_32.whole => _,
                        dx = inout(reg) x.scales.as_ptr() => _,
                        stride = in(reg) x.stride,
                        n = inout(reg) blocks.len() => _,
                        acc = in(reg) &raw mut *acc,
                    );
                }
            }
        }
    };
}

/// Reads the header of a block with minima: scales into d0 and minima into d1, as bytes, `d` into
/// s22 and `dmin` into s23. How f16 are widened stands at `legacy.rs`.
macro_rules! header {
    () => {
        "vld1.32 {{d7[0]}}, [{w}]!
        vld1.8 {{d2}}, [{w}]!
        vld1.32 {{d3[]}}, [{w}]!
        vmov.i32 d4, #0x38000000
        vmov.i8 d12, #0x3f
        vmov.i32 d5, #0x38000000
        vmov.i8 d13, #0x30
        vmov.i32 d6, #0x47000000
        vshl.i16 d28, d7, #1
        vorr.i32 d5, #0x00800000
        vshr.u8 d14, d2, #2
        vorr.i32 d6, #0x00800000
        vshr.u16 d30, d7, #15
        vshll.u16 q14, d28, #12
        vand d0, d2, d12
        vmovl.u16 q15, d30
        vmov.i8 d12, #0x0f
        vadd.i32 d28, d28, d4
        vshr.u8 d15, d3, #4
        vand d14, d14, d13
        vadd.f32 d29, d28, d28
        vand d2, d3, d12
        vcge.u32 d31, d28, d6
        vtrn.32 d2, d15
        vsub.f32 d29, d29, d5
        vand d31, d31, d4
        vorr d1, d2, d14
        vmin.f32 d29, d29, d28
        vtrn.32 d0, d1
        vadd.i32 d11, d29, d31
        vsli.32 d11, d30, #31"
    };
}

/// Multiplies the minima in d1 by the sums of activations and `dmin`, into s20; widens the scales
/// into q0, and begins with the sum of products q4.
macro_rules! minima {
    () => {
        "vld1.16 {{d28-d29}}, [{sums}]
        vmovl.u8 q15, d1
        vmovl.u8 q0, d0
        vmull.s16 q2, d28, d30
        vmlal.s16 q2, d29, d31
        vadd.i32 d4, d4, d5
        vpadd.i32 d8, d4, d4
        vcvt.f32.s32 d8, d8
        vmul.f32 s20, s23, s16
        vmov.i32 q4, #0"
    };
}

/// Loads the four-bit codes of 64 weights and their activations.
macro_rules! load_64 {
    () => {
        "vld1.8 {{d16-d19}}, [{w}]!
        vld1.8 {{d20-d23}}, [{y}]!
        vld1.8 {{d24-d27}}, [{y}]!"
    };
}

/// Adds two sub-blocks to q4: the registers and the scale of each. `next` runs before it
/// scales.
macro_rules! add_64 {
    (
        [$a0:literal $a1:literal $a2:literal $a3:literal] $scale_a:literal,
        [$b0:literal $b1:literal $b2:literal $b3:literal] $scale_b:literal,
        $next:expr
    ) => {
        concat! {
            "vmull.s8 q2, ", $a0, ", d20
            vmull.s8 q3, ", $b0, ", d24
            vmlal.s8 q2, ", $a1, ", d21
            vmlal.s8 q3, ", $b1, ", d25
            vmlal.s8 q2, ", $a2, ", d22
            vmlal.s8 q3, ", $b2, ", d26
            vmlal.s8 q2, ", $a3, ", d23
            vmlal.s8 q3, ", $b3, ", d27
            ",
            $next,
            "
            vmlal.s16 q4, d4, ", $scale_a, "
            vmlal.s16 q4, d5, ", $scale_a, "
            vmlal.s16 q4, d6, ", $scale_b, "
            vmlal.s16 q4, d7, ", $scale_b,
        }
    };
}

/// Two sub-blocks of Q4_K.
macro_rules! add_q4_k {
    ($scale_a:literal, $scale_b:literal, $next:expr) => {
        concat! {
            "vand q14, q8, q1
            vand q15, q9, q1
            vshr.u8 q8, q8, #4
            vshr.u8 q9, q9, #4
            ",
            add_64!(
                ["d28" "d29" "d30" "d31"] $scale_a,
                ["d16" "d17" "d18" "d19"] $scale_b,
                $next
            ),
        }
    };
}

/// Two sub-blocks of Q5_K; their fifth bits are bits 0 and 1 of q6 and q7, which are shifted on.
macro_rules! add_q5_k {
    ($scale_a:literal, $scale_b:literal, $next:expr) => {
        concat! {
            "vshr.u8 q14, q8, #4
            vshr.u8 q15, q9, #4
            vshr.u8 q2, q6, #1
            vshr.u8 q3, q7, #1
            vsli.8 q8, q6, #4
            vsli.8 q9, q7, #4
            vsli.8 q14, q2, #4
            vsli.8 q15, q3, #4
            vand q8, q8, q1
            vand q9, q9, q1
            vand q14, q14, q1
            vand q15, q15, q1
            vshr.u8 q6, q6, #2
            vshr.u8 q7, q7, #2
            ",
            add_64!(
                ["d16" "d17" "d18" "d19"] $scale_a,
                ["d28" "d29" "d30" "d31"] $scale_b,
                $next
            ),
        }
    };
}

blocks_with_minima!(Q4_K, "0x0f", [], add_q4_k);
blocks_with_minima!(Q5_K, "0x1f", ["vld1.8 {{d12-d15}}, [{w}]!"], add_q5_k);

/// Adds 32 weights of Q6_K to q4: the codes in four registers, the activations in d28 to d31, and
/// the scales of the two sub-blocks.
macro_rules! add_32 {
    ([$a:literal $b:literal $c:literal $d:literal] $scale:literal $next_scale:literal) => {
        concat! {
            "vmull.s8 q2, ", $a, ", d28
            vmull.s8 q3, ", $c, ", d30
            vmlal.s8 q2, ", $b, ", d29
            vmlal.s8 q3, ", $d, ", d31
            vpadd.i16 d4, d4, d5
            vpadd.i16 d5, d6, d7
            vmlal.s16 q4, d4, ", $scale, "
            vmlal.s16 q4, d5, ", $next_scale,
        }
    };
}

/// Adds half a block of Q6_K: 128 weights, whose quarters are taken in the order 2, 0, 3, 1. So the
/// high nibbles of a register are read before the low ones replace it.
macro_rules! add_128 {
    () => {
        concat! {
            "vld1.8 {{d0}}, [{scales}]!
            vld1.8 {{d16-d19}}, [{w}]!
            vld1.8 {{d20-d23}}, [{w}]!
            vld1.8 {{d24-d27}}, [{high}]!
            add {z}, {y}, #64
            vld1.8 {{d28-d31}}, [{z}]!
            vmovl.s8 q0, d0
            vshr.u8 q5, q8, #4
            vshr.u8 q6, q9, #4
            vbit q5, q12, q7
            vbit q6, q13, q7
            ",
            add_32!(["d10" "d11" "d12" "d13"] "d1[0]" "d1[1]"),
            "
            vld1.8 {{d28-d31}}, [{y}]!
            vsli.8 q8, q12, #4
            vsli.8 q9, q13, #4
            vand q8, q8, q1
            vand q9, q9, q1
            ",
            add_32!(["d16" "d17" "d18" "d19"] "d0[0]" "d0[1]"),
            "
            vld1.8 {{d28-d31}}, [{z}]!
            vshr.u8 q12, q12, #2
            vshr.u8 q13, q13, #2
            vshr.u8 q5, q10, #4
            vshr.u8 q6, q11, #4
            vbit q5, q12, q7
            vbit q6, q13, q7
            ",
            add_32!(["d10" "d11" "d12" "d13"] "d1[2]" "d1[3]"),
            "
            vld1.8 {{d28-d31}}, [{y}]
            vsli.8 q10, q12, #4
            vsli.8 q11, q13, #4
            vand q10, q10, q1
            vand q11, q11, q1
            mov {y}, {z}
            ",
            add_32!(["d20" "d21" "d22" "d23"] "d0[2]" "d0[3]"),
        }
    };
}

/// `−32·Σ scale·sum of 16 activations` as the sum q4 to begin with.
macro_rules! offsets {
    () => {
        "vld1.16 {{d16-d19}}, [{sums}]
        vld1.8 {{d20-d21}}, [{scales}]
        vmovl.s8 q11, d20
        vmovl.s8 q12, d21
        vmull.s16 q4, d16, d22
        vmlal.s16 q4, d17, d23
        vmlal.s16 q4, d18, d24
        vmlal.s16 q4, d19, d25
        vmov.i8 q1, #0x3f
        vmov.i8 q7, #0x30
        vshl.i32 q4, q4, #5
        vneg.s32 q4, q4"
    };
}

/// Adds `dx·d·isum` to `acc`, the f16 being behind the scales, and goes on to the next block.
macro_rules! add_sum {
    () => {
        "vld1.16 {{d16[0]}}, [{scales}]!
        vadd.i32 d8, d8, d9
        vmov.i32 d20, #0x38000000
        vmov.i32 d21, #0x38000000
        vmov.i32 d22, #0x47000000
        vpadd.i32 d8, d8, d8
        vshl.i16 d24, d16, #1
        vorr.i32 d21, #0x00800000
        vorr.i32 d22, #0x00800000
        vshr.u16 d26, d16, #15
        vshll.u16 q12, d24, #12
        vmovl.u16 q13, d26
        vcvt.f32.s32 d8, d8
        vadd.i32 d24, d24, d20
        vldr s18, [{dx}]
        vldr s21, [{acc}]
        vadd.f32 d25, d24, d24
        vcge.u32 d27, d24, d22
        vsub.f32 d25, d25, d21
        vand d27, d27, d20
        vmin.f32 d25, d25, d24
        vadd.i32 d11, d25, d27
        vsli.32 d11, d26, #31
        mov {w}, {scales}
        add {x}, {x}, {stride}, lsl #8
        add {sums}, {sums}, {stride}, lsl #7
        add {sums}, {sums}, {stride}, lsl #6
        add {dx}, {dx}, {stride}, lsl #2
        vmul.f32 s16, s22, s16
        vmul.f32 s16, s18, s16
        vadd.f32 s21, s21, s16
        vstr s21, [{acc}]"
    };
}

impl Block256 for Q6_K {
    #[inline(always)]
    fn add_blocks(_: Armv7, blocks: &[[u8; 210]], x: &BlocksOfRow<'_>, acc: &mut f32) {
        x.assert_blocks(blocks.len());
        // SAFETY: the token proves NEON. All blocks are read, each from end to end, and as many of
        // `x`, which are there; `acc` is read and written.
        unsafe {
            neon!(
                [
                    "2:",
                    "mov {y}, {x}",
                    "add {high}, {w}, #128",
                    "add {scales}, {w}, #192",
                    offsets!(),
                    add_128!(),
                    add_128!(),
                    add_sum!(),
                    "subs {n}, {n}, #1",
                    "bne 2b",
                ]
                w = inout(reg) blocks.as_ptr() => _,
                high = out(reg) _,
                scales = out(reg) _,
                x = inout(reg) x.codes.as_ptr() => _,
                y = out(reg) _,
                z = out(reg) _,
                sums = inout(reg) &raw const x.sums[0].of_16.whole => _,
                dx = inout(reg) x.scales.as_ptr() => _,
                stride = in(reg) x.stride,
                n = inout(reg) blocks.len() => _,
                acc = in(reg) &raw mut *acc,
            );
        }
    }
}
