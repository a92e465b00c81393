//! The backend of a CPU and a GPU: the first layers of a model and the embedding here, the last
//! ones and the head there.
//!
//! It knows how a model is divided, and no layer. The engine binds and counts the first part only;
//! the other one is read once from the same files, when the first executor is opened.

use crate::{
    Budgets, Error, GpuExecutor, GpuKind, GpuWeights, PartFiles, SharedHost, check_support,
};
use atta_formats::Directory;
use atta_kernels::{Kernels, Pool};
use atta_model::spec::ModelSpec;
use atta_model::{
    Backend, Chain, CpuBackend, Error as ModelError, Executor, ExecutorBytes, ExecutorSize,
    Footprint, KvType, Model, ModelCost, Share, arch,
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

/// What a user wants to lie on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuWish {
    /// The last layers; `None`: as many as fit.
    pub n_layers: Option<usize>,
    /// Memory on the GPU; `None`: no limit but its own.
    pub max_bytes: Option<u64>,
}

/// A model that is divided, before anything of it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuPlan {
    /// Layers on the GPU.
    pub share: GpuShare,
    /// Layers of the model.
    pub n_layers: usize,
    /// Memory on the GPU, estimated from the sizes of the file's tensors.
    pub bytes: u64,
}

impl GpuPlan {
    /// Divides the model of a file as a user wants it; `size` is that of an executor.
    ///
    /// # Errors
    /// A file of no model that is known, [`Error::Unsupported`], more layers than there are.
    pub fn of(
        directory: &Directory,
        wish: &GpuWish,
        size: impl FnOnce(&ModelSpec) -> ExecutorSize,
    ) -> Result<Self, Error> {
        let spec = arch::lower(directory.metadata())?;
        let size = size(&spec);
        let n_layers = spec.layers.len();
        if let Some(n) = wish.n_layers.filter(|&n| n > n_layers) {
            let what = format!("{n} layers of a model of {n_layers}");
            return Err(ModelError::Options(what).into());
        }
        let sizes = PlanSizes {
            cost: ModelCost::of(&spec, directory)?,
            spec: &spec,
            size: &size,
        };
        let fits = |n: &usize| wish.max_bytes.is_none_or(|most| sizes.bytes(*n) <= most);
        let share = GpuShare {
            n_layers: match wish.n_layers {
                Some(n) => n,
                None => (0..=n_layers).rev().find(fits).unwrap_or(0),
            },
        };
        share.check(&spec, size.kv, directory)?;
        Ok(Self {
            share,
            n_layers,
            bytes: sizes.bytes(share.n_layers),
        })
    }
}

/// The sizes of a model and an executor.
struct PlanSizes<'a> {
    spec: &'a ModelSpec,
    size: &'a ExecutorSize,
    cost: ModelCost,
}

impl PlanSizes<'_> {
    /// Memory of the last `n` layers and the head, and of their state and activations.
    fn bytes(&self, n: usize) -> u64 {
        let part = GpuShare { n_layers: n }.on_gpu(self.spec);
        let layers = &self.cost.layers[part.layers.clone()];
        let layers: u64 = layers.iter().map(|layer| layer.bytes).sum();
        // A head that is the embedding lies on the GPU, too.
        let head = match self.cost.head.bytes {
            0 => self.cost.embed.bytes,
            bytes => bytes,
        };
        let size = ExecutorSize {
            part: Some(part),
            ..self.size.clone()
        };
        let executor = GpuExecutor::executor_bytes(self.spec, &size).unwrap_or_default();
        [head, executor.state, executor.activations]
            .into_iter()
            .fold(layers, u64::saturating_add)
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
    /// Runs the first layers with these kernels and threads, and the others on a GPU, where
    /// `budget` counts.
    pub fn new(
        host: SharedHost,
        kernels: Kernels,
        pool: Arc<Pool>,
        share: GpuShare,
        budget: Budget,
    ) -> Self {
        Self {
            host,
            cpu: CpuBackend::new(kernels, pool),
            isa: kernels.isa(),
            share,
            budget,
            weights: Mutex::default(),
        }
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

    fn items_elsewhere(&self) -> Vec<BudgetItem> {
        self.budget.items()
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
