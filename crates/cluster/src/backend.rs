//! Opens rings whose stages are threads of this process.
//!
//! Every layer is computed as it would be on another machine, and frames travel as bytes. It is the
//! way to try a cut, and what tests of exactness run on; it is not faster than one executor.

use std::{num::NonZeroUsize, ops::Range, sync::Arc, time::Duration};

use atta_kernels::{Kernels, Pool};
use atta_model::{
    Backend, Cpu, Error, Executor, ExecutorBytes, ExecutorInfo, ExecutorSize, Footprint, Model,
    SeqTable, Share,
    spec::{ModelSpec, Outputs},
};
use atta_store::Budget;

use crate::{
    Ring, RingParts, Stage, ThreadLane,
    core::Timing,
    wire::{Dtype, Limits},
};

/// Number of the ring of a process: its frames go nowhere else.
const RING: u64 = 1;

/// Most stages of a ring.
const MAX_STAGES: usize = 64;

/// Which layers each stage runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingPlan {
    /// First layers, which the coordinator runs.
    pub n_local: usize,
    /// The layers of each stage: those that follow, in order.
    pub stages: Vec<Range<usize>>,
}

/// How a model is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Into so many stages with as many layers each as the number allows; the coordinator has none.
    Even(NonZeroUsize),
    /// As this plan says.
    At(RingPlan),
}

impl Cut {
    /// The plan for a model of `n_layers`.
    ///
    /// # Errors
    /// [`Error::Options`] unless every layer is in one stage, in order, and no stage is empty.
    pub fn plan(&self, n_layers: usize) -> Result<RingPlan, Error> {
        let plan = match self {
            Self::At(plan) => plan.clone(),
            Self::Even(n) => {
                let at = |i: usize| i * n_layers / n.get();
                RingPlan {
                    n_local: 0,
                    stages: (0..n.get()).map(|i| at(i)..at(i + 1)).collect(),
                }
            }
        };
        let n = plan.stages.len();
        let ends = plan.stages.iter().map(|stage| stage.end);
        let starts = std::iter::once(plan.n_local).chain(ends);
        let is_in_order = plan
            .stages
            .iter()
            .zip(starts)
            .all(|(stage, start)| stage.start == start && stage.start < stage.end);
        let is_whole = plan.stages.last().is_some_and(|last| last.end == n_layers);
        match is_in_order && is_whole && n <= MAX_STAGES {
            true => Ok(plan),
            false => Err(Error::Options(format!(
                "{n} stages of a model of {n_layers} layers: each stage has at least one, in order, at most {MAX_STAGES} stages"
            ))),
        }
    }
}

impl RingPlan {
    /// Batches in flight that keep every stage busy.
    fn depth(&self) -> usize {
        self.stages.len() + usize::from(self.n_local > 0)
    }
}

/// Opens rings in this process.
pub struct RingBackend {
    kernels: Kernels,
    pool: Arc<Pool>,
    /// Threads of each stage.
    n_threads: NonZeroUsize,
    cut: Cut,
    timing: Timing,
}

impl std::fmt::Debug for RingBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingBackend")
            .field("cut", &self.cut)
            .field("n_threads", &self.n_threads)
            .finish_non_exhaustive()
    }
}

/// Times that no thread exceeds unless it has ended, which its channel tells at once.
const TIMING: Timing = Timing {
    lap: Duration::from_secs(600),
    row: Duration::from_secs(1),
    slack: Duration::from_secs(60),
    fence: Duration::from_secs(600),
    ping: None,
    orphan: Duration::from_secs(u32::MAX as u64),
};

impl RingBackend {
    /// Rings that are cut like this. The pool is that of the coordinator; every stage gets one of
    /// its own with `n_threads`.
    pub fn new(kernels: Kernels, pool: Arc<Pool>, n_threads: NonZeroUsize, cut: Cut) -> Self {
        Self {
            kernels,
            pool,
            n_threads,
            cut,
            timing: TIMING,
        }
    }

