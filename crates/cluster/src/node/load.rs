//! Loading a stage: its share of the weights, its executor, and the memory of both.

use std::{
    ops::{ControlFlow, Range},
    sync::Arc,
};

use atta_kernels::{Kernels, Pool};
use atta_model::{Cpu, ExecutorSize, Model, spec::ModelSpec};
use atta_store::{Budget, ModelFiles, Plan, Reservation, ResidencyBytes, ResidencyPolicy};

use super::models::{Models, OnLoading, OpenModel, Wanted, stage_share};
use crate::{
    Stage,
    cut::{check_ring, frame_bytes, limits},
    place::{Placed, Refused, Room, blocked, n_used_experts},
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
