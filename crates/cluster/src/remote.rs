//! Opens rings whose stages are other machines.
//!
//! ```text
//! keeper of a stage   prepare --> progress … --> ready --> progress every 5 s … --> release
//! ```
//! The one idea: each stage has a keeper, a thread that asks its node for the stage, tells how far
//! it is, shows the node that the coordinator is there, and releases the stage when the ring ends.
//! A ring is open when all keepers have said ready. Which layers run where is decided before; rows
//! travel by the links.

mod keeper;

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use atta_kernels::{Kernels, Pool};
use atta_model::{
    Backend, Cpu, Error, Executor, ExecutorBytes, ExecutorSize, Footprint, Model, Share,
    spec::ModelSpec,
};
use atta_store::{Budget, ModelFiles, Reservation};
use ring::rand::{SecureRandom, SystemRandom};

use crate::{
    Cut, Lane, Ring, RingPlan,
    control::{Control, NodeName},
    core::{Event, Time, Timing},
    cut::{Coordination, Sizes, check_ring, frame_bytes, limits},
    links::{Links, RingLinks},
    node::{PROGRAM, share_of, stage_share, wanted_files},
    part::{PartError, PartIndex, index_of, model_id},
    wire::{
        self, Frame, Limits, StageTime,
        message::{
            Digest, LaneName, Loading, NodeAddress, Prepare, ReadyStage, RingSecret, SizeNumbers,
            StagePart, WantedModel,
        },
    },
};
pub(crate) use keeper::Keepers;

/// A stage and the node that runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageNode {
    /// The node.
    pub node: NodeAddress,
    /// Its layers.
    pub layers: Range<usize>,
}

/// Which nodes run which layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemotePlan {
    /// First layers, which the coordinator runs.
    pub n_local: usize,
    /// The stages in order, each on a node of its own.
    pub stages: Vec<StageNode>,
}

impl RemotePlan {
    /// The ring that a planner's plan describes. `address` knows the nodes by their names.
    ///
    /// # Errors
    /// [`Error::Ring`]: a plan of one machine or of several rounds, a node without an address.
    pub fn of(
        plan: &crate::plan::RingPlan,
        address: impl Fn(&str) -> Option<NodeAddress>,
    ) -> Result<Self, Error> {
        let refuse = |why: &str| Error::Ring(why.to_owned());
        let (first, others) = plan.stages.split_first().ok_or_else(|| refuse("no plan"))?;
        if plan.rounds > 1 {
            return Err(refuse("laps of several rounds are not built yet"));
        }
        if first.node != plan.lead || first.layers.start != 0 && !first.layers.is_empty() {
            return Err(refuse("the plan does not begin with its coordinator"));
        }
        let stage = |stage: &crate::plan::PlannedStage| {
            let name = &plan.names[stage.node];
            let node = address(name)
                .ok_or_else(|| Error::Ring(format!("the address of {name} is not known")))?;
            let layers = stage.layers.clone();
            Ok(StageNode { node, layers })
        };
        let stages = others
            .iter()
            .map(stage)
            .collect::<Result<Vec<_>, Error>>()?;
        if stages.is_empty() {
            return Err(refuse("the plan has no other machine"));
        }
        let n_local = first.layers.len();
        Ok(Self { n_local, stages })
    }

    fn cut(&self, n_layers: usize) -> Result<RingPlan, Error> {
        let stages = self.stages.iter().map(|stage| stage.layers.clone());
        let plan = RingPlan {
            n_local: self.n_local,
            stages: stages.collect(),
        };
        let plan = Cut::At(plan).plan(n_layers)?;
        let mut names: Vec<&NodeName> = self.stages.iter().map(|s| &s.node.name).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Error::Ring(format!("{} has two stages", pair[0]))),
            None if plan.stages.is_empty() => Err(Error::Ring("no stages".to_owned())),
            None => Ok(plan),
        }
    }

    /// What the coordinator binds: embedding, head and its own layers.
    fn share(&self) -> Share {
        Share {
            layers: 0..self.n_local,
            embed: true,
            head: true,
        }
    }
}

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
    /// How long nodes may take until they are ready.
    pub deadline: Duration,
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
pub struct RemoteRing {
    options: RemoteRingOptions,
    is_open: Arc<AtomicBool>,
    times: Arc<Mutex<RingTimes>>,
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
            .field("name", &self.options.name)
            .field("plan", &self.options.plan)
            .finish_non_exhaustive()
    }
}

