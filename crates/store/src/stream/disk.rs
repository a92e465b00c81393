//! Threads that read: pieces of files into slots, in the order asked for, the urgent ones first.
//!
//! A slot is handed to a reader with the request and comes back with the answer, so nobody else can
//! look into it meanwhile.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use super::cut::Cut;
use crate::{
    Error,
    os::{Slot, Source},
};

/// Readers that there can be at once. Disks are not faster with more.
pub(crate) const MAX_READERS: usize = 4;

/// A request, to be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// When a request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// After what was asked for before.
    Next,
    /// Before everything that nobody waits for yet.
    Now,
}

/// The readers of a model's files.
pub(crate) struct Disk {
    shared: Arc<Shared>,
    readers: Vec<JoinHandle<()>>,
}

struct Shared {
    sources: Vec<Source>,
    queue: Mutex<Queue>,
    asked: Condvar,
    answered: Condvar,
    /// How many readers work; the others sleep.
    n_active: AtomicUsize,
    n_bytes: AtomicU64,
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<Request>,
    answers: Vec<Answer>,
    n_tickets: u64,
    is_closed: bool,
}

struct Request {
    ticket: Ticket,
    cuts: Arc<[Cut]>,
    slot: Slot,
}

struct Answer {
    ticket: Ticket,
    slot: Slot,
    result: Result<(), Error>,
}

impl Disk {
    /// Starts the readers.
    ///
    /// # Errors
    /// A system that gives no threads.
    pub(crate) fn new(sources: Vec<Source>) -> Result<Self, Error> {
        let shared = Arc::new(Shared {
            sources,
            queue: Mutex::default(),
            asked: Condvar::new(),
            answered: Condvar::new(),
            n_active: AtomicUsize::new(MAX_READERS),
            n_bytes: AtomicU64::new(0),
        });
        let mut disk = Self {
            shared,
            readers: Vec::new(),
        };
        for reader in 0..MAX_READERS {
            let shared = disk.shared.clone();
            let thread = thread::Builder::new().name(format!("atta-read-{reader}"));
            disk.readers.push(
                thread
                    .spawn(move || shared.serve(reader))
                    .map_err(Error::Readers)?,
            );
        }
        Ok(disk)
    }

    /// Lets only `n` readers work from now on.
    pub(crate) fn set_active(&self, n: usize) {
        self.shared
            .n_active
            .store(n.clamp(1, MAX_READERS), Ordering::Relaxed);
        // Under the lock, so that no reader is between looking and sleeping.
        drop(self.shared.lock());
        self.shared.asked.notify_all();
    }

    /// The files.
    pub(crate) fn sources(&self) -> &[Source] {
        &self.shared.sources
    }

    /// Bytes read so far.
    pub(crate) fn n_bytes(&self) -> u64 {
        self.shared.n_bytes.load(Ordering::Relaxed)
    }

    /// Asks for cuts to be read into a slot that is large enough.
    pub(crate) fn ask(&self, cuts: &Arc<[Cut]>, slot: Slot, turn: Turn) -> Ticket {
        let mut queue = self.shared.lock();
        let ticket = Ticket(queue.n_tickets);
        queue.n_tickets += 1;
        let request = Request {
            ticket,
            cuts: cuts.clone(),
            slot,
        };
        match turn {
            Turn::Next => queue.requests.push_back(request),
            Turn::Now => queue.requests.push_front(request),
        }
        drop(queue);
        // Any of them may be one that sleeps because it is not active.
        self.shared.asked.notify_all();
        ticket
    }

    /// Waits for a request, once; the slot comes back either way.
    pub(crate) fn wait(&self, ticket: Ticket) -> (Slot, Result<(), Error>) {
        let mut queue = self.shared.lock();
        loop {
            if let Some(i) = queue
                .answers
                .iter()
                .position(|answer| answer.ticket == ticket)
            {
                let Answer { slot, result, .. } = queue.answers.swap_remove(i);
                return (slot, result);
            }
            queue = self
                .shared
                .answered
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.asked.notify_all();
        for reader in self.readers.drain(..) {
            // A reader that panicked has said so already.
            let _ = reader.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of a reader.
    fn serve(&self, reader: usize) {
        while let Some(Request {
            ticket,
            cuts,
            mut slot,
        }) = self.next(reader)
        {
            let result = cuts
                .iter()
                .filter(|cut| cut.extent.bytes > 0)
                .try_for_each(|cut| self.read(cut, &mut slot));
            self.lock().answers.push(Answer {
                ticket,
                slot,
                result,
            });
            self.answered.notify_all();
        }
    }

    /// The next request; `None` when there will be none.
    fn next(&self, reader: usize) -> Option<Request> {
        let mut queue = self.lock();
        loop {
            if queue.is_closed {
                return None;
            }
            if reader < self.n_active.load(Ordering::Relaxed)
                && let Some(request) = queue.requests.pop_front()
            {
                return Some(request);
            }
            queue = self
                .asked
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn read(&self, cut: &Cut, slot: &mut Slot) -> Result<(), Error> {
        let source = &self.sources[usize::from(cut.extent.shard)];
        let io = |error| Error::Io {
            path: source.path().to_owned(),
            source: error,
        };
        source
            .read_bulk(cut.block_offset(), &mut slot[cut.blocks()], cut.needed())
            .map_err(io)?;
        self.n_bytes
            .fetch_add(cut.needed() as u64, Ordering::Relaxed);
        Ok(())
    }
}
