//! From any checkpoint to a small, good GGUF file.
//!
//! Whatever is read becomes a [`Checkpoint`]: metadata and tensors in GGUF's words, whose weights
//! are asked for row by row. Whatever is written is made from one. Nothing here holds a model:
//! sources are mapped, and rows pass through buffers of a few megabytes. The crate refuses to know
//! how a model is computed; which tensors one has, it asks `atta-model`.
#![forbid(unsafe_code)]

mod checkpoint;
mod collect;
mod convert;
mod draft;
mod error;
pub mod gguf;
pub mod hf;
mod importance;
pub mod llama2c;
pub mod meta;
mod metadata;
pub mod pickle;
mod plan;
pub mod quantize;
pub mod raw;
mod recipe;
pub mod safetensors;
mod source;
pub mod vocab;

pub use checkpoint::{Checkpoint, Rows, Stored, Tensor};
pub use collect::Collector;
pub use convert::{Existing, Options, Progress, convert};
pub use error::Error;
pub use importance::{Entry, Importance};
pub use plan::{Note, Plan, Step, Types};
pub use recipe::{MIXES, Mix};
pub use regex_lite::Regex;
pub use source::{SourceOptions, open};