impl RemoteRing {
    /// Rings of these machines. Nothing is asked before one is opened.
    pub fn new(options: RemoteRingOptions) -> Self {
        Self {
            options,
            is_open: Arc::default(),
            times: Arc::default(),
        }
    }

    /// Who runs what.
    pub fn plan(&self) -> &RemotePlan {
        &self.options.plan
    }

    /// What the stages have done so far.
    pub fn times(&self) -> RingTimes {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.clone()
    }

    /// Prepares all stages; where nodes belong to another ring, several times.
    fn prepare(&self, prepares: &[Prepare]) -> Result<Keepers, Error> {
        let options = &self.options;
        let nodes = options.plan.stages.iter().map(|stage| &stage.node.name);
        let questions: Vec<_> = nodes.cloned().zip(prepares.iter().cloned()).collect();
        let until = Instant::now() + options.deadline;
        Keepers::ready(&options.control, &options.on_stage, &questions, until)
    }

    /// The questions for all stages.
    fn questions(
        &self,
        model: &Model,
        ring: &NewRing,
        size: &ExecutorSize,
    ) -> Result<Vec<Prepare>, Error> {
        let options = &self.options;
        let stages = &options.plan.stages;
        let n_stages = ring.limits.n_stages;
        let question = |(i, stage): (usize, &StageNode)| {
            let node = |i: usize| stages.get(i).map(|stage| stage.node.clone());
            Ok(Prepare {
                ring: ring.limits.ring,
                epoch: 1,
                program: PROGRAM.to_owned(),
                protocol: wire::VERSION,
                coordinator: NodeAddress {
                    name: options.name.clone(),
                    address: own_address(options.links.address(), stage.node.address)?,
                },
                previous: i.checked_sub(1).and_then(node),
                next: node(i + 1),
                lane: options.lane,
                secret: RingSecret(ring.secret),
                model: self.wanted(model, &stage.layers)?,
                part: StagePart {
                    stage: i as u16 + 1,
                    n_stages,
                    layers: (&stage.layers).into(),
                },
                group: None,
                size: SizeNumbers::of(size),
                sources: options.sources.clone(),
            })
        };
        stages.iter().enumerate().map(question).collect()
    }

    fn wanted(&self, model: &Model, layers: &Range<usize>) -> Result<WantedModel, Error> {
        let HashedModel { name, index } = &self.options.model;
        let files = model.weights().files();
        let share = share_of(index, model.spec(), &stage_share(layers), files);
        Ok(WantedModel {
            id: Digest(model_id(index)),
            name: name.clone(),
            files: wanted_files(index),
            share: share.map_err(|error| Error::Ring(error.to_string()))?,
        })
    }
}

/// A ring that gets a number and a secret.
struct NewRing {
    limits: Limits,
    secret: [u8; 32],
}

impl Footprint for RemoteRing {
    fn executor_bytes(&self, spec: &ModelSpec, size: &ExecutorSize) -> ExecutorBytes {
        let n_threads = self.options.pool.n_threads();
        // A plan that is refused is an error when the ring is opened.
        let Ok(plan) = self.options.plan.cut(spec.layers.len()) else {
            return Cpu::executor_bytes(spec, n_threads, size);
        };
        let sizes = Sizes::new(spec, &plan, size);
        let [local, head] =
            [&sizes.local, &sizes.head].map(|size| Cpu::executor_bytes(spec, n_threads, size));
        let frames = limits(spec, 0, plan.stages.len(), size);
        let frames = frames.map_or(0, |limits| frame_bytes(&limits));
        let activations = local.activations.saturating_add(head.activations);
        ExecutorBytes {
            state: local.state.saturating_add(head.state),
            activations: activations.saturating_add(frames),
        }
    }

