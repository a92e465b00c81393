//! NEON on 32-bit ARM as inline assembly: stable Rust has neither its intrinsics nor its registers.
//!
//! It refuses to know block formats, which `fused/armv7` multiplies. The one idea: the compiler
//! knows no vectors here, so a piece of assembly is a whole loop from memory to memory, and
//! everything between such loops is the plain code of [`Scalar`].
//!
//! NEON flushes subnormal floats to zero here, whatever the FPSCR says. So floats are multiplied
//! and added by plain code, or in assembly by VFP instructions on s0 to s31 (the same bits as q0 to
//! q7), which round and keep subnormals as IEEE 754 says. NEON may convert integers to floats,
//! because no integer becomes a subnormal.

use super::scalar::Scalar;
use super::{Codes, Floats, KeyCodes, PairCodes, Pairs, Row};
use crate::algo::attention::{self, AttnBuffers, AttnOut, Query};

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

    /// `Σ x₀·y₀ + x₁·y₁` in each of sixteen lanes, over pairs: vector `at` of each of `x`, and `y`
    /// in all lanes.
    #[inline(always)]
    fn sum_of_pairs<const S: usize>(
        self,
        x: &[[PairCodes; S]],
        at: usize,
        y: &[i32],
    ) -> PairCodes {
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

    /// `n` rounds of products of 64 bytes that never leave the registers.
    #[inline(always)]
    fn multiply_registers(self, n: usize) {
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

/// Methods of a trait that are those of [`Scalar`].
macro_rules! plain {
    ($(fn $trait:ident::$name:ident $(<const $n:ident>)? ($($arg:ident: $ty:ty),*) -> $out:ty;)*) => {
        $(
            #[inline(always)]
            fn $name $(<const $n: usize>)? (self $(, $arg: $ty)*) -> $out {
                $trait::$name(Scalar $(, $arg)*)
            }
        )*
    };
}

/// 32 bytes, as plain code has them.
type V = <Scalar as Row>::V;
/// 16 floats, as plain code has them.
type F = <Scalar as Floats>::F;

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

/// [`attention::attend`] with NEON.
///
/// # Safety
/// The CPU must have NEON.
pub(crate) unsafe fn attend(
    query: &Query<'_>,
    buffers: &mut AttnBuffers<'_>,
    out: AttnOut<'_, '_>,
) {
    // SAFETY: the caller's obligation.
    let isa = unsafe { Armv7::assume() };
    attention::attend(isa, query, buffers, out);
}

/// Multiplies bytes in registers for a number of rounds, and tells how many: `algo/measure.rs`.
///
/// # Safety
/// The CPU must have NEON.
pub(crate) unsafe fn dots(rounds: usize, macs: &mut u64) {
    // SAFETY: the caller's obligation.
    let isa = unsafe { Armv7::assume() };
    isa.multiply_registers(rounds);
    *macs = 64 * rounds as u64;
}
