//! What a token costs: bytes of weights that are read, and multiplications.

use super::{Model, Tensors};
use crate::{Role, spec::Outputs};

/// The cost of multiplying one token with matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatmulCost {
    /// Bytes of weights that are read.
    pub bytes: u64,
    /// Multiplications, each with its addition.
    pub macs: u64,
}

impl Model {
    /// The cost of multiplying one token with all matrices of the loaded part; of experts with
    /// those that it uses.
    pub fn matmul_cost(&self) -> MatmulCost {
        let has_head = self.share.head && self.spec.head.outputs == Outputs::Logits;
        let head = has_head.then(|| self.head_place());
        let n_used = |l: usize| self.spec.layers[l].moe().map_or(1, |moe| moe.n_used as u64);
        let layer = |(l, t): (usize, &Tensors)| {
            t.matrices
                .map(|w| w.map(|w| (w, if w.is_of_experts { n_used(l) } else { 1 })))
        };
        let layers = self
            .layers
            .iter()
            .enumerate()
            .filter(|(l, _)| self.share.layers.contains(l));
        let of = |role: Role, is_loaded: bool| {
            self.globals.matrices[role as usize].filter(|_| is_loaded)
        };
        let others = [
            of(Role::PerLayerModelProj, self.share.embed),
            of(Role::AltupProj, self.share.embed),
            of(Role::AltupUnembdProj, self.share.head),
        ];
        let globals = head.into_iter().chain(others.into_iter().flatten());
        let all = layers.flat_map(layer).flatten();
        let all = all.chain(globals.map(|w| (w, 1)));
        all.fold(MatmulCost::default(), |cost, (w, times)| MatmulCost {
            bytes: cost.bytes
                + times * w.ty.row_bytes(w.d_in).unwrap_or(0) as u64 * w.own().len() as u64,
            macs: cost.macs + times * w.d_in as u64 * w.own().len() as u64,
        })
    }
}
