//! Errors of conversions. Each message names the file and the tensor.

use std::path::PathBuf;

use atta_formats::{Setting, TensorType};

use crate::raw::Dtype;

/// An error of this crate.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Opening, reading, mapping or writing a file failed.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file is invalid or not supported.
    #[error("{path}: {why}", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The fault and its place.
        why: String,
    },
    /// An error of one tensor.
    #[error("{tensor}: {source}")]
    Tensor {
        /// The name of the tensor.
        tensor: String,
        /// The error.
        source: Box<Error>,
    },
    /// Invalid GGUF.
    #[error(transparent)]
    Format(#[from] atta_formats::Error),
    /// An architecture that is not supported, or tensors that do not match the metadata.
    #[error(transparent)]
    Model(#[from] atta_model::Error),
    /// A model that llama2.c and LEAP cannot run, or would compute differently.
    #[error("this model cannot run in llama2.c or LEAP: {0}")]
    NotLlama2c(String),
    /// A QSF file that is damaged, or a model that cannot be one.
    #[error("{0}")]
    Qsf(String),
    /// Writing the output failed.
    #[error("cannot write: {0}")]
    Output(std::io::Error),
    /// A tensor extends beyond the end of its file.
    #[error("bytes {at}+{len} lie outside of the file of {file_bytes} bytes")]
    OutOfFile {
        /// First byte.
        at: u64,
        /// Length, bytes.
        len: u64,
        /// Length of the file, bytes.
        file_bytes: u64,
    },
    /// A shape that the type does not allow: a row is not a whole number of blocks.
    #[error("{dims:?} is no shape of a tensor of type {ty}")]
    Shape {
        /// Outermost first.
        dims: Vec<u64>,
        /// The type of the tensor.
        ty: TensorType,
    },
    /// A row beyond the last one was read.
    #[error("there is no row {row}")]
    NoRow {
        /// The index of the row.
        row: u64,
    },
    /// A type that weights cannot be quantized to.
    #[error("cannot quantize to {ty}{}", without_importance(*.needs_importance))]
    NoQuantizer {
        /// The type.
        ty: TensorType,
        /// Whether the type can be quantized to with an importance matrix.
        needs_importance: bool,
    },
    /// An importance matrix that was made for another model.
    #[error(
    "the importance matrix is of another model: {} sums and {} counts for {dims:?}",
    got[1], got[0]
)]
    ImportanceShape {
        /// The number of counts and of sums in the importance matrix.
        got: [usize; 2],
        /// Dimensions of the tensor, outermost first.
        dims: Vec<u64>,
    },
    /// An output file exists.
    #[error("{path}: exists already", path = .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The model file of llama2.c or LEAP would have the name of its vocabulary file.
    #[error(
        "{path}: is the name of the vocabulary file: give another name",
        path = .path.display()
    )]
    Tokenizer {
        /// The file.
        path: PathBuf,
    },
    /// More shards than GGUF can number.
    #[error("{n} files would be needed, 65535 are the most: ask for larger ones")]
    TooManyShards {
        /// The number of shards.
        n: usize,
    },
    /// Another program is writing the output.
    #[error("{path}: another conversion is writing it", path = .path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// A file size that no choice of types reaches.
    #[error("{target} bytes are too few: the smallest file of these types has {least}")]
    TargetTooSmall {
        /// The size asked for, bytes.
        target: u64,
        /// The smallest possible file, bytes.
        least: u64,
    },
    /// The progress callback asked to stop.
    #[error("stopped before the end")]
    Stopped,
    /// A weight is NaN or infinite.
    #[error("holds a weight of {value}")]
    NotFinite {
        /// Index of the weight in the rows that were read together.
        at: usize,
        /// NaN or an infinity.
        value: f32,
    },
    /// A weight is too large for the scales of a type.
    #[error("a weight of {value} is too large for {ty}: choose BF16 or F32 for this tensor")]
    TooLarge {
        /// The weight.
        value: f32,
        /// The type.
        ty: TensorType,
    },
    /// Elements of a type that weights cannot have.
    #[error("elements of type {dtype:?}, expected floating-point numbers")]
    Numbers {
        /// The element type.
        dtype: Dtype,
    },
    /// Elements that should be U8.
    #[error("elements of type {dtype:?}, expected U8")]
    Bytes {
        /// The element type.
        dtype: Dtype,
    },
    /// Elements that should be words of codes, or integers.
    #[error("elements of type {dtype:?}, expected integers of 32 bits")]
    Words {
        /// The element type.
        dtype: Dtype,
    },
    /// Groups of columns that are not of equal size, or that do not exist.
    #[error("has {n_groups} groups of {n_columns} columns")]
    Groups {
        /// The number of groups.
        n_groups: u64,
        /// The number of columns.
        n_columns: u64,
    },
    /// An adapter of some experts only.
    #[error("adapts {n_adapted} experts of {n} alike, expected all of them")]
    Experts {
        /// Experts of one rank.
        n_adapted: u64,
        /// All experts of the layer.
        n: u64,
    },
    /// A part of a quantized matrix with values that no reader knows.
    #[error("has values that are not supported")]
    NotSupported,
    /// An invalid code in a quantized tensor.
    #[error("weight {at} has the invalid code {code}")]
    Code {
        /// Index in the tensor.
        at: u64,
        /// The code.
        code: u8,
    },
    /// A tensor has another shape than the model requires.
    #[error("expected {expected:?}, got {got:?}")]
    Dims {
        /// The required dimensions, outermost first.
        expected: Vec<u64>,
        /// The dimensions of the tensor, outermost first.
        got: Vec<u64>,
    },
    /// Tensors that are stacked into one have different types.
    #[error("is of type {ty}, those that it is stored with are {others}")]
    Mixed {
        /// The type of this tensor.
        ty: TensorType,
        /// The type of the first one.
        others: TensorType,
    },
    /// A required tensor is missing.
    #[error("is missing")]
    Missing,
    /// A tensor of the checkpoint that the architecture does not have.
    #[error("is in the checkpoint, but this architecture does not use it")]
    Unused,
    /// Two tensors have the same name.
    #[error("is there twice")]
    Twice,
    /// The pre-tokenizer of a vocabulary is unknown; [`SourceOptions::pre`] can name it.
    ///
    /// [`SourceOptions::pre`]: crate::SourceOptions::pre
    #[error("{path}: {why}", path = .path.display())]
    PreTokenizer {
        /// The vocabulary file.
        path: PathBuf,
        /// The unknown value.
        why: String,
    },
    /// An option that does not apply to the source.
    #[error("{path}: {setting} does not apply to a source of its kind", path = .path.display())]
    NotApplicable {
        /// The source.
        path: PathBuf,
        /// The option.
        setting: Setting,
    },
}

fn without_importance(needs_importance: bool) -> &'static str {
    match needs_importance {
        true => " without an importance matrix",
        false => "",
    }
}

impl Error {
    /// Adds the name of a tensor to the error.
    pub(crate) fn of(self, tensor: &str) -> Self {
        match self {
            // Errors of a whole file, not of a tensor.
            Self::Io { .. } | Self::File { .. } | Self::Busy { .. } | Self::Stopped => self,
            _ => Self::Tensor {
                tensor: tensor.to_owned(),
                source: Box::new(self),
            },
        }
    }
}
