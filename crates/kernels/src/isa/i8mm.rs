//! ARM with mixed byte products (`usdot`, ARMv8.6 i8mm): unsigned codes with signed activations,
//! which is what the formats have.
//!
//! The 2×2 matrix product of the same extension (`smmla`) is not used: a vector of the panel is one
//! activation row with several weight rows. As inline assembly, because the intrinsics are not
//! stable.

use super::dotprod::{sdot, whole_products};
use super::neon::{Dot, proven, splat_lane};
use std::arch::aarch64::*;
use std::arch::asm;

/// Proof of NEON, dotprod and i8mm.
#[derive(Clone, Copy)]
pub(crate) struct UsDot(());

impl UsDot {
    /// # Safety
    /// The CPU must have NEON, dotprod and i8mm.
    pub(crate) const unsafe fn assume() -> Self {
        Self(())
    }

    proven! {
        /// `acc + Σ w·x` of the four bytes of each lane.
        fn sdot(self, acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t { sdot(acc, w, x) }
        fn usdot(self, acc: int32x4_t, codes: uint8x16_t, x: int8x16_t) -> int32x4_t {
            let mut out = acc;
            asm!(
                ".arch_extension i8mm",
                "usdot {out:v}.4s, {w:v}.16b, {x:v}.16b",
                out = inout(vreg) out,
                w = in(vreg) codes,
                x = in(vreg) x,
                options(pure, nomem, nostack, preserves_flags)
            );
            out
        }
    }
}

impl Dot for UsDot {
    const SIGNED: bool = false;
    whole_products!(usdot);
}
