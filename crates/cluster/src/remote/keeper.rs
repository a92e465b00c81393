//! Keepers: a thread per stage that prepares it, shows that the coordinator is there, and releases
//! it.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::{OnStage, StageProgress};
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

/// What became of the preparation of all stages.
pub(super) enum Outcome {
    /// All are ready.
    Ready,
    /// A node belongs to the ring of another coordinator.
    Occupied { node: NodeName, by: NodeName },
    /// A stage cannot be prepared.
    Failed { node: NodeName, why: String },
}

/// The one report of a keeper.
enum FirstWord {
    Ready,
    Occupied(NodeName),
    Failed(String),
}

/// The keepers of a ring. Dropping them releases all stages.
pub(super) struct Keepers {
    nodes: Vec<NodeName>,
    reports: Mutex<Receiver<(usize, FirstWord)>>,
    stops: Vec<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Keepers {
    /// Starts a keeper for each stage.
    ///
    /// # Errors
    /// The system starts no thread.
    pub(super) fn start(
        control: Arc<dyn Control>,
        on_stage: OnStage,
        questions: impl Iterator<Item = (NodeName, Prepare)>,
    ) -> io::Result<Self> {
        let (to_reports, reports) = mpsc::channel();
        let mut keepers = Self {
            nodes: Vec::new(),
            reports: Mutex::new(reports),
            stops: Vec::new(),
            threads: Vec::new(),
        };
        for (i, (node, prepare)) in questions.enumerate() {
            let (stop, stopped) = mpsc::channel();
            let keeper = Keeper {
                control: Arc::clone(&control),
                node: node.clone(),
                ring: prepare.ring,
                on_stage: Arc::clone(&on_stage),
                stopped,
            };
            let reports = to_reports.clone();
            let thread = std::thread::Builder::new().name(format!("keeper of {node}"));
            let thread = thread.spawn(move || keeper.run(prepare, i, &reports))?;
            keepers.nodes.push(node);
            keepers.stops.push(stop);
            keepers.threads.push(thread);
        }
        Ok(keepers)
    }

    /// Waits until all stages are ready, or one cannot be.
    pub(super) fn wait(&self, until: Instant) -> Outcome {
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
            Some(Answer::Blocked(blocked)) => FirstWord::Failed(match blocked.would_do {
                Some(would_do) => format!("{}; it would take {would_do}", blocked.why),
                None => blocked.why,
            }),
            Some(Answer::Refused { why }) => FirstWord::Failed(why),
            Some(_) => FirstWord::Failed("it gave an answer to another question".to_owned()),
            None => FirstWord::Failed("it does not answer".to_owned()),
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
        let mut question = Question::Prepare(Box::new(prepare));
        let mut heard = Instant::now();
        let mut last = None;
        loop {
            match self.ask(&question) {
                Some(Answer::Loading(loading)) => {
                    heard = Instant::now();
                    let ring = self.ring;
                    question = Question::Progress { ring };
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

/// The answer of a node; `None`: it is silent.
pub(super) fn ask(
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
