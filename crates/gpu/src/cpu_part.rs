//! A part of a model on the CPU, with weights of its own: beside a GPU, or in its place.

use crate::PartFiles;
use atta_kernels::{Kernels, Pool};
use atta_model::{
    Backend, CpuBackend, Error as ModelError, Executor, ExecutorSize, Footprint, Model,
};
use atta_store::{Budget, ModelFiles, Plan, ResidencyPolicy, Streamed, Weights};
use std::sync::Arc;

/// What the CPU computes with.
#[derive(Clone, Debug)]
pub(crate) struct CpuPart {
    pub(crate) kernels: Kernels,
    pub(crate) pool: Arc<Pool>,
}

/// Opens an executor of a part of a model. Its weights are read into memory, as many as a budget
/// has room for; the others are streamed.
pub(crate) fn open_on_cpu(
    of: &PartFiles<'_>,
    size: &ExecutorSize,
    cpu: CpuPart,
    ram: &Budget,
) -> Result<Box<dyn Executor>, ModelError> {
    let PartFiles {
        spec,
        part,
        files,
        adapters,
    } = *of;
    let backend = CpuBackend::new(cpu.kernels, cpu.pool);
    let needs = backend.executor_bytes(spec, size);
    let n_used = spec.layers.iter().filter_map(|layer| layer.moe());
    let n_used = n_used.map(|moe| moe.n_used).max().unwrap_or(0);
    let source = |files: ModelFiles, plan: Plan| -> Result<Box<dyn Weights>, ModelError> {
        let left = ram.left().saturating_sub(needs.state);
        let left = left.saturating_sub(needs.activations);
        // Without room the whole model is an error that names the bytes.
        let policy = ResidencyPolicy::within(&plan, n_used, left);
        let policy = policy.unwrap_or(ResidencyPolicy::whole());
        Ok(Box::new(Streamed::new(files, plan, &policy, ram)?))
    };
    let files = files.reopened(ram)?;
    let model = Model::with_share(spec.clone(), part.clone(), files, ram, source)?;
    let model = model.with_adapters(Arc::clone(adapters));
    backend.open(Arc::new(model), size, ram)
}
