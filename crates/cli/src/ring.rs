//! `--ring`: runs a model on several machines, says so before and compares afterwards.

mod audit;
#[cfg(feature = "chat")]
mod change;

use std::{
    cell::Cell,
    io::{self, Write},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use atta::{Backend, Explain, Kernels, LoadOptions, ModelFiles, Pool, Summary};
use atta_cluster::{
    AuditOptions, Coordinator, GroupPlan, HashedModel, JournalOptions, OnStage, PartLinks,
    PlanError, PlanInputs, RemoteRing, Replanner, RingChanges, RowReplanner, SharedStates,
    SizedModel, StageProgress, StatesFolder, Survey, Who,
    control::NodeName,
    is_exact_everywhere,
    lane::tcp::Doors,
    measure::{Freshness, KeptLinks, NodeProbe, memory_for_models},
    model_sizes,
    node::part_server,
    part::{Library, LibraryOptions},
    plan::{ModelSizes, Objective, RingPlan},
    tensor::{GroupChanges, RemoteGroup},
    wire::{Dtype, message::LaneName},
};

#[cfg(feature = "server")]
use crate::cluster::{RingMonitor, WatchedRing};
use crate::{
    args::{
        RingFlags, flag,
        ring::{RingAim, RingJournal, RingLane, RingSplit, RingWire},
    },
    cluster::{Membership, Places, Role, events, is_here, model_directories},
    failure::{Failure, one_line},
    load,
};

/// Disk for KV rows where no other size is given.
const JOURNAL_BYTES: u64 = 4 << 30;
/// The part of it that states of texts may take besides.
const STATES_PART: u64 = 8;

/// Time between two lines about the same node.
const QUIET: Duration = Duration::from_secs(2);

/// A ring that is in use; without one, nothing.
#[derive(Default)]
pub(crate) struct RingRun(Option<Used>);

enum Used {
    /// A ring whose layers stand on command lines: no speed was measured.
    #[cfg(feature = "leap")]
    Chain(Arc<RemoteRing>),
    /// A ring that was planned.
    Layers(Box<LayerRing>),
    /// Machines with some rows of every large matrix.
    Rows(GroupPlan),
}

struct LayerRing {
    ring: Arc<RemoteRing>,
    #[cfg(feature = "server")]
    plan: RingPlan,
    #[cfg(feature = "chat")]
    replanner: Arc<Replanner>,
    #[cfg(feature = "chat")]
    name: NodeName,
    #[cfg(feature = "server")]
    survey: Survey,
    #[cfg(feature = "server")]
    coordinator: Coordinator,
}

impl RingRun {
    /// A ring without measured speeds.
    #[cfg(feature = "leap")]
    pub(crate) fn of_chain(ring: Arc<RemoteRing>) -> Self {
        Self(Some(Used::Chain(ring)))
    }

    /// Begins to watch the ring, for a server that shows it.
    #[cfg(feature = "server")]
    pub(crate) fn monitor(self) -> Result<Option<Arc<dyn atta_server::ClusterMonitor>>, Failure> {
        let Some(Used::Layers(layers)) = self.0 else {
            return Ok(None);
        };
        let monitor = RingMonitor::start(WatchedRing {
            ring: layers.ring,
            plan: layers.plan,
            survey: layers.survey,
            coordinator: layers.coordinator,
        });
        let monitor = monitor.map_err(|error| Failure::Failed(format!("a thread: {error}")))?;
        Ok(Some(Arc::new(monitor)))
    }

    /// Says how the speed of a text compares with the plan.
    pub(crate) fn compare(&self, summary: &Summary) {
        let measured = summary.decode_tok_s();
        match &self.0 {
            #[cfg(feature = "leap")]
            Some(Used::Chain(ring)) => compare_layers(measured, ring),
            Some(Used::Layers(layers)) => {
                compare_layers(measured, &layers.ring);
                audit::report(&layers.ring);
            }
            Some(Used::Rows(plan)) => say(&format!(
                "{measured:.1} tokens/s (expected {:.1}); {} waits and {} bytes from others for each token",
                plan.decode_tok_s, plan.n_units, plan.received_bytes
            )),
            None => {}
        }
    }
}

/// Compares tokens per second.
fn compare_layers(measured: f64, ring: &RemoteRing) {
    let expected = ring.planned().expected;
    let times = ring.times();
    if times.n == 0 {
        return;
    }
    let n = u32::try_from(times.n).unwrap_or(u32::MAX);
    let plan = ring.plan();
    let names = plan.stages.iter().map(|stage| &stage.node.name);
    let stages = names
        .zip(&times.computed)
        .map(|(name, time)| (name, *time / n));
    let slowest = stages.max_by_key(|(_, time)| *time);
    let slowest = slowest.map_or_else(String::new, |(name, time)| {
        format!("; slowest {name}, {} a token", millis(time))
    });
    let bytes: u64 = times.bytes_out.iter().sum();
    let expected = expected.map(|speed| format!(" (expected {:.1})", speed.decode_tok_s));
    say(&format!(
        "{measured:.1} tokens/s{}{slowest}; {} bytes between machines for each token",
        expected.unwrap_or_default(),
        bytes / times.n
    ));
}

/// The options with a ring as the backend, if one is wanted and helps.
pub(crate) fn plan(
    model: Option<&Path>,
    flags: &RingFlags,
    aim: RingAim,
    options: LoadOptions,
) -> Result<(LoadOptions, RingRun), Failure> {
    let Some(text) = &flags.ring else {
        return Ok((options, RingRun::default()));
    };
    refuse_part(&options)?;
    let who = who(text)?;
    let Some(model) = model else {
        return Err(Failure::Usage(
            "--ring needs a model file: the built-in model is small enough for any machine"
                .to_owned(),
        ));
    };
    let path = load::locate(model)?;
    let wire = wire(flags)?;
    let membership = Membership::open(&flags.membership, &Role::Asker)?;
    let mut asker = Asker::new(membership, &options)?;
    asker.coordinator.wire = wire;
    asker.coordinator.lane = match flags.lane.unwrap_or_default() {
        RingLane::Auto | RingLane::Tcp => LaneName::Tcp,
        RingLane::Udp => LaneName::Udp,
        RingLane::Afxdp => LaneName::AfXdp,
    };
    let mut survey = asker.survey()?;
    let sizes = asker.sizes(&path, &options)?;
    let audit = asker.audit(flags, &mut survey, &sizes)?;
    let objective = objective(flags.ring_for.unwrap_or(aim));
    let wish = Wish { who, objective };
    let disk = RingDisk::new(&asker.membership.places, flags);
    let planned = asker.divide(&survey, &sizes, &wish, flags.split.unwrap_or_default());
    asker.membership.remember();
    let planned = match planned {
        // One machine alone streams weights for which it lacks memory.
        Err(Failure::Failed(why)) if wish.who == Who::Auto => {
            say(&format!("{why}; running here alone"));
            return Ok((options, RingRun::default()));
        }
        planned => planned?,
    };
    say(&planned.to_string());
    if planned.is_alone() {
        if audit.is_some() {
            say("audit: one machine alone has nothing to compare");
        }
        return Ok((options, RingRun::default()));
    }
    let hashes = asker.membership.places.hashes();
    let model = hashed(&asker.membership.doors, hashes, &path, Some(&disk.states))?;
    let pool = asker.coordinator.pool.clone();
    let inputs = BackendInputs {
        survey,
        sizes,
        wish,
        model,
        path,
        audit,
        disk,
    };
    let (backend, used) = asker.backend(inputs, planned)?;
    let options = LoadOptions {
        backend: Some(backend),
        pool: Some(pool),
        ..options
    };
    Ok((options, RingRun(Some(used))))
}

/// Refuses a model that is to run in part.
fn refuse_part(options: &LoadOptions) -> Result<(), Failure> {
    let why = atta::Error::ReducedElsewhere;
    match options.reduction.is_whole() {
        true => Ok(()),
        false => Err(Failure::Usage(why.explain(flag))),
    }
}

/// The type of the numbers between machines.
fn wire(flags: &RingFlags) -> Result<Dtype, Failure> {
    let wire = flags.wire.unwrap_or_default();
    let (dtype, name) = match wire {
        RingWire::F32 => return Ok(Dtype::F32),
        RingWire::F16 => (Dtype::F16, "f16"),
        RingWire::Int8 => (Dtype::Int8, "int8"),
    };
    if flags.split.unwrap_or_default() != RingSplit::Layers {
        return Err(Failure::Usage(format!(
            "--wire {name} is for --split layers: machines that divide rows exchange f32"
        )));
    }
    say(&format!(
        "wire {name}: results are not those of one machine to the last bit"
    ));
    Ok(dtype)
}

/// Keeps the events of a ring for `atta cluster log`.
fn keep_events(membership: &Membership, ring: &RemoteRing) {
    let path = membership.places.events();
    let name = membership.name.clone();
    ring.record().on_event(Box::new(move |text| {
        // Without the file the log is shorter.
        let _ = events::append(&path, name.as_str(), text);
    }));
    let warn = |text: &str| say(&format!("ring: {text}"));
    ring.record().on_warning(Box::new(warn));
    let record = ring.record();
    let on_note = move |note: &str| record.note(note);
    membership.doors.on_note(Box::new(on_note));
}

/// Keeps the events of machines that divide rows, and the notes on their lanes.
fn group_events(membership: &Membership) -> impl Fn(&str) + Clone + Send + Sync + use<> {
    let path = membership.places.events();
    let name = membership.name.clone();
    // Without the file the log is shorter.
    let keep = move |text: &str| drop(events::append(&path, name.as_str(), text));
    membership.doors.on_note(Box::new(keep.clone()));
    keep
}

/// What a backend of several machines is made from, beside its plan.
struct BackendInputs {
    survey: Survey,
    sizes: PlannedModel,
    wish: Wish,
    model: HashedModel,
    /// The file of the model.
    path: PathBuf,
    audit: Option<AuditOptions>,
    disk: RingDisk,
}

/// What a coordinator keeps on its disk.
struct RingDisk {
    /// KV rows.
    journal: JournalOptions,
    /// States of texts, of layers that this machine runs.
    states: StatesFolder,
}

impl RingDisk {
    fn new(places: &Places, flags: &RingFlags) -> Self {
        let budget_bytes = flags.journal_bytes.unwrap_or(JOURNAL_BYTES);
        Self {
            journal: JournalOptions {
                dir: places.journal(),
                budget_bytes,
                segment_len: JournalOptions::SEGMENT_LEN,
                is_continuous: flags.journal == Some(RingJournal::On),
            },
            states: StatesFolder {
                directory: places.states(),
                budget_bytes: budget_bytes / STATES_PART,
            },
        }
    }
}

/// Which machines shall be used, and for what.
struct Wish {
    who: Who,
    objective: Objective,
}

/// How a model is divided.
enum Planned {
    Layers(Box<RingPlan>),
    Rows(GroupPlan),
}

impl Planned {
    fn is_alone(&self) -> bool {
        match self {
            Self::Layers(plan) => plan.is_alone(),
            Self::Rows(plan) => plan.is_alone(),
        }
    }
}

impl std::fmt::Display for Planned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Layers(plan) => plan.fmt(f),
            Self::Rows(plan) => plan.fmt(f),
        }
    }
}

