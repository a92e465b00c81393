//! A node's service: answers the questions of coordinators, and is a stage of one ring at a time.
//!
//! Knows no network: questions come as bytes from a [`Control`](crate::control::Control), frames
//! by links. The one idea: every answer is given at once, and
//! everything that takes time (loading, measuring, stopping) happens in threads whose results the
//! next question finds. What a ring took is freed when it is released, when it ends, and when its
//! coordinator is silent for too long.

mod fetch;
mod hold;
mod library;
mod load;
mod models;

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use atta_kernels::{Kernels, Pool};
use atta_store::Budget;

use crate::{
    SharedStates,
    control::{Answerer, NodeName},
    key::ClusterKey,
    lane::tcp::OnNote,
    links::Links,
    measure::is_throttled,
    wire::{
        self,
        message::{
            Answer, Card, CardEvent, LinkNumbers, MemoryNumbers, NodeAddress, NodeNumbers, Question,
        },
    },
};
use fetch::Fetching;
use hold::{Hold, Reply};
pub use library::{LibraryModels, part_server};
use load::Compute;
pub(crate) use models::stage_share;
pub use models::{Models, OnLoading, OpenModel, Wanted, share_of, wanted_files};

/// Most events that are remembered.
const MAX_EVENTS: usize = 64;
/// Most links whose measures are remembered.
const MAX_LINKS: usize = 64;
/// Age from which a link is measured anew.
const MAX_LINK_AGE: Duration = Duration::from_secs(600);
/// Time between looks at rings that have ended or are silent.
const WATCH: Duration = Duration::from_millis(250);
/// Longest line of an event, characters.
const MAX_LINE: usize = 400;

/// Version of the program. The nodes of a ring have the same one, since their kernels must round
/// alike.
pub const PROGRAM: &str = env!("CARGO_PKG_VERSION");

/// Times of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeTiming {
    /// How long a stage that is ready waits for its first frame.
    pub prepared: Duration,
    /// Silence of the coordinator after which another one may have the node: several of the
    /// questions by which a coordinator shows that it is there.
    pub silence: Duration,
    /// Time behind the end of the coordinator's connections after which another one may have the
    /// node.
    pub left: Duration,
    /// Silence of the coordinator after which a ring is released.
    pub orphan: Duration,
    /// How long weights stay loaded behind a ring, for another one with the same layers.
    pub warm: Duration,
}

impl Default for NodeTiming {
    fn default() -> Self {
        Self {
            prepared: Duration::from_secs(30),
            silence: Duration::from_secs(15),
            left: Duration::from_secs(1),
            orphan: Duration::from_secs(60),
            warm: Duration::from_secs(60),
        }
    }
}

/// Measures the link to a node, in a thread of its own; `Err` is one line for people.
pub type MeasureLink = Arc<dyn Fn(&NodeAddress) -> Result<LinkNumbers, String> + Send + Sync>;

/// Keeps a new key of the cluster where the next start of the node finds it; `Err` is one line for
/// people.
pub type KeepKey = Box<dyn Fn(&ClusterKey) -> Result<(), String> + Send + Sync>;

/// What a node is.
pub struct NodeOptions {
    /// Its name.
    pub name: NodeName,
    /// Addresses on which it takes connections, the best one first, as other nodes reach them.
    pub addresses: Vec<SocketAddr>,
    /// Its kernels.
    pub kernels: Kernels,
    /// The threads that compute.
    pub pool: Arc<Pool>,
    /// Memory for models; its limit is what the node gives to rings.
    pub budget: Budget,
    /// Where models come from.
    pub models: Arc<dyn Models>,
    /// Where stages keep states of texts, if they keep any, and how they ask for those of others.
    pub states: Option<SharedStates>,
    /// Measured speeds, if there are any.
    pub measure: Option<NodeNumbers>,
    /// Reads the temperature of the processor, °C.
    pub celsius: fn() -> Option<f32>,
    /// Measures links; without it the question is refused.
    pub measure_link: Option<MeasureLink>,
    /// Times.
    pub timing: NodeTiming,
}

impl std::fmt::Debug for NodeOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeOptions")
            .field("name", &self.name)
            .field("addresses", &self.addresses)
            .field("timing", &self.timing)
            .finish_non_exhaustive()
    }
}

/// A node's service. Dropping it releases what it holds.
#[derive(Debug)]
pub struct NodeService {
    inner: Arc<Inner>,
    watcher: Option<JoinHandle<()>>,
}

/// What all threads of the service share.
struct Inner {
    options: NodeOptions,
    links: Arc<dyn Links>,
    state: Mutex<ServiceState>,
    is_over: AtomicBool,
    is_leaving: AtomicBool,
    keep_key: OnceLock<KeepKey>,
    /// A new key is being kept, and no ring begins.
    is_rekeying: AtomicBool,
    is_rekeyed: AtomicBool,
}

