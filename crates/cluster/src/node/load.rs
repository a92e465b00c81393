//! Loading a stage: its share of the weights, its executor, and the memory of both.

use std::{net::SocketAddr, ops::ControlFlow, sync::Arc};

use atta_kernels::{Kernels, Pool};
use atta_model::{
    Cpu, ExecutorSize, Member, MemberPart, Model, RowSplit, Share, columns_bytes, spec::ModelSpec,
};
use atta_store::{Budget, ModelFiles, Plan, Reservation, ResidencyBytes, ResidencyPolicy};

use super::models::{Models, OnLoading, OpenModel, Wanted, wanted_share};
use crate::{
    SharedStates, Stage,
    cut::{check_ring, copy_bytes, frame_bytes, limits},
    links::{GroupLinks, GroupWiring, Links},
    place::{Placed, Refused, Room, blocked, n_used_experts},
    states::{StatePeers, StateStore},
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
    /// Where states are kept.
    pub(super) states: Option<SharedStates>,
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
    /// Memory of frames or messages, of links and of states that are copied.
    pub(super) beside: Vec<Reservation>,
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
    let beside = beside_bytes(compute, prepare, spec, loaded.member.as_ref())?.into_iter();
    let beside = beside.map(|(what, n)| compute.budget.reserve(what, n));
    let beside = beside.collect::<Result<_, _>>().map_err(blocked)?;
    let work = match &loaded.member {
        Some(member) => member_work(compute, prepare, &loaded, member)?,
        None => stage_work(compute, prepare, &loaded)?,
    };
    Ok(LoadedWork {
        work,
        beside,
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
    let stage = stage.keep_states(state_store(compute, prepare));
    Ok(Work::Stage(Box::new(stage), limits))
}

/// Where states are kept, and may be besides: at both neighbours and the coordinator.
fn state_store(compute: &Compute, prepare: &Prepare) -> Option<StateStore> {
    let SharedStates { folder, links } = compute.states.clone()?;
    let beside = [&prepare.previous, &prepare.next].into_iter().flatten();
    let nodes: Vec<NodeAddress> = beside.chain([&prepare.coordinator]).cloned().collect();
    let model = prepare.model.id;
    let peers = StatePeers {
        links,
        model,
        nodes: Arc::new(move || nodes.clone()),
    };
    Some(StateStore {
        folder,
        model: model.0,
        peers: Some(peers),
    })
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
    let limits = limits(spec, prepare.ring, n_stages, &whole).map_err(blocked)?;
    limits.with_dtype(prepare.wire.into()).map_err(blocked)
}

/// Memory of what a stage or member has beside weights and executor, by its names.
fn beside_bytes(
    compute: &Compute,
    prepare: &Prepare,
    spec: &ModelSpec,
    member: Option<&Member>,
) -> Result<Vec<(&'static str, u64)>, Blocked> {
    let n_layers = spec.layers.len();
    let layers = prepare.part.layers.range();
    let is_whole = layers == (0..n_layers);
    if layers.end > n_layers || member.is_some() && !is_whole {
        let LayerRange { start, end } = prepare.part.layers;
        return Err(blocked(format!(
            "layers {start} to {end} of a model of {n_layers}"
        )));
    }
    let links = compute.links.lane_bytes(prepare.lane, &neighbours(prepare));
    let size = wanted_size(prepare);
    Ok(match member {
        Some(member) => {
            let messages = message_bytes(&member_limits(spec, member.split(), &size));
            vec![("messages of members", messages), ("links", links)]
        }
        None => {
            let frames = frame_bytes(&stage_limits(prepare, spec)?);
            let copied = copy_bytes(spec, &size, &layers);
            vec![("frames", frames), ("links", links), ("copies", copied)]
        }
    })
}

/// Where the machines are that a stage or member talks to.
fn neighbours(prepare: &Prepare) -> Vec<SocketAddr> {
    let others = prepare.group.iter().flat_map(|group| &group.others);
    let beside = [&prepare.previous, &prepare.next].into_iter().flatten();
    let all = others.chain(beside).chain([&prepare.coordinator]);
    all.map(|node| node.address).collect()
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

    /// Memory of the executor, and of all that is beside it.
    fn beside_weights(&self, spec: &ModelSpec) -> Result<u64, Blocked> {
        let size = wanted_size(self.prepare);
        let beside = beside_bytes(self.compute, self.prepare, spec, self.member.as_ref())?;
        let beside: u64 = beside.iter().map(|(_, n)| n).sum();
        let executor = Cpu::executor_bytes(spec, self.compute.pool.n_threads(), &size);
        let columns = self.member.as_ref().map_or(0, |member| {
            columns_bytes(spec, member.split(), size.n_batch)
        });
        Ok(executor.state + executor.activations + beside + columns)
    }
}