/// This machine, which asks nodes.
pub(crate) struct Asker {
    pub(crate) membership: Membership,
    pub(crate) coordinator: Coordinator,
}

/// Sizes of a model, and of the executors that a plan is made for.
pub(crate) struct PlannedModel {
    model: SizedModel,
    size: atta::ExecutorSize,
}

impl Asker {
    pub(crate) fn new(membership: Membership, options: &LoadOptions) -> Result<Self, Failure> {
        let pool = options.open_pool()?;
        let kernels = options.kernels()?;
        let numbers = rates(&membership.places.asker_rates(), kernels, &pool, &[])?.numbers();
        let ram_bytes = memory_for_models(options.ram_budget).ok_or_else(|| {
            Failure::Failed(
                "this system does not say how much memory is available: give --ram-budget"
                    .to_owned(),
            )
        })?;
        let coordinator = Coordinator {
            control: membership.control.clone(),
            links: membership.doors.clone(),
            lane: LaneName::Tcp,
            name: membership.name.clone(),
            kernels,
            pool,
            numbers,
            ram_bytes,
            kept_links: Some(KeptLinks::at(membership.places.links())),
            wire: Dtype::F32,
            is_here,
        };
        Ok(Self {
            membership,
            coordinator,
        })
    }

    /// Who is there; silent nodes are named on standard error.
    pub(crate) fn survey(&self) -> Result<Survey, Failure> {
        let survey = self.coordinator.survey();
        let survey = survey.map_err(|error| Failure::Failed(error.to_string()))?;
        for (node, why) in &survey.silent {
            say(&format!("{node} does not answer: {why}"));
        }
        for node in &survey.nodes {
            if node.is_here {
                let name = &node.address.name;
                say(&format!(
                    "{name} is on this machine, and is used only if it is named"
                ));
            }
            if let Some(why) = &node.unfit {
                say(&format!("{} is left out: {why}", node.address.name));
            }
        }
        Ok(survey)
    }

