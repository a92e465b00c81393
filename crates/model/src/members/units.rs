//! The units of a model: products that members complete together, from shapes alone.

use super::{Audience, RowSplit};
use crate::{Placement, Role, TensorReq, spec::ModelSpec};

/// Columns that members gather at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitShape {
    /// The layer; `None`: the head.
    pub layer: Option<usize>,
    /// Columns of its products, all members together.
    pub d_outs: Vec<usize>,
    /// Whether it is a product with experts, with a row for each of those that a token uses.
    pub is_of_experts: bool,
    /// Who gets the columns.
    pub audience: Audience,
    key: u8,
}

impl UnitShape {
    /// The columns of one row that a member computes.
    pub fn columns_of(&self, split: &RowSplit, member: usize) -> usize {
        let own = |&d_out: &usize| split.rows(member, d_out).len();
        self.d_outs.iter().map(own).sum()
    }
}

/// The units of a batch with logits. Experts of many rows may take several such units.
pub fn units(spec: &ModelSpec, split: &RowSplit) -> Vec<UnitShape> {
    let mut units: Vec<UnitShape> = Vec::new();
    let reqs = spec.tensors();
    let is_divided = |req: &&TensorReq| req.role.is_divided() && split.divides(req.n_rows());
    for req in reqs.iter().filter(is_divided) {
        let key = key(req.role);
        let known = units
            .iter()
            .rposition(|u| (u.layer, u.key) == (req.layer, key));
        let i = known.unwrap_or_else(|| {
            units.push(UnitShape::empty(req, key));
            units.len() - 1
        });
        // The product of gate and up is one.
        let is_gate = matches!(
            req.role,
            Role::FfnGate | Role::FfnGateShexp | Role::FfnGateExps
        );
        if !is_gate {
            units[i].d_outs.push(req.n_rows());
        }
    }
    units
}

impl UnitShape {
    fn empty(req: &TensorReq, key: u8) -> Self {
        let placement = req.role.placement();
        Self {
            layer: req.layer,
            d_outs: Vec::new(),
            is_of_experts: placement == Placement::Experts,
            audience: match placement {
                Placement::Head => Audience::Lead,
                _ => Audience::All,
            },
            key,
        }
    }
}

/// Equal for the matrices of a layer that are multiplied in one unit.
fn key(role: Role) -> u8 {
    match role.placement() {
        Placement::Experts if role == Role::FfnDownExps => 1,
        Placement::Experts => 0,
        Placement::Layer(projection) => 2 + projection as u8,
        _ => u8::MAX,
    }
}
