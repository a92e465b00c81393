//! Which rows of every matrix of a model a member multiplies, and what a token costs between
//! members.
//!
//! Arithmetic with shapes: no file is opened.

use std::ops::Range;

use atta_model::{
    Audience, Placement, Role, RowSplit, TensorReq, UnitShape, spec::ModelSpec, units,
};

/// A matrix, and its rows at each member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatrixRows {
    /// The matrix.
    pub role: Role,
    /// Its layer; `None`: it is one of the whole model.
    pub layer: Option<usize>,
    /// Rows of the whole matrix, or of that of each expert.
    pub n_rows: usize,
    /// The rows of each member; `None`: every member computes the whole product.
    pub members: Option<Vec<Range<usize>>>,
}

/// The rows of all matrices that a model may have. The output head is there even where a file has
/// the embedding in its place.
pub fn matrices(spec: &ModelSpec, split: &RowSplit) -> Vec<MatrixRows> {
    let is_matrix = |req: &&TensorReq| match req.role.placement() {
        Placement::Layer(_) | Placement::LastLayer(_) | Placement::Experts | Placement::Head => {
            true
        }
        Placement::Resident | Placement::Embed | Placement::LayerEmbed => false,
    };
    let rows = |req: &TensorReq| {
        let n_rows = req.n_rows();
        let of_member = |member| split.rows(member, n_rows);
        let is_divided = req.role.is_divided() && split.divides(n_rows);
        MatrixRows {
            role: req.role,
            layer: req.layer,
            n_rows,
            members: is_divided.then(|| (0..split.n_members()).map(of_member).collect()),
        }
    };
    spec.tensors().iter().filter(is_matrix).map(rows).collect()
}

/// What a token costs on the links of a member: its time is about `n_units` times the latency of a
/// message, and the numbers by the rate of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeCost {
    /// Times that members wait for each other.
    pub n_units: usize,
    /// Numbers that the member gets from the others, f32.
    pub n_received: usize,
}

/// The cost of a token with logits at a member. Of experts it counts those that a token uses.
pub fn exchange_cost(spec: &ModelSpec, split: &RowSplit, member: usize) -> ExchangeCost {
    if split.n_members() == 1 {
        return ExchangeCost::default();
    }
    let units = units(spec, split);
    let received = units
        .iter()
        .filter(|unit| unit.audience == Audience::All || member == 0);
    let n_received = |unit: &UnitShape| {
        let moe = unit.layer.and_then(|l| spec.layers[l].moe());
        let n_rows = match unit.is_of_experts {
            true => moe.map_or(1, |moe| moe.n_used),
            false => 1,
        };
        let all: usize = unit.d_outs.iter().sum();
        n_rows * (all - unit.columns_of(split, member))
    };
    ExchangeCost {
        // The end of a batch is a unit of its own.
        n_units: received.clone().count() + 1,
        n_received: received.map(n_received).sum(),
    }
}
