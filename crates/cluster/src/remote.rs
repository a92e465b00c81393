//! Opens rings whose stages are other machines.
//!
//! ```text
//! keeper of a stage   prepare --> progress … --> ready --> progress every 5 s … --> release
//! ```
//! The one idea: each stage has a keeper, a thread that asks its node for the stage, tells how far
//! it is, shows the node that the coordinator is there, and releases the stage when the ring ends.
//! A ring is open when all keepers have said ready. Which layers run where is decided before; rows
//! travel by the links.

mod audit;
mod former;
mod keeper;
mod lease;
mod plan;
mod recorded;

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use atta_kernels::{Kernels, Pool};
use atta_model::{
    Backend, Cpu, Error, Executor, ExecutorBytes, ExecutorSize, Footprint, Model, Share,
    spec::ModelSpec,
};
use atta_store::{Budget, ModelFiles, Reservation};

use crate::{
    JournalOptions, OnTimes, Ring, RingRecord, SharedStates,
    control::{Control, NodeName},
    core::Timing,
    cut::{Coordination, Sizes, check_ring, frame_bytes, journal_bytes, limits, numerics_id},
    links::Links,
    part::{PartError, PartIndex, index_of, model_id},
    states::{StatePeers, StateStore},
    wire::{
        Dtype, Limits, StageTime,
        message::{Digest, LaneName, Loading, NodeAddress, ReadyStage},
    },
};
use audit::audit_bytes;
pub(crate) use audit::audit_ram_bytes;
use former::{FormerRoom, NewRing, RemoteFormer};
pub(crate) use keeper::{FormError, Keepers, ask};
pub(crate) use lease::{Lease, random};
pub use plan::{
    ExpectedSpeed, OnChange, OpenFiles, PlannedRing, RemotePlan, Replan, RingChange, RingChanges,
    StageNode,
};
use recorded::Recorded;

/// A model by the hashes of its files.
#[derive(Clone, Debug)]
pub struct HashedModel {
    /// The name of its first file.
    pub name: String,
    /// The hashes of each file.
    pub index: Vec<PartIndex>,
}

impl HashedModel {
    /// Hashes all bytes of a model.
    ///
    /// # Errors
    /// A file that cannot be read; tensors that overlap.
    pub fn of(name: &str, files: &ModelFiles) -> Result<Self, PartError> {
        Ok(Self {
            name: name.to_owned(),
            index: index_of(files)?,
        })
    }
}

/// How far a node is with its stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StageProgress {
    /// It loads.
    Loading(Loading),
    /// It waits for frames.
    Ready(ReadyStage),
}

/// Hears how far each stage is; called by several threads.
pub type OnStage = Arc<dyn Fn(&NodeName, &StageProgress) + Send + Sync>;

/// What a ring of machines is made from.
#[derive(Clone)]
pub struct RemoteRingOptions {
    /// Asks the nodes.
    pub control: Arc<dyn Control>,
    /// Connects this machine with the stages.
    pub links: Arc<dyn Links>,
    /// How rows travel.
    pub lane: LaneName,
    /// Name of this machine.
    pub name: NodeName,
    /// Who runs what.
    pub plan: RemotePlan,
    /// The model.
    pub model: HashedModel,
    /// Nodes that have the model, in the order in which to ask them.
    pub sources: Vec<NodeAddress>,
    /// Kernels of the coordinator.
    pub kernels: Kernels,
    /// Threads of the coordinator.
    pub pool: Arc<Pool>,
    /// Times of the protocol.
    pub timing: Timing,
    /// Type of the numbers of rows between machines; results are those of one machine with f32
    /// only.
    pub wire: Dtype,
    /// How long nodes may take until they are ready.
    pub deadline: Duration,
    /// Rows of a chunk of a prompt; `None`: as many as a batch has.
    pub n_chunk: Option<usize>,
    /// How fast the plan should be, if that is known.
    pub expected: Option<ExpectedSpeed>,
    /// Hears how far they are.
    pub on_stage: OnStage,
}

