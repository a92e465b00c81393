//! Keepers: a thread per stage that prepares it, shows that the coordinator is there, and releases
//! it.

use std::{
    io,
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use atta_model::Error;

use super::{OnStage, StageProgress, random};
use crate::{
    control::{Control, NodeName},
    wire::message::{Answer, Loading, Prepare, Question},
};

/// Time for an answer.
const ASK: Duration = Duration::from_secs(2);
/// Time between questions while a stage loads.
const POLL: Duration = Duration::from_millis(100);
/// Time between questions that show the node that the coordinator is there.
const KEEP: Duration = Duration::from_secs(5);
/// Silence of a node after which its stage cannot be prepared.
const PATIENCE: Duration = Duration::from_secs(6);

/// Tries where a node belongs to another ring.
const MAX_TRIES: u32 = 3;
/// Shortest and longest wait before another try, ms.
const WAIT_MS: Range<u64> = 500..2000;

/// What became of the preparation of all stages.
enum Outcome {
    /// All are ready.
    Ready,
    /// A node belongs to the ring of another coordinator.
    Occupied { node: NodeName, by: NodeName },
    /// A stage cannot be prepared.
    Failed { node: NodeName, why: String },
}

/// Why stages are not formed.
pub(crate) enum FormError {
    /// By a node: without it another plan may be possible.
    Node {
        node: NodeName,
        line: String,
    },
    Other(Error),
}

impl From<Error> for FormError {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<FormError> for Error {
    fn from(error: FormError) -> Self {
        match error {
            FormError::Node { line, .. } => Self::Ring(line),
            FormError::Other(error) => error,
        }
    }
}

/// The one report of a keeper.
enum FirstWord {
    Ready,
    Occupied(NodeName),
    Failed(String),
}

/// The keepers of a ring. Dropping them releases all stages.
pub(crate) struct Keepers {
    nodes: Vec<NodeName>,
    reports: Mutex<Receiver<(usize, FirstWord)>>,
    stops: Vec<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Keepers {
    /// Prepares all stages; where nodes belong to another ring, several times.
    ///
    /// # Errors
    /// A node that cannot, is occupied, or is not ready in time.
    pub(crate) fn ready(
        control: &Arc<dyn Control>,
        on_stage: &OnStage,
        questions: &[(NodeName, Prepare)],
        until: Instant,
    ) -> Result<Self, FormError> {
        for attempt in 1.. {
            let keepers = Self::start(control, on_stage, questions)
                .map_err(|error| Error::Ring(format!("a thread for each stage: {error}")))?;
            match keepers.wait(until) {
                Outcome::Ready => return Ok(keepers),
                Outcome::Occupied { .. } if attempt < MAX_TRIES => {
                    drop(keepers);
                    thread::sleep(Duration::from_millis(random_wait()?));
                }
                Outcome::Occupied { node, by } => {
                    let line = format!("{node} belongs to a ring of {by}");
                    return Err(FormError::Node { node, line });
                }
                Outcome::Failed { node, why } => {
                    let line = format!("{node}: {why}");
                    return Err(FormError::Node { node, line });
                }
            }
        }
        unreachable!("the last try returns")
    }

    /// Starts a keeper for each stage.
    ///
    /// # Errors
    /// The system starts no thread.
    fn start(
        control: &Arc<dyn Control>,
        on_stage: &OnStage,
        questions: &[(NodeName, Prepare)],
    ) -> io::Result<Self> {
        let (to_reports, reports) = mpsc::channel();
        let mut keepers = Self {
            nodes: Vec::new(),
            reports: Mutex::new(reports),
            stops: Vec::new(),
            threads: Vec::new(),
        };
        for (i, (node, prepare)) in questions.iter().enumerate() {
            let (stop, stopped) = mpsc::channel();
            let keeper = Keeper {
                control: Arc::clone(control),
                node: node.clone(),
                ring: prepare.ring,
                on_stage: Arc::clone(on_stage),
                stopped,
            };
            let reports = to_reports.clone();
            let prepare = prepare.clone();
            let thread = std::thread::Builder::new().name(format!("keeper of {node}"));
            let thread = thread.spawn(move || keeper.run(prepare, i, &reports))?;
            keepers.nodes.push(node.clone());
            keepers.stops.push(stop);
            keepers.threads.push(thread);
        }
        Ok(keepers)
    }

    /// Waits until all stages are ready, or one cannot be.
    fn wait(&self, until: Instant) -> Outcome {
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_ready = vec![false; self.nodes.len()];
        while let Some(slow) = is_ready.iter().position(|is_ready| !is_ready) {
            let left = until.saturating_duration_since(Instant::now());
            match reports.recv_timeout(left) {
                Ok((i, FirstWord::Ready)) => is_ready[i] = true,
                Ok((i, FirstWord::Occupied(by))) => {
                    let node = self.nodes[i].clone();
                    return Outcome::Occupied { node, by };
                }
                Ok((i, FirstWord::Failed(why))) => {
                    let node = self.nodes[i].clone();
                    return Outcome::Failed { node, why };
                }
                Err(_) => {
                    return Outcome::Failed {
                        node: self.nodes[slow].clone(),
                        why: "its stage is not ready in time".to_owned(),
                    };
                }
            }
        }
        Outcome::Ready
    }
}

impl Keepers {
    /// Lets the keepers release the stages without waiting for silent nodes.
    pub(super) fn detach(mut self) {
        self.threads.clear();
    }
}

impl Drop for Keepers {
    fn drop(&mut self) {
        self.stops.clear();
        for thread in self.threads.drain(..) {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}

/// A wait of random length, so that two coordinators do not try again at the same time, ms.
fn random_wait() -> Result<u64, Error> {
    let n = u64::from_le_bytes(random()?);
    Ok(WAIT_MS.start + n % (WAIT_MS.end - WAIT_MS.start))
}

/// The keeper of one stage.
struct Keeper {
    control: Arc<dyn Control>,
    node: NodeName,
    ring: u64,
    on_stage: OnStage,
    /// Ends when the ring does.
    stopped: Receiver<()>,
}

impl Keeper {
    fn run(self, prepare: Prepare, i: usize, reports: &Sender<(usize, FirstWord)>) {
        let share = prepare.model.share;
        let report = match self.prepare(prepare) {
            Some(Answer::Ready(ready)) if ready.share == share => {
                (self.on_stage)(&self.node, &StageProgress::Ready(ready));
                FirstWord::Ready
            }
            Some(Answer::Ready(_)) => {
                FirstWord::Failed("its copy of these layers has other weights".to_owned())
            }
            Some(Answer::Occupied(occupied)) => FirstWord::Occupied(occupied.by),
            answer => FirstWord::Failed(why_not(answer)),
        };
        let is_ready = matches!(report, FirstWord::Ready);
        // Without a receiver the ring has been given up.
        let _ = reports.send((i, report));
        let ring = self.ring;
        while is_ready && !self.is_stopped(KEEP) {
            // Silence is found by the lane.
            let _ = self.ask(&Question::Progress { ring });
        }
        let _ = self.ask(&Question::Release { ring });
    }

    /// Asks until the stage is ready or cannot be; `None`: the node does not answer, or the ring
    /// has been given up.
    fn prepare(&self, prepare: Prepare) -> Option<Answer> {
        let ring = self.ring;
        let prepare = Question::Prepare(Box::new(prepare));
        self.settle(prepare, &Question::Progress { ring })
    }

    /// Asks the node for weights in a thread of its own, which tells its last answer.
    fn fetch(
        self,
        prepare: Prepare,
        results: Sender<(NodeName, Option<Answer>)>,
    ) -> io::Result<JoinHandle<()>> {
        let thread = std::thread::Builder::new().name(format!("fetching by {}", self.node));
        thread.spawn(move || {
            let question = Question::Fetch(Box::new(prepare));
            let answer = self.settle(question.clone(), &question);
            // Without a receiver the fetch has been given up.
            let _ = results.send((self.node, answer));
        })
    }

    /// Asks a question, then another one as long as the node is not done.
    fn settle(&self, mut question: Question, then: &Question) -> Option<Answer> {
        let mut heard = Instant::now();
        let mut last = None;
        loop {
            match self.ask(&question) {
                Some(Answer::Loading(loading)) => {
                    heard = Instant::now();
                    question.clone_from(then);
                    self.tell(&loading, &mut last);
                }
                Some(answer) => return Some(answer),
                None if heard.elapsed() >= PATIENCE => return None,
                None => {}
            }
            if self.is_stopped(POLL) {
                return None;
            }
        }
    }

    /// Tells how far the stage is, unless that is known.
    fn tell(&self, loading: &Loading, last: &mut Option<Loading>) {
        if last.as_ref() != Some(loading) {
            *last = Some(loading.clone());
            (self.on_stage)(&self.node, &StageProgress::Loading(loading.clone()));
        }
    }

    fn ask(&self, question: &Question) -> Option<Answer> {
        ask(&*self.control, &self.node, question, ASK)
    }

    /// Waits, or until the ring ends.
    fn is_stopped(&self, wait: Duration) -> bool {
        self.stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout)
    }
}

/// Why a node has not done what it was asked for.
fn why_not(answer: Option<Answer>) -> String {
    match answer {
        Some(Answer::Blocked(blocked)) => match blocked.would_do {
            Some(would_do) => format!("{}; it would take {would_do}", blocked.why),
            None => blocked.why,
        },
        Some(Answer::Refused { why }) => why,
        Some(_) => "it gave an answer to another question".to_owned(),
        None => "it does not answer".to_owned(),
    }
}

/// Has nodes fetch the weights of stages that are prepared later, and waits until all have them.
///
/// # Errors
/// A node that cannot, is silent, or is not done in time.
pub(super) fn fetch_all(
    control: &Arc<dyn Control>,
    on_stage: &OnStage,
    questions: Vec<(NodeName, Prepare)>,
    until: Instant,
) -> Result<(), FormError> {
    let (to_results, results) = mpsc::channel();
    let n = questions.len();
    // Without them, the threads end soon.
    let mut stops = Vec::new();
    for (node, prepare) in questions {
        let (stop, stopped) = mpsc::channel();
        stops.push(stop);
        let keeper = Keeper {
            control: Arc::clone(control),
            node,
            ring: prepare.ring,
            on_stage: Arc::clone(on_stage),
            stopped,
        };
        let started = keeper.fetch(prepare, to_results.clone());
        started.map_err(|error| Error::Ring(format!("a thread for each node: {error}")))?;
    }
    drop(to_results);
    for _ in 0..n {
        let left = until.saturating_duration_since(Instant::now());
        match results.recv_timeout(left) {
            Ok((_, Some(Answer::Fetched))) => {}
            Ok((node, answer)) => {
                let line = format!("{node}: {}", why_not(answer));
                return Err(FormError::Node { node, line });
            }
            Err(_) => {
                let why = "nodes do not have their weights in time";
                return Err(Error::Ring(why.to_owned()).into());
            }
        }
    }
    Ok(())
}

/// The answer of a node; `None`: it is silent.
pub(crate) fn ask(
    control: &dyn Control,
    node: &NodeName,
    question: &Question,
    deadline: Duration,
) -> Option<Answer> {
    let bytes = question.to_bytes().ok()?;
    let answer = control.ask(node, &bytes, deadline).ok()?;
    Some(
        Answer::parse(&answer).unwrap_or_else(|error| Answer::Refused {
            why: error.to_string(),
        }),
    )
}
