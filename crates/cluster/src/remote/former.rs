//! Forms a ring of machines: prepares its stages, opens its links, and finds others when they are
//! gone.
//!
//! Knows no sequence, and leaves the plan to a [`Replan`](super::Replan). The one idea: every plan
//! is a ring with a number and a secret of its own, so that nothing late of an old one can matter.
//! Nodes keep loaded weights when one ring of a coordinator replaces another.

use std::{
    ops::Range,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use atta_model::{Cpu, Error, Executor, ExecutorSize, Model, Share, spec::ModelSpec};
use atta_store::{Budget, Reservation};

use super::{
    HashedModel, Lease, PlannedRing, RingChange, RingHub, RingTimes, StageNode,
    keeper::{FormError, Keepers, ask, fetch_all},
    own_address, random,
};
use crate::{
    AuditOptions, FormCause, FormedStages, Former, Lane, Resumed,
    control::NodeName,
    cut::limits,
    lane::NoStages,
    links::RingLinks,
    node::{PROGRAM, share_of, stage_share, wanted_files},
    part::model_id,
    place::{Placed, Refused, Room, n_used_experts},
    wire::{
        self, Dtype, Limits,
        message::{
            Answer, Digest, LaneName, NodeAddress, Prepare, Question, RingSecret, SizeNumbers,
            StagePart, WantedModel,
        },
    },
};

/// Time for a node to say that it is there.
const ALIVE: Duration = Duration::from_secs(1);

/// The model, the budget and the sizes of a ring, which no change of machines changes.
pub(super) struct FormerRoom {
    /// Bound here: embedding, head, and the first layers of the first plan.
    pub(super) model: Arc<Model>,
    pub(super) budget: Budget,
    /// Size of executors, for the batches in flight of the first plan: block tables depend on it.
    pub(super) size: ExecutorSize,
    /// Memory of frames, links and a journal.
    pub(super) _beside: Vec<Reservation>,
}

/// Forms a ring of machines. Dropping it releases the stages.
pub(super) struct RemoteFormer {
    keepers: Option<Keepers>,
    /// Number of the ring whose stages are held.
    ring: u64,
    pub(super) room: FormerRoom,
    /// Layers behind those of the bound model that this machine has taken over.
    more: Option<MoreLayers>,
    /// All layers behind those of the bound model, for audits.
    pub(super) rest: Option<MoreLayers>,
    /// Nodes that did not answer when they were last asked.
    gone: Vec<NodeName>,
    /// How rows travel, and the lane that did not let them through.
    lane: LaneName,
    left_lane: Option<LaneName>,
    /// A change that is not told yet.
    change: Option<RingChange>,
    shared: Arc<RingHub>,
    /// Ends behind the release of the stages.
    _lease: Lease,
}

/// A model of some layers, and the memory that it takes.
pub(super) struct MoreLayers {
    pub(super) model: Arc<Model>,
    _mapped: Option<Reservation>,
}

/// A ring that gets a number and a secret.
pub(super) struct NewRing {
    pub(super) limits: Limits,
    secret: [u8; 32],
}

impl NewRing {
    pub(super) fn draw(
        spec: &ModelSpec,
        n_stages: usize,
        size: &ExecutorSize,
        wire: Dtype,
    ) -> Result<Self, Error> {
        let limits = limits(spec, u64::from_le_bytes(random()?), n_stages, size)?;
        let limits = limits.with_dtype(wire).map_err(|_| {
            let d = limits.d_row;
            Error::Options(format!("rows of {d} numbers are no blocks of 32 for int8"))
        })?;
        Ok(Self {
            limits,
            secret: random()?,
        })
    }
}

impl RemoteFormer {
    pub(super) fn new(shared: Arc<RingHub>, lease: Lease, room: FormerRoom) -> Self {
        Self {
            lane: shared.options.lane,
            left_lane: None,
            shared,
            _lease: lease,
            room,
            ring: 0,
            keepers: None,
            more: None,
            rest: None,
            gone: Vec::new(),
            change: None,
        }
    }

    /// Texts that are to be computed twice, if any.
    pub(super) fn audit_options(&self) -> Option<AuditOptions> {
        self.shared.changes.as_ref()?.audit
    }

    fn shared(&self) -> &Arc<RingHub> {
        &self.shared
    }

    /// An executor of this machine.
    pub(super) fn executor(
        &self,
        model: &Arc<Model>,
        size: ExecutorSize,
    ) -> Result<Box<dyn Executor>, Error> {
        let options = &self.shared().options;
        let pool = Arc::clone(&options.pool);
        let budget = &self.room.budget;
        let cpu = Cpu::new(Arc::clone(model), options.kernels, pool, budget, size)?;
        Ok(Box::new(cpu))
    }

    /// Executors of the first `n` layers, the embedding before them.
    pub(super) fn local(&mut self, n: usize) -> Result<Vec<Box<dyn Executor>>, Error> {
        let n_bound = self.room.model.share().layers.end;
        let first = self.part(0..n.min(n_bound), true);
        let first = self.executor(&self.room.model, first)?;
        let behind = n_bound..n;
        // The memory of others may be needed for these.
        let kept = self.more.take();
        let kept = kept.filter(|more| more.model.share().layers == behind);
        if behind.is_empty() {
            return Ok(vec![first]);
        }
        let more = match kept {
            Some(more) => more,
            None => self.bind(&behind)?,
        };
        let second = self.executor(&more.model, self.part(behind, false));
        self.more = Some(more);
        Ok(vec![first, second?])
    }

    /// The size of an executor of these layers.
    fn part(&self, layers: Range<usize>, embed: bool) -> ExecutorSize {
        ExecutorSize {
            part: Some(Share {
                layers,
                embed,
                head: false,
            }),
            ..self.room.size.clone()
        }
    }

    /// Binds layers that this machine takes over.
    pub(super) fn bind(&self, layers: &Range<usize>) -> Result<MoreLayers, Error> {
        let shared = self.shared();
        let changes = shared.changes.as_ref();
        let changes = changes.ok_or_else(|| Error::Ring("the plan has changed".to_owned()))?;
        let FormerRoom { model, budget, .. } = &self.room;
        let spec = model.spec();
        let size = self.part(layers.clone(), false);
        let n_threads = shared.options.pool.n_threads();
        let executor = Cpu::executor_bytes(spec, n_threads, &size);
        let room = Room {
            budget,
            beside: executor.state + executor.activations,
            n_layers: layers.len(),
            n_used: n_used_experts(spec),
        };
        let mut placed = Placed::default();
        let share = Share {
            layers: layers.clone(),
            embed: false,
            head: false,
        };
        let files = (changes.files)()?;
        let bound = Model::with_share(spec.clone(), share, files, budget, |files, plan| {
            room.weights(files, plan, &mut placed)
        });
        let bound = bound.map_err(|Refused(blocked)| Error::Ring(blocked.why))?;
        Ok(MoreLayers {
            model: Arc::new(bound),
            _mapped: placed.mapped,
        })
    }

    /// Prepares the stages of a plan, and opens the links to them.
    pub(super) fn connect(
        &mut self,
        planned: &PlannedRing,
        ring: &NewRing,
    ) -> Result<Box<dyn Lane>, FormError> {
        let stages = &planned.plan.stages;
        if stages.is_empty() {
            return Ok(Box::new(NoStages::default()));
        }
        let questions = self.questions(stages, ring)?;
        let keepers = self.prepare(planned, &questions)?;
        let options = &self.shared().options;
        let lane = options.links.open_ring(RingLinks {
            limits: ring.limits,
            timing: planned.timing,
            lane: self.lane,
            secret: RingSecret(ring.secret),
            stages: stages.iter().map(|stage| stage.node.clone()).collect(),
        });
        let lane = lane.map_err(|error| Error::Ring(error.to_string()))?;
        self.ring = ring.limits.ring;
        self.keepers = Some(keepers);
        Ok(lane)
    }

    /// Prepares all stages.
    fn prepare(&self, planned: &PlannedRing, prepares: &[Prepare]) -> Result<Keepers, FormError> {
        let options = &self.shared().options;
        let nodes = planned.plan.stages.iter().map(|stage| &stage.node.name);
        let questions: Vec<_> = nodes.cloned().zip(prepares.iter().cloned()).collect();
        let until = Instant::now() + planned.deadline;
        Keepers::ready(&options.control, &options.on_stage, &questions, until)
    }

    /// The questions for all stages.
    fn questions(&self, stages: &[StageNode], ring: &NewRing) -> Result<Vec<Prepare>, Error> {
        let options = &self.shared().options;
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
                lane: self.lane,
                secret: RingSecret(ring.secret),
                model: self.wanted(&stage.layers)?,
                part: StagePart {
                    stage: i as u16 + 1,
                    n_stages: ring.limits.n_stages,
                    layers: (&stage.layers).into(),
                },
                group: None,
                size: SizeNumbers::of(&self.room.size),
                wire: options.wire.into(),
                sources: options.sources.clone(),
            })
        };
        stages.iter().enumerate().map(question).collect()
    }

    fn wanted(&self, layers: &Range<usize>) -> Result<WantedModel, Error> {
        let HashedModel { name, index } = &self.shared().options.model;
        let model = &self.room.model;
        let files = model.weights().files();
        let share = share_of(index, model.spec(), &stage_share(layers), files);
        Ok(WantedModel {
            id: Digest(model_id(index)),
            name: name.clone(),
            files: wanted_files(index),
            share: share.map_err(|error| Error::Ring(error.to_string()))?,
        })
    }

    /// Forms the stages of a plan.
    fn try_plan(&mut self, planned: &PlannedRing) -> Result<FormedStages, FormError> {
        let spec = self.room.model.spec();
        let cut = planned.plan.cut(spec.layers.len())?;
        let ring = NewRing::draw(
            spec,
            cut.stages.len(),
            &self.room.size,
            self.shared().options.wire,
        )?;
        let local = self.local(planned.plan.n_local)?;
        let audit = self.audit_layers(&planned.plan)?;
        let barred = self.shared().state().barred.clone();
        Ok(FormedStages {
            lane: self.connect(planned, &ring)?,
            limits: ring.limits,
            timing: planned.timing,
            local,
            audit,
            names: planned.plan.names(),
            state_id: cut.state_id(&self.room.size, ring.limits.dtype, &barred),
            layers: planned.plan.layers(),
            refusal: None,
        })
    }

    /// Has nodes fetch the weights of wanted stages that they do not run now.
    fn fetch(&self, wanted: &PlannedRing) -> Result<(), FormError> {
        let options = &self.shared().options;
        let now = self.shared().state().planned.plan.clone();
        let stages = &wanted.plan.stages;
        // The number and the secret are of no ring.
        let spec = self.room.model.spec();
        let ring = NewRing::draw(spec, stages.len(), &self.room.size, options.wire)?;
        let questions = self.questions(stages, &ring)?.into_iter();
        let is_new = |stage: &StageNode| {
            let has = now.layers_of(&stage.node.name).unwrap_or(0..0);
            stage.layers.start < has.start || stage.layers.end > has.end
        };
        let missing = stages.iter().zip(questions);
        let missing = missing.filter(|(stage, _)| is_new(stage));
        let missing = missing.map(|(stage, prepare)| (stage.node.name.clone(), prepare));
        let until = Instant::now() + wanted.deadline;
        fetch_all(
            &options.control,
            &options.on_stage,
            missing.collect(),
            until,
        )
    }

    /// Forms the stages that a caller wants; if they are refused, those of before.
    fn change(&mut self) -> Result<FormedStages, Error> {
        let shared = Arc::clone(self.shared());
        let wanted = shared.state().wanted.take();
        let wanted = wanted.ok_or(Error::State("no other stages are wanted"))?;
        let refusal = match self.try_plan(&wanted) {
            Ok(formed) => {
                // A user who wants a machine back gets it.
                let names = wanted.plan.names();
                let mut state = shared.state();
                state
                    .barred
                    .retain(|node| !names.iter().any(|name| name == node.as_str()));
                drop(state);
                self.note(Vec::new(), wanted);
                return Ok(formed);
            }
            Err(FormError::Node { line, .. }) => line,
            Err(FormError::Other(error)) => error.to_string(),
        };
        let before = shared.state().planned.clone();
        let (formed, refusal) = match self.try_plan(&before) {
            Ok(formed) => (formed, Error::RingKept(refusal)),
            Err(error) => {
                self.is_intact();
                let formed = self.replace(&Error::from(error).to_string())?;
                (formed, Error::Ring(refusal))
            }
        };
        Ok(FormedStages {
            refusal: Some(refusal),
            ..formed
        })
    }

    /// Forms a ring of the machines that are left.
    fn replace(&mut self, why: &str) -> Result<FormedStages, Error> {
        let shared = Arc::clone(self.shared());
        let Some(changes) = &shared.changes else {
            return Err(Error::Lost(why.to_owned()));
        };
        let mut gone = self.gone.clone();
        gone.extend(shared.state().barred.iter().cloned());
        loop {
            let planned = changes.replan.without(&gone);
            let planned = planned.map_err(|none| Error::Lost(format!("{why}; {none}")))?;
            match self.try_plan(&planned) {
                Ok(formed) => {
                    self.gone.clone_from(&gone);
                    self.note(gone, planned);
                    return Ok(formed);
                }
                Err(FormError::Node { node, .. }) if !gone.contains(&node) => gone.push(node),
                Err(error) => {
                    let error = Error::from(error);
                    return Err(Error::Lost(format!("{why}; {error}")));
                }
            }
        }
    }

    /// Takes no stage on this machine from now on.
    fn bar(&self, stage: u16) {
        let mut state = self.shared().state();
        let stages = &state.planned.plan.stages;
        let node = stages.get(usize::from(stage).wrapping_sub(1));
        let node = node.map(|stage| stage.node.name.clone());
        state.barred.extend(node);
    }

    /// Keeps a plan that is formed, and what to tell of it.
    fn note(&mut self, mut gone: Vec<NodeName>, planned: PlannedRing) {
        let shared = Arc::clone(self.shared());
        let mut state = shared.state();
        let after = planned.plan.clone();
        let before = std::mem::replace(&mut state.planned, planned).plan;
        state.times = RingTimes::default();
        shared.record.open(after.names());
        // Of several changes without a result in between one is told.
        let before = self.change.take().map_or(before, |told| told.before);
        gone.retain(|node| before.layers_of(node).is_some());
        let barred = state.barred.clone();
        let (left_out, gone) = gone.into_iter().partition(|node| barred.contains(node));
        self.change = Some(RingChange {
            gone,
            left_out,
            left_lane: self.left_lane.take(),
            before,
            after,
            how: Resumed::default(),
        });
    }

    /// Asks nodes whether they have stages of the ring; `None`: no answer.
    fn ask_all(&self, nodes: &[NodeName]) -> Vec<Option<Answer>> {
        let question = Question::Progress { ring: self.ring };
        let control = &*self.shared().options.control;
        thread::scope(|scope| {
            let nodes = nodes.iter();
            let asking: Vec<_> = nodes
                .map(|node| scope.spawn(|| ask(control, node, &question, ALIVE)))
                .collect();
            let answers = asking.into_iter().map(|asking| asking.join());
            answers
                .map(|answer| answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        })
    }
}