    /// What a plan needs to know of a model.
    pub(crate) fn sizes(
        &self,
        path: &Path,
        options: &LoadOptions,
    ) -> Result<PlannedModel, Failure> {
        let files = ModelFiles::open(path).map_err(atta::Error::from)?;
        let spec = atta::arch::lower(files.directory().metadata()).map_err(atta::Error::from)?;
        let size = options.session.executor_size(&spec);
        let sizes = model_sizes(&spec, &files, &size).map_err(atta::Error::from)?;
        let sizes = ModelSizes {
            output_bytes: options.session.output_bytes(&spec),
            ..sizes
        };
        let is_exact = is_exact_everywhere(&files);
        let model = SizedModel {
            spec,
            sizes,
            is_exact,
        };
        Ok(PlannedModel { model, size })
    }

    pub(crate) fn plan(
        &self,
        survey: &Survey,
        model: &PlannedModel,
        who: &Who,
        objective: Objective,
    ) -> Result<RingPlan, Failure> {
        let plan = self
            .coordinator
            .plan(survey, &model.model.sizes, &model.size, who, objective);
        plan.map_err(no_plan)
    }

    fn plan_rows(
        &self,
        survey: &Survey,
        model: &PlannedModel,
        wish: &Wish,
    ) -> Result<GroupPlan, Failure> {
        let Wish { who, objective } = wish;
        let coordinator = &self.coordinator;
        let plan = coordinator.plan_rows(survey, &model.model, who, *objective);
        plan.map_err(no_plan)
    }

