//! Blocks of 256 weights: Q4_K, Q5_K and Q6_K.
//!
//! Products of two and four bytes fit 16 bits, because codes are at most 63; scales multiply and
//! widen them. Scales lie in q0, whose lanes `vmlal` can name. Everything of a block is written out,
//! and the next 64 weights and activations are loaded before the sums of these are scaled.

use super::Block256;
use crate::activations::Sums;
use crate::format::{BlockHeader, Q4_K, Q5_K, Q6_K};
use crate::isa::armv7::{Armv7, neon};
use atta_formats::layout;

impl Block256 for Q4_K {
    #[inline(always)]
    fn sums(
        isa: Armv7,
        block: &[u8; 144],
        header: &BlockHeader,
        x: &[i8; 256],
        sums: &Sums,
    ) -> [i32; 2] {
        let factors = [header.scale[0], header.min[0]];
        q4_k(isa, layout::Q4_K(block).qs(), &factors, x, &sums.of_32.whole)
    }
}

impl Block256 for Q5_K {
    #[inline(always)]
    fn sums(
        isa: Armv7,
        block: &[u8; 176],
        header: &BlockHeader,
        x: &[i8; 256],
        sums: &Sums,
    ) -> [i32; 2] {
        let factors = [header.scale[0], header.min[0]];
        q5_k(isa, layout::Q5_K(block), &factors, x, &sums.of_32.whole)
    }
}

impl Block256 for Q6_K {
    #[inline(always)]
    fn sums(
        isa: Armv7,
        block: &[u8; 210],
        _: &BlockHeader,
        x: &[i8; 256],
        sums: &Sums,
    ) -> [i32; 2] {
        [q6_k(isa, block, x, &sums.of_16.whole), 0]
    }
}

/// Loads scales of sub-blocks into q0, writes `Σ min·sum`, and sets the mask of codes and the sums q4
/// and q5.
macro_rules! start {
    ($mask:literal) => {
        concat!(
            "vld1.8 {{d0-d1}}, [{factors}]
            vld1.16 {{d24-d25}}, [{sums}]
            vmovl.u8 q13, d1
            vmovl.u8 q0, d0
            vmull.s16 q6, d24, d26
            vmlal.s16 q6, d25, d27
            vmov.i32 q4, #0
            vmov.i32 q5, #0
            vmov.i8 q1, #", $mask, "
            vadd.i32 d12, d12, d13
            vpadd.i32 d12, d12, d12
            vst1.32 {{d12[0]}}, [{bias}]",
        )
    };
}

/// Writes the sums.
macro_rules! end {
    () => {
        "vadd.i32 q4, q4, q5
        vadd.i32 d8, d8, d9
        vpadd.i32 d8, d8, d8
        vst1.32 {{d8[0]}}, [{isum}]"
    };
}

/// Loads the four-bit codes of 64 weights and their activations.
macro_rules! load_64 {
    () => {
        "vld1.8 {{d16-d19}}, [{w}]!
        vld1.8 {{d20-d23}}, [{x}]!
        vld1.8 {{d24-d27}}, [{x}]!"
    };
}

/// Adds two sub-blocks to q4 and q5: the registers and the scale of each. `next` runs before it
/// scales.
macro_rules! add_64 {
    (
        [$a0:literal $a1:literal $a2:literal $a3:literal] $scale_a:literal,
        [$b0:literal $b1:literal $b2:literal $b3:literal] $scale_b:literal,
        $next:expr
    ) => {
        concat!(
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
            vmlal.s16 q5, d5, ", $scale_a, "
            vmlal.s16 q4, d6, ", $scale_b, "
            vmlal.s16 q5, d7, ", $scale_b,
        )
    };
}

/// Two sub-blocks of Q4_K.
macro_rules! add_q4_k {
    ($scale_a:literal, $scale_b:literal, $next:expr) => {
        concat!(
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
        )
    };
}

/// Two sub-blocks of Q5_K; their fifth bits are bits 0 and 1 of q6 and q7, which are shifted on.
macro_rules! add_q5_k {
    ($scale_a:literal, $scale_b:literal, $next:expr) => {
        concat!(
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
        )
    };
}

/// `[Σ scale·code·x, Σ min·sum]` of a block of Q4_K; `factors` are scales and minima as in
/// [`BlockHeader`], `sums` those of 32 activations.
#[inline(always)]
fn q4_k(
    _: Armv7,
    codes: &[u8; 128],
    factors: &[u64; 2],
    x: &[i8; 256],
    sums: &[i16; 16],
) -> [i32; 2] {
    let mut isum = 0;
    let mut bias = 0;
    // SAFETY: the token proves NEON. All of `codes`, `factors` and `x` is read, and half of `sums`;
    // `isum` and `bias` are written.
    unsafe {
        neon!(
            [
                start!("0x0f"),
                load_64!(),
                add_q4_k!("d0[0]", "d0[1]", load_64!()),
                add_q4_k!("d0[2]", "d0[3]", load_64!()),
                add_q4_k!("d1[0]", "d1[1]", load_64!()),
                add_q4_k!("d1[2]", "d1[3]", ""),
                end!(),
            ]
            w = inout(reg) codes.as_ptr() => _,
            factors = in(reg) factors.as_ptr(),
            x = inout(reg) x.as_ptr() => _,
            sums = in(reg) sums.as_ptr(),
            isum = in(reg) &raw mut isum,
            bias = in(reg) &raw mut bias,
        );
    }
    [isum, bias]
}

