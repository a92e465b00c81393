//! How the weights of a tensor are stored.

use crate::TensorType;

/// The type of a tensor's blocks, which fill its rows one behind the other without padding, and the
/// parameters that the tensor has beside its blocks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Encoding {
    /// Type of the blocks.
    pub ty: TensorType,
    /// Multiplies every weight; 1 if the file says nothing. In GGUF files, the scale of
    /// `NAME.weight` is the tensor `NAME.scale`.
    pub scale: f32,
}

impl From<TensorType> for Encoding {
    fn from(ty: TensorType) -> Self {
        Self { ty, scale: 1.0 }
    }
}
