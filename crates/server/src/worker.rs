//! The worker of a model: a thread that owns its batcher, and the handle through which the async
//! side submits jobs.
//!
//! Knows jobs, not what they are for. The one idea: a client holds the receiving end of a channel;
//! once that is dropped, the worker cancels the client's jobs before its next step. On a system
//! without threads, the thread that waits for an answer takes the worker's turns.

use std::{
    collections::HashMap,
    io::{self, Write},
    ops::ControlFlow,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender, TryRecvError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use atta_engine::{Batcher, Counts, Done, Event, Job, JobId, Update};
use serde_json::json;
use tokio::sync::mpsc::UnboundedSender;

use crate::{
    Log,
    flow::{error::ApiError, logprobs::TokenLogprobs},
    routes::write_log,
    step_lock::StepLock,
};

/// How long commands and clients that are gone may wait while the engine is paused by heat.
const PAUSE: Duration = Duration::from_millis(100);

/// An event of a job.
#[derive(Debug)]
pub(crate) enum JobEvent {
    /// More text.
    Text(String),
    /// Log-probabilities of a token that was sampled.
    Logprobs(TokenLogprobs),
    /// The embedding of the job's text.
    Embedding(Vec<f32>),
    /// The job is complete.
    Done(Done),
    /// The job failed.
    Failed(ApiError),
}

/// A [`JobEvent`], with the index of its job among the jobs of one client.
pub(crate) type IndexedJobEvent = (usize, JobEvent);

enum Command {
    Submit { job: Box<Job>, client: JobClient },
    Stop,
}

/// Receives the events of a job.
struct JobClient {
    /// Index of the job among those of this client.
    index: usize,
    events: UnboundedSender<IndexedJobEvent>,
    /// When the job must end.
    deadline: Option<Instant>,
}

/// Worker statistics for `/metrics` and `/props`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkerStatus {
    pub(crate) counts: Counts,
    pub(crate) n_running: usize,
    pub(crate) n_waiting: usize,
    /// Positions in the KV cache that are in use.
    pub(crate) n_positions: usize,
    /// Positions that the KV cache has.
    pub(crate) n_positions_max: usize,
    /// The longest time between two steps while a job was running.
    pub(crate) max_gap: Duration,
}

impl WorkerStatus {
    /// The statistics of two workers together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            counts: self.counts.and(other.counts),
            n_running: self.n_running + other.n_running,
            n_waiting: self.n_waiting + other.n_waiting,
            n_positions: self.n_positions + other.n_positions,
            n_positions_max: self.n_positions_max + other.n_positions_max,
            max_gap: self.max_gap.max(other.max_gap),
        }
    }
}

#[derive(Default)]
struct WorkerShared {
    status: Mutex<WorkerStatus>,
    has_ended: AtomicBool,
    was_stopped: AtomicBool,
}

/// The handle of a worker.
#[derive(Clone)]
pub(crate) struct Worker {
    commands: Sender<Command>,
    shared: Arc<WorkerShared>,
    /// Of a worker without a thread.
    worker_loop: Option<Arc<Mutex<WorkerLoop>>>,
}

/// How a turn of a worker went that a caller took for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turn {
    /// The worker has a thread, which takes its turns.
    Elsewhere,
    /// There was nothing to do.
    Idle,
    /// A command or a step.
    Taken,
}

impl Worker {
    /// Starts the thread, if the system has threads. It ends once [`stop`](Self::stop) was called
    /// and no job is left. If it ends for another reason, it calls `on_panic`.
    ///
    /// # Errors
    /// A system with threads that refuses to start one.
    pub(crate) fn start(
        batcher: Batcher,
        step_lock: Arc<StepLock>,
        log: Log,
        on_panic: impl FnOnce() + Send + 'static,
    ) -> io::Result<(Self, Option<JoinHandle<()>>)> {
        let (commands, received) = mpsc::channel();
        let shared = Arc::new(WorkerShared::default());
        let worker_loop = WorkerLoop {
            batcher,
            step_lock,
            log,
            commands: received,
            shared: Arc::clone(&shared),
            clients: HashMap::new(),
            last_step: None,
            max_gap: Duration::ZERO,
            is_stopping: false,
            is_disconnected: false,
        };
        let guarded = Arc::clone(&shared);
        let (hand_over, handed_over) = mpsc::channel::<WorkerLoop>();
        let run = move || {
            let _guard = ExitGuard {
                shared: guarded,
                on_panic: Some(Box::new(on_panic)),
            };
            // It is sent as soon as the thread exists.
            let _ = handed_over.recv().map(WorkerLoop::run);
        };
        let thread = thread::Builder::new().name("atta-compute".to_owned());
        let (thread, worker_loop) = match thread.spawn(run) {
            Ok(thread) => {
                let _ = hand_over.send(worker_loop);
                (Some(thread), None)
            }
            Err(error) if error.kind() == io::ErrorKind::Unsupported => (None, Some(worker_loop)),
            Err(error) => return Err(error),
        };
        let this = Self {
            commands,
            shared,
            worker_loop: worker_loop.map(|worker_loop| Arc::new(Mutex::new(worker_loop))),
        };
        Ok((this, thread))
    }

