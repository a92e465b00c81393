//! The threads that read chunks of the files into slots: urgent requests first, idle ones last, and
//! those of one priority in the order of their requests.
//!
//! A request hands its slot to a reader and gets it back with the completion, so that nothing else
//! can access the slot meanwhile. On a system without threads there are no readers: the caller that
//! waits for a request reads it.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use super::chunk::ChunkSlice;
use crate::{Error, checks::Checks, files::at, os::Slot, source::Source};

/// The most readers that serve requests at once. Disks are not faster with more.
pub(crate) const MAX_READERS: usize = 4;

/// Identifies a request until the caller has waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadTicket(u64);

/// When a request is served: behind all earlier ones of its priority and all of a higher one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// A step needs the bytes now.
    Urgent,
    /// A step will need the bytes: reading ahead.
    Queued,
    /// A step may need the bytes; the disk has nothing else to do. One reader serves these, so that
    /// others are free for a step.
    Idle,
}

const N_PRIORITIES: usize = 3;

/// The reader threads of a model's files.
pub(crate) struct Readers {
    shared: Arc<ReaderState>,
    /// None on a system without threads.
    threads: Vec<JoinHandle<()>>,
}

struct ReaderState {
    sources: Vec<Source>,
    checks: Arc<Checks>,
    queue: Mutex<Queue>,
    requested: Condvar,
    completed: Condvar,
    /// How many readers serve requests; the others sleep.
    n_active: AtomicUsize,
    n_bytes: AtomicU64,
}

#[derive(Default)]
struct Queue {
    /// By priority.
    requests: [VecDeque<ReadRequest>; N_PRIORITIES],
    completions: Vec<Completion>,
    n_requests: u64,
    is_closed: bool,
}

struct ReadRequest {
    ticket: ReadTicket,
    slices: Arc<[ChunkSlice]>,
    slot: Slot,
}

struct Completion {
    ticket: ReadTicket,
    slot: Slot,
    result: Result<(), Error>,
}

impl Readers {
    /// Starts the readers, which compare all that they read with `checks`.
    ///
    /// # Errors
    /// [`Error::Readers`] if a system with threads refuses to start one.
    pub(crate) fn new(sources: Vec<Source>, checks: Arc<Checks>) -> Result<Self, Error> {
        let mut this = Self::unstarted(sources, checks);
        for reader in 0..MAX_READERS {
            let shared = this.shared.clone();
            let thread = thread::Builder::new().name(format!("atta-read-{reader}"));
            match thread.spawn(move || shared.serve(reader)) {
                Ok(thread) => this.threads.push(thread),
                Err(error) if error.kind() == io::ErrorKind::Unsupported => break,
                Err(error) => return Err(Error::Readers(error)),
            }
        }
        Ok(this)
    }

    /// As on a system without threads.
    fn unstarted(sources: Vec<Source>, checks: Arc<Checks>) -> Self {
        let shared = Arc::new(ReaderState {
            sources,
            checks,
            queue: Mutex::default(),
            requested: Condvar::new(),
            completed: Condvar::new(),
            n_active: AtomicUsize::new(MAX_READERS),
            n_bytes: AtomicU64::new(0),
        });
        Self {
            shared,
            threads: Vec::new(),
        }
    }

    /// Lets only `n` readers serve requests from now on.
    pub(crate) fn set_active(&self, n: usize) {
        self.shared
            .n_active
            .store(n.clamp(1, MAX_READERS), Ordering::Relaxed);
        // Locked once, so that no reader is between its look at `n_active` and its sleep.
        drop(self.shared.lock());
        self.shared.requested.notify_all();
    }

    /// The files.
    pub(crate) fn sources(&self) -> &[Source] {
        &self.shared.sources
    }

    /// Bytes read so far.
    pub(crate) fn n_bytes(&self) -> u64 {
        self.shared.n_bytes.load(Ordering::Relaxed)
    }

    /// Requests that slices are read into a slot that is large enough.
    pub(crate) fn request(
        &self,
        slices: &Arc<[ChunkSlice]>,
        slot: Slot,
        priority: Priority,
    ) -> ReadTicket {
        let mut queue = self.shared.lock();
        let ticket = ReadTicket(queue.n_requests);
        queue.n_requests += 1;
        let request = ReadRequest {
            ticket,
            slices: slices.clone(),
            slot,
        };
        queue.requests[priority as usize].push_back(request);
        drop(queue);
        // Wakes all readers: a single one might be inactive.
        self.shared.requested.notify_all();
        ticket
    }

