//! ARM with mixed byte products (`usdot`, ARMv8.6 i8mm): unsigned codes with signed activations,
//! which is what the formats have.
//!
//! The 2×2 matrix product of the same extension (`smmla`) is not used: a vector of the panel is one
//! activation row with several weight rows. As inline assembly, because the intrinsics are not
//! stable.

use super::neon::{Dot, proven};
use std::arch::aarch64::*;
use std::arch::asm;

/// Proof of NEON and i8mm.
#[derive(Clone, Copy)]
pub(crate) struct UsDot(());

impl UsDot {
    /// # Safety
    /// The CPU must have NEON and i8mm.
    pub(crate) const unsafe fn assume() -> Self {
        Self(())
    }
}

impl Dot for UsDot {
    #[inline(always)]
    fn dot_any(self, acc: int32x4_t, w: uint8x16_t, x: int8x16_t) -> int32x4_t {
        self.dot(acc, w, x)
    }

    proven! {
        fn dot(self, acc: int32x4_t, w: uint8x16_t, x: int8x16_t) -> int32x4_t {
            let mut out = acc;
            asm!(
                ".arch_extension i8mm",
                "usdot {out:v}.4s, {w:v}.16b, {x:v}.16b",
                out = inout(vreg) out,
                w = in(vreg) w,
                x = in(vreg) x,
                options(pure, nomem, nostack, preserves_flags)
            );
            out
        }
        // The sign of w goes to x, as one factor is unsigned.
        fn dot_signed(self, acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
            let x = vbslq_s8(vcltzq_s8(w), vnegq_s8(x), x);
            self.dot(acc, vreinterpretq_u8_s8(vabsq_s8(w)), x)
        }
        fn dot_scaled(self, acc: int32x4_t, w: uint8x16_t, x: int8x16_t, scale: i32) -> int32x4_t {
            vmlaq_n_s32(acc, self.dot(vdupq_n_s32(0), w, x), scale)
        }
    }
}
