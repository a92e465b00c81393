//! Everything that can be wrong with the bytes of a model file. The caller, which opened the file,
//! adds its name.

use crate::TensorType;

/// An error of the bytes: the place, the value, and the expected value.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(
    missing_docs,
    reason = "the fields are named in the message of their variant"
)]
pub enum Error {
    // The file as a whole.
    /// No container begins so. `got` is the start of the file, padded with zeros.
    #[error("not a model file: {}", crate::foreign::describe(got))]
    UnknownContainer { got: [u8; 9] },
    #[error("gguf version {got} is not supported, expected 2 or 3")]
    Version { got: u32 },
    #[error("big-endian gguf version {version}: only little-endian files are supported")]
    BigEndian { version: u32 },
    /// The given bytes are a prefix of the file that ends inside the metadata; parse again with at
    /// least `needed`.
    #[error("the metadata goes on after the bytes at hand: at least {needed} bytes are needed")]
    Truncated { needed: u64 },
    #[error("byte {at}: {what} would end at byte {end}, after the end of the file at {file_bytes}")]
    PastEnd {
        what: &'static str,
        at: u64,
        end: u64,
        file_bytes: u64,
    },
    #[error("{got} {what}, but at most {max} are possible in this file")]
    Count {
        what: &'static str,
        got: u64,
        max: u64,
    },

    // QSF files.
    #[error("byte {at}: {why}")]
    Qsf { at: u64, why: String },
    #[error("layer {layer} is compressed, so the file has to be converted before it runs")]
    QsfCompressed { layer: usize },

    // Metadata.
    #[error("byte {at}: metadata key of {len} bytes, expected 1 to {max}")]
    KeyLength { at: u64, len: u64, max: u64 },
    /// Names are printed in messages, so they must not control a terminal.
    #[error("byte {at}: {what} is not utf-8 without control characters")]
    NotText { what: &'static str, at: u64 },
    #[error("metadata key {key} occurs twice")]
    DuplicateKey { key: String },
    #[error("metadata key {key} is missing")]
    MetadataMissing { key: String },
    #[error("metadata key {key}: unknown value type {id}")]
    ValueType { key: String, id: u32 },
    #[error("metadata key {key}: byte {at}: a bool must be 0 or 1, got {got}")]
    BoolByte { key: String, at: u64, got: u8 },
    #[error("metadata key {key}: arrays nested deeper than {max}")]
    ArrayDepth { key: String, max: usize },
    #[error("metadata key {key}: expected {expected}, got {got}")]
    MetadataType {
        key: String,
        expected: &'static str,
        got: String,
    },
    #[error("metadata key {key}: {got} does not fit {expected}")]
    MetadataRange {
        key: String,
        expected: &'static str,
        got: String,
    },
    #[error("metadata key {key}: one value for all layers is supported, got {got}")]
    MetadataMixed { key: String, got: String },
    #[error("metadata key {key}: the string is not utf-8")]
    MetadataUtf8 { key: String },
    #[error("general.alignment: expected a power of two up to {max}, got {got}")]
    Alignment { got: u64, max: u64 },

    #[error(
        "{got} checksums for {expected} pieces of tensors: another program has written this file and kept them"
    )]
    Checksums { expected: u64, got: u64 },

    // The tensor directory.
    #[error("byte {at}: tensor name of {len} bytes, expected 1 to {max}")]
    NameLength { at: u64, len: u64, max: u64 },
    #[error("tensor {tensor} occurs twice")]
    DuplicateTensor { tensor: String },
    #[error("{tensor}: {got} dimensions, expected at most {max}")]
    Dims { tensor: String, got: u64, max: u64 },
    #[error("{tensor}: dimension {axis} (outermost first) is 0")]
    ZeroDim { tensor: String, axis: usize },
    #[error("{tensor}: the product of the dimensions {dims:?} overflows")]
    ShapeOverflow { tensor: String, dims: Vec<u64> },
    #[error("{tensor}: unknown or removed tensor type {id}")]
    UnknownType { tensor: String, id: u32 },
    #[error("{tensor}: rows of {d} weights are not whole blocks of {}, which have {}", ty.name(), ty.row_unit())]
    RowNotBlocks {
        tensor: String,
        d: u64,
        ty: TensorType,
    },
    #[error("{tensor}: the size in bytes of {dims:?} as {} overflows", ty.name())]
    BytesOverflow {
        tensor: String,
        dims: Vec<u64>,
        ty: TensorType,
    },
    #[error("{tensor}: data offset {offset} is not a multiple of the alignment {alignment}")]
    Misaligned {
        tensor: String,
        offset: u64,
        alignment: u64,
    },
    #[error(
        "{tensor}: data would end at byte {end}, after the end of the file at {file_bytes}: is it incomplete?"
    )]
    TensorPastEnd {
        tensor: String,
        end: u64,
        file_bytes: u64,
    },
    #[error("{tensor}: data from byte {offset} overlaps {other}")]
    Overlap {
        tensor: String,
        other: String,
        offset: u64,
    },
    #[error("{tensor}: tensor type {} is not supported yet", ty.name())]
    UnsupportedType { tensor: String, ty: TensorType },

    // Split files. Shards count from 1 in messages, as in file names.
    #[error("shard {shard}: metadata key {key} is missing")]
    SplitKey { shard: usize, key: &'static str },
    #[error(
        "this is file {no} of a model split into {count}: it has to have its name, NAME-{no:05}-of-{count:05}.gguf, and \
         the others beside it"
    )]
    SplitAlone { no: u32, count: u16 },
    #[error("shard {shard}: {key}: expected {expected}, got {got}")]
    SplitMismatch {
        shard: usize,
        key: &'static str,
        expected: u64,
        got: u64,
    },
    #[error("{got} shards, expected 1 to {max}")]
    SplitShards { got: usize, max: usize },

    // Decoding of blocks.
    #[error("there is no decoder for tensor type {}", ty.name())]
    NoCodec { ty: TensorType },
    #[error("{bytes} bytes of {} for {weights} weights, expected whole blocks of {} bytes for {} weights", ty.name(), ty.block_bytes(), ty.block_len())]
    DecodeLength {
        ty: TensorType,
        bytes: usize,
        weights: usize,
    },
}
