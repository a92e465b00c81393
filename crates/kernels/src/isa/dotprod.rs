//! ARM with byte dot products (`sdot`, ARMv8.2 dotprod): both factors signed.
//!
//! As inline assembly, because the intrinsics are stable from Rust 1.98 only; `.arch_extension`
//! makes it assemble in whatever function the compiler leaves it.

use super::neon::{Dot, proven, splat_lane};
use std::arch::aarch64::*;
use std::arch::asm;

/// [`Dot`] by an instruction for the whole product of codes, `$product`, and `sdot`.
macro_rules! whole_products {
    ($product:ident) => {
        type P = int32x4_t;
        const PAIRS: bool = false;
        type G = int32x4_t;
        type S = [int32x4_t; 4];

        #[inline(always)]
        fn dot_signed(self, acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
            self.sdot(acc, w, x)
        }

        #[inline(always)]
        fn dot(self, acc: int32x4_t, codes: uint8x16_t, x: int8x16_t) -> int32x4_t {
            self.$product(acc, codes, x)
        }

        #[inline(always)]
        fn products(self, acc: int32x4_t, codes: uint8x16_t, x: int8x16_t) -> int32x4_t {
            self.dot(acc, codes, x)
        }

        #[inline(always)]
        fn group_of_32(self, codes: [uint8x16_t; 2], x: [int8x16_t; 2]) -> int32x4_t {
            self.$product(self.group_of_16(codes[0], x[0]), codes[1], x[1])
        }

        $crate::isa::neon::proven! {
            fn dot_halves(self, w: [int8x16_t; 4], x: &[int8x16_t; 4]) -> int32x4_t {
                let sums = self.sdot(self.sdot(vdupq_n_s32(0), w[0], x[0]), w[1], x[1]);
                self.sdot(self.sdot(sums, w[2], x[2]), w[3], x[3])
            }
            fn dot_scaled(
                self,
                acc: int32x4_t,
                codes: uint8x16_t,
                x: int8x16_t,
                scale: i32
            ) -> int32x4_t {
                vmlaq_n_s32(acc, self.$product(vdupq_n_s32(0), codes, x), scale)
            }
            fn group_scales(self, scales: [u64; 2]) -> [int32x4_t; 4] {
                let low = vmovl_s8(vcreate_s8(scales[0]));
                let high = vmovl_s8(vcreate_s8(scales[1]));
                [
                    vmovl_s16(vget_low_s16(low)),
                    vmovl_high_s16(low),
                    vmovl_s16(vget_low_s16(high)),
                    vmovl_high_s16(high),
                ]
            }
            fn group_of_16(self, codes: uint8x16_t, x: int8x16_t) -> int32x4_t {
                self.$product(vdupq_n_s32(0), codes, x)
            }
            fn add_groups(
                self,
                acc: int32x4_t,
                groups: [int32x4_t; 2],
                scales: [int32x4_t; 4],
                pair: usize
            ) -> int32x4_t {
                let scales = scales[pair / 2];
                let acc = vmlaq_s32(acc, groups[0], splat_lane(scales, pair % 2 * 2));
                vmlaq_s32(acc, groups[1], splat_lane(scales, pair % 2 * 2 + 1))
            }
            fn group_totals(self, groups: [int32x4_t; 4]) -> int32x4_t {
                vpaddq_s32(vpaddq_s32(groups[0], groups[1]), vpaddq_s32(groups[2], groups[3]))
            }
            fn dot_32(self, w: [uint8x16_t; 2], x: [int8x16_t; 2]) -> int32x4_t {
                let sums = self.sdot(vdupq_n_s32(0), vreinterpretq_s8_u8(w[0]), x[0]);
                self.sdot(sums, vreinterpretq_s8_u8(w[1]), x[1])
            }
            fn widen_start(self, n: int32x4_t) -> (int32x4_t, int32x4_t) { (vdupq_n_s32(0), n) }
            fn widen_add(self, n: int32x4_t, p: int32x4_t) -> int32x4_t { vaddq_s32(n, p) }
            fn widen_add_scaled(self, n: int32x4_t, p: int32x4_t, scale: int32x4_t) -> int32x4_t {
                vmlaq_s32(n, p, scale)
            }
        }
    };
}
pub(super) use whole_products;

/// Proof of NEON and dotprod.
#[derive(Clone, Copy)]
pub(crate) struct SDot(());

impl SDot {
    /// # Safety
    /// The CPU must have NEON and dotprod.
    pub(crate) const unsafe fn assume() -> Self {
        Self(())
    }

    proven! {
        /// `acc + Σ w·x` of the four bytes of each lane.
        fn sdot(self, acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t { sdot(acc, w, x) }
        fn signed_dot(self, acc: int32x4_t, codes: uint8x16_t, x: int8x16_t) -> int32x4_t {
            self.sdot(acc, vreinterpretq_s8_u8(codes), x)
        }
    }
}

impl Dot for SDot {
    const SIGNED: bool = true;
    whole_products!(signed_dot);
}

/// `acc + Σ w·x` of the four bytes of each lane.
///
/// # Safety
/// The CPU must have NEON and dotprod.
#[inline(always)]
pub(super) unsafe fn sdot(acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    let mut out = acc;
    // SAFETY: the caller's obligation; the instruction reads and writes these registers only.
    unsafe {
        asm!(
            ".arch_extension dotprod",
            "sdot {out:v}.4s, {w:v}.16b, {x:v}.16b",
            out = inout(vreg) out,
            w = in(vreg) w,
            x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    out
}
