//! NEON on 32-bit ARM as inline assembly: stable Rust has neither its intrinsics nor its registers.
//!
//! It refuses to know block formats, which `fused/armv7` multiplies. The one idea: the compiler
//! knows no vectors here, so a piece of assembly is a loop from memory to memory, and everything
//! between such loops is the plain code of [`Scalar`](super::scalar::Scalar).
//!
//! NEON flushes subnormal floats to zero here, whatever the FPSCR says. So floats are multiplied
//! and added by plain code, or in assembly by VFP instructions on s0 to s31 (the same bits as q0 to
//! q7), which round and keep subnormals as IEEE 754 says. NEON has a float in its hands only where
//! none can be subnormal, or where one would be rounded to zero all the same. Norms, rope and
//! softmax are plain code: they are some hundredths of a token.

mod attention;
mod quantize;
mod row;

pub(crate) use quantize::{quantize_32, quantize_256};

/// Bits of `AT_HWCAP`: `arch/arm/include/uapi/asm/hwcap.h` of Linux.
const HWCAP_NEON: libc::c_ulong = 1 << 12;
const HWCAP_VFPV4: libc::c_ulong = 1 << 16;

/// `asm!` with instructions of NEON and VFPv4: the lines in brackets, then the operands. All
/// registers of NEON may change. In builds for sixteen of them the compiler never uses d16 to d31.
macro_rules! neon {
    ([$($line:expr),* $(,)?] $($operand:tt)*) => {
        ::std::arch::asm!(
            ".fpu neon-vfpv4",
            $($line,)*
            $($operand)*
            out("d0") _, out("d1") _, out("d2") _, out("d3") _,
            out("d4") _, out("d5") _, out("d6") _, out("d7") _,
            out("d8") _, out("d9") _, out("d10") _, out("d11") _,
            out("d12") _, out("d13") _, out("d14") _, out("d15") _,
            out("d16") _, out("d17") _, out("d18") _, out("d19") _,
            out("d20") _, out("d21") _, out("d22") _, out("d23") _,
            out("d24") _, out("d25") _, out("d26") _, out("d27") _,
            out("d28") _, out("d29") _, out("d30") _, out("d31") _,
            options(nostack),
        )
    };
}
pub(crate) use neon;

/// Sets q0 to q7 to zero.
macro_rules! no_sums {
    () => {
        "vmov.i32 q0, #0
        vmov.i32 q1, #0
        vmov.i32 q2, #0
        vmov.i32 q3, #0
        vmov.i32 q4, #0
        vmov.i32 q5, #0
        vmov.i32 q6, #0
        vmov.i32 q7, #0"
    };
}

use no_sums;

/// Methods of a trait that are those of [`Scalar`].
macro_rules! plain {
    ($(
        fn $trait:ident::$name:ident $(<const $n:ident>)? ($($arg:ident: $ty:ty),*) -> $out:ty;
    )*) => {
        $(
            #[inline(always)]
            fn $name $(<const $n: usize>)? (self $(, $arg: $ty)*) -> $out {
                $trait::$name(Scalar $(, $arg)*)
            }
        )*
    };
}

use plain;

/// Whether the CPU has NEON.
pub(crate) fn has_neon() -> bool {
    hwcap() & HWCAP_NEON != 0
}

/// Whether the CPU has VFPv4, with which NEON widens f16.
pub(crate) fn has_vfpv4() -> bool {
    hwcap() & HWCAP_VFPV4 != 0
}

fn hwcap() -> libc::c_ulong {
    // SAFETY: reads what the kernel told the process at its start; any number may be asked for.
    unsafe { libc::getauxval(libc::AT_HWCAP) }
}

/// Proof of NEON.
#[derive(Clone, Copy)]
pub(crate) struct Armv7(());

impl Armv7 {
    /// # Safety
    /// The CPU must have NEON.
    pub(crate) const unsafe fn assume() -> Self {
        Self(())
    }

    /// `n` rounds of products of 64 bytes that never leave the registers.
    #[inline(always)]
    pub(crate) fn multiply_registers(self, n: usize) {
        // SAFETY: the token proves NEON; no memory is touched.
        unsafe {
            neon!(
                [
                    no_sums!(),
                    "vmov.i8 q8, #3",
                    "2:",
                    "vmlal.s8 q0, d16, d17",
                    "vmlal.s8 q1, d16, d17",
                    "vmlal.s8 q2, d16, d17",
                    "vmlal.s8 q3, d16, d17",
                    "vmlal.s8 q4, d16, d17",
                    "vmlal.s8 q5, d16, d17",
                    "vmlal.s8 q6, d16, d17",
                    "vmlal.s8 q7, d16, d17",
                    "subs {n}, {n}, #1",
                    "bne 2b",
                ]
                n = inout(reg) n.max(1) => _,
            );
        }
    }
}
