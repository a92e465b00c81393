//! Matmul, attention and norms on CPUs: formats × instruction sets, chosen at run time.
//!
//! This crate knows tensors of numbers and threads. It knows no model, does no I/O but to ask the
//! system for its CPUs, and allocates nothing per call: buffers ([`Activations`], [`AttnScratch`])
//! are made once for the largest case.
//!
//! The one idea: **formats + instruction sets + algorithms, not their product**. A quantization
//! format is one short safe decoder (`format/`; five have another one for long registers), an
//! instruction set is one set of small operations on a token that proves the CPU has it
//! (`isa/`), an algorithm is written once over both (`algo/`). `table.rs` instantiates them under
//! the right `#[target_feature]` and [`Kernels`] is a pointer to the resulting table of functions,
//! passed as a value.
//!
//! # Exactness
//! Results are equal bit for bit whatever the number of threads, the number of rows in a call, and
//! the neighbours of a row. Every output element has one order of operations, fixed by these rules;
//! multiply and add are never fused in them, so that all instruction sets agree:
//! - **K-quants** (activations [`Layouts::Q8_256`]), per block of 256 in order: `isum = Σ (code −
//!   offset)·scale·x` and `bias = Σ min·Σx` in integers, then in f32 `v = d·isum`, `v = v −
//!   dmin·bias` (formats with minima only), `out = out + dx·v`. So do the other formats with blocks
//!   of 256, with `d·K` for `d`, which is exact: K is the power of two that makes weights of their
//!   integers. A shorter block at the end of a row sums as one whose missing weights are zeros.
//! - **Blocks of 32** (activations [`Layouts::Q8_32`]), per block in order: `isum = Σ (code −
//!   offset)·x` in integers, then in f32 `out = out + (d·dx)·isum` and, in formats with a minimum
//!   per block, `out = out + (m·dx)·Σx`.
//! - **Floats** (activations [`Layouts::F32`]): element i goes to lane `i % 16`, `lane = lane +
//!   w·x`; the lanes are added by halves (8 + 8, 4 + 4, 2 + 2, 1 + 1). Other instruction sets may
//!   fuse here.
//! - **Attention**: scores in lanes as for floats, but never fused, and values in order of
//!   position; chunks of 128 absolute positions, each with its own softmax, merged in order of
//!   position; a head's sink comes last. Scores with quantized keys are integer products and the
//!   f32 steps of `algo/attention/codes.rs`.
//! - **Transposed products**: weights are decoded to f32, and rows are added in order, each product
//!   rounded first.
//! - **Scans**: a state is updated position by position, its sums in lanes and never fused
//!   (`algo/scan.rs`); a prompt takes the same steps as single tokens.
//!
//! # Instruction sets
//! `scalar` everywhere; on x86-64 also `amx` (tiles for many rows, else as the next), `avx512`
//! (with VNNI), `avx512seq` (as avx512, with weights for one activation row read in the order of
//! memory; the better of the two on Zen 5), `avxvnni`, `avx2` (with FMA and F16C) and `sse41` (the
//! plain algorithms, compiled for it); on aarch64 `i8mm`, `dotprod` and `neon`; on 32-bit ARM
//! `neon`; on riscv64 `rvv256` and `rvv` (V 1.0 with vectors of at least 256 bits, or of any
//! length); on WebAssembly `relaxed` or `simd128`, if the module is built with it.
//! [`Kernels::detect`] takes the first of these that the CPU has.
//!
//! `unsafe` lives in `isa/`, `fused/`, `table.rs`, `table/`, `pool.rs` and `tiles.rs`; everything
//! else is safe code.

// Elsewhere the plain loops are all there is, and what only vectors use is compiled but not called.
#![cfg_attr(
    not(any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        all(target_family = "wasm", target_feature = "simd128")
    )),
    allow(dead_code, unused_imports, unused_macros)
)]

/// Whether the program must stay small, as those for boards: some steps that take little time are
/// then compiled once for all instruction sets, others as a call.
const SMALL: bool = cfg!(not(feature = "avx512"));

mod activations;
mod algo;
mod attention;
mod error;
#[allow(non_camel_case_types, reason = "formats have the names of their types")]
mod format;
mod fused;
mod integers;
mod isa;
mod kernels;
mod matrix;
mod measure;
mod pool;
mod registry;
mod scan;
mod scratch;
mod step_threads;
mod table;
#[cfg(test)]
mod testing;
mod tiles;
mod topology;
mod trellis;

pub use activations::Activations;
pub use algo::gate::Activation;
pub use algo::math;
pub use algo::rope::RopePairing;
pub use algo::scan::{Decay, Strided};
pub(crate) use attention::Q4_GROUP;
pub use attention::{
    Attention, AttnRow, AttnScratch, ChosenBlocks, D_HEAD_MAX, KvArray, KvElem, KvLayer, KvRole,
    KvRows,
};
pub use error::Error;
pub use integers::{
    GroupSteps, IntegerBlock, IntegerGroup, group_steps, integer_blocks, integer_groups,
};
pub use kernels::{D_TRANSPOSED_MAX, Gated, GatedGroups, Groups, Job, Kernels, STREAMS_MAX, Store};
pub use matrix::{Layouts, Matrix};
pub use pool::Pool;
pub use scan::{D_KEY_MAX, Scan};
pub use step_threads::StepThreads;
pub use trellis::{TrellisPath, TrellisSearch};