/// The same of Q5_K.
#[inline(always)]
fn q5_k(
    _: Armv7,
    block: layout::Q5_K<'_>,
    factors: &[u64; 2],
    x: &[i8; 256],
    sums: &[i16; 16],
) -> [i32; 2] {
    let mut isum = 0;
    let mut bias = 0;
    // SAFETY: as above; both fields of codes are read to their ends.
    unsafe {
        neon!(
            [
                start!("0x1f"),
                "vld1.8 {{d12-d15}}, [{high}]",
                load_64!(),
                add_q5_k!("d0[0]", "d0[1]", load_64!()),
                add_q5_k!("d0[2]", "d0[3]", load_64!()),
                add_q5_k!("d1[0]", "d1[1]", load_64!()),
                add_q5_k!("d1[2]", "d1[3]", ""),
                end!(),
            ]
            w = inout(reg) block.qs().as_ptr() => _,
            high = in(reg) block.qh().as_ptr(),
            factors = in(reg) factors.as_ptr(),
            x = inout(reg) x.as_ptr() => _,
            sums = in(reg) sums.as_ptr(),
            isum = in(reg) &raw mut isum,
            bias = in(reg) &raw mut bias,
        );
    }
    [isum, bias]
}

/// Adds 32 weights of Q6_K to q4: the codes in four registers, the activations in d28 to d31, and
/// the scales of the two sub-blocks.
macro_rules! add_32 {
    ([$a:literal $b:literal $c:literal $d:literal] $scale:literal $next_scale:literal) => {
        concat!(
            "vmull.s8 q2, ", $a, ", d28
            vmull.s8 q3, ", $c, ", d30
            vmlal.s8 q2, ", $b, ", d29
            vmlal.s8 q3, ", $d, ", d31
            vpadd.i16 d4, d4, d5
            vpadd.i16 d5, d6, d7
            vmlal.s16 q4, d4, ", $scale, "
            vmlal.s16 q4, d5, ", $next_scale,
        )
    };
}

/// Adds half a block of Q6_K: 128 weights, whose quarters are taken in the order 2, 0, 3, 1, so that
/// the high nibbles of a register are read before the low ones replace it.
macro_rules! add_128 {
    () => {
        concat!(
            "vld1.8 {{d0}}, [{scales}]!
            vld1.8 {{d16-d19}}, [{low}]!
            vld1.8 {{d20-d23}}, [{low}]!
            vld1.8 {{d24-d27}}, [{high}]!
            add {y}, {x}, #64
            vld1.8 {{d28-d31}}, [{y}]!
            vmovl.s8 q0, d0
            vshr.u8 q5, q8, #4
            vshr.u8 q6, q9, #4
            vbit q5, q12, q7
            vbit q6, q13, q7
            ",
            add_32!(["d10" "d11" "d12" "d13"] "d1[0]" "d1[1]"),
            "
            vld1.8 {{d28-d31}}, [{x}]!
            vsli.8 q8, q12, #4
            vsli.8 q9, q13, #4
            vand q8, q8, q1
            vand q9, q9, q1
            ",
            add_32!(["d16" "d17" "d18" "d19"] "d0[0]" "d0[1]"),
            "
            vld1.8 {{d28-d31}}, [{y}]!
            vshr.u8 q12, q12, #2
            vshr.u8 q13, q13, #2
            vshr.u8 q5, q10, #4
            vshr.u8 q6, q11, #4
            vbit q5, q12, q7
            vbit q6, q13, q7
            ",
            add_32!(["d10" "d11" "d12" "d13"] "d1[2]" "d1[3]"),
            "
            vld1.8 {{d28-d31}}, [{x}]
            vsli.8 q10, q12, #4
            vsli.8 q11, q13, #4
            vand q10, q10, q1
            vand q11, q11, q1
            mov {x}, {y}
            ",
            add_32!(["d20" "d21" "d22" "d23"] "d0[2]" "d0[3]"),
        )
    };
}

/// `Σ scale·(code − 32)·x`; `sums` are those of 16 activations.
#[inline(always)]
fn q6_k(_: Armv7, block: &[u8; 210], x: &[i8; 256], sums: &[i16; 16]) -> i32 {
    let block = layout::Q6_K(block);
    let mut out = 0;
    // SAFETY: the token proves NEON. The fields of the block, which are as long as their arrays,
    // `x` and `sums` are read, and `out` is written.
    unsafe {
        neon!(
            [
                "vld1.16 {{d16-d19}}, [{sums}]",
                "vld1.8 {{d20-d21}}, [{scales}]",
                "vmovl.s8 q11, d20",
                "vmovl.s8 q12, d21",
                "vmull.s16 q4, d16, d22",
                "vmlal.s16 q4, d17, d23",
                "vmlal.s16 q4, d18, d24",
                "vmlal.s16 q4, d19, d25",
                "vmov.i8 q1, #0x3f",
                "vmov.i8 q7, #0x30",
                "vshl.i32 q4, q4, #5",
                "vneg.s32 q4, q4",
                add_128!(),
                add_128!(),
                "vadd.i32 d8, d8, d9",
                "vpadd.i32 d8, d8, d8",
                "vst1.32 {{d8[0]}}, [{out}]",
            ]
            low = inout(reg) block.ql().as_ptr() => _,
            high = inout(reg) block.qh().as_ptr() => _,
            scales = inout(reg) block.scales().as_ptr() => _,
            x = inout(reg) x.as_ptr() => _,
            y = out(reg) _,
            sums = in(reg) sums.as_ptr(),
            out = in(reg) &raw mut out,
        );
    }
    out
}
