//! A member of a group on this machine: does what the lead of another machine asks for.
//!
//! Knows no network: messages come by [`GroupLinks`]. One thread takes commands and computes; it
//! ends with its links, and its links end with it, which all other members see.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use atta_model::{Cpu, Output};

use super::{MemberCommand, MemberLinks, Message, executor::obey};
use crate::links::{GroupLinks, RunningStage};

/// The lead's number.
pub(crate) const LEAD: usize = 0;

/// The links of a group for the exchange of an executor.
pub(crate) struct ExchangeLinks {
    links: Arc<dyn GroupLinks>,
    patience: Arc<Patience>,
}

/// How long a member waits for the columns of another one.
#[derive(Debug)]
pub(crate) struct Patience {
    start: Instant,
    /// When the batch at hand must be done, µs since the start; `u64::MAX`: it has time.
    until_us: AtomicU64,
}

impl Patience {
    /// A member that waits until its links end. The lead ends them.
    pub(crate) fn endless() -> Self {
        Self {
            start: Instant::now(),
            until_us: AtomicU64::new(u64::MAX),
        }
    }

    /// A batch begins that must be done in so much time.
    pub(crate) fn begin(&self, time: Duration) {
        let until = self.start.elapsed().saturating_add(time).as_micros();
        let until = u64::try_from(until).unwrap_or(u64::MAX);
        self.until_us.store(until, Ordering::Release);
    }

    fn until(&self) -> Option<Instant> {
        match self.until_us.load(Ordering::Acquire) {
            u64::MAX => None,
            us => self.start.checked_add(Duration::from_micros(us)),
        }
    }
}

impl ExchangeLinks {
    /// Waits as long as that.
    pub(crate) fn new(links: Arc<dyn GroupLinks>, patience: Arc<Patience>) -> Self {
        Self { links, patience }
    }
}

impl MemberLinks for ExchangeLinks {
    fn send(&mut self, to: usize, message: Message) {
        self.links.send(to, &message);
    }

    fn recv(&mut self, from: usize) -> Option<Message> {
        self.links.recv(from, self.patience.until())
    }
}

/// A running member. Dropping it ends it, behind a running computation.
pub(crate) struct MemberHost {
    links: Arc<dyn GroupLinks>,
    told: Arc<MemberState>,
    thread: Option<JoinHandle<()>>,
}

/// What other threads may know of the member.
struct MemberState {
    start: Instant,
    is_over: AtomicBool,
    n_computed: AtomicU64,
    /// When the lead was last heard, in ms since the start.
    heard_ms: AtomicU64,
}

impl MemberHost {
    /// Starts a member whose executor exchanges columns by these links.
    ///
    /// # Errors
    /// The system starts no thread.
    pub(crate) fn start(cpu: Cpu, links: Arc<dyn GroupLinks>) -> io::Result<Self> {
        let told = Arc::new(MemberState {
            start: Instant::now(),
            is_over: AtomicBool::new(false),
            n_computed: AtomicU64::new(0),
            heard_ms: AtomicU64::new(0),
        });
        let thread = std::thread::Builder::new().name("member".to_owned());
        let thread = thread.spawn({
            let links = Arc::clone(&links);
            let told = Arc::clone(&told);
            move || {
                let _end = End(&links, &told);
                follow(cpu, &links, &told);
            }
        })?;
        Ok(Self {
            links,
            told,
            thread: Some(thread),
        })
    }
}

/// Ends the links of a member that ends, also by a panic.
struct End<'a>(&'a Arc<dyn GroupLinks>, &'a MemberState);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.close();
        self.1.is_over.store(true, Ordering::Release);
    }
}

/// Does what the lead asks for, until its link is gone or this member has come apart from it.
fn follow(mut cpu: Cpu, links: &Arc<dyn GroupLinks>, told: &MemberState) {
    let mut out = Output::default();
    while let Some(message) = links.recv(LEAD, None) {
        told.hear();
        // Columns and failures are of a batch that this member could not complete.
        let Message::Command(command) = message else {
            continue;
        };
        if obey(&mut cpu, &command, &mut out).is_none() {
            return;
        }
        told.hear();
        if let MemberCommand::Compute(_) = &*command {
            told.n_computed.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl MemberState {
    fn hear(&self) {
        let ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard_ms.store(ms, Ordering::Release);
    }
}

impl RunningStage for MemberHost {
    fn is_over(&self) -> bool {
        self.told.is_over.load(Ordering::Acquire)
    }

    fn n_computed(&self) -> u64 {
        self.told.n_computed.load(Ordering::Acquire)
    }

    fn silence(&self) -> Duration {
        let heard = Duration::from_millis(self.told.heard_ms.load(Ordering::Acquire));
        self.told.start.elapsed().saturating_sub(heard)
    }
}

impl Drop for MemberHost {
    fn drop(&mut self) {
        self.links.close();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}
