//! Collects an importance matrix from a forward pass: it listens to what matrices are multiplied
//! with.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use atta_formats::Directory;
use atta_model::{Inputs, Observer, Phase, Role, spec::ModelSpec};

use crate::{Error, Importance};

/// An observer of the steps of a model, for a text that is read with it.
pub struct Collector {
    importance: Arc<Mutex<Importance>>,
    /// The tensors of the file, by what they are for: their names, and how many experts they have.
    tensors: HashMap<(usize, Role), (String, usize)>,
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collector")
            .field("n_tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}

impl Collector {
    /// Bytes that the importance of a model takes.
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

    /// Listens to a model that is made of these tensors, and adds to `importance`.
    ///
    /// # Errors
    /// [`Error::ImportanceShape`] if what is there already is of another model.
    pub fn new(
        spec: &ModelSpec,
        directory: &Directory,
        importance: Arc<Mutex<Importance>>,
    ) -> Result<Self, Error> {
        let name = |req: &atta_model::TensorReq| {
            let in_file = |name: &String| directory.tensor(name).is_some();
            let name = Some(req.name())
                .filter(in_file)
                .or_else(|| req.within_name().filter(in_file))?;
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

impl Observer for Collector {
    fn enter(&mut self, _: Phase) {}

    fn inputs(&mut self, inputs: Inputs<'_>) {
        let mut importance = self
            .importance
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Several roles may be parts of one tensor, which is heard of once.
        let mut last = None;
        for role in inputs.roles {
            let Some((name, n)) = self
                .tensors
                .get(&(inputs.layer, *role))
                .filter(|(name, _)| last != Some(name))
            else {
                continue;
            };
            importance
                .entry_mut(name)
                .add((inputs.expert.unwrap_or(0), *n), inputs.rows, inputs.d);
            last = Some(name);
        }
    }
}