/// What changes.
#[derive(Default)]
struct ServiceState {
    hold: Hold,
    fetching: Option<Fetching>,
    events: VecDeque<(Instant, String)>,
    links: HashMap<NodeAddress, LinkState>,
}

/// The measuring of a link that a coordinator asked for.
enum LinkState {
    Measuring,
    /// When it was measured.
    Done(Result<LinkNumbers, String>, Instant),
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl NodeService {
    /// Starts the service. It holds nothing, and hears frames by these links.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn start(options: NodeOptions, links: Arc<dyn Links>) -> std::io::Result<Self> {
        let inner = Arc::new(Inner {
            options,
            links,
            state: Mutex::default(),
            is_over: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            keep_key: OnceLock::new(),
            is_rekeying: AtomicBool::new(false),
            is_rekeyed: AtomicBool::new(false),
        });
        let watched = Arc::downgrade(&inner);
        let watcher = std::thread::Builder::new().name("node".to_owned());
        let watcher = watcher.spawn(move || watch(&watched))?;
        inner.note(format!("started, version {PROGRAM}"));
        Ok(Self {
            inner,
            watcher: Some(watcher),
        })
    }

    /// Answers questions; for [`Control::answer`](crate::control::Control::answer).
    pub fn answerer(&self) -> Answerer {
        let inner = Arc::downgrade(&self.inner);
        Box::new(move |question| match inner.upgrade() {
            Some(inner) => inner.answer_bytes(question),
            None => to_bytes(&refused("this node has ended")),
        })
    }

    /// Adds notes to the events of the node, as long as it is there.
    pub fn noter(&self) -> OnNote {
        let inner = Arc::downgrade(&self.inner);
        Box::new(move |note| {
            if let Some(inner) = inner.upgrade() {
                inner.note(note.to_owned());
            }
        })
    }

    /// What the node says about itself.
    pub fn card(&self) -> Card {
        self.inner.card()
    }

    /// Whether a member has asked the node to leave the cluster.
    pub fn is_leaving(&self) -> bool {
        self.inner.is_leaving.load(Ordering::Acquire)
    }

    /// Sets what keeps a new key of the cluster; without it the question is refused.
    pub fn keep_keys(&self, keep: KeepKey) {
        // The first one stays.
        let _ = self.inner.keep_key.set(keep);
    }

    /// Whether the node has kept a new key, by which it must be started again.
    pub fn is_rekeyed(&self) -> bool {
        self.inner.is_rekeyed.load(Ordering::Acquire)
    }

    /// Releases what the node holds, and waits until its memory is free.
    pub fn release_all(&self) {
        let stopping = self.inner.state().hold.release(None);
        stopping.wait();
        let fetching = self.inner.state().fetching.take();
        fetching.into_iter().for_each(Fetching::end);
        self.inner.state().hold.drop_warm();
    }
}

impl Drop for NodeService {
    fn drop(&mut self) {
        self.inner.is_over.store(true, Ordering::Release);
        self.release_all();
        if let Some(watcher) = self.watcher.take() {
            // A panic of the thread was printed.
            let _ = watcher.join();
        }
    }
}

