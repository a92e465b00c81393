//! The thread that computes, and how the rest of the server talks to it.
//!
//! Knows jobs, not what they are for. The one idea: whoever asks holds the receiving end of a
//! channel; when that is gone, so is the job, at its next token.

use std::{
    collections::HashMap,
    io::Write,
    ops::ControlFlow,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender, TryRecvError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use atta_engine::{Batcher, Counts, Done, Event, Job, JobId, LogProb, LogProbs, Update};
use tokio::sync::mpsc::UnboundedSender;

use crate::{flow::error::Refusal, step_lock::Turns};

/// What is heard of a job, with the number that its owner gave it.
pub(crate) type Heard = (usize, News);

/// What is heard of a job.
#[derive(Debug)]
pub(crate) enum News {
    /// More text.
    Text(String),
    /// A token was chosen, and this is what the model thought of it.
    Token(Thought),
    /// The vector of its text.
    Embedding(Vec<f32>),
    /// It has come to its end.
    Done(Done),
    /// It has not.
    Failed(Refusal),
}

/// A token with its log-probability, and the best ones at its place.
#[derive(Debug)]
pub(crate) struct Thought {
    pub(crate) chosen: LogProb,
    pub(crate) top: Vec<LogProb>,
}

impl Thought {
    fn of(logprobs: &LogProbs) -> Self {
        Self {
            chosen: logprobs.chosen(),
            top: logprobs.top().to_vec(),
        }
    }
}

enum Command {
    Submit { job: Box<Job>, owner: Owner },
    Stop,
}

/// Whose a job is.
struct Owner {
    /// That of the job among those of its owner.
    number: usize,
    news: UnboundedSender<Heard>,
    /// When it has to end.
    until: Option<Instant>,
}

/// How it is going, for whoever wants to know.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Status {
    pub(crate) counts: Counts,
    pub(crate) n_running: usize,
    pub(crate) n_waiting: usize,
    /// That have keys and values.
    pub(crate) n_positions: usize,
    pub(crate) n_positions_max: usize,
    /// The longest time from one step to the next while a text was written.
    pub(crate) max_gap: Duration,
}

impl Status {
    /// Of two threads.
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
struct Shared {
    status: Mutex<Status>,
    has_ended: AtomicBool,
    /// It was asked to end.
    may_end: AtomicBool,
}

/// Where jobs are sent.
#[derive(Clone)]
pub(crate) struct Worker {
    commands: Sender<Command>,
    shared: Arc<Shared>,
}

impl Worker {
    /// Starts the thread. It ends after [`stop`](Self::stop), when there is nothing left to do. If
    /// it ends otherwise, `on_grief` is called.
    pub(crate) fn start(
        batcher: Batcher,
        turns: Arc<Turns>,
        on_grief: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (commands, received) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        let desk = Desk {
            batcher,
            turns,
            commands: received,
            shared: Arc::clone(&shared),
            owners: HashMap::new(),
            last: None,
            max_gap: Duration::ZERO,
        };
        let end = End {
            shared: Arc::clone(&shared),
            on_grief: Some(Box::new(on_grief)),
        };
        let work = move || {
            let _end = end;
            desk.run();
        };
        let thread = thread::Builder::new()
            .name("atta-compute".to_owned())
            .spawn(work)?;
        Ok((Self { commands, shared }, thread))
    }

    /// Puts jobs into the queue; their news come by the channel, numbered from 0. What is not
    /// complete by `until` ends there.
    pub(crate) fn submit(
        &self,
        jobs: Vec<Job>,
        news: &UnboundedSender<Heard>,
        until: Option<Instant>,
    ) -> Result<(), Refusal> {
        for (number, job) in jobs.into_iter().enumerate() {
            let owner = Owner {
                number,
                news: news.clone(),
                until,
            };
            self.commands
                .send(Command::Submit {
                    job: Box::new(job),
                    owner,
                })
                .map_err(|_| Refusal::stopping())?;
        }
        Ok(())
    }

    /// Whether the thread is there no more.
    pub(crate) fn has_ended(&self) -> bool {
        self.shared.has_ended.load(Ordering::Relaxed)
    }

    pub(crate) fn status(&self) -> Status {
        *self
            .shared
            .status
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the thread end when all jobs have.
    pub(crate) fn stop(&self) {
        self.shared.may_end.store(true, Ordering::Relaxed);
        // If it is not there any more, it has ended.
        let _ = self.commands.send(Command::Stop);
    }
}

/// Tells of the end of the thread, even if that is a panic.
struct End {
    shared: Arc<Shared>,
    on_grief: Option<Box<dyn FnOnce() + Send>>,
}

impl Drop for End {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Relaxed);
        let is_well = self.shared.may_end.load(Ordering::Relaxed) && !thread::panicking();
        if let Some(on_grief) = self.on_grief.take().filter(|_| !is_well) {
            on_grief();
        }
    }
}