    /// What computes by a plan.
    fn backend(
        self,
        inputs: BackendInputs,
        planned: Planned,
    ) -> Result<(Arc<dyn Backend>, Used), Failure> {
        match planned {
            Planned::Layers(plan) => {
                let layers = self.layer_ring(inputs, *plan)?;
                Ok((layers.ring.clone(), Used::Layers(Box::new(layers))))
            }
            Planned::Rows(plan) => {
                if inputs.disk.journal.is_continuous {
                    return Err(Failure::Usage(
                        "--journal on keeps rows of layers: not with --split rows".to_owned(),
                    ));
                }
                let group = self.row_group(inputs, &plan)?;
                Ok((Arc::new(group), Used::Rows(plan)))
            }
        }
    }

    /// A group that divides rows, which makes new plans when machines are lost.
    fn row_group(self, inputs: BackendInputs, plan: &GroupPlan) -> Result<RemoteGroup, Failure> {
        let coordinator = self.coordinator;
        let BackendInputs {
            survey,
            sizes,
            wish,
            model,
            path,
            ..
        } = inputs;
        let keep = group_events(&self.membership);
        let changes = GroupChanges {
            replan: Arc::new(RowReplanner {
                coordinator: coordinator.clone(),
                survey,
                model: sizes.model.clone(),
                who: wish.who,
                objective: wish.objective,
            }),
            files: Arc::new(move || ModelFiles::open(&path)),
            on_change: Arc::new(move |change| {
                say(&format!("ring: {change}"));
                keep(&change.to_string());
            }),
        };
        let group = coordinator.group(plan, &sizes.model.sizes, model, on_stage(), changes);
        group.map_err(failed)
    }

    /// A ring of layers, which makes new plans when machines are lost or others are wanted.
    fn layer_ring(self, inputs: BackendInputs, plan: RingPlan) -> Result<LayerRing, Failure> {
        let coordinator = self.coordinator;
        let BackendInputs {
            survey,
            sizes,
            wish,
            model,
            path,
            audit,
            disk: RingDisk { journal, states },
        } = inputs;
        let ring = coordinator.ring(&survey, &plan, model, on_stage());
        let ring = ring.map_err(failed)?;
        let is_recurrent = sizes.model.spec.is_recurrent();
        let replanner = Arc::new(Replanner::new(
            coordinator.clone(),
            PlanInputs {
                survey: survey.clone(),
                who: wish.who,
                objective: wish.objective,
                model: sizes.model.sizes,
                size: sizes.size,
            },
        ));
        let changes = RingChanges {
            replan: replanner.clone(),
            files: Arc::new(move || ModelFiles::open(&path)),
            on_change: Arc::new(|change| say(&format!("ring: {change}"))),
            audit,
        };
        let ring = Arc::new(RemoteRing::with_changes(ring, changes));
        if journal.is_continuous && is_recurrent {
            say(
                "no journal: recurrent layers keep no states of single positions; \
                 after a loss texts are computed again",
            );
        }
        ring.journal_in(journal);
        ring.keep_states_in(SharedStates {
            folder: states,
            links: self.membership.doors.clone(),
        });
        keep_events(&self.membership, &ring);
        Ok(LayerRing {
            ring,
            #[cfg(feature = "server")]
            plan,
            #[cfg(feature = "chat")]
            replanner,
            #[cfg(feature = "chat")]
            name: coordinator.name.clone(),
            #[cfg(feature = "server")]
            survey,
            #[cfg(feature = "server")]
            coordinator,
        })
    }

