//! ARM with byte dot products (`sdot`, ARMv8.2 dotprod): both factors signed.
//!
//! As inline assembly, because the intrinsics are stable from Rust 1.98 only; `.arch_extension`
//! makes it assemble in whatever function the compiler leaves it.

use super::neon::{Dot, proven, whole_products};
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