impl std::fmt::Debug for RemoteRingOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteRingOptions")
            .field("name", &self.name)
            .field("plan", &self.plan)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// A backend whose executors are rings of machines, one at a time.
pub struct RemoteRing(Arc<RingHub>);

/// What the backend and its ring share.
struct RingHub {
    options: RemoteRingOptions,
    changes: Option<RingChanges>,
    is_open: Arc<AtomicBool>,
    record: Arc<RingRecord>,
    state: Mutex<RingHubState>,
}

struct RingHubState {
    /// What a ring is opened with: the last plan that was possible.
    planned: PlannedRing,
    /// The plan that a caller wants instead.
    wanted: Option<PlannedRing>,
    /// Nodes that computed other rows than they should.
    barred: Vec<NodeName>,
    states: Option<SharedStates>,
    journal: Option<JournalOptions>,
    times: RingTimes,
}

impl RingHub {
    /// Where states of this machine are, and of the stages, if they are kept.
    fn state_store(self: &Arc<Self>) -> Option<StateStore> {
        let SharedStates { folder, links } = self.state().states.clone()?;
        let model = model_id(&self.options.model.index);
        let shared = Arc::clone(self);
        let nodes = move || {
            let stages = shared.state().planned.plan.stages.clone();
            stages.into_iter().map(|stage| stage.node).collect()
        };
        let peers = StatePeers {
            links,
            model: Digest(model),
            nodes: Arc::new(nodes),
        };
        Some(StateStore {
            folder,
            model,
            peers: Some(peers),
        })
    }

    /// Keeps KV rows of a ring in a journal, if there is to be one.
    fn keep_journal(&self, ring: &mut Ring, plan: &RemotePlan) {
        let journal = self.state().journal.clone();
        if let Some(options) = journal
            && !ring.journal_in(&options, plan.layers())
            && options.is_continuous
        {
            let why = "no journal: recurrent layers have no states of single positions";
            self.record.note(why);
        }
    }

    /// Memory of the links of the first plan, and of a journal if there is one, by their names.
    fn beside_bytes(&self, spec: &ModelSpec, size: &ExecutorSize) -> Vec<(&'static str, u64)> {
        let options = &self.options;
        let stages = options.plan.stages.iter();
        let stages: Vec<SocketAddr> = stages.map(|stage| stage.node.address).collect();
        let links = options.links.lane_bytes(options.lane, &stages);
        let journal = match &self.state().journal {
            Some(_) => journal_bytes(spec, size),
            None => 0,
        };
        vec![("links", links), ("journal", journal)]
    }

    /// Reserves the memory of frames, links and a journal.
    fn reserve_beside(
        &self,
        spec: &ModelSpec,
        size: &ExecutorSize,
        limits: &Limits,
        budget: &Budget,
    ) -> Result<Vec<Reservation>, Error> {
        let frames = [("frames", frame_bytes(limits))];
        let all = frames.into_iter().chain(self.beside_bytes(spec, size));
        let reserved = all.map(|(what, n)| Ok(budget.reserve(what, n)?));
        reserved.collect()
    }

    fn state(&self) -> MutexGuard<'_, RingHubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What stages have done for batches of one row, the tokens of one text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingTimes {
    /// Batches.
    pub n: u64,
    /// Computed by each stage, the sum over all batches.
    pub computed: Vec<Duration>,
    /// Bytes that each stage has sent on, the sum over all batches.
    pub bytes_out: Vec<u64>,
}

impl RingTimes {
    fn add(&mut self, times: &[StageTime]) {
        self.n += 1;
        self.computed.resize(times.len(), Duration::ZERO);
        self.bytes_out.resize(times.len(), 0);
        for (i, time) in times.iter().enumerate() {
            self.computed[i] += Duration::from_micros(time.compute_us.into());
            self.bytes_out[i] += u64::from(time.bytes_out);
        }
    }
}