    fn part(&self, _: &ModelSpec) -> Share {
        self.options.plan.share()
    }
}

impl Backend for RemoteRing {
    fn open(
        &self,
        model: Arc<Model>,
        size: &ExecutorSize,
        budget: &Budget,
    ) -> Result<Box<dyn Executor>, Error> {
        let lease = Lease::take(&self.is_open)?;
        let options = &self.options;
        let spec = model.spec();
        check_ring(spec, size)?;
        let plan = options.plan.cut(spec.layers.len())?;
        let sizes = Sizes::new(spec, &plan, size);
        let ring = NewRing {
            limits: limits(spec, u64::from_le_bytes(random()?), plan.stages.len(), size)?,
            secret: random()?,
        };
        let open = |size: &ExecutorSize| {
            let pool = Arc::clone(&options.pool);
            let cpu = Cpu::new(model.clone(), options.kernels, pool, budget, size.clone())?;
            Ok::<Box<dyn Executor>, Error>(Box::new(cpu))
        };
        let coordination = Coordination {
            spec,
            plan: &plan,
            size,
            sizes: &sizes,
            limits: ring.limits,
            timing: options.timing,
            numerics: options.kernels.isa(),
        };
        // What does not fit here is found before other machines are asked.
        let parts = coordination.parts(open)?;
        let frames = budget.reserve("frames", frame_bytes(&ring.limits))?;
        let keepers = self.prepare(&self.questions(&model, &ring, &sizes.stages[0])?)?;
        let stages = options.plan.stages.iter().map(|stage| stage.node.clone());
        let lane = options.links.open_ring(RingLinks {
            limits: ring.limits,
            timing: options.timing,
            lane: options.lane,
            secret: RingSecret(ring.secret),
            stages: stages.collect(),
        });
        let lane = HeldLane {
            lane: lane.map_err(|error| Error::Ring(error.to_string()))?,
            _keepers: keepers,
            _frames: frames,
            _lease: lease,
        };
        let names = options.plan.stages.iter().map(|s| s.node.name.to_string());
        let mut ring = Ring::new(parts, Box::new(lane))?;
        ring.name_stages(names.collect());
        let times = Arc::clone(&self.times);
        ring.on_times(Box::new(move |n_rows, stages| {
            if n_rows == 1 {
                let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
                times.add(stages);
            }
        }));
        Ok(Box::new(ring))
    }
}

/// A lane whose stages are released behind it.
struct HeldLane {
    lane: Box<dyn Lane>,
    _keepers: Keepers,
    _frames: Reservation,
    _lease: Lease,
}

impl Lane for HeldLane {
    fn now(&self) -> Time {
        self.lane.now()
    }

    fn send(&mut self, stage: u16, frame: Frame) {
        self.lane.send(stage, frame);
    }

    fn fence(&mut self, stage: u16, epoch: u32) {
        self.lane.fence(stage, epoch);
    }

    fn recv(&mut self, until: Option<Time>) -> Option<Event> {
        self.lane.recv(until)
    }
}

/// The right to have a ring open.
pub(crate) struct Lease(Arc<AtomicBool>);

impl Lease {
    pub(crate) fn take(is_open: &Arc<AtomicBool>) -> Result<Self, Error> {
        match is_open.swap(true, Ordering::AcqRel) {
            false => Ok(Self(Arc::clone(is_open))),
            true => Err(Error::Ring(
                "the machines are in use by another session of this program".to_owned(),
            )),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Random bytes of the system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Error::Ring("the system gives no random bytes".to_owned()))?;
    Ok(bytes)
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
