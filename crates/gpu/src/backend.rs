//! The backend of a CPU and a GPU: the first layers of a model and the embedding here, the last
//! ones and the head there.
//!
//! It knows how a model is divided, and no layer. The engine binds and counts the first part only;
//! the other one is read once from the same files, when the first executor is opened.

mod last_part;

use crate::gpus::{GPU_ACTIVATIONS, GPU_STATE, GPU_WEIGHTS};
use crate::{Budgets, Error, GpuExecutor, GpuPlan, GpuWeights, OpenGpu, PartFiles};
use atta_kernels::{Kernels, Pool};
use atta_model::spec::ModelSpec;
use atta_model::{
    Backend, Chain, CpuBackend, Error as ModelError, Executor, ExecutorBytes, ExecutorSize,
    Footprint, Model, Share,
};
use atta_store::{Budget, BudgetItem};
use last_part::LastPart;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Opens a GPU, once more after it was lost.
pub type Opener = Box<dyn Fn() -> Result<OpenGpu, Error> + Send + Sync>;

/// Is told why a GPU is given up.
pub type OnFallback = Box<dyn Fn(&ModelError) + Send + Sync>;

/// How long a loss counts.
const LOSS_PERIOD: Duration = Duration::from_secs(600);

/// Creates executors whose last layers run on a GPU.
#[derive(Clone, Debug)]
pub struct GpuBackend(Arc<Divided>);

struct Divided {
    open: Opener,
    on_fallback: OnFallback,
    /// Whether what lies on the GPU takes memory of this machine.
    shares_memory: bool,
    cpu: CpuBackend,
    kernels: Kernels,
    pool: Arc<Pool>,
    plan: GpuPlan,
    placed: Mutex<Placed>,
}

/// The GPU in use, and the weights of the model there.
struct Placed {
    gpu: OpenGpu,
    lent: Option<Lent>,
    /// When weights were lost.
    losses: Vec<Instant>,
}

/// Weights, and where executors beside them are counted.
#[derive(Clone)]
struct Lent {
    weights: Arc<GpuWeights>,
    budget: Budget,
}

impl std::fmt::Debug for Divided {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Divided")
            .field("cpu", &self.cpu)
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

impl GpuBackend {
    /// Runs the first layers with these kernels and threads, and the others on the GPU that `open`
    /// opens. When that is lost twice in ten minutes, or cannot be opened again, the CPU runs all
    /// layers of the executor, and `on_fallback` is told why.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn new(
        open: Opener,
        kernels: Kernels,
        pool: Arc<Pool>,
        plan: GpuPlan,
        on_fallback: OnFallback,
    ) -> Result<Self, Error> {
        let gpu = open()?;
        Ok(Self(Arc::new(Divided {
            open,
            on_fallback,
            shares_memory: gpu.host.info().shares_memory(),
            cpu: CpuBackend::new(kernels, Arc::clone(&pool)),
            kernels,
            pool,
            plan,
            placed: Mutex::new(Placed {
                gpu,
                lent: None,
                losses: Vec::new(),
            }),
        })))
    }
}

impl Placed {
    /// Notes that weights are lost, unless another executor has done so; how often that happened
    /// of late.
    fn lose(&mut self, weights: &Arc<GpuWeights>) -> usize {
        let is_it = |lent: &mut Lent| Arc::ptr_eq(&lent.weights, weights);
        if self.lent.take_if(is_it).is_some() {
            self.losses.push(Instant::now());
        }
        self.losses.retain(|loss| loss.elapsed() < LOSS_PERIOD);
        self.losses.len()
    }
}

impl Divided {
    /// The weights of the part on the GPU, which are read with the first executor, and again after
    /// they were lost.
    fn weights(&self, model: &Model, ram: &Budget) -> Result<Lent, Error> {
        let mut placed = self.placed();
        if let Some(lent) = &placed.lent {
            return Ok(lent.clone());
        }
        if placed.gpu.host.is_lost() {
            placed.gpu = (self.open)()?;
        }
        let OpenGpu { host, budget } = &placed.gpu;
        let budget = match self.shares_memory {
            true => Budget::within(&[budget, ram]),
            false => Budget::within(&[budget]),
        };
        let spec = model.spec();
        let of = PartFiles {
            spec,
            part: &self.plan.share.on_gpu(spec),
            files: model.weights().files(),
            adapters: model.adapters(),
        };
        let budgets = Budgets { ram, gpu: &budget };
        let weights = Arc::new(GpuWeights::upload(host, &of, &budgets)?);
        let lent = Lent { weights, budget };
        placed.lent = Some(lent.clone());
        Ok(lent)
    }

    fn placed(&self) -> MutexGuard<'_, Placed> {
        self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sizes(&self, spec: &ModelSpec, size: &ExecutorSize) -> [ExecutorSize; 2] {
        let share = self.plan.share;
        [share.on_cpu(spec), share.on_gpu(spec)].map(|part| ExecutorSize {
            part: Some(part),
            ..size.clone()
        })
    }

    /// Memory of an executor on the GPU; a size that is refused is an error when it is opened.
    fn bytes_there(&self, spec: &ModelSpec, size: &ExecutorSize) -> ExecutorBytes {
        let [_, last] = self.sizes(spec, size);
        GpuExecutor::executor_bytes(spec, &last).unwrap_or_default()
    }
}

impl Footprint for GpuBackend {
    fn executor_bytes(&self, spec: &ModelSpec, size: &ExecutorSize) -> ExecutorBytes {
        let [first, _] = self.0.sizes(spec, size);
        let here = self.0.cpu.executor_bytes(spec, &first);
        let there = match self.0.shares_memory {
            true => self.0.bytes_there(spec, size),
            false => ExecutorBytes::default(),
        };
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
        self.0.plan.share.on_cpu(spec)
    }

    fn weights_beside(&self) -> u64 {
        let is_counted = self.0.placed().lent.is_some();
        match self.0.shares_memory && !is_counted {
            true => self.0.plan.weight_bytes,
            false => 0,
        }
    }

    fn planned_elsewhere(&self, spec: &ModelSpec, size: &ExecutorSize) -> Vec<BudgetItem> {
        let executor = self.0.bytes_there(spec, size);
        let item = |name, bytes| BudgetItem { name, bytes };
        vec![
            item(GPU_WEIGHTS, self.0.plan.weight_bytes),
            item(GPU_STATE, executor.state),
            item(GPU_ACTIVATIONS, executor.activations),
        ]
    }

    fn takes_adapters(&self) -> bool {
        true
    }

    fn items_elsewhere(&self) -> Vec<BudgetItem> {
        let placed = self.0.placed();
        let lent = placed.lent.as_ref();
        lent.map_or_else(Vec::new, |lent| lent.budget.items())
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
        let [first, last] = inner.sizes(&spec, size);
        let lent = inner.weights(&model, budget)?;
        let first = inner.cpu.open(Arc::clone(&model), &first, budget)?;
        let mut part = LastPart::new(Arc::clone(inner), model, last, budget.clone());
        let last = part.with_weights(lent)?;
        let chain = Chain::new(spec, size, vec![first, last], budget)?;
        let reopen = move |loss: &ModelError| part.reopen(loss);
        Ok(Box::new(chain.recovering(Box::new(reopen))))
    }
}
