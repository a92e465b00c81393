//! Loading a stage: its share of the weights, its executor, and the memory of both.

use std::{
    ops::{ControlFlow, Range},
    sync::Arc,
};

use atta_kernels::{Kernels, Pool};
use atta_model::{Cpu, Error, ExecutorSize, Model, spec::ModelSpec};
use atta_store::{
    Budget, InMemory, ModelFiles, Plan, Reservation, ResidencyBytes, ResidencyPolicy, Streamed,
    Weights,
};

use super::models::{Models, OnLoading, OpenModel, Wanted, stage_share};
use crate::{
    Stage,
    cut::{check_ring, frame_bytes, limits},
    wire::{
        Limits,
        message::{Blocked, Digest, Loading, Prepare},
    },
};

/// What computes on this node.
#[derive(Clone)]
pub(super) struct Compute {
    pub(super) kernels: Kernels,
    pub(super) pool: Arc<Pool>,
    /// Memory for models.
    pub(super) budget: Budget,
}

/// The weights of a stage, which outlive it for a while.
#[derive(Clone)]
pub(super) struct Loaded {
    id: Digest,
    layers: Range<usize>,
    share: Digest,
    model: Arc<Model>,
    /// Weights that every token reads from disk, bytes.
    streamed_bytes: u64,
    /// Counts mapped weights, which no allocation counts.
    _mapped: Arc<Option<Reservation>>,
}

impl Loaded {
    /// Whether they are those of this question.
    pub(super) fn fits(&self, prepare: &Prepare) -> bool {
        self.id == prepare.model.id && self.layers == prepare.part.layers.range()
    }

    pub(super) fn share(&self) -> Digest {
        self.share
    }

    pub(super) fn streamed_bytes(&self) -> u64 {
        self.streamed_bytes
    }
}

/// A stage that can compute.
pub(super) struct LoadedStage {
    pub(super) loaded: Loaded,
    pub(super) stage: Stage,
    pub(super) limits: Limits,
    pub(super) frames: Reservation,
}

/// Loads what a coordinator asks for, or uses weights that are loaded.
///
/// # Errors
/// [`Blocked`].
pub(super) fn load(
    compute: &Compute,
    models: &dyn Models,
    prepare: &Prepare,
    warm: Option<Loaded>,
    on: OnLoading<'_>,
) -> Result<LoadedStage, Blocked> {
    let layers = prepare.part.layers.range();
    let size = ExecutorSize {
        part: Some(stage_share(&layers)),
        ..prepare.size.to_size()
    };
    let loaded = match warm {
        Some(loaded) => loaded,
        None => {
            let wanted = Wanted {
                model: &prepare.model,
                layers: &layers,
                ring: prepare.ring,
                sources: &prepare.sources,
            };
            let open = models.open(wanted, on)?;
            place(compute, prepare, open, &size, on)?
        }
    };
    if loaded.share != prepare.model.share {
        return Err(blocked("its copy of these layers has other weights"));
    }
    let spec = loaded.model.spec();
    let limits = stage_limits(prepare, spec, &size)?;
    let frames = compute.budget.reserve("frames", frame_bytes(&limits));
    let Compute {
        kernels,
        pool,
        budget,
    } = compute;
    let cpu = Cpu::new(
        Arc::clone(&loaded.model),
        *kernels,
        Arc::clone(pool),
        budget,
        size,
    );
    Ok(LoadedStage {
        stage: Stage::new(Box::new(cpu.map_err(blocked)?), spec.d_residual()),
        limits,
        frames: frames.map_err(blocked)?,
        loaded,
    })
}

/// What frames of the ring may hold.
fn stage_limits(
    prepare: &Prepare,
    spec: &ModelSpec,
    size: &ExecutorSize,
) -> Result<Limits, Blocked> {
    let whole = ExecutorSize {
        part: None,
        ..size.clone()
    };
    check_ring(spec, &whole).map_err(blocked)?;
    let n_layers = spec.layers.len();
    let part = &prepare.part;
    if part.layers.end as usize > n_layers {
        let end = part.layers.end;
        return Err(blocked(format!("{end} layers of a model of {n_layers}")));
    }
    limits(spec, prepare.ring, part.n_stages.into(), size).map_err(blocked)
}

