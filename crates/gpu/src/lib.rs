//! GPUs that compute the CPU's bits: WGSL kernels over a thin seam to the driver.
//!
//! The kernels know tensors of numbers, as atta-kernels does, and buffers of words; the executor
//! knows models, as atta-model describes them. Nothing here knows text, and nothing prints. Without
//! its feature `native` there is no driver: the shaders and everything that dispatches them are
//! portable.
//!
//! The one idea: **integers inside, the CPU's f32 steps outside, each step kept by a guard**. Sums
//! of products of integer codes are exact in any order, so they may be divided among threads at
//! will; what remains is a few f32 steps per block, in the order that the documentation of
//! atta-kernels gives. Compilers of drivers may fuse and reassociate floats, so all of them stand
//! in `shaders/exact.wgsl`, where each result passes through an xor with a zero that no compiler
//! knows, and division and square root are made digit by digit of integers. A test walks all
//! modules and fails on a float operation anywhere else; others compare bytes with atta-kernels.
//!
//! Bits agree where the numbers are normal: drivers may flush those below 2⁻¹²⁶ to zero. Matrices
//! of floats agree with the plain instruction set (`scalar`), since others fuse there.
//!
//! - [`Host`] is the seam: buffers, pipelines, submissions, reads. `NativeHost` is wgpu.
//! - [`Shader`] is the text of a kernel: memory, exact floats, a format, an algorithm.
//! - [`WeightFormat`] says how weights lie in a buffer, [`ActLayout`] how activations do;
//!   [`ArenaPlan`] divides weights among buffers.
//! - [`Quantize`], [`Product`], [`JoinedProducts`], [`StoreHeads`], [`Attend`], [`Merge`],
//!   [`AddNormed`], [`AddScaled`], [`MultiplyRows`], [`Convolve`], [`KeepInputs`], [`Decays`],
//!   [`NormHeads`], [`Scan`], [`CopyBlocks`], [`MoveKeys`], [`Route`], [`GroupSlots`],
//!   [`ExpertProduct`], [`Combine`], [`HeadProduct`], [`TransposedProduct`] and [`CopyColumns`] are
//!   kernels with their parameters.
//! - [`GpuBackend`] runs the last layers of a model on a host and the first ones on the CPU;
//!   [`GpuWeights`] are the weights of these layers, [`GpuExecutor`] computes them.
//! - [`Gpus`] opens each GPU once for all models; a [`Trial`] tells whether one is faster than the
//!   CPU.
//! - [`check_support`] says what a model needs and kernels lack.
//! - [`self_test`] compares a host with atta-kernels.

#![forbid(unsafe_code)]

mod acts;
mod arena;
mod attention;
mod backend;
mod blocks;
mod cpu_part;
mod error;
mod executor;
mod experts;
mod format;
mod gpus;
mod heads;
mod host;
mod latent;
mod multiply;
mod plan;
mod product;
mod quantize;
mod recurrent;
mod samples;
mod self_test;
mod shader;
mod sum;
mod support;
mod trial;
mod weights;

pub use acts::ActLayout;
pub use arena::{ArenaPlan, ExpertSlice, MatrixShape, Slice, upload_rows};
pub use attention::{Attend, CHUNK, Merge};
pub use backend::{GpuBackend, OnFallback, Opener};
pub use blocks::{CopyBlocks, MoveKeys};
pub use error::Error;
pub use executor::GpuExecutor;
pub use experts::{
    Combine, EXPERTS_MAX, ExpertProduct, GroupSlots, ROUTES_MAX, Route, RouteGating, RouteGroups,
};
pub use format::WeightFormat;
pub use gpus::{Gpus, OpenGpu};
pub use heads::{GpuKv, HeadNorm, HeadPowers, HeadRecord, HeadRole, StoreHeads};
#[cfg(all(feature = "native", not(target_family = "wasm")))]
pub use host::NativeHost;
pub use host::{
    Bindings, BufferId, Dispatch, GpuKind, GpuStats, Host, HostInfo, Params, PipelineId,
    SharedHost, check_ranges, check_words,
};
pub use latent::{CopyColumns, HeadColumns, HeadProduct, TransposedProduct};
pub use multiply::{MultiplyRows, RowFactor};
pub use plan::{GpuPlan, GpuShare, GpuWish};
pub use product::{JoinedPart, JoinedProducts, Product, ProductEnd, ProductWay};
pub use quantize::{Quantize, RowActivation, RowFunction, RowNorm};
pub use recurrent::{
    Convolve, Decays, KeepInputs, NormHeads, RowHistory, SCAN_KEY_MAX, Scan, ScanKeys, ScanRule,
};
pub use self_test::{CASES, SelfTest, self_test};
pub use shader::{Shader, shaders};
pub use sum::{AddNormed, AddScaled, Normed};
pub use support::check_support;
pub use trial::{Trial, TrialResult, TrialTimes};
pub use weights::{Budgets, GpuWeights, PartFiles};
