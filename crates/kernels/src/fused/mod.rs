//! Kernels that fuse unpacking a format's blocks with the products of one activation row or a few,
//! for formats that many people run.
//!
//! A format without one goes through its decoder (`format/`) and `algo/gemv.rs`. `x86_256` holds
//! the kernels for four weight rows at a time, `x86_512` those for four blocks of each of four
//! rows, `arm_128` those of NEON, `armv7` those of NEON on 32-bit ARM and `riscv_v` those of the
//! vectors of RISC-V, both in assembly.

#[cfg(target_arch = "aarch64")]
pub(crate) mod arm_128;
#[cfg(all(target_arch = "arm", target_os = "linux"))]
pub(crate) mod armv7;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
mod masked;
#[cfg(target_arch = "riscv64")]
mod riscv_v;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
pub(crate) mod x86_256;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
pub(crate) mod x86_512;

#[cfg(all(test, target_os = "linux", target_pointer_width = "64"))]
mod page_tests;
