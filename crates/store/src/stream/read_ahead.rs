//! The read-ahead ring: a few slots into which the next chunks of the pass are read while the
//! kernels use the current one.
//!
//! Every forward pass asks for the same chunks in the same order, so the next chunk is known: the
//! last chunk of a pass is followed by the first one of the next pass, up to the head, which the
//! next pass may or may not want. A chunk out of order (after a step that failed, of other layers)
//! is read too; it only takes longer.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use super::{
    chunk::Chunk,
    readers::{Priority, ReadTicket, Readers},
};
use crate::{Error, os::Slot};

/// The chunks of a model and the threads that read them.
#[derive(Clone, Copy)]
pub(crate) struct ChunkReader<'a> {
    pub(crate) chunks: &'a [Chunk],
    pub(crate) readers: &'a Readers,
}

impl ChunkReader<'_> {
    pub(super) fn request(self, chunk: usize, slot: Slot, priority: Priority) -> ReadTicket {
        self.readers
            .request(&self.chunks[chunk].slices, slot, priority)
    }
}

/// Slots, and the requests that fill them.
pub(crate) struct ReadAheadRing {
    state: Mutex<RingState>,
    freed: Condvar,
}

struct RingState {
    free: Vec<Slot>,
    /// Requests that nothing has waited for, each with its chunk, in the order of the pass.
    in_flight: VecDeque<(usize, ReadTicket)>,
    order: ReadOrder,
}

/// The chunks of a pass: those of some layers, those of the head, and whether this pass wants the
/// head.
pub(crate) struct PassChunks {
    pub(crate) layers: Range<usize>,
    pub(crate) head: Range<usize>,
    pub(crate) wants_head: bool,
}

/// The order in which chunks are read.
#[derive(Debug, Default)]
struct ReadOrder {
    /// The chunks of the layers that are not pinned, in order; then those of the head.
    chunks: Vec<usize>,
    /// The index in `chunks` of the first one of the head.
    head: usize,
    /// The index in `chunks` of the next one to read.
    next: usize,
    wants_head: bool,
    /// `next` belongs to a pass that has not begun.
    is_ahead: bool,
    /// No pass has begun yet.
    is_new: bool,
}

impl ReadOrder {
    fn new(pass: &PassChunks, is_read: impl Fn(&usize) -> bool) -> Self {
        let mut chunks: Vec<usize> = pass.layers.clone().filter(&is_read).collect();
        let head = chunks.len();
        chunks.extend(pass.head.clone().filter(&is_read));
        Self {
            chunks,
            head,
            next: 0,
            wants_head: pass.wants_head,
            is_ahead: true,
            is_new: false,
        }
    }

    /// Whether a pass over these layers reads the same chunks in the same order.
    fn is_of(&self, layers: &Range<usize>, is_read: impl Fn(&usize) -> bool) -> bool {
        let own = self.chunks[..self.head].iter().copied();
        !self.is_new && own.eq(layers.clone().filter(is_read))
    }

    /// The chunk to read next; `None` until the next pass says whether it wants the head.
    fn upcoming(&mut self) -> Option<usize> {
        if self.next >= self.end() && !self.is_ahead {
            self.next = 0;
            self.is_ahead = true;
        }
        self.chunks[..self.end()].get(self.next).copied()
    }

    /// How many of `chunks` are known to be read by the pass of `next`.
    fn end(&self) -> usize {
        if self.wants_head && !self.is_ahead {
            self.chunks.len()
        } else {
            self.head
        }
    }

    /// The first chunk of a pass.
    fn first(&self) -> Option<usize> {
        let end = if self.wants_head {
            self.chunks.len()
        } else {
            self.head
        };
        self.chunks[..end].first().copied()
    }

    /// Continues at `chunk`.
    fn seek(&mut self, chunk: usize) {
        self.next = self.chunks.iter().position(|&c| c == chunk).unwrap_or(0);
        self.is_ahead = false;
    }
}

impl ReadAheadRing {
    /// A ring of these slots, each large enough for any chunk that is not pinned.
    pub(crate) fn new(slots: Vec<Slot>) -> Self {
        let in_flight = VecDeque::with_capacity(slots.len());
        Self {
            state: Mutex::new(RingState {
                free: slots,
                in_flight,
                order: ReadOrder {
                    is_new: true,
                    ..ReadOrder::default()
                },
            }),
            freed: Condvar::new(),
        }
    }

    /// Begins a pass, which skips the chunks that `is_pinned` marks.
    pub(crate) fn begin(&self, reader: ChunkReader<'_>, pass: &PassChunks, is_pinned: &[bool]) {
        let mut state = self.lock();
        let is_read = |i: &usize| !is_pinned[*i];
        if !state.order.is_of(&pass.layers, is_read) {
            state.cancel(reader.readers);
            state.order = ReadOrder::new(pass, is_read);
        }
        state.order.wants_head = pass.wants_head;
        let starts_right = match state.in_flight.front() {
            Some((chunk, _)) => state.order.is_ahead && Some(*chunk) == state.order.first(),
            None => state.order.is_ahead && state.order.next == 0,
        };
        if !starts_right {
            state.cancel(reader.readers);
            state.order.next = 0;
        }
        state.order.is_ahead = false;
        state.read_ahead(reader);
    }