    /// A plan that divides the model as it is wanted.
    fn divide(
        &self,
        survey: &Survey,
        model: &PlannedModel,
        wish: &Wish,
        split: RingSplit,
    ) -> Result<Planned, Failure> {
        let layers = || self.plan(survey, model, &wish.who, wish.objective);
        match split {
            RingSplit::Layers => Ok(Planned::Layers(Box::new(layers()?))),
            RingSplit::Rows => Ok(Planned::Rows(self.plan_rows(survey, model, wish)?)),
            RingSplit::Auto => {
                let rows = self.plan_rows(survey, model, wish)?;
                let layers = layers();
                let is_slower = |plan: &RingPlan| rows.decode_tok_s <= plan.predicted.decode_tok_s;
                match layers {
                    // Rows make the tokens of one text faster, and nothing else.
                    Ok(plan) if wish.objective != Objective::Latency || is_slower(&plan) => {
                        Ok(Planned::Layers(Box::new(plan)))
                    }
                    _ => Ok(Planned::Rows(rows)),
                }
            }
        }
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}

fn no_plan(error: PlanError) -> Failure {
    match error {
        PlanError::Nobody => Failure::Failed(format!(
            "{error}: start `atta node` on others, or name one by --peer"
        )),
        error => Failure::Failed(error.to_string()),
    }
}

/// The rates of this machine, measured if they are not known.
pub(crate) fn rates(
    kept_in: &Path,
    kernels: Kernels,
    pool: &Pool,
    models: &[std::path::PathBuf],
) -> Result<atta_cluster::measure::NodeRates, Failure> {
    let probe = NodeProbe {
        kernels,
        n_threads: NonZeroUsize::new(pool.n_threads()).unwrap_or(NonZeroUsize::MIN),
        models: &model_directories(models),
        kept_in,
    };
    let rates = probe.rates(Freshness::Cached);
    rates.map_err(|error| Failure::at(kept_in, error))
}

/// The machines that `--ring` names.
fn who(text: &str) -> Result<Who, Failure> {
    match text {
        "auto" => Ok(Who::Auto),
        "force" => Ok(Who::Force),
        names => {
            let names = names.split(',').map(|name| NodeName::new(name.trim()));
            let names = names.collect::<Result<_, _>>();
            names
                .map(Who::Nodes)
                .map_err(|error| Failure::Usage(format!("--ring: {error}")))
        }
    }
}

pub(crate) fn objective(aim: RingAim) -> Objective {
    match aim {
        RingAim::Latency => Objective::Latency,
        RingAim::Prompt => Objective::Prompt,
        RingAim::Users => Objective::Users,
    }
}

/// The model with its hashes, which are kept for the next time.
/// Nodes that lack layers of it may fetch them from here, and states of texts.
pub(crate) fn hashed(
    doors: &Doors,
    hashes: PathBuf,
    path: &Path,
    states: Option<&StatesFolder>,
) -> Result<HashedModel, Failure> {
    let library = Arc::new(Library::new(LibraryOptions {
        models: Vec::new(),
        parts: None,
        hashes,
    }));
    let told = Cell::new(None);
    let mut on = |done: u64, all: u64| {
        let is_due = told.get().is_none_or(|at: Instant| at.elapsed() > QUIET);
        if is_due && all > 0 {
            if told.get().is_some() {
                say(&format!("hashing the model, once: {} %", done * 100 / all));
            }
            told.set(Some(Instant::now()));
        }
        std::ops::ControlFlow::Continue(())
    };
    let held = library
        .hashed(path, &mut on)
        .map_err(|error| Failure::at(path, error))?;
    let served = doors.serve(part_server(library, states.cloned()));
    served.map_err(|error| Failure::Failed(error.to_string()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(HashedModel {
        name: name.into_owned(),
        index: held.index,
    })
}

/// Tells how far nodes are, not too often.
pub(crate) fn on_stage() -> OnStage {
    let told = Mutex::new(std::collections::HashMap::<NodeName, Instant>::new());
    let begin = Instant::now();
    Arc::new(move |node, progress| {
        let StageProgress::Loading(loading) = progress else {
            return;
        };
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        if loading.what.is_empty() {
            return;
        }
        // What takes no time is not worth a line.
        let is_due = told.get(node).unwrap_or(&begin).elapsed() > QUIET;
        if is_due {
            say(&format!("{node}: {}", loading.what));
            told.insert(node.clone(), Instant::now());
        }
    })
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// A line for people on standard error.
pub(crate) fn say(line: &str) {
    // If standard error is closed, nothing is left to tell it to.
    let _ = writeln!(io::stderr(), "atta: {}", one_line(line));
}