    /// Takes the next turn of a worker without a thread, on this thread.
    pub(crate) fn turn(&self) -> Turn {
        let Some(worker_loop) = &self.worker_loop else {
            return Turn::Elsewhere;
        };
        match lock(worker_loop).turn_now() {
            false => Turn::Idle,
            true => Turn::Taken,
        }
    }

    /// Submits jobs; their events are sent to `events` with the index of the job. Jobs that are not
    /// complete at `deadline` end there.
    pub(crate) fn submit(
        &self,
        jobs: Vec<Job>,
        events: &UnboundedSender<IndexedJobEvent>,
        deadline: Option<Instant>,
    ) -> Result<(), ApiError> {
        for (index, job) in jobs.into_iter().enumerate() {
            let client = JobClient {
                index,
                events: events.clone(),
                deadline,
            };
            let job = Box::new(job);
            self.commands
                .send(Command::Submit { job, client })
                .map_err(|_| ApiError::stopping())?;
        }
        Ok(())
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.shared.has_ended.load(Ordering::Relaxed)
    }

    pub(crate) fn status(&self) -> WorkerStatus {
        *lock(&self.shared.status)
    }

    /// Asks the thread to end when no job is left.
    pub(crate) fn stop(&self) {
        self.shared.was_stopped.store(true, Ordering::Relaxed);
        // If the thread has ended, nothing receives the command.
        let _ = self.commands.send(Command::Stop);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports the end of the thread, after a panic too.
struct ExitGuard {
    shared: Arc<WorkerShared>,
    on_panic: Option<Box<dyn FnOnce() + Send>>,
}

impl Drop for ExitGuard {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Relaxed);
        let is_well = self.shared.was_stopped.load(Ordering::Relaxed) && !thread::panicking();
        if let Some(on_panic) = self.on_panic.take().filter(|_| !is_well) {
            on_panic();
        }
    }
}

/// The state of a worker.
struct WorkerLoop {
    batcher: Batcher,
    step_lock: Arc<StepLock>,
    log: Log,
    commands: Receiver<Command>,
    shared: Arc<WorkerShared>,
    clients: HashMap<JobId, JobClient>,
    /// When the last step ended, if a job is running.
    last_step: Option<Instant>,
    max_gap: Duration,
    is_stopping: bool,
    /// All handles are gone, so that no command can come; the worker ends as if it was stopped.
    is_disconnected: bool,
}

impl WorkerLoop {
    fn run(mut self) {
        while let Some(command) = self.next_command() {
            self.take_turn(command);
        }
        self.shut_down();
    }

    /// The next command, waiting for one if there is nothing else to do; `None` at the end.
    fn next_command(&self) -> Option<Result<Command, TryRecvError>> {
        Some(match self.batcher.is_idle() {
            true if self.is_stopping || self.is_disconnected => return None,
            true => self.commands.recv().map_err(|_| TryRecvError::Disconnected),
            false if self.is_disconnected => Err(TryRecvError::Empty),
            false => self.commands.try_recv(),
        })
    }

    /// Takes a command or a step, if there is one, without waiting.
    fn turn_now(&mut self) -> bool {
        match self.commands.try_recv() {
            Ok(command) => self.take_turn(Ok(command)),
            Err(_) if self.batcher.is_idle() => return false,
            Err(_) => self.take_turn(Err(TryRecvError::Empty)),
        }
        true
    }

    fn take_turn(&mut self, command: Result<Command, TryRecvError>) {
        match command {
            Ok(Command::Submit { job, client }) => self.admit(*job, client),
            Ok(Command::Stop) => self.is_stopping = true,
            Err(TryRecvError::Disconnected) => self.is_disconnected = true,
            Err(TryRecvError::Empty) => self.step(),
        }
        self.publish_status();
    }

    /// Writes cached prefixes to disk, if the batcher has a disk tier.
    fn shut_down(&mut self) {
        self.batcher.save_cached_prefixes();
        self.print_warnings();
    }

    /// Prints what the batcher reports about files of the prefix cache.
    fn print_warnings(&mut self) {
        for note in self.batcher.take_notes() {
            // The warning is lost if standard error is closed.
            let _ = writeln!(std::io::stderr(), "atta: warning: {note}");
        }
    }