    /// Makes a request urgent that no reader has begun to serve.
    pub(crate) fn hurry(&self, ticket: ReadTicket) {
        let mut queue = self.shared.lock();
        let later = Priority::Queued as usize;
        if let Some(request) = queue.withdraw(ticket, later) {
            queue.requests[Priority::Urgent as usize].push_back(request);
        }
    }

    /// Takes back the slot of a request that no reader has begun to serve; the ticket is used up
    /// then.
    pub(crate) fn withdraw(&self, ticket: ReadTicket) -> Option<Slot> {
        let request = self.shared.lock().withdraw(ticket, 0)?;
        Some(request.slot)
    }

    /// Whether a request has been served, so that [`wait`](Self::wait) returns at once.
    pub(crate) fn is_served(&self, ticket: ReadTicket) -> bool {
        let queue = self.shared.lock();
        queue.completions.iter().any(|c| c.ticket == ticket)
    }

    /// Waits until one of these requests has been served.
    pub(crate) fn wait_for_any(&self, tickets: impl Fn(ReadTicket) -> bool) {
        let mut queue = self.shared.lock();
        while !queue.completions.iter().any(|c| tickets(c.ticket)) {
            queue = self.progress(queue, &tickets);
        }
    }

    /// Waits for a request and returns its slot, filled if the result is `Ok`. The ticket is used
    /// up.
    pub(crate) fn wait(&self, ticket: ReadTicket) -> (Slot, Result<(), Error>) {
        let mut queue = self.shared.lock();
        loop {
            if let Some(i) = queue.completions.iter().position(|c| c.ticket == ticket) {
                let Completion { slot, result, .. } = queue.completions.swap_remove(i);
                return (slot, result);
            }
            queue = self.progress(queue, &|asked| asked == ticket);
        }
    }

    /// Waits until a reader has served a request; without readers, serves one of these requests.
    fn progress<'a>(
        &'a self,
        mut queue: MutexGuard<'a, Queue>,
        wanted: &dyn Fn(ReadTicket) -> bool,
    ) -> MutexGuard<'a, Queue> {
        let here = match self.threads.is_empty() {
            true => queue.take(wanted),
            false => None,
        };
        let Some(request) = here else {
            let completed = self.shared.completed.wait(queue);
            return completed.unwrap_or_else(PoisonError::into_inner);
        };
        drop(queue);
        self.shared.fill(request);
        self.shared.lock()
    }
}

impl Queue {
    /// The next request that this reader serves.
    fn next(&mut self, reader: usize) -> Option<ReadRequest> {
        let n = if reader == 0 {
            N_PRIORITIES
        } else {
            Priority::Idle as usize
        };
        self.requests[..n].iter_mut().find_map(VecDeque::pop_front)
    }

    /// Removes the first of these requests.
    fn take(&mut self, wanted: &dyn Fn(ReadTicket) -> bool) -> Option<ReadRequest> {
        self.requests.iter_mut().find_map(|requests| {
            let i = requests.iter().position(|r| wanted(r.ticket))?;
            requests.remove(i)
        })
    }

    /// Removes a request of this priority or a lower one.
    fn withdraw(&mut self, ticket: ReadTicket, highest: usize) -> Option<ReadRequest> {
        self.requests[highest..].iter_mut().find_map(|requests| {
            let i = requests.iter().position(|r| r.ticket == ticket)?;
            requests.remove(i)
        })
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.requested.notify_all();
        for thread in self.threads.drain(..) {
            // A reader that panicked printed its message then.
            let _ = thread.join();
        }
    }
}

impl ReaderState {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs reader number `reader`: serves requests until the queue is closed.
    fn serve(&self, reader: usize) {
        while let Some(request) = self.next(reader) {
            self.fill(request);
            self.completed.notify_all();
        }
    }

