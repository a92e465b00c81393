//! Collects an importance matrix: an observer of the forward pass that sums the squared inputs of
//! each matrix.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use atta_formats::Directory;
use atta_model::{Inputs, Observer, Phase, Role, spec::ModelSpec};

use crate::{Error, ImportanceMatrix};

/// Adds the inputs of a model's matrices to an importance matrix during evaluation.
pub struct ImatrixCollector {
    importance: Arc<Mutex<ImportanceMatrix>>,
    /// Name and number of experts of each tensor in the file, by layer and role.
    tensors: HashMap<(usize, Role), (String, usize)>,
}

impl std::fmt::Debug for ImatrixCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImatrixCollector")
            .field("n_tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}

impl ImatrixCollector {
    /// Bytes of the importance matrix of a model.
    pub fn bytes(spec: &ModelSpec) -> u64 {
        let matrices = spec
            .tensors()
            .into_iter()
            .filter(|req| req.layer.is_some() && req.shape.len() > 1);
        let columns =
            |shape: &[usize]| shape[shape.len() - 1] * if shape.len() > 2 { shape[0] } else { 1 };
        matrices
            .map(|req| size_of::<f64>() as u64 * columns(&req.shape) as u64)
            .sum()
    }

    /// A collector for a model with these tensors, which adds to `importance`.
    ///
    /// # Errors
    /// [`Error::ImportanceShape`] if `importance` already has sums of a model of other shapes.
    pub fn new(
        spec: &ModelSpec,
        directory: &Directory,
        importance: Arc<Mutex<ImportanceMatrix>>,
    ) -> Result<Self, Error> {
        let name = |req: &atta_model::TensorReq| {
            let in_file = |name: &String| directory.tensor(name).is_some();
            let name = Some(req.name())
                .filter(in_file)
                .or_else(|| req.fused_name().filter(in_file))?;
            let n_experts = if req.shape.len() > 2 { req.shape[0] } else { 1 };
            Some(((req.layer?, req.role), (name, n_experts)))
        };
        let tensors: HashMap<_, (String, usize)> = spec.tensors().iter().filter_map(name).collect();
        for (name, _) in tensors.values() {
            let held = importance.lock().unwrap_or_else(PoisonError::into_inner);
            let dims = directory
                .tensor(name)
                .map(|tensor| tensor.shape.dims().to_vec())
                .unwrap_or_default();
            if let Some(entry) = held.entry(name).filter(|entry| !entry.fits(&dims)) {
                return Err(Error::ImportanceShape {
                    got: entry.shape(),
                    dims,
                }
                .of(name));
            }
        }
        Ok(Self {
            importance,
            tensors,
        })
    }
}

impl Observer for ImatrixCollector {
    fn enter(&mut self, _: Phase) {}

    fn inputs(&mut self, inputs: Inputs<'_>) {
        let mut importance = self
            .importance
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Roles that are fused in one tensor have the same inputs, which are added once.
        let mut last = None;
        for role in inputs.roles {
            let Some((name, n)) = self
                .tensors
                .get(&(inputs.layer, *role))
                .filter(|(name, _)| last != Some(name))
            else {
                continue;
            };
            importance.entry_mut(name).add_expert(
                inputs.expert.unwrap_or(0),
                *n,
                inputs.rows,
                inputs.d,
            );
            last = Some(name);
        }
    }
}
