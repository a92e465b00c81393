//! The ring that a node belongs to: from the question that prepares it to its release.
//!
//! ```text
//! free --prepare--> loading --> ready --bye, release, silence--> free, weights warm
//!                      '------> blocked: free for the next question
//! ```
//! Threads that load or stop run one behind the other, so that memory is free before it is asked
//! for.

use std::{
    io,
    ops::ControlFlow,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use atta_store::{Reservation, give_back_memory};

use super::{
    Inner, NodeTiming, PROGRAM,
    fetch::Fetching,
    load::{Loaded, LoadedWork, Work, load},
};
use crate::{
    control::NodeName,
    core::Timing,
    links::{RunningStage, StageLinks},
    place::blocked,
    tensor::MemberHost,
    wire::{
        self,
        message::{Answer, Blocked, HeldRing, Loading, Occupied, Prepare, ReadyStage},
    },
};

/// An answer, and an event for the log.
pub(super) struct Reply {
    pub(super) answer: Answer,
    pub(super) event: Option<String>,
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self {
            answer,
            event: None,
        }
    }
}

/// The ring that is held, weights of the last one, and the last thread that loads or stops.
#[derive(Default)]
pub(super) struct Hold {
    held: Option<Held>,
    warm: Option<Warm>,
    last: Option<JoinHandle<()>>,
    /// When the last ring was released, until memory that its threads freed later is given back.
    released: Option<Instant>,
}

/// Time in which the threads of links to a ring that has ended end too.
const THREADS_END: Duration = Duration::from_secs(1);

/// Weights that nothing uses.
struct Warm {
    loaded: Loaded,
    since: Instant,
}

/// A stage of a ring.
struct Held {
    prepare: Arc<Prepare>,
    /// Hash of the question.
    hash: blake3::Hash,
    since: Instant,
    /// When the coordinator last asked about it.
    asked: Instant,
    job: Arc<Job>,
    phase: Phase,
}

/// What a loading thread and the service share.
#[derive(Default)]
struct Job {
    is_cancelled: AtomicBool,
    loading: Mutex<Loading>,
}

enum Phase {
    Loading,
    Ready(Box<Serving>),
    Blocked(Blocked),
}

/// A stage that computes.
struct Serving {
    stage: Box<dyn RunningStage>,
    ready: ReadyStage,
    loaded: Loaded,
    _beside: Vec<Reservation>,
}

/// Threads that end by themselves.
pub(super) struct Stopping(Option<JoinHandle<()>>);

impl Stopping {
    /// Waits for them.
    pub(super) fn wait(self) {
        join(self.0);
    }
}

fn join(thread: Option<JoinHandle<()>>) {
    if let Some(thread) = thread {
        // A panic of the thread was printed.
        let _ = thread.join();
    }
}

/// Begins to prepare a stage, or tells how far it is.
pub(super) fn prepare(inner: &Arc<Inner>, prepare: Prepare) -> Reply {
    if let Some(blocked) = other_version(&prepare) {
        return Answer::Blocked(blocked).into();
    }
    let Ok(bytes) = serde_json::to_vec(&prepare) else {
        return Answer::Blocked(blocked("a plan that cannot be written")).into();
    };
    let hash = blake3::hash(&bytes);
    let mut state = inner.state();
    if inner.is_leaving.load(Ordering::Acquire) || inner.is_over.load(Ordering::Acquire) {
        return Answer::Blocked(blocked("this node leaves the cluster")).into();
    }
    if inner.is_rekeying.load(Ordering::Acquire) {
        return Answer::Blocked(blocked("this node takes a new key of the cluster")).into();
    }
    if let Some(held) = &mut state.hold.held
        && let Some(answer) = held.answer_to(&prepare, hash, &inner.options.timing)
    {
        return answer.into();
    }
    let previous = state.hold.release(None);
    let fetching = state.fetching.take();
    let prepare = Arc::new(prepare);
    let job = Arc::<Job>::default();
    let loader = Loader {
        inner: Arc::clone(inner),
        prepare: Arc::clone(&prepare),
        job: Arc::clone(&job),
        warm: state.hold.take_warm(&prepare),
    };
    let thread = std::thread::Builder::new().name("loading".to_owned());
    let thread = thread.spawn(move || {
        previous.wait();
        fetching.into_iter().for_each(Fetching::end);
        loader.run();
    });
    match thread {
        Ok(thread) => state.hold.last = Some(thread),
        Err(error) => return Answer::Blocked(blocked(error)).into(),
    }
    let now = Instant::now();
    let event = format!(
        "{}: {} of {}",
        prepare.coordinator.name,
        task(&prepare),
        prepare.model.name
    );
    state.hold.held = Some(Held {
        prepare,
        hash,
        since: now,
        asked: now,
        job,
        phase: Phase::Loading,
    });
    Reply {
        answer: Answer::Loading(Loading::default()),
        event: Some(event),
    }
}

