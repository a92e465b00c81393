//! What can be wrong with a request to this crate. Shapes that only a bug could get wrong are
//! asserted instead.

use atta_formats::TensorType;

/// Why a kernel cannot be had.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The type has no matmul kernel.
    #[error("no matmul kernel for tensor type {ty}")]
    UnsupportedType {
        /// Type of the weights.
        ty: TensorType,
    },
    /// Rows are not a whole number of blocks.
    #[error("{ty} weights: rows of {d_in} are not a whole number of blocks of {}", ty.block_len())]
    RowLength {
        /// Type of the weights.
        ty: TensorType,
        /// Weights per row.
        d_in: usize,
    },
    /// The bytes do not hold the matrix.
    #[error("{ty} weights [{d_out}, {d_in}]: expected {expected} bytes, got {got}")]
    MatrixBytes {
        /// Type of the weights.
        ty: TensorType,
        /// Rows.
        d_out: usize,
        /// Weights per row.
        d_in: usize,
        /// Bytes the shape needs; `usize::MAX` if that overflows.
        expected: usize,
        /// Bytes given.
        got: usize,
    },
    /// The instruction set does not exist in this build or on this CPU.
    #[error("no kernels for instruction set `{name}` here; this CPU and build offer: {offered}")]
    UnknownIsa {
        /// Name asked for.
        name: String,
        /// Names that would work, separated by commas.
        offered: String,
    },
    /// The build was made without this instruction set.
    #[error(
        "this build has no kernels for instruction set `{name}`: it was made without the feature `{feature}`"
    )]
    LeftOutIsa {
        /// Name asked for.
        name: String,
        /// Feature of this crate that it needs.
        feature: &'static str,
    },
    /// Threads cannot be bound to these CPUs.
    #[error("cannot pin a thread to cpu {cpu}: {reason}")]
    Pin {
        /// Number of the CPU.
        cpu: usize,
        /// What the system said.
        reason: String,
    },
    /// A pool needs at least one CPU.
    #[error("the list of cpus to pin threads to is empty")]
    NoCpus,
}
