//! The backend of a CPU and a GPU: the first layers of a model and the embedding here, the last
//! ones and the head there.
//!
//! It knows how a model is divided, and no layer. The engine binds and counts the first part only;
//! the other one is read once from the same files, when the first executor is opened.

use crate::{
    Budgets, Error, GpuExecutor, GpuKind, GpuWeights, PartFiles, SharedHost, check_support,
};
use atta_formats::Directory;
use atta_model::spec::ModelSpec;
use atta_model::{
    Backend, Chain, CpuBackend, Error as ModelError, Executor, ExecutorBytes, ExecutorSize,
    Footprint, KvType, Model, Share,
};
use atta_store::{Budget, BudgetItem};
use std::sync::{Arc, Mutex, PoisonError};

/// How a model is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuShare {
    /// The last layers, which run on the GPU with the head.
    pub n_layers: usize,
}

impl GpuShare {
    /// The layers before, and the embedding.
    pub fn on_cpu(self, spec: &ModelSpec) -> Share {
        Share {
            layers: 0..self.first(spec),
            embed: true,
            head: false,
        }
    }

    /// The last layers, and the head.
    pub fn on_gpu(self, spec: &ModelSpec) -> Share {
        Share {
            layers: self.first(spec)..spec.layers.len(),
            embed: false,
            head: true,
        }
    }

    fn first(self, spec: &ModelSpec) -> usize {
        spec.layers.len().saturating_sub(self.n_layers)
    }

    /// Checks that a model can be divided so, and that GPUs can run their part.
    ///
    /// # Errors
    /// [`Error::Unsupported`], and layers that read those of the other part.
    pub fn check(self, spec: &ModelSpec, kv: KvType, directory: &Directory) -> Result<(), Error> {
        let part = self.on_gpu(spec);
        check_support(spec, &part, kv, directory)?;
        Ok(spec.check_separable(&part.layers)?)
    }
}

/// Creates executors whose last layers run on a GPU.
#[derive(Debug)]
pub struct GpuBackend {
    host: SharedHost,
    cpu: CpuBackend,
    isa: &'static str,
    share: GpuShare,
    budget: Budget,
    weights: Mutex<Option<Arc<GpuWeights>>>,
}

impl GpuBackend {
    /// Divides models so; `isa` names the instruction set of the CPU backend, and `budget` limits
    /// the memory on the GPU.
    pub fn new(
        host: SharedHost,
        cpu: CpuBackend,
        isa: &'static str,
        share: GpuShare,
        budget: Budget,
    ) -> Self {
        Self {
            host,
            cpu,
            isa,
            share,
            budget,
            weights: Mutex::default(),
        }
    }

    /// The memory on the GPU, by purpose.
    pub fn items(&self) -> Vec<BudgetItem> {
        self.budget.items()
    }

    /// The host.
    pub fn host(&self) -> &SharedHost {
        &self.host
    }

    /// Whether what lies on the GPU takes memory of this machine.
    fn shares_memory(&self) -> bool {
        match self.host.info().kind {
            GpuKind::Integrated | GpuKind::Software => true,
            GpuKind::Discrete | GpuKind::Virtual | GpuKind::Unknown => false,
        }
    }

    /// The weights of the part on the GPU, which are read with the first executor.
    fn weights(&self, model: &Model, ram: &Budget) -> Result<Arc<GpuWeights>, Error> {
        let mut weights = self.weights.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(weights) = &*weights {
            return Ok(Arc::clone(weights));
        }
        let spec = model.spec();
        let of = PartFiles {
            spec,
            part: &self.share.on_gpu(spec),
            files: model.weights().files(),
        };
        let budgets = Budgets {
            ram,
            gpu: &self.budget,
        };
        let uploaded = Arc::new(GpuWeights::upload(&self.host, &of, &budgets)?);
        Ok(Arc::clone(weights.insert(uploaded)))
    }

    fn sizes(&self, spec: &ModelSpec, size: &ExecutorSize) -> [ExecutorSize; 2] {
        [self.share.on_cpu(spec), self.share.on_gpu(spec)].map(|part| ExecutorSize {
            part: Some(part),
            ..size.clone()
        })
    }
}

impl Footprint for GpuBackend {
    fn executor_bytes(&self, spec: &ModelSpec, size: &ExecutorSize) -> ExecutorBytes {
        let [first, last] = self.sizes(spec, size);
        let here = self.cpu.executor_bytes(spec, &first);
        // A size that is refused is an error when the executor is opened.
        let there = GpuExecutor::executor_bytes(spec, &last);
        let there = there
            .ok()
            .filter(|_| self.shares_memory())
            .unwrap_or_default();
        let between = Chain::bytes(spec, size);
        ExecutorBytes {
            state: here.state.saturating_add(there.state),
            activations: here
                .activations
                .saturating_add(there.activations)
                .saturating_add(between),
        }
    }

    fn part(&self, spec: &ModelSpec) -> Share {
        self.share.on_cpu(spec)
    }
}

impl Backend for GpuBackend {
    fn open(
        &self,
        model: Arc<Model>,
        size: &ExecutorSize,
        budget: &Budget,
    ) -> Result<Box<dyn Executor>, ModelError> {
        let spec = Arc::new(model.spec().clone());
        let whole = Share::whole(&spec);
        if size.part_of(&spec) != whole {
            return Err(ModelError::Options(
                "a part of a model whose last layers are on a GPU".to_owned(),
            ));
        }
        let [first, last] = self.sizes(&spec, size);
        let weights = self.weights(&model, budget)?;
        let first = self.cpu.open(model, &first, budget)?;
        let last = GpuExecutor::new(weights, &last, &self.budget, self.isa)?;
        let parts = vec![first, Box::new(last)];
        Ok(Box::new(Chain::new(spec, size, parts, budget)?))
    }
}
