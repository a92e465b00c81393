//! What a token costs: bytes of weights that are read, and multiplications.

use std::collections::HashSet;

use atta_formats::Directory;

use super::{
    Model, Tensors,
    matching::{TensorMatch, match_tensors},
};
use crate::{
    Error, Placement, Role, Share,
    spec::{ModelSpec, Outputs},
};

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
            of(Role::OutputHcDown, self.share.head),
            of(Role::OutputHcUp, self.share.head),
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

/// Bytes and multiplications of a part of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartCost {
    /// Tensors in the files, bytes.
    pub bytes: u64,
    /// Bytes that one row reads: all of them but the experts that it does not go to.
    pub row_bytes: u64,
    /// Multiplications of one row, each with its addition.
    pub macs: u64,
}

/// The parts of a model's files. Every tensor that is computed with is in one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelCost {
    /// Each layer by itself.
    pub layers: Vec<PartCost>,
    /// The token embedding, and what else only the machine with the tokens needs.
    pub embed: PartCost,
    /// Tables of rows that are never resident: embeddings of every layer, and of n-grams.
    pub tables: PartCost,
    /// The head and what belongs to it. Of a head that is the embedding the multiplications only.
    pub head: PartCost,
    /// Vectors that every part of the model reads.
    pub shared: PartCost,
}

impl ModelCost {
    /// Counts the tensors of a file. Reads no weights.
    ///
    /// # Errors
    /// A file that has not exactly the tensors of the model.
    pub fn of(spec: &ModelSpec, directory: &Directory) -> Result<Self, Error> {
        let reqs = spec.tensors();
        let mut cost = Self {
            layers: vec![PartCost::default(); spec.layers.len()],
            ..Self::default()
        };
        let mut counted = HashSet::new();
        for found in match_tensors(spec, &reqs, directory)? {
            // Several matrices may be rows of one tensor.
            let is_new = counted.insert(found.info.name.as_str());
            cost.part_of(&found).add(spec, &found, is_new);
        }
        let has_logits = spec.head.outputs == Outputs::Logits;
        if has_logits && directory.tensor(Role::Output.name()).is_none() {
            cost.head.macs += (spec.n_vocab * spec.d_model) as u64;
        }
        Ok(cost)
    }

    /// The part that a tensor is counted in.
    fn part_of(&mut self, found: &TensorMatch<'_>) -> &mut PartCost {
        let role = found.req.role;
        let share = |embed, head| Share {
            layers: 0..0,
            embed,
            head,
        };
        if role.placement() == Placement::LayerEmbed {
            return &mut self.tables;
        }
        if let Some(l) = found.req.layer {
            return &mut self.layers[l];
        }
        match share(false, false).has(role, None) {
            true => &mut self.shared,
            false if share(true, false).has(role, None) => &mut self.embed,
            false => &mut self.head,
        }
    }
}

impl PartCost {
    /// Adds a tensor; its bytes only if it `is_new`.
    fn add(&mut self, spec: &ModelSpec, found: &TensorMatch<'_>, is_new: bool) {
        let TensorMatch { req, info, .. } = found;
        let placement = req.role.placement();
        let moe = req.layer.and_then(|l| spec.layers[l].moe());
        // Of all experts, a row goes to some.
        let experts = moe.filter(|_| placement == Placement::Experts);
        let [n_used, n_experts] = experts.map_or([1, 1], |moe| [moe.n_used, moe.n_experts]);
        let n_used = n_used as u64;
        if is_new {
            let scale_bytes = found.scale.map_or(0, |scale| scale.n_bytes);
            self.bytes += info.n_bytes + scale_bytes;
            self.row_bytes += info.n_bytes / (n_experts as u64).max(1) * n_used + scale_bytes;
        }
        let is_table = matches!(placement, Placement::Embed | Placement::LayerEmbed);
        if placement == Placement::Resident || is_table {
            return;
        }
        let n_numbers = req.shape.iter().product::<usize>() as u64;
        self.macs += n_numbers / (n_experts as u64).max(1) * n_used;
    }
}
