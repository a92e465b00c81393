//! The allowlist of globals: the few classes and functions that a checkpoint's pickle may name.
//! They are only names; none is ever called.

use crate::raw::Dtype;

/// A global that a pickle may name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Global {
    /// `collections.OrderedDict`.
    Dict,
    /// `torch._utils._rebuild_tensor_v2`: a tensor from a storage, an offset, a shape and strides.
    Tensor,
    /// `torch._utils._rebuild_parameter`: returns its tensor.
    Parameter,
    /// A storage class, such as `torch.FloatStorage`.
    Storage(Dtype),
}

impl Global {
    /// Looks up `module.name`.
    pub(super) fn of(module: &str, name: &str) -> Result<Self, String> {
        Ok(match (module, name) {
            ("collections", "OrderedDict") => Self::Dict,
            ("torch._utils", "_rebuild_tensor_v2") => Self::Tensor,
            ("torch._utils", "_rebuild_parameter") => Self::Parameter,
            ("torch", "DoubleStorage") => Self::Storage(Dtype::F64),
            ("torch", "FloatStorage") => Self::Storage(Dtype::F32),
            ("torch", "HalfStorage") => Self::Storage(Dtype::F16),
            ("torch", "BFloat16Storage") => Self::Storage(Dtype::BF16),
            ("torch", "LongStorage") => Self::Storage(Dtype::I64),
            ("torch", "IntStorage") => Self::Storage(Dtype::I32),
            ("torch", "ShortStorage") => Self::Storage(Dtype::I16),
            ("torch", "CharStorage") => Self::Storage(Dtype::I8),
            ("torch", "ByteStorage") => Self::Storage(Dtype::U8),
            ("torch", "BoolStorage") => Self::Storage(Dtype::Bool),
            _ => {
                return Err(format!(
                    "refuses to run {}.{}, which no checkpoint needs",
                    shown(module),
                    shown(name)
                ));
            }
        })
    }
}

/// A name from a file, shortened and escaped for a message.
fn shown(name: &str) -> String {
    const LONGEST: usize = 60;
    name.chars()
        .take(LONGEST)
        .flat_map(char::escape_debug)
        .collect()
}