impl Former for RemoteFormer {
    fn is_intact(&mut self) -> bool {
        let plan = self.shared().state().planned.plan.clone();
        let mut nodes: Vec<NodeName> = plan.stages.into_iter().map(|s| s.node.name).collect();
        let n = nodes.len();
        // Those that were lost before may be back.
        let others = self.gone.iter().filter(|node| !nodes.contains(node));
        let others: Vec<NodeName> = others.cloned().collect();
        nodes.extend(others);
        let answers = self.ask_all(&nodes);
        let is_ready = |answer: &Option<Answer>| matches!(answer, Some(Answer::Ready(_)));
        let is_intact = answers[..n].iter().all(is_ready);
        let silent = nodes.into_iter().zip(answers);
        let silent = silent.filter(|(_, answer)| answer.is_none());
        self.gone = silent.map(|(node, _)| node).collect();
        is_intact
    }

    /// Networks and firewalls that stop to let UDP through may still let TCP through.
    fn takes_other_way(&mut self) -> bool {
        if self.lane == LaneName::Tcp {
            return false;
        }
        self.left_lane = Some(std::mem::replace(&mut self.lane, LaneName::Tcp));
        true
    }

    fn is_asked(&self) -> bool {
        self.shared().state().wanted.is_some()
    }

    fn make_ready(&mut self) -> Result<(), Error> {
        let wanted = self.shared().state().wanted.clone();
        let Some(wanted) = wanted else { return Ok(()) };
        let fetched = self.fetch(&wanted);
        fetched.map_err(|error| {
            self.shared().state().wanted = None;
            match error {
                FormError::Node { line, .. } => Error::RingKept(line),
                FormError::Other(error) => Error::RingKept(error.to_string()),
            }
        })
    }

    fn form(&mut self, cause: &FormCause, old: Box<dyn Lane>) -> Result<FormedStages, Error> {
        if let Some(keepers) = self.keepers.take() {
            keepers.detach();
        }
        // Its threads may wait for a node that is silent.
        let ended = thread::Builder::new().name("old links".to_owned());
        // Without a thread it has ended here.
        let _ = ended.spawn(move || drop(old));
        match cause {
            FormCause::Asked => self.change(),
            FormCause::Loss(why) => self.replace(why),
            FormCause::Fault { stage, why } => {
                self.bar(*stage);
                self.replace(why)
            }
        }
    }

    fn resumed(&mut self, how: Resumed) {
        if let Some(change) = self.change.take()
            && let Some(changes) = &self.shared().changes
        {
            let change = RingChange { how, ..change };
            self.shared().record.note(&change.to_string());
            (changes.on_change)(&change);
        }
    }
}
