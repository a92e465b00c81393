//! Converts checkpoints to GGUF and quantizes them.
//!
//! Every reader produces a [`Checkpoint`]: metadata and tensors with GGUF's names, whose weights
//! are read row by row on demand. Every writer takes one. No model is held in memory: sources are
//! mapped, and rows pass through buffers of a few megabytes. The crate refuses to know how a model
//! is computed; `atta-model` tells it which tensors an architecture has.
#![forbid(unsafe_code)]

mod atomic_file;
mod checkpoint;
mod collect;
mod convert;
mod error;
mod execution_order;
pub mod gguf;
mod git_lfs;
pub mod hf;
mod imatrix;
pub mod llama2c;
mod means;
mod merge;
pub mod meta;
mod metadata;
mod mix;
mod name_pattern;
mod partial_file;
pub mod pickle;
mod plan;
pub mod qsf;
pub mod quantize;
pub mod raw;
pub mod safetensors;
mod source;
pub mod target;
mod verify;
pub mod vocab;

pub use checkpoint::{Checkpoint, MappedRows, RowSource, Tensor};
pub use collect::ImatrixCollector;
pub use convert::{ConvertOptions, Converted, Existing, FileLayout, Progress, convert, file_bytes};
pub use error::Error;
pub use imatrix::{ImatrixEntry, ImportanceMatrix};
pub use means::separate_means;
pub use merge::merge;
pub use mix::{MIXES, Mix};
pub use name_pattern::{InvalidPattern, NamePattern};
pub use partial_file::partial_path;
pub use plan::{Note, Plan, Step, TypeSelection};
pub use quantize::SmallScales;
pub use source::{SourceOptions, open};
pub use verify::{VerifiedFile, verify};
