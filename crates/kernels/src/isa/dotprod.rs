//! ARM with byte dot products (`sdot`, ARMv8.2 dotprod): both factors signed.
//!
//! As inline assembly, because the intrinsics are stable from Rust 1.98 only; `.arch_extension`
//! makes it assemble in whatever function the compiler leaves it.

use super::neon::{Dot, proven};
use std::arch::aarch64::*;
use std::arch::asm;

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
        fn sdot(self, acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
            let mut out = acc;
            asm!(
                ".arch_extension dotprod",
                "sdot {out:v}.4s, {w:v}.16b, {x:v}.16b",
                out = inout(vreg) out,
                w = in(vreg) w,
                x = in(vreg) x,
                options(pure, nomem, nostack, preserves_flags)
            );
            out
        }
    }
}

impl Dot for SDot {
    #[inline(always)]
    fn dot_signed(self, acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
        self.sdot(acc, w, x)
    }

    proven! {
        fn dot(self, acc: int32x4_t, w: uint8x16_t, x: int8x16_t) -> int32x4_t {
            self.sdot(acc, vreinterpretq_s8_u8(w), x)
        }
        // The codes less 128, and 128·Σ x.
        fn dot_any(self, acc: int32x4_t, w: uint8x16_t, x: int8x16_t) -> int32x4_t {
            let sums = self.sdot(vdupq_n_s32(0), vdupq_n_s8(64), x);
            let acc = vaddq_s32(acc, vshlq_n_s32::<1>(sums));
            self.sdot(acc, vreinterpretq_s8_u8(veorq_u8(w, vdupq_n_u8(128))), x)
        }
        fn dot_scaled(self, acc: int32x4_t, w: uint8x16_t, x: int8x16_t, scale: i32) -> int32x4_t {
            vmlaq_n_s32(acc, self.dot(vdupq_n_s32(0), w, x), scale)
        }
    }
}