    /// Opens the ring and its lane, which a caller may put something in front of.
    ///
    /// # Errors
    /// A model that cannot be cut like this, an exceeded budget.
    pub fn parts(
        &self,
        model: &Arc<Model>,
        size: &ExecutorSize,
        budget: &Budget,
    ) -> Result<(ThreadLane, RingParts), Error> {
        let spec = model.spec();
        let plan = self.checked_plan(model, size)?;
        let sizes = Sizes::new(spec, &plan, size);
        let limits = limits(spec, &plan, size)?;
        let open = |size: &ExecutorSize, pool: Arc<Pool>| {
            let cpu = Cpu::new(model.clone(), self.kernels, pool, budget, size.clone())?;
            Ok::<Box<dyn Executor>, Error>(Box::new(cpu))
        };
        let stages = sizes.stages.iter().map(|size| {
            let pool = Arc::new(Pool::new(self.n_threads));
            Ok(Stage::new(open(size, pool)?, spec.d_residual()))
        });
        let stages = stages.collect::<Result<Vec<_>, Error>>()?;
        let lane = ThreadLane::start(limits, self.timing, stages)
            .map_err(|error| Error::Options(format!("a thread for each stage: {error}")))?;
        let kinds = spec.layers.iter().flat_map(|layer| layer.state_kinds());
        let mut distinct = Vec::new();
        kinds.for_each(|kind| {
            if !distinct.contains(&kind) {
                distinct.push(kind);
            }
        });
        let parts = RingParts {
            info: ExecutorInfo {
                part: Share::whole(spec),
                n_ctx: size.n_ctx,
                n_seqs: size.n_seqs,
                n_batch: size.n_batch,
                numerics: self.kernels.isa().to_owned(),
            },
            seqs: SeqTable::new(&distinct, &sizes.local.seqs()),
            local: open(&sizes.local, Arc::clone(&self.pool))?,
            head: open(&sizes.head, Arc::clone(&self.pool))?,
            limits,
            timing: self.timing,
            depth: plan.depth(),
            d_model: spec.d_model,
            n_vocab: spec.n_vocab,
        };
        Ok((lane, parts))
    }

    /// The plan, if the model can be cut.
    fn checked_plan(&self, model: &Model, size: &ExecutorSize) -> Result<RingPlan, Error> {
        let spec = model.spec();
        if spec.is_encoder() || spec.head.outputs != Outputs::Logits {
            return Err(Error::Options(
                "a ring of an encoder, which computes each text whole and once".to_owned(),
            ));
        }
        if size.part.is_some() {
            return Err(Error::Options("a ring of a part of a model".to_owned()));
        }
        if !model.weights().serves_many() {
            return Err(Error::Options(
                "a ring of threads, with weights that are streamed for one of them".to_owned(),
            ));
        }
        self.cut.plan(spec.layers.len())
    }
}

/// Sizes of the executors of a ring.
struct Sizes {
    local: ExecutorSize,
    head: ExecutorSize,
    stages: Vec<ExecutorSize>,
}

impl Sizes {
    fn new(spec: &ModelSpec, plan: &RingPlan, size: &ExecutorSize) -> Self {
        let n = spec.layers.len();
        let of = |layers: Range<usize>, embed: bool, head: bool| ExecutorSize {
            part: Some(Share {
                layers,
                embed,
                head,
            }),
            n_flights: plan.depth(),
            ..size.clone()
        };
        let head = ExecutorSize {
            n_ctx: size.n_batch,
            n_seqs: 1,
            n_recent: None,
            n_shared: None,
            ..of(n..n, false, true)
        };
        let stages = plan.stages.iter().cloned();
        Self {
            local: of(0..plan.n_local, true, false),
            head,
            stages: stages.map(|layers| of(layers, false, false)).collect(),
        }
    }
}

/// What frames of such a ring may hold.
fn limits(spec: &ModelSpec, plan: &RingPlan, size: &ExecutorSize) -> Result<Limits, Error> {
    let too_large = |what: &str| Error::Options(format!("a ring with {what}"));
    let small = |n: usize, what: &str| u16::try_from(n).map_err(|_| too_large(what));
    let large = |n: usize, what: &str| u32::try_from(n).map_err(|_| too_large(what));
    Ok(Limits {
        ring: RING,
        n_stages: small(plan.stages.len(), "so many stages")?,
        // Runs of a frame are counted in 16 bits.
        n_batch: small(size.n_batch, "more than 65,535 rows per batch")?.into(),
        n_seqs: large(size.n_seqs, "so many sequences")?,
        n_ctx: large(size.n_ctx, "so many positions")?,
        d_row: small(spec.d_residual(), "rows of more than 65,535 numbers")?,
        dtype: Dtype::F32,
    })
}

impl Footprint for RingBackend {
    fn executor_bytes(&self, spec: &ModelSpec, size: &ExecutorSize) -> ExecutorBytes {
        // A cut that is refused is an error when the ring is opened.
        let Ok(plan) = self.cut.plan(spec.layers.len()) else {
            return Cpu::executor_bytes(spec, self.pool.n_threads(), size);
        };
        let sizes = Sizes::new(spec, &plan, size);
        let here = [&sizes.local, &sizes.head].map(|size| (size, self.pool.n_threads()));
        let stages = sizes.stages.iter().map(|size| (size, self.n_threads.get()));
        let all = here.into_iter().chain(stages);
        let bytes = all.map(|(size, n_threads)| Cpu::executor_bytes(spec, n_threads, size));
        bytes.fold(ExecutorBytes::default(), |sum, bytes| ExecutorBytes {
            state: sum.state.saturating_add(bytes.state),
            activations: sum.activations.saturating_add(bytes.activations),
        })
    }
}

impl Backend for RingBackend {
    fn open(
        &self,
        model: Arc<Model>,
        size: &ExecutorSize,
        budget: &Budget,
    ) -> Result<Box<dyn Executor>, Error> {
        let (lane, parts) = self.parts(&model, size, budget)?;
        Ok(Box::new(Ring::new(parts, Box::new(lane))?))
    }
}
