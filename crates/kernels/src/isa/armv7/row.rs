//! Weights of formats without a kernel of their own: plain code unpacks them, NEON scales and
//! multiplies the integers of `algo/gemm.rs`.

use super::super::scalar::Scalar;
use super::super::{Flat, Row};
use super::{Armv7, neon, plain};

/// 32 bytes, as plain code has them.
type V = <Scalar as Row>::V;
impl Row for Armv7 {
    type V = V;

    plain! {
        fn Row::load(bytes: &[u8; 32]) -> V;
        fn Row::store(v: V, bytes: &mut [u8; 32]) -> ();
        fn Row::words_of_64(words: [u64; 4]) -> V;
        fn Row::load_pair(low: &[u8; 16], high: &[u8; 16]) -> V;
        fn Row::nibbles(bytes: &[u8; 16]) -> V;
        fn Row::bits(bits: &[u8; 4]) -> V;
        fn Row::and(v: V, mask: u8) -> V;
        fn Row::xor(v: V, mask: u8) -> V;
        fn Row::or(a: V, b: V) -> V;
        fn Row::shr(v: V, n: usize) -> V;
        fn Row::shl(v: V, n: usize) -> V;
        fn Row::look_up(table: &[u8; 16], v: V) -> V;
        fn Row::look_up_of<const N>(tables: &[[u8; 16]; N], v: V) -> V;
        fn Row::digits(v: V, factors: &[u8; 32]) -> V;
        fn Row::biased(codes: V, signs: u32) -> V;
        fn Row::prefetch(bytes: &[u8], offset: usize) -> ();
    }
}

impl Flat for Armv7 {
    #[inline(always)]
    fn scaled(self, codes: V, offset: i16, scale: [i16; 2], out: &mut [i16; 32]) {
        // SAFETY: the token proves NEON. All of `codes` is read, all of `out` written.
        unsafe {
            neon!(
                [
                    "vld1.8 {{d16-d19}}, [{codes}]",
                    "vdup.16 q0, {offset}",
                    "vdup.16 q1, {first}",
                    "vdup.16 q2, {second}",
                    "vmovl.u8 q10, d16",
                    "vmovl.u8 q11, d17",
                    "vmovl.u8 q12, d18",
                    "vmovl.u8 q13, d19",
                    "vsub.i16 q10, q10, q0",
                    "vsub.i16 q11, q11, q0",
                    "vsub.i16 q12, q12, q0",
                    "vsub.i16 q13, q13, q0",
                    "vmul.i16 q10, q10, q1",
                    "vmul.i16 q11, q11, q1",
                    "vmul.i16 q12, q12, q2",
                    "vmul.i16 q13, q13, q2",
                    "vst1.16 {{d20-d23}}, [{out}]!",
                    "vst1.16 {{d24-d27}}, [{out}]",
                ]
                codes = in(reg) codes.as_ptr(),
                offset = in(reg) i32::from(offset),
                first = in(reg) i32::from(scale[0]),
                second = in(reg) i32::from(scale[1]),
                out = inout(reg) out.as_mut_ptr() => _,
            );
        }
    }

    #[inline(always)]
    fn dot<const N: usize>(self, w: &[i16; N], x: &[i8; N]) -> i32 {
        const { assert!(N > 0 && N.is_multiple_of(16)) };
        let mut out = 0;
        // SAFETY: the token proves NEON. `w` and `x` are read in steps of 16, and `out` written.
        unsafe {
            neon!(
                [
                    "vmov.i32 q0, #0",
                    "vmov.i32 q1, #0",
                    "2:",
                    "vld1.16 {{d16-d19}}, [{w}]!",
                    "vld1.8 {{d20-d21}}, [{x}]!",
                    "vmovl.s8 q11, d20",
                    "vmovl.s8 q12, d21",
                    "vmlal.s16 q0, d16, d22",
                    "vmlal.s16 q1, d17, d23",
                    "vmlal.s16 q0, d18, d24",
                    "vmlal.s16 q1, d19, d25",
                    "subs {n}, {n}, #1",
                    "bne 2b",
                    "vadd.i32 q0, q0, q1",
                    "vadd.i32 d0, d0, d1",
                    "vpadd.i32 d0, d0, d0",
                    "vst1.32 {{d0[0]}}, [{out}]",
                ]
                w = inout(reg) w.as_ptr() => _,
                x = inout(reg) x.as_ptr() => _,
                n = inout(reg) N / 16 => _,
                out = in(reg) &raw mut out,
            );
        }
        out
    }

    #[inline(always)]
    fn dot16(self, a: [u64; 2], b: &[i16; 16]) -> i32 {
        let mut out = 0;
        // SAFETY: the token proves NEON. All of `a` and `b` is read, and `out` written.
        unsafe {
            neon!(
                [
                    "vld1.8 {{d16-d17}}, [{a}]",
                    "vld1.16 {{d20-d23}}, [{b}]",
                    "vmovl.s8 q9, d17",
                    "vmovl.s8 q8, d16",
                    "vmull.s16 q0, d16, d20",
                    "vmull.s16 q1, d17, d21",
                    "vmlal.s16 q0, d18, d22",
                    "vmlal.s16 q1, d19, d23",
                    "vadd.i32 q0, q0, q1",
                    "vadd.i32 d0, d0, d1",
                    "vpadd.i32 d0, d0, d0",
                    "vst1.32 {{d0[0]}}, [{out}]",
                ]
                a = in(reg) a.as_ptr(),
                b = in(reg) b.as_ptr(),
                out = in(reg) &raw mut out,
            );
        }
        out
    }
}
