//! The backend of a CPU and a GPU: the first layers of a model and the embedding here, the last
//! ones and the head there.
//!
//! It knows how a model is divided, and no layer. The engine binds and counts the first part only;
//! the other one is read once from the same files, when the first executor is opened.

use crate::{
    Budgets, Error, GpuExecutor, GpuKind, GpuWeights, PartFiles, SharedHost, WeightFormat,
    check_support,
};
use atta_formats::{Directory, TensorInfo};
use atta_kernels::{Kernels, Pool};
use atta_model::spec::ModelSpec;
use atta_model::{
    Backend, Chain, CpuBackend, Error as ModelError, Executor, ExecutorBytes, ExecutorSize,
    Footprint, KvType, Model, Share, arch,
};
use atta_store::{Budget, BudgetItem};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    /// Memory on the GPU, as the file's tensors and the executor say.
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
            directory,
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
    directory: &'a Directory,
    spec: &'a ModelSpec,
    size: &'a ExecutorSize,
}

impl PlanSizes<'_> {
    /// Memory of the last `n` layers and the head, and of their state and activations.
    fn bytes(&self, n: usize) -> u64 {
        let part = GpuShare { n_layers: n }.on_gpu(self.spec);
        let tensors = part.tensors(self.spec, self.directory);
        let weights: u64 = tensors.iter().flatten().map(|t| bytes_of(t)).sum();
        let size = ExecutorSize {
            part: Some(part),
            ..self.size.clone()
        };
        let executor = GpuExecutor::executor_bytes(self.spec, &size).unwrap_or_default();
        let both = executor.state.saturating_add(executor.activations);
        weights.saturating_add(both)
    }
}

/// Bytes of a tensor on a GPU, where some formats take more than in a file.
fn bytes_of(tensor: &TensorInfo) -> u64 {
    let n = tensor.shape.n_elements();
    let d_in = tensor.shape.dims().last().copied().unwrap_or(1).max(1);
    match WeightFormat::of(tensor.ty) {
        Some(format) if d_in < n => 4 * format.row_words(d_in as usize) as u64 * (n / d_in),
        _ => 4 * n,
    }
}

/// Opens a GPU, once more after it was lost.
pub type Opener = Box<dyn Fn() -> Result<SharedHost, Error> + Send + Sync>;

/// Creates executors whose last layers run on a GPU.
#[derive(Clone, Debug)]
pub struct GpuBackend(Arc<Divided>);

struct Divided {
    open: Opener,
    /// Whether what lies on the GPU takes memory of this machine.
    shares_memory: bool,
    cpu: CpuBackend,
    isa: &'static str,
    share: GpuShare,
    max_bytes: u64,
    placed: Mutex<Placed>,
}

/// The host in use, the account of its memory, and the weights of the model there.
struct Placed {
    host: SharedHost,
    budget: Budget,
    weights: Option<Arc<GpuWeights>>,
}

/// Weights, and where executors beside them are counted.
struct Lent {
    weights: Arc<GpuWeights>,
    budget: Budget,
}

impl std::fmt::Debug for Divided {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Divided")
            .field("cpu", &self.cpu)
            .field("share", &self.share)
            .finish_non_exhaustive()
    }
}

impl GpuBackend {
    /// Runs the first layers with these kernels and threads, and the others on the GPU that `open`
    /// opens, in `max_bytes` of its memory.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn new(
        open: Opener,
        kernels: Kernels,
        pool: Arc<Pool>,
        share: GpuShare,
        max_bytes: u64,
    ) -> Result<Self, Error> {
        let host = open()?;
        let shares_memory = match host.info().kind {
            GpuKind::Integrated | GpuKind::Software => true,
            GpuKind::Discrete | GpuKind::Virtual | GpuKind::Unknown => false,
        };
        let placed = Placed {
            host,
            budget: Budget::limited(max_bytes),
            weights: None,
        };
        Ok(Self(Arc::new(Divided {
            open,
            shares_memory,
            cpu: CpuBackend::new(kernels, pool),
            isa: kernels.isa(),
            share,
            max_bytes,
            placed: Mutex::new(placed),
        })))
    }
}

impl Divided {
    /// The weights of the part on the GPU, which are read with the first executor, and again where
    /// `lost` are those that were there.
    fn weights(
        &self,
        model: &Model,
        ram: &Budget,
        lost: Option<&Arc<GpuWeights>>,
    ) -> Result<Lent, Error> {
        let mut placed = self.placed();
        let is_lost = |there: &Arc<GpuWeights>| lost.is_some_and(|lost| Arc::ptr_eq(lost, there));
        match &placed.weights {
            Some(weights) if !is_lost(weights) => {
                return Ok(Lent {
                    weights: Arc::clone(weights),
                    budget: placed.budget.clone(),
                });
            }
            // The old weights are gone, and so is their account.
            Some(_) => {
                placed.weights = None;
                placed.host = (self.open)()?;
                placed.budget = Budget::limited(self.max_bytes);
            }
            None => {}
        }
        let spec = model.spec();
        let of = PartFiles {
            spec,
            part: &self.share.on_gpu(spec),
            files: model.weights().files(),
            adapters: model.adapters(),
        };
        let budgets = Budgets {
            ram,
            gpu: &placed.budget,
        };
        let uploaded = Arc::new(GpuWeights::upload(&placed.host, &of, &budgets)?);
        placed.weights = Some(Arc::clone(&uploaded));
        Ok(Lent {
            weights: uploaded,
            budget: placed.budget.clone(),
        })
    }

    fn placed(&self) -> MutexGuard<'_, Placed> {
        self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An executor of the part on the GPU.
    fn last_part(&self, lent: &Lent, size: &ExecutorSize) -> Result<Box<dyn Executor>, Error> {
        let weights = Arc::clone(&lent.weights);
        Ok(Box::new(GpuExecutor::new(
            weights,
            size,
            &lent.budget,
            self.isa,
        )?))
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
        let [first, last] = self.0.sizes(spec, size);
        let here = self.0.cpu.executor_bytes(spec, &first);
        // A size that is refused is an error when the executor is opened.
        let there = GpuExecutor::executor_bytes(spec, &last);
        let there = there
            .ok()
            .filter(|_| self.0.shares_memory)
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
        self.0.share.on_cpu(spec)
    }

    fn takes_adapters(&self) -> bool {
        true
    }

    fn items_elsewhere(&self) -> Vec<BudgetItem> {
        self.0.placed().budget.items()
    }
}

impl Backend for GpuBackend {
    fn open(
        &self,
        model: Arc<Model>,
        size: &ExecutorSize,
        budget: &Budget,
    ) -> Result<Box<dyn Executor>, ModelError> {
        let inner = &self.0;
        let spec = Arc::new(model.spec().clone());
        if size.part_of(&spec) != Share::whole(&spec) {
            return Err(ModelError::Options(
                "a part of a model whose last layers are on a GPU".to_owned(),
            ));
        }
        let [first, last_size] = inner.sizes(&spec, size);
        let mut lent = inner.weights(&model, budget, None)?;
        let first = inner.cpu.open(Arc::clone(&model), &first, budget)?;
        let last = inner.last_part(&lent, &last_size)?;
        let chain = Chain::new(spec, size, vec![first, last], budget)?;
        let inner = Arc::clone(inner);
        let budget = budget.clone();
        Ok(Box::new(chain.recovering(Box::new(move || {
            lent = inner.weights(&model, &budget, Some(&lent.weights))?;
            Ok(inner.last_part(&lent, &last_size)?)
        }))))
    }
}
