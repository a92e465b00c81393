//! What can go wrong between two files, with the file and the tensor in every message.

use std::path::PathBuf;

use atta_formats::TensorType;

use crate::raw::Dtype;

/// An error of this crate.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused to open, read, map or write a file.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file does not have the form that it should have.
    #[error("{path}: {why}", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        why: String,
    },
    /// Something is wrong with one tensor.
    #[error("{tensor}: {source}")]
    Tensor {
        /// Its name.
        tensor: String,
        /// What.
        source: Box<Error>,
    },
    /// Bytes that mean nothing as GGUF.
    #[error(transparent)]
    Format(#[from] atta_formats::Error),
    /// A model that we do not run, or one that does not fit what its metadata says.
    #[error(transparent)]
    Model(#[from] atta_model::Error),
    /// A model that files of llama2.c and LEAP cannot hold, or for which these programs would
    /// compute something else.
    #[error("this model is none of llama2.c or LEAP: {0}")]
    NotLlama2c(String),
    /// What was made could not be written.
    #[error("cannot write: {0}")]
    Output(std::io::Error),
    /// A tensor lies outside of its file.
    #[error("bytes {at}+{len} lie outside of the file of {file_bytes} bytes")]
    OutOfFile {
        /// First byte.
        at: u64,
        /// Length, bytes.
        len: u64,
        /// Length of the file, bytes.
        file_bytes: u64,
    },
    /// A shape that no tensor of this type can have.
    #[error("{dims:?} is no shape of a tensor of type {ty}")]
    Shape {
        /// Outermost first.
        dims: Vec<u64>,
        /// Its type.
        ty: TensorType,
    },
    /// More rows were asked for than there are.
    #[error("there is no row {row}")]
    NoRow {
        /// The first one that is missing.
        row: u64,
    },
    /// A type that weights are not converted to.
    #[error("cannot quantize to {ty}{}", if *.needs_importance { " without an importance matrix (--imatrix FILE, made by atta imatrix)" } else { "" })]
    NoQuantizer {
        /// The type.
        ty: TensorType,
        /// Whether it could be done with an importance matrix.
        needs_importance: bool,
    },
    /// An importance matrix that was made for another model.
    #[error("the importance matrix is of another model: {} sums and {} counts for {dims:?}", got[1], got[0])]
    ImportanceShape {
        /// Counts and sums.
        got: [usize; 2],
        /// Of the tensor, outermost first.
        dims: Vec<u64>,
    },
    /// A file that would be overwritten.
    #[error("{path}: exists already: give another name, or --force", path = .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Both files of a model of LEAP would be one.
    #[error("{path}: is where the vocabulary will lie: give another name", path = .path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
    },
    /// More files than can be numbered.
    #[error("{n} files would be needed, 65535 are the most: ask for larger ones")]
    TooManyShards {
        /// How many.
        n: usize,
    },
    /// Whoever watched wanted it to stop.
    #[error("stopped before the end; nothing was written")]
    Stopped,
    /// Weights that are no numbers.
    #[error("holds a weight of {value}")]
    NotFinite {
        /// Index in the rows that were read together.
        at: usize,
        /// NaN or an infinity.
        value: f32,
    },
    /// Weights that a type cannot hold.
    #[error(
        "a weight of {value} is too large for {ty}: choose BF16 or F32 for it, as by --tensor-type"
    )]
    TooLarge {
        /// The weight.
        value: f32,
        /// The type.
        ty: TensorType,
    },
    /// Elements that cannot be weights.
    #[error("elements of type {dtype:?}, expected floating-point numbers")]
    Numbers {
        /// What they are.
        dtype: Dtype,
    },
    /// Elements that should be bytes.
    #[error("elements of type {dtype:?}, expected U8")]
    Bytes {
        /// What they are.
        dtype: Dtype,
    },
    /// A code that no weight has.
    #[error("weight {at} has the code {code}, which means nothing")]
    Code {
        /// Index in the tensor.
        at: u64,
        /// The code.
        code: u8,
    },
    /// A tensor of another shape than the model's.
    #[error("expected {expected:?}, got {got:?}")]
    Dims {
        /// Outermost first.
        expected: Vec<u64>,
        /// Outermost first.
        got: Vec<u64>,
    },
    /// Tensors that become one are of different types.
    #[error("is of type {ty}, those that it is stored with are {others}")]
    Mixed {
        /// The type of this one.
        ty: TensorType,
        /// That of the first.
        others: TensorType,
    },
    /// A tensor that the model must have.
    #[error("is missing")]
    Missing,
    /// A tensor that the model does not have.
    #[error("is in the checkpoint, but this architecture has no use for it")]
    Unused,
    /// A name that is given to two tensors.
    #[error("is there twice")]
    Twice,
}

impl Error {
    /// The same, of a tensor.
    pub(crate) fn of(self, tensor: &str) -> Self {
        match self {
            // These are about more than a tensor.
            Self::Io { .. } | Self::File { .. } | Self::Stopped => self,
            _ => Self::Tensor {
                tensor: tensor.to_owned(),
                source: Box::new(self),
            },
        }
    }
}
