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
    /// Name of the output head in the file, if the model has one; the embedding may be it.
    head: Option<&'static str>,
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
        let head = if has_head(spec) { spec.d_model } else { 0 };
        let in_layers: u64 = matrices
            .map(|req| size_of::<f64>() as u64 * columns(&req.shape) as u64)
            .sum();
        in_layers + (size_of::<f64>() * head) as u64
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
        let in_file = |role: &Role| directory.tensor(role.name()).is_some();
        let heads = [Role::Output, Role::TokenEmbd].into_iter();
        let head = heads
            .filter(|_| has_head(spec))
            .find(in_file)
            .map(Role::name);
        for name in tensors.values().map(|(name, _)| name.as_str()).chain(head) {
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
            head,
        })
    }
}

/// Whether a model has an output head.
fn has_head(spec: &ModelSpec) -> bool {
    spec.tensors().iter().any(|req| req.role == Role::Output)
}

impl Observer for ImatrixCollector {
    fn enter(&mut self, _: Phase) {}

    fn wants_head_inputs(&self) -> bool {
        self.head.is_some()
    }

    fn head_input(&mut self, row: &[f32]) {
        let Some(name) = self.head else {
            return;
        };
        let mut importance = self
            .importance
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        importance.entry_mut(name).add(row, row.len());
    }

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
