//! Opens rings whose stages are threads of this process.
//!
//! Every layer is computed as it would be on another machine, and frames travel as bytes. It is the
//! way to try a cut, and what tests of exactness run on; it is not faster than one executor.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use atta_kernels::{Kernels, Pool};
use atta_model::{
    Backend, Cpu, Error, Executor, ExecutorBytes, ExecutorSize, Footprint, Model, spec::ModelSpec,
};
use atta_store::Budget;

use crate::{
    Cut, Ring, RingParts, RingPlan, Stage, StatesFolder, ThreadLane,
    core::Timing,
    cut::{Coordination, Sizes, check_ring, limits},
};

/// Number of the ring of a process: its frames go nowhere else.
const RING: u64 = 1;

/// Opens rings in this process.
pub struct RingBackend {
    kernels: Kernels,
    pool: Arc<Pool>,
    /// Threads of each stage.
    n_threads: NonZeroUsize,
    cut: Cut,
    timing: Timing,
    /// Where states of a model that has this id are kept, if they are.
    states: Option<(StatesFolder, [u8; 32])>,
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
            states: None,
        }
    }

    /// Keeps states of texts in a folder. `model` tells its model from others.
    #[must_use]
    pub fn keep_states(self, folder: StatesFolder, model: [u8; 32]) -> Self {
        let states = Some((folder, model));
        Self { states, ..self }
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
        let limits = limits(spec, RING, plan.stages.len(), size)?;
        let open = |size: &ExecutorSize, pool: Arc<Pool>| {
            let cpu = Cpu::new(model.clone(), self.kernels, pool, budget, size.clone())?;
            Ok::<Box<dyn Executor>, Error>(Box::new(cpu))
        };
        let stages = sizes.stages.iter().map(|size| {
            let pool = Arc::new(Pool::new(self.n_threads));
            let stage = Stage::new(open(size, pool)?, spec.d_residual());
            Ok(match self.states.clone() {
                Some((folder, model)) => stage.keep_states_in(folder, model),
                None => stage,
            })
        });
        let stages = stages.collect::<Result<Vec<_>, Error>>()?;
        let lane = ThreadLane::start(limits, self.timing, stages)
            .map_err(|error| Error::Options(format!("a thread for each stage: {error}")))?;
        let coordination = Coordination {
            spec,
            plan: &plan,
            size,
            sizes: &sizes,
            limits,
            timing: self.timing,
            numerics: self.kernels.isa(),
            left_out: &[],
        };
        let local = open(&sizes.local, Arc::clone(&self.pool))?;
        let head = open(&sizes.head, Arc::clone(&self.pool))?;
        let parts = coordination.parts(vec![local], head);
        Ok((lane, parts))
    }

    /// The plan, if the model can be cut.
    fn checked_plan(&self, model: &Model, size: &ExecutorSize) -> Result<RingPlan, Error> {
        check_ring(model.spec(), size)?;
        if !model.weights().serves_many() {
            return Err(Error::Options(
                "a ring of threads, with weights that are streamed for one of them".to_owned(),
            ));
        }
        self.cut.plan(model.spec().layers.len())
    }
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
        let mut ring = Ring::new(parts, Box::new(lane))?;
        if let Some((folder, model)) = self.states.clone() {
            ring.keep_states_in(folder, model);
        }
        Ok(Box::new(ring))
    }
}
