//! Loading a stage: its share of the weights, its executor, and the memory of both.

use std::{ops::ControlFlow, sync::Arc};

use atta_kernels::{Kernels, Pool};
use atta_model::{
    Cpu, Error, ExecutorSize, Member, MemberPart, Model, RowSplit, Share, columns_bytes,
    spec::ModelSpec,
};
use atta_store::{
    Budget, InMemory, ModelFiles, Plan, Reservation, ResidencyBytes, ResidencyPolicy, Streamed,
    Weights,
};

use super::models::{Models, OnLoading, OpenModel, Wanted, wanted_share};
use crate::{
    Stage,
    cut::{check_ring, frame_bytes, limits},
    links::{GroupLinks, GroupWiring, Links},
    tensor::{ExchangeLinks, LinkExchange, Patience, member_limits, message_bytes},
    wire::{
        Limits,
        message::{Blocked, Digest, LayerRange, Loading, NodeAddress, Prepare},
    },
};

/// What computes on this node.
#[derive(Clone)]
pub(super) struct Compute {
    pub(super) kernels: Kernels,
    pub(super) pool: Arc<Pool>,
    /// Memory for models.
    pub(super) budget: Budget,
    /// Connects members of groups.
    pub(super) links: Arc<dyn Links>,
}

/// The weights of a stage or member, which outlive it for a while.
#[derive(Clone)]
pub(super) struct Loaded {
    id: Digest,
    part: Share,
    /// Whose rows they are; `None`: all rows.
    member: Option<Member>,
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
        self.id == prepare.model.id
            && self.part == wanted_share(prepare)
            && wanted_member(prepare).is_ok_and(|member| member == self.member)
    }

    pub(super) fn share(&self) -> Digest {
        self.share
    }

    pub(super) fn streamed_bytes(&self) -> u64 {
        self.streamed_bytes
    }
}

/// What a node computes with.
pub(super) enum Work {
    /// A stage, and what its frames may hold.
    Stage(Box<Stage>, Limits),
    /// A member, and its links to the others.
    Member(Box<Cpu>, Arc<dyn GroupLinks>),
}

/// A stage or member that can compute.
pub(super) struct LoadedWork {
    pub(super) loaded: Loaded,
    pub(super) work: Work,
    /// Memory of frames or messages.
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
) -> Result<LoadedWork, Blocked> {
    let part = wanted_share(prepare);
    let member = wanted_member(prepare)?;
    let loaded = match warm {
        Some(loaded) => loaded,
        None => {
            let wanted = Wanted {
                model: &prepare.model,
                share: &part,
                ring: prepare.ring,
                sources: &prepare.sources,
            };
            let open = models.open(wanted, on)?;
            let placing = Placing {
                compute,
                prepare,
                part,
                member,
            };
            placing.place(open, on)?
        }
    };
    if loaded.share != prepare.model.share {
        return Err(blocked("its copy of these layers has other weights"));
    }
    let spec = loaded.model.spec();
    let n_bytes = beside_bytes(prepare, spec, loaded.member.as_ref())?;
    let frames = compute.budget.reserve("frames", n_bytes);
    let frames = frames.map_err(blocked)?;
    let work = match &loaded.member {
        Some(member) => member_work(compute, prepare, &loaded, member)?,
        None => stage_work(compute, prepare, &loaded)?,
    };
    Ok(LoadedWork {
        work,
        frames,
        loaded,
    })
}

/// The member that a node shall be, if it shall be one.
fn wanted_member(prepare: &Prepare) -> Result<Option<Member>, Blocked> {
    let Some(group) = &prepare.group else {
        return Ok(None);
    };
    let split = RowSplit::new(&group.speeds).map_err(blocked)?;
    let member = Member::new(split, prepare.part.stage.into());
    Ok(Some(member.map_err(blocked)?))
}

/// Capacity of the executor.
fn wanted_size(prepare: &Prepare) -> ExecutorSize {
    let part = match prepare.group {
        Some(_) => None,
        None => Some(wanted_share(prepare)),
    };
    ExecutorSize {
        part,
        ..prepare.size.to_size()
    }
}

fn stage_work(compute: &Compute, prepare: &Prepare, loaded: &Loaded) -> Result<Work, Blocked> {
    let spec = loaded.model.spec();
    let limits = stage_limits(prepare, spec)?;
    let cpu = Cpu::new(
        Arc::clone(&loaded.model),
        compute.kernels,
        Arc::clone(&compute.pool),
        &compute.budget,
        wanted_size(prepare),
    );
    let stage = Stage::new(Box::new(cpu.map_err(blocked)?), spec.d_residual());
    Ok(Work::Stage(Box::new(stage), limits))
}