impl std::fmt::Debug for RemoteRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteRing")
            .field("name", &self.0.options.name)
            .field("plan", &self.plan())
            .finish_non_exhaustive()
    }
}

impl RemoteRing {
    /// Rings of these machines. Nothing is asked before one is opened. A machine that is lost for
    /// good ends a text with [`Error::Lost`].
    pub fn new(options: RemoteRingOptions) -> Self {
        Self::start(options, None)
    }

    /// Rings of these machines, in whose place others come when they are lost or
    /// [`change`](Self::change) wants others.
    pub fn with_changes(options: RemoteRingOptions, changes: RingChanges) -> Self {
        Self::start(options, Some(changes))
    }

    fn start(options: RemoteRingOptions, changes: Option<RingChanges>) -> Self {
        let planned = PlannedRing {
            plan: options.plan.clone(),
            timing: options.timing,
            deadline: options.deadline,
            n_chunk: options.n_chunk,
            expected: options.expected,
        };
        Self(Arc::new(RingHub {
            options,
            changes,
            is_open: Arc::default(),
            record: Arc::default(),
            state: Mutex::new(RingHubState {
                planned,
                wanted: None,
                barred: Vec::new(),
                states: None,
                journal: None,
                times: RingTimes::default(),
            }),
        }))
    }

    /// Keeps the states of rings that are opened from now on in a journal, for layers that move to
    /// other machines.
    pub fn journal_in(&self, options: JournalOptions) {
        self.0.state().journal = Some(options);
    }

    /// Keeps states of texts, of layers of the coordinator, where rings that are opened from now on
    /// are asked for them.
    pub fn keep_states_in(&self, states: SharedStates) {
        self.0.state().states = Some(states);
    }

    /// Who runs what.
    pub fn plan(&self) -> RemotePlan {
        self.0.state().planned.plan.clone()
    }

    /// Who runs what, with its times.
    pub fn planned(&self) -> PlannedRing {
        self.0.state().planned.clone()
    }

    /// What the stages have done since the machines were last changed.
    pub fn times(&self) -> RingTimes {
        self.0.state().times.clone()
    }

    /// What its rings have done so far, and do now.
    pub fn record(&self) -> Arc<RingRecord> {
        Arc::clone(&self.0.record)
    }

    /// The model.
    pub fn model_name(&self) -> &str {
        &self.0.options.model.name
    }

    /// Takes the times of results into the sums and the record.
    fn hears_times(&self) -> OnTimes {
        let shared = Arc::clone(&self.0);
        Box::new(move |n_rows, stages| {
            shared.record.result(n_rows, stages);
            if n_rows == 1 {
                shared.state().times.add(stages);
            }
        })
    }

    /// Wants other machines. The ring that is open takes them at its next
    /// [`refresh`](Executor::refresh).
    pub fn change(&self, wanted: PlannedRing) {
        self.0.state().wanted = Some(wanted);
    }
}

impl Footprint for RemoteRing {
    fn executor_bytes(&self, spec: &ModelSpec, size: &ExecutorSize) -> ExecutorBytes {
        let options = &self.0.options;
        let n_threads = options.pool.n_threads();
        // A plan that is refused is an error when the ring is opened.
        let Ok(plan) = options.plan.cut(spec.layers.len()) else {
            return Cpu::executor_bytes(spec, n_threads, size);
        };
        let sizes = Sizes::new(spec, &plan, size);
        let [local, head] =
            [&sizes.local, &sizes.head].map(|size| Cpu::executor_bytes(spec, n_threads, size));
        let frames = limits(spec, 0, plan.stages.len(), size);
        let frames = frames.map_or(0, |limits| frame_bytes(&limits));
        let beside = self.0.beside_bytes(spec, size).into_iter();
        let beside = beside.map(|(_, n)| n).fold(frames, u64::saturating_add);
        let audit = self.0.changes.as_ref().and_then(|changes| changes.audit);
        let audit = audit.map_or_else(ExecutorBytes::default, |audit| {
            audit_bytes(spec, &options.plan, size, &audit, n_threads)
        });
        let activations = local.activations.saturating_add(head.activations);
        let activations = activations.saturating_add(audit.activations);
        let state = local.state.saturating_add(head.state);
        ExecutorBytes {
            state: state.saturating_add(audit.state),
            activations: activations.saturating_add(beside),
        }
    }