/// What a node is asked for, for people.
fn task(prepare: &Prepare) -> String {
    let part = &prepare.part;
    match &prepare.group {
        Some(group) => format!("rows of member {} of {}", part.stage, group.speeds.len()),
        None => format!("layers {} to {}", part.layers.start, part.layers.end),
    }
}

/// A refusal of programs whose kernels or frames may differ.
pub(super) fn other_version(prepare: &Prepare) -> Option<Blocked> {
    let is_same = prepare.program == PROGRAM && prepare.protocol == wire::VERSION;
    let coordinator = &prepare.coordinator.name;
    (!is_same).then(|| Blocked {
        why: format!(
            "this node runs version {PROGRAM} with protocol {}, {coordinator} version {} with protocol {}",
            wire::VERSION,
            prepare.program,
            prepare.protocol
        ),
        would_do: Some("the same version on both".to_owned()),
    })
}

impl Held {
    /// The answer to a question about the ring that is held; `None` if the other one may replace
    /// it.
    fn answer_to(
        &mut self,
        other: &Prepare,
        hash: blake3::Hash,
        timing: &NodeTiming,
    ) -> Option<Answer> {
        let is_same_ring = self.prepare.ring == other.ring;
        if is_same_ring && self.prepare.epoch == other.epoch {
            return Some(match self.hash == hash {
                true => self.progress(),
                false => Answer::Blocked(blocked("another plan with the same number")),
            });
        }
        if is_same_ring {
            let is_older = other.epoch < self.prepare.epoch;
            return is_older.then(|| Answer::Blocked(blocked("an older plan of the ring")));
        }
        // A process has one ring at a time; it may have lost the answer to its release.
        let is_same_owner = self.prepare.coordinator == other.coordinator;
        (!is_same_owner && !self.is_free(timing)).then(|| {
            Answer::Occupied(Occupied {
                by: self.prepare.coordinator.name.clone(),
                since_s: self.since.elapsed().as_secs(),
            })
        })
    }

    /// How far it is; the coordinator has asked.
    fn progress(&mut self) -> Answer {
        self.asked = Instant::now();
        match &self.phase {
            Phase::Loading => {
                let loading = self.job.loading.lock();
                Answer::Loading(loading.unwrap_or_else(PoisonError::into_inner).clone())
            }
            Phase::Ready(serving) if serving.stage.is_over() => {
                Answer::Blocked(blocked("its stage has ended"))
            }
            Phase::Ready(serving) => Answer::Ready(serving.ready),
            Phase::Blocked(blocked) => Answer::Blocked(blocked.clone()),
        }
    }

    /// Whether any coordinator may have the node.
    fn is_free(&self, timing: &NodeTiming) -> bool {
        self.is_over() || self.silence() >= timing.silence || self.is_left(timing)
    }

    /// Whether the coordinator has ended as a process does that is killed: its connections are
    /// gone, and it has asked nothing since.
    fn is_left(&self, timing: &NodeTiming) -> bool {
        let Phase::Ready(serving) = &self.phase else {
            return false;
        };
        let left = serving.stage.left().filter(|left| *left >= timing.left);
        left.is_some_and(|left| self.asked.elapsed() > left)
    }

    /// Whether nothing is to be expected of it any more.
    fn is_over(&self) -> bool {
        match &self.phase {
            Phase::Loading => false,
            Phase::Ready(serving) => serving.stage.is_over(),
            Phase::Blocked(_) => true,
        }
    }