    /// Reads what a request asks for into its slot, and completes it.
    fn fill(&self, request: ReadRequest) {
        let mut slot = request.slot;
        let slices = request.slices.iter();
        let result = slices
            .filter(|slice| slice.extent.bytes > 0)
            .try_for_each(|slice| self.read(slice, &mut slot));
        self.lock().completions.push(Completion {
            ticket: request.ticket,
            slot,
            result,
        });
    }

    /// Waits for the next request; `None` if the queue is closed.
    fn next(&self, reader: usize) -> Option<ReadRequest> {
        let mut queue = self.lock();
        loop {
            if queue.is_closed {
                return None;
            }
            if reader < self.n_active.load(Ordering::Relaxed)
                && let Some(request) = queue.next(reader)
            {
                return Some(request);
            }
            queue = self
                .requested
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn read(&self, slice: &ChunkSlice, slot: &mut Slot) -> Result<(), Error> {
        let source = &self.sources[usize::from(slice.extent.shard)];
        let blocks = &mut slot[slice.blocks()];
        at(
            source,
            source.read_blocks_at(slice.block_offset(), blocks, slice.needed()),
        )?;
        self.n_bytes
            .fetch_add(slice.needed() as u64, Ordering::Relaxed);
        self.checks.check(slice.extent, slice.bytes(slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Extent, os::ALIGN};

    static BYTES: [u8; 3 * ALIGN] = {
        let mut bytes = [0; 3 * ALIGN];
        let mut i = 0;
        while i < bytes.len() {
            bytes[i] = (i / 7) as u8;
            i += 1;
        }
        bytes
    };

    fn readers(bytes: &'static [u8]) -> Readers {
        let source = Source::other("built in", Arc::new(bytes));
        Readers::new(vec![source], Arc::default()).unwrap()
    }

    /// Rows of `bytes` bytes from `offset` on, at the start of a slot.
    fn slices(offset: u64, bytes: u64) -> Arc<[ChunkSlice]> {
        let extent = Extent {
            shard: 0,
            offset,
            bytes,
        };
        Arc::new([ChunkSlice {
            extent,
            first: 0,
            at: 0,
        }])
    }

    #[test]
    fn slots_come_back_with_their_bytes_whatever_the_order_of_waiting() {
        let readers = readers(&BYTES);
        let slots = Slot::carve(&[2 * ALIGN; 3]).unwrap();
        let request = |(i, slot)| {
            let slices = slices(i as u64 * 4000 + 5, 90);
            let ticket = readers.request(&slices, slot, Priority::Queued);
            (ticket, slices)
        };
        let requests: Vec<_> = slots.into_iter().enumerate().map(request).collect();
        for (ticket, slices) in requests.into_iter().rev() {
            let (slot, result) = readers.wait(ticket);
            result.unwrap();
            let start = slices[0].extent.offset as usize;
            assert_eq!(slices[0].bytes(&slot), &BYTES[start..start + 90]);
        }
        assert!(readers.n_bytes() >= 3 * 90);
    }

    #[test]
    fn without_threads_a_request_is_read_by_the_caller_that_waits_for_it() {
        let source = Source::other("built in", Arc::new(&BYTES[..]));
        let readers = Readers::unstarted(vec![source], Arc::default());
        let slots = Slot::carve(&[ALIGN; 2]).unwrap();
        let request = |(i, slot)| readers.request(&slices(i, 9), slot, Priority::Queued);
        let tickets: Vec<_> = (7..).zip(slots).map(request).collect();
        let (slot, result) = readers.wait(tickets[1]);
        result.unwrap();
        assert_eq!(slices(8, 9)[0].bytes(&slot), &BYTES[8..17]);
        assert!(!readers.is_served(tickets[0]), "only what is waited for");
        readers.wait_for_any(|ticket| ticket == tickets[0]);
        assert!(readers.is_served(tickets[0]));
    }

    #[test]
    fn a_failed_read_returns_its_slot_and_readers_end_with_requests_in_flight() {
        let readers = readers(&[1; 100]);
        let mut slots = Slot::carve(&[ALIGN; 4]).unwrap();
        let ticket = readers.request(&slices(50, 60), slots.pop().unwrap(), Priority::Urgent);
        let (slot, result) = readers.wait(ticket);
        assert!(matches!(result, Err(Error::Io { .. })));
        slots.push(slot);
        for slot in slots {
            readers.request(&slices(0, 100), slot, Priority::Queued);
        }
    }
}
