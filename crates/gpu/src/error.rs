//! The errors of this crate.

impl From<Error> for atta_model::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::DeviceLost(_) => Self::Lost(error.to_string()),
            Error::Model(error) => error,
            _ => Self::Device(error.to_string()),
        }
    }
}

/// The failure of a GPU.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device is gone: reset by the driver, unplugged, or it answered too late. Everything
    /// that lay on it is lost.
    #[error("the GPU was lost: {0}")]
    DeviceLost(String),

    /// The device could not be opened.
    #[error("{name}: cannot be opened: {reason}")]
    Open {
        /// The adapter.
        name: String,
        /// The driver's words.
        reason: String,
    },

    /// There is no memory for a buffer.
    #[error("out of GPU memory: {bytes} bytes for a buffer")]
    OutOfMemory {
        /// The size of the buffer.
        bytes: u64,
    },

    /// A buffer may not be so large.
    #[error("a buffer of {bytes} bytes: this GPU binds at most {most}")]
    BufferSize {
        /// The size of the buffer.
        bytes: u64,
        /// The limit of the adapter.
        most: u64,
    },

    /// A range outside of a buffer, or not of whole words.
    #[error("bytes {at}+{len} of a buffer of {bytes}")]
    Range {
        /// The first byte.
        at: u64,
        /// The number of bytes.
        len: u64,
        /// The size of the buffer.
        bytes: u64,
    },

    /// The driver refuses a shader, or what it is given.
    #[error("{shader}: the driver refuses it: {reason}")]
    Refused {
        /// The kernel.
        shader: String,
        /// The driver's words.
        reason: String,
    },

    /// A model, or an executor of a size, for which kernels are missing.
    #[error("GPUs cannot run this model yet: {0}")]
    Unsupported(String),

    /// The model's own failure, such as weights that cannot be read.
    #[error(transparent)]
    Model(#[from] atta_model::Error),

    /// Another result than that of the CPU.
    #[error("{case}: element {at} is {got:#010x}, expected {expected:#010x}")]
    Mismatch {
        /// The comparison.
        case: String,
        /// The first element that differs.
        at: usize,
        /// Its bits.
        got: u32,
        /// Those of the CPU.
        expected: u32,
    },
}