    /// Time since the coordinator was heard, by a question or by a frame.
    fn silence(&self) -> Duration {
        let asked = self.asked.elapsed();
        match &self.phase {
            Phase::Ready(serving) => asked.min(serving.stage.silence()),
            Phase::Loading | Phase::Blocked(_) => asked,
        }
    }

    /// Why it should be released, if it should.
    fn expired(&self, timing: &NodeTiming) -> Option<&'static str> {
        let limit = match &self.phase {
            Phase::Ready(serving) if serving.stage.n_computed() > 0 => timing.orphan,
            _ => timing.prepared,
        };
        match &self.phase {
            Phase::Ready(serving) if serving.stage.is_over() => Some("has ended"),
            _ if self.silence() >= limit => Some("is silent, and was released"),
            _ => None,
        }
    }
}

impl Hold {
    /// How far the stage of a ring is.
    pub(super) fn progress(&mut self, ring: u64) -> Answer {
        let is_broken = self.last.as_ref().is_some_and(JoinHandle::is_finished);
        let held = self.held.as_mut().filter(|held| held.prepare.ring == ring);
        let Some(held) = held else {
            return Answer::Blocked(blocked("this node does not belong to the ring any more"));
        };
        if is_broken && matches!(held.phase, Phase::Loading) {
            held.phase = Phase::Blocked(blocked("loading panicked, which is a bug in atta"));
        }
        held.progress()
    }

    /// Releases a ring, or whichever is held; its weights stay warm.
    pub(super) fn release(&mut self, ring: Option<u64>) -> Stopping {
        let is_it = |held: &mut Held| ring.is_none_or(|ring| held.prepare.ring == ring);
        let Some(held) = self.held.take_if(is_it) else {
            return Stopping(if ring.is_none() {
                self.last.take()
            } else {
                None
            });
        };
        held.job.is_cancelled.store(true, Ordering::Release);
        self.released = Some(Instant::now());
        let previous = self.last.take();
        let serving = match held.phase {
            Phase::Ready(serving) => serving,
            Phase::Loading | Phase::Blocked(_) => {
                return self.keep(ring, previous);
            }
        };
        self.warm = Some(Warm {
            loaded: serving.loaded.clone(),
            since: Instant::now(),
        });
        // It may compute for a while yet.
        let thread = std::thread::Builder::new().name("stopping".to_owned());
        let thread = thread.spawn(move || {
            drop(serving);
            join(previous);
            give_back_memory();
        });
        // Without a thread it has stopped here.
        self.keep(ring, thread.ok())
    }

    /// Hands the last thread to a caller that releases everything, else remembers it.
    fn keep(&mut self, ring: Option<u64>, last: Option<JoinHandle<()>>) -> Stopping {
        match ring {
            None => Stopping(last),
            Some(_) => {
                self.last = last;
                Stopping(None)
            }
        }
    }

    /// The warm weights, if they are those of this question; others are dropped.
    fn take_warm(&mut self, prepare: &Prepare) -> Option<Loaded> {
        let warm = self.warm.take()?;
        warm.loaded.fits(prepare).then_some(warm.loaded)
    }

    /// Whether a stage is being loaded.
    pub(super) fn is_loading(&self) -> bool {
        let is_loading = |held: &Held| matches!(held.phase, Phase::Loading);
        self.held.as_ref().is_some_and(is_loading)
    }

    /// Drops weights that nothing uses.
    pub(super) fn drop_warm(&mut self) {
        self.warm = None;
    }

    /// Whether the node belongs to a ring whose coordinator is there.
    pub(super) fn is_held(&self, timing: &NodeTiming) -> bool {
        self.held.as_ref().is_some_and(|held| !held.is_free(timing))
    }

    /// The owner of the ring that is held, if something is to be expected of it yet.
    pub(super) fn owner(&self) -> Option<&NodeName> {
        let held = self.held.as_ref().filter(|held| !held.is_over());
        held.map(|held| &held.prepare.coordinator.name)
    }

