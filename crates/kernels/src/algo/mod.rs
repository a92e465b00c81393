//! Algorithms, written once: over the small operations of an instruction set where integers of
//! weights are concerned, as plain loops elsewhere. `table.rs` compiles them for each instruction
//! set, so everything here is inlined.

// Indices name rows, lanes and groups that several arrays share, as in the pseudo-code of each
// file.
#![allow(clippy::needless_range_loop)]

pub(crate) mod attention;
pub(crate) mod codes16;
pub(crate) mod float;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
pub(crate) mod float_many;
pub(crate) mod gate;
pub(crate) mod gemm;
pub(crate) mod gemv;
pub(crate) mod hadamard;
pub(crate) mod kv;
pub(crate) mod lanes;
pub mod math;
pub(crate) mod matmul;
pub(crate) mod measure;
pub(crate) mod norm;
pub(crate) mod panel;
pub(crate) mod quantize;
pub(crate) mod rope;
pub(crate) mod scan;
pub(crate) mod streams;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
pub(crate) mod tile;
pub(crate) mod trellis;
pub(crate) mod unpack;
