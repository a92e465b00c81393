//! Factors of whole matrices, which GGUF has in tensors of their own: `ffn_up.scale` beside
//! `ffn_up.weight`, one number, or one for each expert.

use atta_formats::TensorType;
use atta_model::{Placement, Role};

use super::{rows::ConstantRows, source_tensor::SourceTensor};
use crate::Tensor;

/// Takes the factors out of the weights of the tensor `name`, which has these parts, and returns
/// them; `None` if there are none, or if the file has no place for them.
pub(super) fn split(role: Role, name: &str, parts: &mut [SourceTensor]) -> Option<Tensor> {
    let stem = name.strip_suffix("weight").filter(|_| may_be_apart(role))?;
    let factors = parts.iter_mut().map(SourceTensor::split_factor);
    let factors: Vec<f32> = factors.map(|factor| factor.unwrap_or(1.0)).collect();
    let matters = factors.iter().any(|&factor| factor != 1.0);
    matters.then(|| Tensor {
        name: format!("{stem}scale"),
        dims: vec![factors.len() as u64],
        ty: TensorType::F32,
        rows: Box::new(ConstantRows(factors)),
    })
}

/// Whether products with a matrix of this role are multiplied by a factor beside it.
fn may_be_apart(role: Role) -> bool {
    let is_router = matches!(role, Role::FfnGateInp | Role::FfnGateInpShexp);
    let placement = role.placement();
    let is_product = matches!(
        placement,
        Placement::Layer(_) | Placement::Head | Placement::Experts
    );
    is_product && !is_router
}