/// What the thread has.
struct Desk {
    batcher: Batcher,
    turns: Arc<Turns>,
    commands: Receiver<Command>,
    shared: Arc<Shared>,
    owners: HashMap<JobId, Owner>,
    /// When the last step ended, if there is another one to come.
    last: Option<Instant>,
    max_gap: Duration,
}

impl Desk {
    fn run(mut self) {
        // Whether nobody can send anything any more, which is as good as being asked to stop.
        let (mut is_stopping, mut is_alone) = (false, false);
        loop {
            let command = match self.batcher.is_idle() {
                true if is_stopping || is_alone => return self.end(),
                true => self.commands.recv().map_err(|_| TryRecvError::Disconnected),
                false if is_alone => Err(TryRecvError::Empty),
                false => self.commands.try_recv(),
            };
            match command {
                Ok(Command::Submit { job, owner }) => self.take(*job, owner),
                Ok(Command::Stop) => is_stopping = true,
                Err(TryRecvError::Disconnected) => is_alone = true,
                Err(TryRecvError::Empty) => self.step(),
            }
            self.publish();
        }
    }

    /// Leaves on disk, if there is a place for it, what others may ask for again.
    fn end(&mut self) {
        self.batcher.save_kept();
        self.warn();
    }

    /// Tells of what is wrong with files of the cache.
    fn warn(&mut self) {
        for note in self.batcher.take_notes() {
            // A warning that nobody reads is none.
            let _ = writeln!(std::io::stderr(), "atta: warning: {note}");
        }
    }

    fn take(&mut self, job: Job, owner: Owner) {
        // Whoever is gone does not need it.
        if owner.news.is_closed() {
            return;
        }
        match self.batcher.submit(job) {
            Ok(id) => drop(self.owners.insert(id, owner)),
            Err(error) => drop(owner.news.send((owner.number, News::Failed(error.into())))),
        }
    }

    fn step(&mut self) {
        self.dismiss();
        let owners = &mut self.owners;
        let turn = self.turns.wait();
        let stepped = self
            .batcher
            .step(&mut |id, update| tell(owners, id, update));
        drop(turn);
        self.warn();
        let now = Instant::now();
        self.max_gap = self
            .max_gap
            .max(self.last.map_or(Duration::ZERO, |last| now - last));
        self.last = (self.batcher.n_running() > 0).then_some(now);
        if let Err(error) = stepped {
            let refusal = Refusal::from(error);
            for (id, owner) in self.owners.drain() {
                self.batcher.cancel(id);
                let _ = owner
                    .news
                    .send((owner.number, News::Failed(refusal.clone())));
            }
        }
    }

    /// Ends the jobs of those who are gone, and those whose time is up.
    fn dismiss(&mut self) {
        let now = Instant::now();
        let is_late = |owner: &Owner| owner.until.is_some_and(|until| until <= now);
        let ended = self
            .owners
            .iter()
            .filter(|(_, owner)| owner.news.is_closed() || is_late(owner));
        let ended: Vec<(JobId, bool)> = ended
            .map(|(&id, owner)| (id, owner.news.is_closed()))
            .collect();
        for (id, is_gone) in ended {
            let owners = &mut self.owners;
            match is_gone {
                true => self.batcher.cancel(id),
                false => self
                    .batcher
                    .finish(id, &mut |id, update| tell(owners, id, update)),
            }
            self.owners.remove(&id);
        }
    }

    /// Writes down how it is going.
    fn publish(&self) {
        let (n_positions, n_positions_max) = self.batcher.n_positions();
        let mut status = self
            .shared
            .status
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *status = Status {
            counts: self.batcher.counts(),
            n_running: self.batcher.n_running(),
            n_waiting: self.batcher.n_waiting(),
            n_positions,
            n_positions_max,
            max_gap: self.max_gap,
        };
    }
}

/// Passes on what is heard of a job; a job whose owner is gone ends.
fn tell(owners: &mut HashMap<JobId, Owner>, id: JobId, update: Update<'_>) -> ControlFlow<()> {
    let Some(Owner {
        number,
        news: sender,
        ..
    }) = owners.get(&id)
    else {
        return ControlFlow::Break(());
    };
    let (news, is_last) = match update {
        Update::Event(Event::Text(text)) => (News::Text(text.to_owned()), false),
        Update::Event(Event::Token {
            logprobs: Some(logprobs),
            ..
        }) => (News::Token(Thought::of(logprobs)), false),
        Update::Embedding(vector) => (News::Embedding(vector.to_vec()), false),
        Update::Event(_) if sender.is_closed() => return ControlFlow::Break(()),
        Update::Event(_) => return ControlFlow::Continue(()),
        Update::Done(done) => (News::Done(done.clone()), true),
        Update::Failed(error) => (News::Failed(Refusal::failed(error)), true),
    };
    let sent = sender.send((*number, news));
    if is_last || sent.is_err() {
        owners.remove(&id);
    }
    if sent.is_ok() {
        ControlFlow::Continue(())
    } else {
        ControlFlow::Break(())
    }
}
