//! Attention: products of 16-bit and 8-bit codes, and transposition of words.
//!
//! It refuses to know softmax and its floats, which are plain code.

use super::super::scalar::Scalar;
use super::super::{Codes, Floats, KeyCodes, PairCodes, Pairs};
use super::{Armv7, neon, no_sums, plain};

impl Armv7 {
    /// `Σ x₀·y₀ + x₁·y₁` in each of sixteen lanes, over pairs: vector `at` of each of `x`, and `y`
    /// in all lanes.
    #[inline(always)]
    fn sum_of_pairs<const S: usize>(self, x: &[[PairCodes; S]], at: usize, y: &[i32]) -> PairCodes {
        let mut out = [0; 16];
        assert!(at < S && x.len() == y.len());
        if y.is_empty() {
            return out;
        }
        // SAFETY: the token proves NEON. Vector `at` of all `y.len()` elements of `x` is read, all
        // of `y`, and all of `out` is written.
        unsafe {
            neon!(
                [
                    no_sums!(),
                    "2:",
                    "vld1.32 {{d16-d19}}, [{x}]!",
                    "vld1.32 {{d20-d23}}, [{x}], {rest}",
                    "vld1.32 {{d24[]}}, [{y}]!",
                    "vmlal.s16 q0, d16, d24",
                    "vmlal.s16 q1, d17, d24",
                    "vmlal.s16 q2, d18, d24",
                    "vmlal.s16 q3, d19, d24",
                    "vmlal.s16 q4, d20, d24",
                    "vmlal.s16 q5, d21, d24",
                    "vmlal.s16 q6, d22, d24",
                    "vmlal.s16 q7, d23, d24",
                    "subs {n}, {n}, #1",
                    "bne 2b",
                    "vpadd.i32 d0, d0, d1",
                    "vpadd.i32 d1, d2, d3",
                    "vpadd.i32 d2, d4, d5",
                    "vpadd.i32 d3, d6, d7",
                    "vpadd.i32 d4, d8, d9",
                    "vpadd.i32 d5, d10, d11",
                    "vpadd.i32 d6, d12, d13",
                    "vpadd.i32 d7, d14, d15",
                    "vst1.32 {{d0-d3}}, [{out}]!",
                    "vst1.32 {{d4-d7}}, [{out}]",
                ]
                x = inout(reg) x.as_ptr().cast::<PairCodes>().wrapping_add(at) => _,
                rest = in(reg) size_of::<[PairCodes; S]>() - 32,
                y = inout(reg) y.as_ptr() => _,
                n = inout(reg) y.len() => _,
                out = inout(reg) out.as_mut_ptr() => _,
            );
        }
        out
    }

    /// `sums + Σ code·x` of sixteen keys.
    #[inline(always)]
    fn add_dots(self, sums: &mut [i32; 16], keys: &KeyCodes, x: &[i8; 16]) {
        // SAFETY: the token proves NEON. `x` and, in four rounds, all of `keys` and `sums` are read
        // and the latter written.
        unsafe {
            neon!(
                [
                    "vld1.8 {{d0-d1}}, [{x}]",
                    "2:",
                    "vld1.8 {{d16-d19}}, [{keys}]!",
                    "vld1.8 {{d20-d23}}, [{keys}]!",
                    "vld1.32 {{d2-d3}}, [{sums}]",
                    "vmull.s8 q12, d16, d0",
                    "vmull.s8 q13, d18, d0",
                    "vmull.s8 q14, d20, d0",
                    "vmull.s8 q15, d22, d0",
                    "vmlal.s8 q12, d17, d1",
                    "vmlal.s8 q13, d19, d1",
                    "vmlal.s8 q14, d21, d1",
                    "vmlal.s8 q15, d23, d1",
                    "vpaddl.s16 q12, q12",
                    "vpaddl.s16 q13, q13",
                    "vpaddl.s16 q14, q14",
                    "vpaddl.s16 q15, q15",
                    "vpadd.i32 d24, d24, d25",
                    "vpadd.i32 d25, d26, d27",
                    "vpadd.i32 d26, d28, d29",
                    "vpadd.i32 d27, d30, d31",
                    "vpadd.i32 d24, d24, d25",
                    "vpadd.i32 d25, d26, d27",
                    "vadd.i32 q1, q1, q12",
                    "vst1.32 {{d2-d3}}, [{sums}]!",
                    "subs {n}, {n}, #1",
                    "bne 2b",
                ]
                x = in(reg) x.as_ptr(),
                keys = inout(reg) keys.as_ptr() => _,
                sums = inout(reg) sums.as_mut_ptr() => _,
                n = inout(reg) 4 => _,
            );
        }
    }