    fn admit(&mut self, job: Job, client: JobClient) {
        if client.events.is_closed() {
            return;
        }
        match self.batcher.submit(job) {
            Ok(id) => drop(self.clients.insert(id, client)),
            Err(error) => drop(client.send(JobEvent::Failed(error.into()))),
        }
    }

    fn step(&mut self) {
        self.end_jobs();
        if !self.batcher.engine().wait_while_paused(PAUSE) {
            return;
        }
        let clients = &mut self.clients;
        let log = self.log;
        let guard = self.step_lock.acquire();
        let stepped = self.batcher.step(&mut |id, update| {
            if let Update::Done(done) = update {
                log_reuse(log, id, done);
            }
            send_update(clients, id, update)
        });
        drop(guard);
        self.print_warnings();
        self.measure_gap();
        if let Err(error) = stepped {
            self.fail_all(&ApiError::from(error));
        }
    }

    fn measure_gap(&mut self) {
        let now = Instant::now();
        let gap = self.last_step.map_or(Duration::ZERO, |last| now - last);
        self.max_gap = self.max_gap.max(gap);
        self.last_step = (self.batcher.n_running() > 0).then_some(now);
    }

    /// Cancels all jobs, queued ones too, and reports the error to their clients. The batcher keeps
    /// them as they were, but the next step would do the same work: weights that cannot be read now
    /// are read for every job, and a step that is tried again and again would never end.
    fn fail_all(&mut self, error: &ApiError) {
        for (id, client) in self.clients.drain() {
            self.batcher.cancel(id);
            let _ = client.send(JobEvent::Failed(error.clone()));
        }
    }

    /// Cancels the jobs of clients that are gone, and finishes those whose deadline has passed.
    fn end_jobs(&mut self) {
        let now = Instant::now();
        let is_late = |client: &JobClient| client.deadline.is_some_and(|deadline| deadline <= now);
        let ended: Vec<(JobId, bool)> = self
            .clients
            .iter()
            .filter(|(_, client)| client.events.is_closed() || is_late(client))
            .map(|(&id, client)| (id, client.events.is_closed()))
            .collect();
        for (id, is_gone) in ended {
            let clients = &mut self.clients;
            match is_gone {
                true => self.batcher.cancel(id),
                false => self
                    .batcher
                    .finish(id, &mut |id, update| send_update(clients, id, update)),
            }
            self.clients.remove(&id);
        }
    }

    fn publish_status(&self) {
        let (n_positions, n_positions_max) = self.batcher.n_positions();
        *lock(&self.shared.status) = WorkerStatus {
            counts: self.batcher.counts(),
            n_running: self.batcher.n_running(),
            n_waiting: self.batcher.n_waiting(),
            n_positions,
            n_positions_max,
            max_gap: self.max_gap,
        };
    }
}

impl JobClient {
    /// Sends an event. `Break` if the client is gone.
    fn send(&self, event: JobEvent) -> ControlFlow<()> {
        match self.events.send((self.index, event)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

/// Logs that a prompt was reused approximately.
fn log_reuse(log: Log, JobId(job): JobId, done: &Done) {
    let Done {
        n_prompt,
        n_cached,
        n_approximate,
        ..
    } = *done;
    let line = match log {
        _ if n_approximate == 0 => return,
        Log::Off => return,
        Log::Text => format!(
            "job {job}: {n_cached} of {n_prompt} prompt tokens reused, {n_approximate} approximately"
        ),
        Log::Json => json!({
            "job": job,
            "prompt_tokens": n_prompt,
            "cached_tokens": n_cached,
            "approximate_tokens": n_approximate,
        })
        .to_string(),
    };
    write_log(&line);
}

/// Sends an update to the client of its job. `Break` ends the job, because its client is gone.
fn send_update(
    clients: &mut HashMap<JobId, JobClient>,
    id: JobId,
    update: Update<'_>,
) -> ControlFlow<()> {
    let Some(client) = clients.get(&id) else {
        return ControlFlow::Break(());
    };
    let is_last = matches!(update, Update::Done(_) | Update::Failed(_));
    let event = match update {
        Update::Event(Event::Text(text)) => JobEvent::Text(text),
        Update::Event(Event::Token {
            logprobs: Some(logprobs),
            ..
        }) => JobEvent::Logprobs(TokenLogprobs::of(logprobs)),
        Update::Event(_) if client.events.is_closed() => return ControlFlow::Break(()),
        Update::Event(_) => return ControlFlow::Continue(()),
        Update::Embedding(vector) => JobEvent::Embedding(vector.to_vec()),
        Update::Done(done) => JobEvent::Done(done.clone()),
        Update::Failed(error) => JobEvent::Failed(ApiError::failed(error)),
    };
    let sent = client.send(event);
    if is_last || sent.is_break() {
        clients.remove(&id);
    }
    sent
}
