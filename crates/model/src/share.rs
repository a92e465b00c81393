//! A part of a model: all of it, or what one machine of a ring loads and runs.

use std::ops::Range;

use crate::{Placement, Role, spec::ModelSpec};

/// A part of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its layers.
    pub layers: Range<usize>,
    /// Whether the token embedding belongs to it.
    pub embed: bool,
    /// Whether the output norm and head belong to it.
    pub head: bool,
}

impl Share {
    /// The whole model.
    pub fn whole(spec: &ModelSpec) -> Self {
        Self::of_layers(spec, 0..spec.layers.len())
    }

    /// A range of layers; the embedding belongs to the first one, the head to the last one.
    pub fn of_layers(spec: &ModelSpec, layers: Range<usize>) -> Self {
        Self {
            embed: layers.start == 0,
            head: layers.end == spec.layers.len(),
            layers,
        }
    }

    /// Whether the share includes all of another one.
    pub(crate) fn includes(&self, other: &Self) -> bool {
        let outer = &self.layers;
        let inner = &other.layers;
        let has_layers = inner.is_empty() || outer.start <= inner.start && inner.end <= outer.end;
        has_layers && self.embed >= other.embed && self.head >= other.head
    }

    /// Whether the share includes a tensor.
    pub(crate) fn has(&self, role: Role, layer: Option<usize>) -> bool {
        match (role.placement(), role, layer) {
            (_, _, Some(l)) => self.layers.contains(&l),
            // The plan decides whether the head is the embedding.
            (Placement::Embed, ..) | (_, Role::TokenEmbdMean, _) => self.embed || self.head,
            (Placement::LayerEmbed, ..)
            | (_, Role::PerLayerModelProj | Role::PerLayerProjNorm | Role::AltupProj, _) => {
                self.embed
            }
            (Placement::Head | Placement::LastLayer(_), ..)
            | (
                _,
                Role::OutputNorm
                | Role::OutputNormBias
                | Role::OutputHcNorm
                | Role::OutputMean
                | Role::OutputBias
                | Role::Cls
                | Role::ClsBias
                | Role::ClsNorm
                | Role::ClsNormBias
                | Role::ClsOutput
                | Role::ClsOutputBias
                | Role::Dense2
                | Role::Dense3,
                _,
            ) => self.head,
            (
                _,
                Role::PositionEmbd
                | Role::TokenTypes
                | Role::TokenEmbdNorm
                | Role::TokenEmbdNormBias,
                _,
            ) => self.embed,
            _ => true,
        }
    }
}
