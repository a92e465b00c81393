//! ARM without dot products of bytes: `smull`, which every CPU with NEON has.
//!
//! It refuses to know who adds what. The one idea: products stay in 16 bits as long as they fit,
//! because to widen one takes as long as to make it.

use super::neon::{Dot, proven};
use std::arch::aarch64::*;

/// Proof of NEON alone.
#[derive(Clone, Copy)]
pub(crate) struct Mull(());

impl Mull {
    /// # Safety
    /// The CPU must have NEON.
    pub(crate) const unsafe fn assume() -> Self {
        Self(())
    }

    proven! {
        /// Sums of two products, of bytes k and 8 + k; at most 128·127 each, they fit i16.
        fn pairs(self, codes: uint8x16_t, x: int8x16_t) -> int16x8_t {
            let w = vreinterpretq_s8_u8(codes);
            vmlal_high_s8(vmull_s8(vget_low_s8(w), vget_low_s8(x)), w, x)
        }
        /// `acc` and the products of the first eight bytes, and of the others.
        fn add_low(self, acc: int16x8_t, w: int8x16_t, x: int8x16_t) -> int16x8_t {
            vmlal_s8(acc, vget_low_s8(w), vget_low_s8(x))
        }
        /// `acc` and the sums of two lanes of i16 times the scale.
        fn add_scaled(self, acc: int32x4_t, pairs: int16x8_t, scale: i32) -> int32x4_t {
            let acc = vmlal_n_s16(acc, vget_low_s16(pairs), scale as i16);
            vmlal_high_n_s16(acc, pairs, scale as i16)
        }
    }
}

impl Dot for Mull {
    /// Each product of lanes 0 and 1, then of lanes 2 and 3.
    type P = [int16x8_t; 2];
    const PAIRS: bool = true;
    const SIGNED: bool = true;

    #[inline(always)]
    fn dot_scaled(self, acc: int32x4_t, codes: uint8x16_t, x: int8x16_t, scale: i32) -> int32x4_t {
        self.add_scaled(acc, self.pairs(codes, x), scale)
    }

    proven! {
        fn dot_signed(self, acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
            let low = vmull_s8(vget_low_s8(w), vget_low_s8(x));
            vpadalq_s16(acc, vpaddq_s16(low, vmull_high_s8(w, x)))
        }
        // Four products of at most 63·127 each fit i16.
        fn dot_halves(self, w: [int8x16_t; 4], x: &[int8x16_t; 4]) -> int32x4_t {
            let mut low = vmull_s8(vget_low_s8(w[0]), vget_low_s8(x[0]));
            let mut high = vmull_high_s8(w[0], x[0]);
            for f in 1..4 {
                low = self.add_low(low, w[f], x[f]);
                high = vmlal_high_s8(high, w[f], x[f]);
            }
            vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high))
        }
        fn dot(self, acc: int32x4_t, codes: uint8x16_t, x: int8x16_t) -> int32x4_t {
            vpadalq_s16(acc, self.pairs(codes, x))
        }
        // As `dot_halves`.
        fn dot_scaled_32(
            self,
            acc: int32x4_t,
            codes: [uint8x16_t; 2],
            x: [int8x16_t; 2],
            scale: i32
        ) -> int32x4_t {
            let second = vreinterpretq_s8_u8(codes[1]);
            let sums = self.add_low(self.pairs(codes[0], x[0]), second, x[1]);
            self.add_scaled(acc, vmlal_high_s8(sums, second, x[1]), scale)
        }
        fn products(self, acc: [int16x8_t; 2], codes: uint8x16_t, x: int8x16_t) -> [int16x8_t; 2] {
            let w = vreinterpretq_s8_u8(codes);
            [self.add_low(acc[0], w, x), vmlal_high_s8(acc[1], w, x)]
        }
        fn widen_start(self, n: int32x4_t) -> (int32x4_t, Self::P) { (n, [vdupq_n_s16(0); 2]) }
        fn widen_add(self, n: int32x4_t, p: Self::P) -> int32x4_t {
            vpadalq_s16(n, vpaddq_s16(p[0], p[1]))
        }
        fn widen_add_scaled(self, n: int32x4_t, p: [int16x8_t; 2], scale: int32x4_t) -> int32x4_t {
            vmlaq_s32(n, vpaddlq_s16(vpaddq_s16(p[0], p[1])), scale)
        }
    }
}
