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
    type G = int16x8_t;
    type S = [int16x8_t; 2];

    #[inline(always)]
    fn dot_scaled(self, acc: int32x4_t, codes: uint8x16_t, x: int8x16_t, scale: i32) -> int32x4_t {
        self.add_scaled(acc, self.pairs(codes, x), scale)
    }

    #[inline(always)]
    fn group_of_16(self, codes: uint8x16_t, x: int8x16_t) -> int16x8_t {
        self.pairs(codes, x)
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
        fn group_scales(self, scales: [u64; 2]) -> [int16x8_t; 2] {
            [vmovl_s8(vcreate_s8(scales[0])), vmovl_s8(vcreate_s8(scales[1]))]
        }
        fn group_of_32(self, codes: [uint8x16_t; 2], x: [int8x16_t; 2]) -> int16x8_t {
            let second = vreinterpretq_s8_u8(codes[1]);
            let sums = self.add_low(self.pairs(codes[0], x[0]), second, x[1]);
            vmlal_high_s8(sums, second, x[1])
        }
        // Lanes of two groups together: eight products of at most 31·127, or four of 63·127.
        fn add_groups(
            self,
            acc: int32x4_t,
            groups: [int16x8_t; 2],
            scales: [int16x8_t; 2],
            pair: usize
        ) -> int32x4_t {
            let sums = vpaddq_s16(groups[0], groups[1]);
            let scales = scales[pair / 4];
            let first = vget_low_s16(splat_lane(scales, pair % 4 * 2));
            let acc = vmlal_s16(acc, vget_low_s16(sums), first);
            vmlal_high_s16(acc, sums, splat_lane(scales, pair % 4 * 2 + 1))
        }
        fn group_totals(self, groups: [int16x8_t; 4]) -> int32x4_t {
            let first = vpaddlq_s16(vpaddq_s16(groups[0], groups[1]));
            vpaddq_s32(first, vpaddlq_s16(vpaddq_s16(groups[2], groups[3])))
        }
        fn dot_32(self, w: [uint8x16_t; 2], x: [int8x16_t; 2]) -> int32x4_t {
            vpadalq_s16(vpaddlq_s16(self.pairs(w[0], x[0])), self.pairs(w[1], x[1]))
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

/// Number `i` of `x` in all lanes. `i` is a constant once inlined.
///
/// # Safety
/// The CPU must have NEON.
#[inline(always)]
unsafe fn splat_lane(x: int16x8_t, i: usize) -> int16x8_t {
    // SAFETY: the caller's obligation.
    unsafe {
        match i {
            0 => vdupq_laneq_s16::<0>(x),
            1 => vdupq_laneq_s16::<1>(x),
            2 => vdupq_laneq_s16::<2>(x),
            3 => vdupq_laneq_s16::<3>(x),
            4 => vdupq_laneq_s16::<4>(x),
            5 => vdupq_laneq_s16::<5>(x),
            6 => vdupq_laneq_s16::<6>(x),
            _ => vdupq_laneq_s16::<7>(x),
        }
    }
}