    /// Waits until a chunk is read and takes its slot. The caller returns it by
    /// [`free`](Self::free).
    ///
    /// # Errors
    /// The error of the read.
    pub(crate) fn take(&self, reader: ChunkReader<'_>, chunk: usize) -> Result<Slot, Error> {
        let mut state = self.lock();
        loop {
            if !state.has_next(reader, chunk) {
                state = self
                    .freed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.read_ahead(reader);
            let Some((_, ticket)) = state.in_flight.pop_front() else {
                continue;
            };
            let (slot, result) = reader.readers.wait(ticket);
            if let Err(error) = result {
                state.free.push(slot);
                return Err(error);
            }
            return Ok(slot);
        }
    }

    /// Returns a slot, into which the next chunk is read.
    pub(crate) fn free(&self, reader: ChunkReader<'_>, slot: Slot) {
        let mut state = self.lock();
        state.free.push(slot);
        state.read_ahead(reader);
        drop(state);
        self.freed.notify_all();
    }

    /// Lends all slots that are free, for measuring.
    pub(crate) fn lend(&self, readers: &Readers) -> Vec<Slot> {
        let mut state = self.lock();
        state.cancel(readers);
        std::mem::take(&mut state.free)
    }

    /// Takes lent slots back.
    pub(crate) fn take_back(&self, slots: Vec<Slot>) {
        self.lock().free.extend(slots);
    }

    fn lock(&self) -> MutexGuard<'_, RingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RingState {
    /// Makes `chunk` the first one in flight, if it is not yet; `false` if no slot is free for it.
    fn has_next(&mut self, reader: ChunkReader<'_>, chunk: usize) -> bool {
        if self.in_flight.front().map(|(c, _)| *c) == Some(chunk) {
            return true;
        }
        self.cancel(reader.readers);
        self.order.seek(chunk);
        // A chunk that no pass reads leaves the order as it is.
        let is_next = self.order.upcoming() == Some(chunk);
        let Some(slot) = self.free.pop() else {
            return false;
        };
        let ticket = reader.request(chunk, slot, Priority::Urgent);
        self.in_flight.push_back((chunk, ticket));
        self.order.next += usize::from(is_next);
        true
    }

    /// Requests as many of the next chunks as there are free slots.
    fn read_ahead(&mut self, reader: ChunkReader<'_>) {
        while !self.free.is_empty()
            && let Some(chunk) = self.order.upcoming()
            && let Some(slot) = self.free.pop()
        {
            let ticket = reader.request(chunk, slot, Priority::Queued);
            self.in_flight.push_back((chunk, ticket));
            self.order.next += 1;
        }
    }

    /// Waits for everything in flight, and frees its slots.
    fn cancel(&mut self, readers: &Readers) {
        while let Some((_, ticket)) = self.in_flight.pop_front() {
            // A chunk that is not used may be unreadable.
            let (slot, _) = readers.wait(ticket);
            self.free.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(head: usize, wants_head: bool) -> ReadOrder {
        ReadOrder {
            chunks: vec![3, 5, 8, 20, 21],
            head,
            next: 0,
            wants_head,
            is_ahead: false,
            is_new: false,
        }
    }

    fn run(order: &mut ReadOrder, n: usize) -> Vec<usize> {
        let mut out = Vec::new();
        while out.len() < n
            && let Some(chunk) = order.upcoming()
        {
            out.push(chunk);
            order.next += 1;
        }
        out
    }

    #[test]
    fn after_the_head_comes_the_next_pass_up_to_its_head() {
        assert_eq!(run(&mut order(3, true), 20), [3, 5, 8, 20, 21, 3, 5, 8]);
    }

    #[test]
    fn without_the_head_the_next_pass_follows_at_once() {
        let mut order = order(3, false);
        assert_eq!(run(&mut order, 20), [3, 5, 8, 3, 5, 8]);
        order.wants_head = true;
        order.is_ahead = false;
        assert_eq!(run(&mut order, 20), [20, 21, 3, 5, 8]);
    }

    #[test]
    fn reading_only_the_head_waits_until_a_pass_wants_it() {
        let mut order = order(0, true);
        assert_eq!(run(&mut order, 20), [3, 5, 8, 20, 21]);
        assert_eq!(run(&mut order, 20), []);
        assert!(order.is_ahead);
        order.wants_head = false;
        order.is_ahead = false;
        assert_eq!(run(&mut order, 20), []);
    }

    #[test]
    fn reading_continues_behind_the_chunk_that_was_sought() {
        let mut order = order(3, true);
        order.seek(20);
        assert_eq!(run(&mut order, 3), [20, 21, 3]);
    }
}