/// Looks after rings that have ended.
fn watch(inner: &Weak<Inner>) {
    while let Some(inner) = inner.upgrade() {
        if inner.is_over.load(Ordering::Acquire) {
            return;
        }
        let event = inner.state().hold.expire(&inner.options.timing);
        if let Some(event) = event {
            inner.note(event);
        }
        drop(inner);
        std::thread::sleep(WATCH);
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, ServiceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, event: String) {
        let line = event.chars().filter(|c| !c.is_control()).take(MAX_LINE);
        let mut state = self.state();
        if state.events.len() == MAX_EVENTS {
            state.events.pop_front();
        }
        state.events.push_back((Instant::now(), line.collect()));
    }

    fn answer_bytes(self: &Arc<Self>, question: &[u8]) -> Vec<u8> {
        let answer = match Question::parse(question) {
            Ok(question) => self.answer(question),
            Err(error) => refused(&error.to_string()),
        };
        to_bytes(&answer)
    }

    fn answer(self: &Arc<Self>, question: Question) -> Answer {
        match question {
            Question::Describe => Answer::Card(Box::new(self.card())),
            Question::Echo { n_bytes } => Answer::Echo {
                padding: "x".repeat(n_bytes as usize),
            },
            Question::MeasureLink { to } => self.measure_link(to),
            Question::Prepare(prepare) => {
                let Reply { answer, event } = hold::prepare(self, *prepare);
                event.into_iter().for_each(|event| self.note(event));
                answer
            }
            Question::Fetch(prepare) => fetch::fetch(self, *prepare),
            Question::Progress { ring } => self.state().hold.progress(ring),
            Question::Release { ring } => {
                self.state().hold.release(Some(ring));
                Answer::Released
            }
            Question::Leave => {
                self.note("asked to leave the cluster".to_owned());
                self.is_leaving.store(true, Ordering::Release);
                self.state().hold.release(None);
                Answer::Released
            }
            Question::Log => Answer::Log(self.events()),
            Question::Rekey { key } => self.rekey(&key),
            Question::Members { .. } => refused("the members are known to the network"),
            Question::Chain => refused("this node takes its layers from the plans of rings"),
        }
    }

    /// Keeps a new key, unless a ring would be cut off by it.
    fn rekey(&self, key: &ClusterKey) -> Answer {
        let Some(keep) = self.keep_key.get() else {
            return refused("this node takes no key by the network");
        };
        let state = self.state();
        if let Some(owner) = state.hold.owner() {
            return refused(&format!("it works for a ring of {owner}"));
        }
        if self.is_rekeying.swap(true, Ordering::AcqRel) {
            return refused("it is taking a key already");
        }
        drop(state);
        match keep(key) {
            Ok(()) => {
                self.note("took a new key of the cluster".to_owned());
                self.is_rekeyed.store(true, Ordering::Release);
                Answer::Rekeyed
            }
            Err(why) => {
                self.is_rekeying.store(false, Ordering::Release);
                refused(&why)
            }
        }
    }

    fn compute(&self) -> Compute {
        let options = &self.options;
        Compute {
            kernels: options.kernels,
            pool: Arc::clone(&options.pool),
            budget: options.budget.clone(),
            states: options.states.clone(),
            links: Arc::clone(&self.links),
        }
    }

    fn card(&self) -> Card {
        let options = &self.options;
        let events = self.events();
        let state = self.state();
        // Warm weights go when they are in the way, and so does a ring whose owner is silent.
        let free = match state.hold.is_held(&options.timing) {
            true => options.budget.left(),
            false => options.budget.limit(),
        };
        Card {
            name: options.name.clone(),
            program: PROGRAM.to_owned(),
            protocol: wire::VERSION,
            isa: options.kernels.isa().to_owned(),
            n_threads: u32::try_from(options.pool.n_threads()).unwrap_or(u32::MAX),
            addresses: options.addresses.clone(),
            memory: MemoryNumbers {
                all_bytes: options.budget.limit(),
                free_bytes: free,
            },
            disk_free_bytes: options.models.disk_free_bytes(),
            measure: options.measure,
            celsius: (options.celsius)(),
            is_throttled: is_throttled(),
            held: state.hold.card(options.budget.used(), &options.timing),
            events,
        }
    }

    fn events(&self) -> Vec<CardEvent> {
        let state = self.state();
        let event = |(at, text): &(Instant, String)| CardEvent {
            ago_s: at.elapsed().as_secs(),
            text: text.clone(),
        };
        state.events.iter().map(event).collect()
    }

    /// Begins to measure a link, or tells the result: a failure once, a link for some minutes.
    fn measure_link(self: &Arc<Self>, to: NodeAddress) -> Answer {
        let Some(measure) = self.options.measure_link.clone() else {
            return refused("this node does not measure links");
        };
        let mut state = self.state();
        match state.links.get(&to) {
            Some(LinkState::Measuring) => return Answer::Measuring,
            Some(LinkState::Done(Ok(link), at)) if at.elapsed() < MAX_LINK_AGE => {
                return Answer::Link(*link);
            }
            Some(LinkState::Done(Err(why), at)) if at.elapsed() < MAX_LINK_AGE => {
                let answer = refused(why);
                state.links.remove(&to);
                return answer;
            }
            Some(LinkState::Done(..)) | None => {}
        }
        if state.links.len() >= MAX_LINKS {
            state.links.clear();
        }
        let inner = Arc::clone(self);
        let place = to.clone();
        let thread = std::thread::Builder::new().name("measure".to_owned());
        let thread = thread.spawn(move || {
            let done = measure(&place);
            inner
                .state()
                .links
                .insert(place, LinkState::Done(done, Instant::now()));
        });
        if let Err(error) = thread {
            return refused(&error.to_string());
        }
        state.links.insert(to, LinkState::Measuring);
        Answer::Measuring
    }
}

/// An answer that a question has none, in one line.
fn refused(why: &str) -> Answer {
    let line = why.chars().filter(|c| !c.is_control()).take(MAX_LINE);
    Answer::Refused {
        why: line.collect(),
    }
}

fn to_bytes(answer: &Answer) -> Vec<u8> {
    let shorter = |error| refused(&format!("an answer that cannot be sent: {error}"));
    answer
        .to_bytes()
        .or_else(|error| shorter(error).to_bytes())
        .unwrap_or_default()
}