fn member_work(
    compute: &Compute,
    prepare: &Prepare,
    loaded: &Loaded,
    member: &Member,
) -> Result<Work, Blocked> {
    let size = wanted_size(prepare);
    let others = prepare.group.iter().flat_map(|group| group.others.clone());
    let members: Vec<NodeAddress> = std::iter::once(prepare.coordinator.clone())
        .chain(others)
        .collect();
    let names = members.iter().map(|node| node.name.to_string()).collect();
    let index = member.index();
    let links = compute.links.open_group(GroupWiring {
        ring: prepare.ring,
        lane: prepare.lane,
        secret: prepare.secret.clone(),
        index,
        members,
        limits: member_limits(loaded.model.spec(), member.split(), &size),
    });
    let links = links.map_err(blocked)?;
    let wires = ExchangeLinks::new(Arc::clone(&links), Arc::new(Patience::endless()));
    let cpu = Cpu::new_member(
        Arc::clone(&loaded.model),
        compute.kernels,
        Arc::clone(&compute.pool),
        &compute.budget,
        size,
        Box::new(LinkExchange::with_names(wires, index, names)),
    );
    Ok(Work::Member(Box::new(cpu.map_err(blocked)?), links))
}

/// What frames of the ring may hold.
fn stage_limits(prepare: &Prepare, spec: &ModelSpec) -> Result<Limits, Blocked> {
    let whole = prepare.size.to_size();
    check_ring(spec, &whole).map_err(blocked)?;
    let n_stages = prepare.part.n_stages.into();
    limits(spec, prepare.ring, n_stages, &whole).map_err(blocked)
}

/// Memory of frames or messages.
fn beside_bytes(
    prepare: &Prepare,
    spec: &ModelSpec,
    member: Option<&Member>,
) -> Result<u64, Blocked> {
    let n_layers = spec.layers.len();
    let layers = prepare.part.layers.range();
    let is_whole = layers == (0..n_layers);
    if layers.end > n_layers || member.is_some() && !is_whole {
        let LayerRange { start, end } = prepare.part.layers;
        return Err(blocked(format!(
            "layers {start} to {end} of a model of {n_layers}"
        )));
    }
    match member {
        Some(member) => {
            let size = wanted_size(prepare);
            Ok(message_bytes(&member_limits(spec, member.split(), &size)))
        }
        None => Ok(frame_bytes(&stage_limits(prepare, spec)?)),
    }
}

/// Weights that shall be bound.
struct Placing<'a> {
    compute: &'a Compute,
    prepare: &'a Prepare,
    part: Share,
    member: Option<Member>,
}

impl Placing<'_> {
    /// Binds a share of a model: mapped where it fits the budget, else streamed within it.
    fn place(self, open: OpenModel, on: OnLoading<'_>) -> Result<Loaded, Blocked> {
        let OpenModel { spec, files, share } = open;
        let Compute { budget, .. } = self.compute;
        let room = Room {
            budget,
            beside: self.beside_weights(&spec)?,
            n_layers: self.part.layers.len(),
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
        let model = match self.member.clone() {
            Some(member) => {
                let share = self.part.clone();
                let part = MemberPart { share, member };
                Model::with_member(spec, part, files, budget, source)
            }
            None => Model::with_share(spec, self.part.clone(), files, budget, source),
        };
        Ok(Loaded {
            id: self.prepare.model.id,
            part: self.part,
            member: self.member,
            share,
            model: Arc::new(model.map_err(|Refused(blocked)| blocked)?),
            streamed_bytes: placed.streamed_bytes,
            _mapped: Arc::new(placed.mapped),
        })
    }

    /// Memory of the executor and of frames or messages.
    fn beside_weights(&self, spec: &ModelSpec) -> Result<u64, Blocked> {
        let size = wanted_size(self.prepare);
        let frames = beside_bytes(self.prepare, spec, self.member.as_ref())?;
        let executor = Cpu::executor_bytes(spec, self.compute.pool.n_threads(), &size);
        let columns = self.member.as_ref().map_or(0, |member| {
            columns_bytes(spec, member.split(), size.n_batch)
        });
        Ok(executor.state + executor.activations + frames + columns)
    }
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
