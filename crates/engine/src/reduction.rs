//! The quality dial: running less of a model than all of it, chosen by what that was measured to
//! cost.
//!
//! Refuses to know how the rest is computed: a choice changes the spec, and everything that reads
//! the spec (memory plan, weights, KV cache, forward pass) follows. The one idea: a divergence of 1
//! nat is no quality at all, and quality 1 is the whole model, bit for bit.

use std::path::Path;

use atta_formats::Directory;
use atta_model::{
    ModelCost, ReductionCost, Role, Sensitivity,
    spec::{ModelSpec, Outputs},
};

use crate::Error;

/// How much of a model to run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reduction {
    /// The layers to leave out.
    pub layers: Omission,
    /// Experts for each position at most; `None`: as many as the model says.
    pub n_experts: Option<usize>,
}

/// The choice of layers to leave out.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Omission {
    /// None.
    #[default]
    Nothing,
    /// As many as cost a measured KL divergence of `1 - quality` nats at most; above 0 and at most
    /// 1, where nothing is left out and no measurement is needed.
    Quality(f32),
    /// These.
    Layers(Vec<usize>),
}

/// What a loaded model does without.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduced {
    /// The layers that are left out, in order.
    pub layers: Vec<usize>,
    /// Their cost, if the file has measurements; of each part of the reduction by itself.
    pub layers_cost: Option<ReductionCost>,
    /// Experts for each position, if they were limited.
    pub n_experts: Option<usize>,
    /// Their cost, if it was measured.
    pub experts_cost: Option<ReductionCost>,
    /// Bytes of weights that a token reads, over those of the whole model.
    pub bytes_ratio: f64,
}

/// Why a model cannot be reduced.
#[derive(Debug)]
pub(crate) enum ReduceError {
    Model(atta_model::Error),
    /// The file has no measurements.
    Unmeasured,
    Quality(f32),
}

impl ReduceError {
    /// The error, of the file at `path`.
    pub(crate) fn at(self, path: &Path) -> Error {
        let path = path.to_owned();
        match self {
            Self::Model(source) => Error::Model { path, source },
            Self::Unmeasured => Error::Unmeasured { path },
            Self::Quality(quality) => Error::Quality(quality),
        }
    }
}

impl From<atta_model::Error> for ReduceError {
    fn from(error: atta_model::Error) -> Self {
        Self::Model(error)
    }
}

impl Reduction {
    /// Whether all of a model is to be run.
    pub fn is_whole(&self) -> bool {
        let all_layers = match &self.layers {
            Omission::Nothing => true,
            Omission::Quality(quality) => *quality == 1.0,
            Omission::Layers(layers) => layers.is_empty(),
        };
        all_layers && self.n_experts.is_none()
    }

    /// Reduces the spec of a file; `None` if all of it is to be run.
    pub(crate) fn apply(
        &self,
        spec: &mut ModelSpec,
        directory: &Directory,
    ) -> Result<Option<Reduced>, ReduceError> {
        if self.is_whole() {
            return Ok(None);
        }
        let whole_bytes = token_bytes(spec, directory)?;
        let measured = Sensitivity::read(directory.metadata(), spec)?;
        let (layers, layers_cost) = self.layers.choose(measured.as_ref())?;
        spec.leave_out(&layers)?;
        let n_experts = self.n_experts;
        n_experts.map_or(Ok(()), |n| spec.use_experts(n))?;
        let of_experts = |measured: &Sensitivity| measured.of_experts(n_experts?);
        Ok(Some(Reduced {
            layers,
            layers_cost,
            n_experts,
            experts_cost: measured.as_ref().and_then(of_experts),
            bytes_ratio: token_bytes(spec, directory)? as f64 / whole_bytes.max(1) as f64,
        }))
    }
}

impl Omission {
    /// The layers, in order, and their measured cost.
    fn choose(
        &self,
        measured: Option<&Sensitivity>,
    ) -> Result<(Vec<usize>, Option<ReductionCost>), ReduceError> {
        let quality = match self {
            Self::Nothing => return Ok((Vec::new(), None)),
            Self::Layers(layers) => return Ok((layers.clone(), None)),
            Self::Quality(quality) => *quality,
        };
        let max_kld = max_kld(quality)?;
        if max_kld == 0.0 {
            return Ok((Vec::new(), None));
        }
        let measured = measured.ok_or(ReduceError::Unmeasured)?;
        let steps = measured.layers_within(max_kld);
        let mut layers: Vec<usize> = steps.iter().map(|step| step.to).collect();
        layers.sort_unstable();
        Ok((layers, steps.last().map(|step| step.cost)))
    }
}

/// The divergence that a quality allows, nats.
fn max_kld(quality: f32) -> Result<f32, ReduceError> {
    match quality > 0.0 && quality <= 1.0 {
        true => Ok(1.0 - quality),
        false => Err(ReduceError::Quality(quality)),
    }
}

/// Bytes of weights that a token reads.
fn token_bytes(spec: &ModelSpec, directory: &Directory) -> Result<u64, atta_model::Error> {
    let cost = ModelCost::of(spec, directory)?;
    let layers: u64 = cost.layers.iter().map(|layer| layer.row_bytes).sum();
    let is_tied = directory.tensor(Role::Output.name()).is_none();
    let tied = match spec.head.outputs {
        Outputs::Logits if is_tied => cost.embed.bytes,
        _ => 0,
    };
    Ok(layers + cost.head.row_bytes + tied)
}
