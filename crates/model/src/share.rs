//! Which part of a model is at hand: all of it, or the layers that one of several machines runs.

use std::ops::Range;

use crate::{Home, Role, spec::ModelSpec};

/// A part of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its layers.
    pub layers: Range<usize>,
    /// Whether tokens become hidden states here.
    pub embed: bool,
    /// Whether hidden states become logits here.
    pub head: bool,
}

impl Share {
    /// All of a model.
    pub fn whole(spec: &ModelSpec) -> Self {
        Self::of_layers(spec, 0..spec.layers.len())
    }

    /// Some layers, with what stands in front of the first one and behind the last one.
    pub fn of_layers(spec: &ModelSpec, layers: Range<usize>) -> Self {
        Self { embed: layers.start == 0, head: layers.end == spec.layers.len(), layers }
    }

    /// Whether it has that tensor.
    pub(crate) fn has(&self, role: Role, layer: Option<usize>) -> bool {
        match (role.home(), role, layer) {
            (_, _, Some(l)) => self.layers.contains(&l),
            // A head that is the embedding is a matter of the plan.
            (Home::Embed, ..) => self.embed || self.head,
            (Home::Head, ..) | (_, Role::OutputNorm | Role::OutputNormBias | Role::OutputBias, _) => self.head,
            (_, Role::PositionEmbd, _) => self.embed,
            _ => true,
        }
    }
}