    /// Word j of row i of `x` as word i of row j of `out`; four by four words a time.
    #[inline(always)]
    fn transpose(self, x: &[F; 16], out: &mut [F; 16]) {
        let at = x.as_ptr();
        // SAFETY: the token proves NEON. Four times, four rows of `x` are read from end to end, and
        // four words written to each row of `out`.
        unsafe {
            neon!(
                [
                    "mov {n}, #4",
                    "2:",
                    "mov {left}, #4",
                    "3:",
                    "vld1.32 {{d16-d17}}, [{a}]!",
                    "vld1.32 {{d18-d19}}, [{b}]!",
                    "vld1.32 {{d20-d21}}, [{c}]!",
                    "vld1.32 {{d22-d23}}, [{d}]!",
                    "vtrn.32 q8, q9",
                    "vtrn.32 q10, q11",
                    "vswp d17, d20",
                    "vswp d19, d22",
                    "vst1.32 {{d16-d17}}, [{out}], {row}",
                    "vst1.32 {{d18-d19}}, [{out}], {row}",
                    "vst1.32 {{d20-d21}}, [{out}], {row}",
                    "vst1.32 {{d22-d23}}, [{out}], {row}",
                    "subs {left}, {left}, #1",
                    "bne 3b",
                    "add {a}, {a}, #192",
                    "add {b}, {b}, #192",
                    "add {c}, {c}, #192",
                    "add {d}, {d}, #192",
                    "sub {out}, {out}, #1008",
                    "subs {n}, {n}, #1",
                    "bne 2b",
                ]
                a = inout(reg) at => _,
                b = inout(reg) at.wrapping_add(1) => _,
                c = inout(reg) at.wrapping_add(2) => _,
                d = inout(reg) at.wrapping_add(3) => _,
                out = inout(reg) out.as_mut_ptr() => _,
                row = in(reg) size_of::<F>(),
                left = out(reg) _,
                n = out(reg) _,
            );
        }
    }
}

/// 16 floats, as plain code has them.
type F = <Scalar as Floats>::F;

impl Floats for Armv7 {
    type F = F;
    const KEYS: usize = Scalar::KEYS;
    const ROWS: usize = Scalar::ROWS;
    const VECTORS: usize = Scalar::VECTORS;

    plain! {
        fn Floats::zeros() -> F;
        fn Floats::splat_all(x: f32) -> F;
        fn Floats::floats(x: &[f32; 16]) -> F;
        fn Floats::halves(x: &[[u8; 2]; 16]) -> F;
        fn Floats::brains(x: &[[u8; 2]; 16]) -> F;
        fn Floats::singles(x: &[[u8; 4]; 16]) -> F;
        fn Floats::to_array(x: F) -> [f32; 16];
        fn Floats::totals_of_16(x: [F; 16]) -> F;
        fn Floats::sum_f(x: F, y: F) -> F;
        fn Floats::max_f(x: F, y: F) -> F;
        fn Floats::product(x: F, y: F) -> F;
        fn Floats::mul_add(x: F, y: F, z: F) -> F;
    }

    #[inline(always)]
    fn transposed(self, x: [F; 16]) -> [F; 16] {
        let mut out = [[0.0; 16]; 16];
        self.transpose(&x, &mut out);
        out
    }
}

impl Codes for Armv7 {
    type N = [i32; 16];

    plain! {
        fn Codes::arranged(keys: &KeyCodes) -> KeyCodes;
        fn Codes::no_sums() -> [i32; 16];
        fn Codes::as_floats(x: [i32; 16]) -> F;
        fn Codes::signed(codes: &[u8; 16]) -> F;
        fn Codes::low_nibbles(bytes: &[u8; 16]) -> F;
        fn Codes::high_nibbles(bytes: &[u8; 16]) -> F;
    }

    #[inline(always)]
    fn dots<const R: usize>(
        self,
        mut sums: [[i32; 16]; R],
        keys: &KeyCodes,
        x: [&[i8; 16]; R],
    ) -> [[i32; 16]; R] {
        for (sums, x) in sums.iter_mut().zip(x) {
            self.add_dots(sums, keys, x);
        }
        sums
    }
}

impl Pairs for Armv7 {
    type Pair = PairCodes;
    type Sums = [i32; 16];
    const TILE: usize = 1;

    plain! {
        fn Pairs::pairs(x: &PairCodes) -> PairCodes;
        fn Pairs::pair(x: i32) -> PairCodes;
        fn Pairs::bits_of(x: F) -> PairCodes;
        fn Pairs::no_products() -> [i32; 16];
        fn Pairs::dot_pairs(sums: [i32; 16], x: PairCodes, y: PairCodes) -> [i32; 16];
        fn Pairs::lane_totals(sums: [i32; 16]) -> [i32; 16];
    }

    #[inline(always)]
    fn sums_of_pairs<const R: usize, const B: usize, const S: usize>(
        self,
        x: [&[[PairCodes; S]]; B],
        at: [usize; B],
        y: [&[i32]; R],
    ) -> [[[i32; 16]; B]; R] {
        let mut sums = [[[0; 16]; B]; R];
        for (sums, y) in sums.iter_mut().zip(y) {
            for (b, sum) in sums.iter_mut().enumerate() {
                *sum = self.sum_of_pairs(x[b], at[b], y);
            }
        }
        sums
    }
}