    /// Releases a ring that has ended or is silent; the event, if there is one.
    pub(super) fn expire(&mut self, timing: &NodeTiming) -> Option<String> {
        let is_old = |warm: &mut Warm| warm.since.elapsed() >= timing.warm;
        let is_cold = self.warm.take_if(is_old).is_some();
        let Some(held) = &self.held else {
            let is_due = |released: &mut Instant| released.elapsed() >= THREADS_END;
            // The threads of a ring leave much freed memory to the allocator's arenas.
            if is_cold || self.released.take_if(is_due).is_some() {
                give_back_memory();
            }
            return None;
        };
        let why = held.expired(timing)?;
        let ring = held.prepare.ring;
        let event = format!("the ring of {} {why}", held.prepare.coordinator.name);
        self.release(Some(ring));
        Some(event)
    }

    /// The ring, for the card; none if any coordinator may have the node.
    pub(super) fn card(&self, bytes: u64, timing: &NodeTiming) -> Option<HeldRing> {
        let held = self.held.as_ref().filter(|held| !held.is_free(timing))?;
        let prepare = &held.prepare;
        let serving = match &held.phase {
            Phase::Ready(serving) => Some(serving),
            Phase::Loading => None,
            Phase::Blocked(_) => return None,
        };
        Some(HeldRing {
            ring: prepare.ring,
            coordinator: prepare.coordinator.name.clone(),
            model: prepare.model.name.clone(),
            stage: prepare.part.stage,
            layers: prepare.part.layers,
            is_ready: serving.is_some(),
            bytes,
            n_computed: serving.map_or(0, |serving| serving.stage.n_computed()),
            held_s: held.since.elapsed().as_secs(),
        })
    }
}

/// A thread that loads a stage.
struct Loader {
    inner: Arc<Inner>,
    prepare: Arc<Prepare>,
    job: Arc<Job>,
    warm: Option<Loaded>,
}

impl Loader {
    fn run(mut self) {
        let began = Instant::now();
        let done = self.serve(began);
        let mut state = self.inner.state();
        let held = state.hold.held.as_mut();
        let Some(held) = held.filter(|held| Arc::ptr_eq(&held.job, &self.job)) else {
            // It was released meanwhile; the memory is freed outside of the lock.
            drop(state);
            return;
        };
        let event = match &done {
            Ok(serving) => format!("ready after {} ms", serving.ready.load_ms),
            Err(blocked) => format!("cannot: {}", blocked.why),
        };
        held.phase = match done {
            Ok(serving) => Phase::Ready(serving),
            Err(blocked) => Phase::Blocked(blocked),
        };
        drop(state);
        self.inner.note(event);
    }

    /// Loads the stage and starts it.
    fn serve(&mut self, began: Instant) -> Result<Box<Serving>, Blocked> {
        let job = Arc::clone(&self.job);
        let mut on = move |loading: Loading| {
            *job.loading.lock().unwrap_or_else(PoisonError::into_inner) = loading;
            match job.is_cancelled.load(Ordering::Acquire) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let compute = self.inner.compute();
        let models = self.inner.options.models.as_ref();
        let loaded = load(&compute, models, &self.prepare, self.warm.take(), &mut on)?;
        let LoadedWork {
            loaded,
            work,
            beside,
        } = loaded;
        let started = self.start(work);
        let ready = ReadyStage {
            bytes: compute.budget.used(),
            streamed_bytes: loaded.streamed_bytes(),
            load_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            share: loaded.share(),
        };
        Ok(Box::new(Serving {
            stage: started.map_err(blocked)?,
            ready,
            loaded,
            _beside: beside,
        }))
    }

    /// Starts what computes.
    fn start(&self, work: Work) -> io::Result<Box<dyn RunningStage>> {
        let prepare = &self.prepare;
        let (stage, limits) = match work {
            Work::Member(cpu, links) => return Ok(Box::new(MemberHost::start(*cpu, links)?)),
            Work::Stage(stage, limits) => (stage, limits),
        };
        let links = StageLinks {
            stage: prepare.part.stage,
            limits,
            // The service decides when a coordinator is gone, since an idle one sends no frames.
            timing: Timing {
                orphan: Duration::from_secs(u32::MAX.into()),
                ..Timing::default()
            },
            lane: prepare.lane,
            secret: prepare.secret.clone(),
            coordinator: prepare.coordinator.clone(),
            previous: prepare.previous.clone(),
            next: prepare.next.clone(),
        };
        self.inner.links.start_stage(links, *stage)
    }
}
