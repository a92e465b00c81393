//! What the bytes of model files mean: GGUF files, quantized blocks, and the scalar decoders that
//! define them.
//!
//! This crate knows layouts and nothing else. It does no I/O (bytes come in as [`SharedBytes`] and
//! go out as plain vectors), knows no model architecture, and never panics on bytes from outside:
//! every count, length and offset of a file is checked against the bytes that are really there
//! before anything is allocated or read.
//!
//! The one idea: an index on the heap, payloads in the file. [`Metadata`] and [`StrArray`] point
//! into the mapped file, so a vocabulary of 150,000 strings costs 600 kB and no copy.
//!
//! ```
//! use atta_formats::{Gguf, SharedBytes, TensorType, Writer};
//!
//! let mut writer = Writer::new();
//! writer.set_str("general.architecture", "llama");
//! writer.add_tensor("output.weight", &[32000, 2048], TensorType::Q6_K)?;
//! let layout = writer.finish()?;
//!
//! let header: SharedBytes = std::sync::Arc::new(layout.header);
//! let file = Gguf::parse(header, layout.file_bytes)?;
//! assert_eq!(file.metadata.str("general.architecture")?, Some("llama"));
//! assert_eq!(file.tensors[0].shape.dims(), [32000, 2048]);
//! # Ok::<(), atta_formats::Error>(())
//! ```
//!
//! Source of the format: the GGUF specification (`docs/gguf.md` of the ggml project).
#![forbid(unsafe_code)]

mod codec;
mod container;
mod encoding;
mod error;
pub mod f16;
mod foreign;
#[allow(non_camel_case_types, reason = "views have the names of their types")]
pub mod layout;
mod setting;
mod shape;
mod tensor_type;

pub use codec::{decode, decode_rows};
pub use container::{
    Container, Contents, Directory, TensorInfo, gguf, is_model, is_scattered, metadata, qsf,
};
pub use encoding::Encoding;
pub use error::Error;
#[cfg(feature = "foreign")]
pub use foreign::recognize;
pub use gguf::{Gguf, Layout, Split, Writer};
pub use metadata::{ArrayValue, Metadata, NumArray, Number, StrArray, Value, ValueType};
pub use setting::{Explain, Names, Setting, Suggestion};
pub use shape::Shape;
pub use tensor_type::TensorType;

/// Bytes that outlive every index into them: a memory map or a heap copy.
pub type SharedBytes = std::sync::Arc<dyn AsRef<[u8]> + Send + Sync>;