    fn part(&self, _: &ModelSpec) -> Share {
        self.0.options.plan.share()
    }
}

impl Backend for RemoteRing {
    fn open(
        &self,
        model: Arc<Model>,
        size: &ExecutorSize,
        budget: &Budget,
    ) -> Result<Box<dyn Executor>, Error> {
        let lease = Lease::take(&self.0.is_open)?;
        let options = &self.0.options;
        let spec = model.spec();
        check_ring(spec, size)?;
        let planned = self.planned();
        let plan = planned.plan.cut(spec.layers.len())?;
        let sizes = Sizes::new(spec, &plan, size);
        let ring = NewRing::draw(spec, plan.stages.len(), size, options.wire)?;
        let coordination = Coordination {
            spec,
            plan: &plan,
            size,
            sizes: &sizes,
            limits: ring.limits,
            timing: planned.timing,
            numerics: &numerics_id(options.kernels.isa(), options.wire),
            left_out: &self.0.state().barred.clone(),
        };
        let room = FormerRoom {
            model: Arc::clone(&model),
            budget: budget.clone(),
            size: ExecutorSize {
                n_flights: plan.depth(),
                ..size.clone()
            },
            _beside: self.0.reserve_beside(spec, size, &ring.limits, budget)?,
        };
        let mut former = RemoteFormer::new(Arc::clone(&self.0), lease, room);
        // What does not fit here is found before other machines are asked.
        let local = former.local(planned.plan.n_local)?;
        let audit = former.audit_layers(&planned.plan)?;
        let parts = coordination.parts(local, former.executor(&model, sizes.head.clone())?);
        let lane = former.connect(&planned, &ring).map_err(Error::from);
        let lane = lane.inspect_err(|error| {
            let why = format!("the ring does not open: {error}");
            self.0.record.note(&why);
        })?;
        let mut ring = Ring::new(parts, lane)?;
        ring.name_stages(planned.plan.names());
        if let Some(n_rows) = planned.n_chunk {
            ring.cut_prompts(n_rows);
        }
        if let Some(store) = self.0.state_store() {
            ring.keep_states(store);
        }
        if let Some(options) = former.audit_options() {
            ring.audit(options, audit);
        }
        ring.form_by(Box::new(former));
        self.0.keep_journal(&mut ring, &planned.plan);
        ring.on_times(self.hears_times());
        self.0.record.open(planned.plan.names());
        Ok(Box::new(Recorded::new(ring, self.record())))
    }
}

/// The address at which a node reaches doors that listen at `doors`: of all addresses, the one that
/// the system would use towards it.
///
/// # Errors
/// No way to the node.
pub fn own_address(doors: SocketAddr, node: SocketAddr) -> Result<SocketAddr, Error> {
    if !doors.ip().is_unspecified() {
        return Ok(doors);
    }
    let any: IpAddr = match node {
        SocketAddr::V4(_) => [0, 0, 0, 0].into(),
        SocketAddr::V6(_) => [0; 16].into(),
    };
    // Connecting a UDP socket sends nothing.
    let local = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(node)?;
        socket.local_addr()
    });
    let local = local.map_err(|error| Error::Ring(format!("no way to {node}: {error}")))?;
    Ok(SocketAddr::new(local.ip(), doors.port()))
}
