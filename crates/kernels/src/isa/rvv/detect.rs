//! Whether the CPU has V 1.0, and how long its vectors are.
//!
//! It refuses to trust one answer of the system: kernels of boards with a C906 or C910 report the
//! draft 0.7.1 of these as V. The one idea: the draft has no rule for elements behind the last one
//! (tail agnostic), so it answers a `vtype` with that rule by the sign of an error.

use std::arch::asm;
use std::ffi::{c_long, c_ulong};

unsafe extern "C" {
    fn getauxval(kind: c_ulong) -> c_ulong;
    fn syscall(number: c_long, ...) -> c_long;
}

/// A question to `riscv_hwprobe`, and its answer.
#[repr(C)]
struct Probe {
    /// −1 in the answer to a question that the system does not know.
    key: i64,
    value: u64,
}

/// Bits of a vector; 0 without V 1.0.
pub(crate) fn vector_bits() -> usize {
    if !cfg!(any(target_os = "linux", target_os = "android")) {
        return 0;
    }
    // Systems older than Linux 6.4 cannot be probed.
    let has_vectors = probed().unwrap_or_else(is_in_hwcap);
    if has_vectors && are_on() { length() } else { 0 }
}

/// Whether `riscv_hwprobe` reports V; `None` where there is no such call.
fn probed() -> Option<bool> {
    const RISCV_HWPROBE: c_long = 258;
    const IMA_EXT_0: i64 = 4;
    const IMA_V: u64 = 1 << 2;
    let mut probe = Probe {
        key: IMA_EXT_0,
        value: 0,
    };
    let at = &raw mut probe;
    // SAFETY: the system fills one pair; no set of CPUs asks for what all have in common.
    let status = unsafe { syscall(RISCV_HWPROBE, at, 1_usize, 0_usize, 0_usize, 0_usize) };
    (status == 0).then_some(probe.key >= 0 && probe.value & IMA_V != 0)
}

/// Whether the auxiliary vector has the letter V, of whatever version.
fn is_in_hwcap() -> bool {
    const AT_HWCAP: c_ulong = 16;
    // SAFETY: returns a number.
    let hwcap = unsafe { getauxval(AT_HWCAP) };
    hwcap >> (b'v' - b'a') & 1 == 1
}

/// Whether this process may use vectors; systems that cannot be asked do not switch them off.
fn are_on() -> bool {
    const PRCTL: c_long = 167;
    const RISCV_V_GET_CONTROL: usize = 70;
    const CURRENT: c_long = 3;
    const OFF: c_long = 1;
    // SAFETY: returns a number.
    let status = unsafe {
        syscall(
            PRCTL,
            RISCV_V_GET_CONTROL,
            0_usize,
            0_usize,
            0_usize,
            0_usize,
        )
    };
    status < 0 || status & CURRENT != OFF
}

/// Bits of a vector of V 1.0; 0 of the draft.
fn length() -> usize {
    let bytes: usize;
    let vtype: isize;
    // SAFETY: there are vectors, and both versions have these two instructions, which touch no
    // memory.
    unsafe {
        asm!(
            ".option push",
            ".option arch, +v",
            "vsetvli {bytes}, zero, e8, m1, ta, ma",
            "csrr {vtype}, vtype",
            ".option pop",
            bytes = out(reg) bytes,
            vtype = out(reg) vtype,
            options(nomem, nostack)
        );
    }
    if vtype < 0 { 0 } else { 8 * bytes }
}