/// Binds a share of a model: mapped where it fits the budget, else streamed within it.
fn place(
    compute: &Compute,
    prepare: &Prepare,
    open: OpenModel,
    size: &ExecutorSize,
    on: OnLoading<'_>,
) -> Result<Loaded, Blocked> {
    let OpenModel { spec, files, share } = open;
    let layers = prepare.part.layers.range();
    let limits = stage_limits(prepare, &spec, size)?;
    let executor = Cpu::executor_bytes(&spec, compute.pool.n_threads(), size);
    let room = Room {
        budget: &compute.budget,
        beside: executor.state + executor.activations + frame_bytes(&limits),
        n_layers: layers.len(),
        n_used: n_used_experts(&spec),
    };
    let mut placed = Placed::default();
    let source = |files: ModelFiles, plan: Plan| {
        let of_bytes = ResidencyBytes::of(&plan, &ResidencyPolicy::whole()).memory();
        let loading = Loading {
            done_bytes: 0,
            of_bytes,
            what: "loading".to_owned(),
        };
        if on(loading) == ControlFlow::Break(()) {
            return Err(Refused::from(blocked("the ring has been given up")));
        }
        room.weights(files, plan, &mut placed)
    };
    let share_of = stage_share(&layers);
    let model = Model::with_share(spec, share_of, files, &compute.budget, source);
    Ok(Loaded {
        id: prepare.model.id,
        layers,
        share,
        model: Arc::new(model.map_err(|Refused(blocked)| blocked)?),
        streamed_bytes: placed.streamed_bytes,
        _mapped: Arc::new(placed.mapped),
    })
}

/// The most experts of a layer that a token uses.
fn n_used_experts(spec: &ModelSpec) -> usize {
    let experts = spec.layers.iter().filter_map(|layer| layer.moe());
    experts.map(|moe| moe.n_used).max().unwrap_or(0)
}

/// What became of the weights.
#[derive(Default)]
struct Placed {
    streamed_bytes: u64,
    mapped: Option<Reservation>,
}

/// The memory that a stage may take.
struct Room<'a> {
    budget: &'a Budget,
    /// Bytes beside weights.
    beside: u64,
    n_layers: usize,
    n_used: usize,
}

impl Room<'_> {
    /// Weights in the page cache if there is room for them, else in private memory, as much as
    /// there is room for.
    fn weights(
        &self,
        files: ModelFiles,
        plan: Plan,
        placed: &mut Placed,
    ) -> Result<Box<dyn Weights>, Refused> {
        let whole = ResidencyBytes::of(&plan, &ResidencyPolicy::whole()).memory();
        let left = self.budget.left().saturating_sub(self.beside);
        if whole <= left && files.is_addressable() {
            placed.mapped = Some(self.budget.reserve("mapped weights", whole)?);
            return Ok(Box::new(InMemory::new(files, plan)?));
        }
        let files = files.unmapped(self.budget)?;
        let left = self.budget.left().saturating_sub(self.beside);
        let policy = match whole <= left {
            true => Some(ResidencyPolicy::whole()),
            false => ResidencyPolicy::within(&plan, self.n_used, left),
        };
        let Some(policy) = policy else {
            return Err(self.refusal(&plan, whole).into());
        };
        placed.streamed_bytes = ResidencyBytes::of(&plan, &policy).read_per_pass;
        Ok(Box::new(Streamed::new(files, plan, &policy, self.budget)?))
    }

    fn refusal(&self, plan: &Plan, whole: u64) -> Blocked {
        let gb = |bytes: u64| format!("{:.2} GB", bytes as f64 / 1e9);
        let least = ResidencyPolicy::least_bytes(plan, self.n_used).saturating_add(self.beside);
        let needed = whole.saturating_add(self.beside);
        let n = self.n_layers;
        Blocked {
            why: format!(
                "{n} layers need {} of memory, or {} with weights read from disk; {} are free",
                gb(needed),
                gb(least),
                gb(self.budget.left())
            ),
            would_do: Some(format!(
                "{} for models on this node, or fewer layers, or a shorter context",
                gb(least)
            )),
        }
    }
}

/// A refusal, from errors of several crates.
struct Refused(Blocked);

impl From<Blocked> for Refused {
    fn from(blocked: Blocked) -> Self {
        Self(blocked)
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self(blocked(error))
    }
}

impl From<atta_store::Error> for Refused {
    fn from(error: atta_store::Error) -> Self {
        Self(blocked(error))
    }
}

/// A refusal in one line.
pub(super) fn blocked(why: impl std::fmt::Display) -> Blocked {
    let why = why.to_string();
    let printable = why.chars().map(|c| if c.is_control() { ' ' } else { c });
    Blocked {
        why: printable.take(400).collect(),
        would_do: None,
    }
}
