//! Reading ahead: a few slots in which the next pieces of the sweep arrive while the last one is
//! computed with.
//!
//! A forward pass asks for the same pieces in the same order again and again, so what comes next is
//! known: after the last piece of a sweep the first one of the next, except that nobody knows yet
//! whether the next sweep will want the head. Whoever asks for something else (after a step that
//! failed, for other layers) gets it too, only later.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use super::{
    cut::Piece,
    disk::{Disk, Ticket, Turn},
};
use crate::{Error, os::Slot};

/// The slots and what is on its way into them.
pub(crate) struct Ring {
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    free: Vec<Slot>,
    /// Pieces asked for, in the order of the sweep.
    ahead: VecDeque<(usize, Ticket)>,
    order: Order,
}

/// The pieces of a sweep: those of some layers, those of the head, and whether the head is wanted
/// this time.
pub(crate) struct Circle {
    pub(crate) layers: Range<usize>,
    pub(crate) head: Range<usize>,
    pub(crate) wants_head: bool,
}

/// In which order pieces are asked for.
#[derive(Debug, Default)]
struct Order {
    /// The pieces of a sweep that are not pinned, in order; then those of the head.
    pieces: Vec<usize>,
    /// Where those of the head begin.
    head: usize,
    /// Where reading goes on.
    next: usize,
    wants_head: bool,
    /// Reading has come to a sweep that has not begun.
    is_ahead: bool,
    /// Nothing has been announced yet.
    is_new: bool,
}

impl Order {
    fn new(circle: &Circle, is_read: impl Fn(&usize) -> bool) -> Self {
        let mut pieces: Vec<usize> = circle.layers.clone().filter(&is_read).collect();
        let head = pieces.len();
        pieces.extend(circle.head.clone().filter(&is_read));
        Self {
            pieces,
            head,
            next: 0,
            wants_head: circle.wants_head,
            is_ahead: true,
            is_new: false,
        }
    }

    /// The piece to read next; `None` while that is not known.
    fn upcoming(&mut self) -> Option<usize> {
        let end = if self.wants_head && !self.is_ahead {
            self.pieces.len()
        } else {
            self.head
        };
        if self.next >= end && !self.is_ahead {
            (self.next, self.is_ahead) = (0, true);
        }
        let end = if self.is_ahead { self.head } else { end };
        self.pieces[..end].get(self.next).copied()
    }

    /// The first piece of a sweep.
    fn first(&self) -> Option<usize> {
        let end = if self.wants_head {
            self.pieces.len()
        } else {
            self.head
        };
        self.pieces[..end].first().copied()
    }

    /// Goes on at `piece`.
    fn seek(&mut self, piece: usize) {
        let place = self.pieces.iter().position(|&p| p == piece);
        (self.next, self.is_ahead) = (place.unwrap_or(0), false);
    }
}

impl Ring {
    /// A ring of these slots, each large enough for any piece that is not pinned.
    pub(crate) fn new(slots: Vec<Slot>) -> Self {
        let ahead = VecDeque::with_capacity(slots.len());
        Self {
            state: Mutex::new(State {
                free: slots,
                ahead,
                order: Order {
                    is_new: true,
                    ..Order::default()
                },
            }),
            freed: Condvar::new(),
        }
    }

    /// A sweep begins. What `is_pinned` is left out.
    pub(crate) fn begin(
        &self,
        (pieces, disk): (&[Piece], &Disk),
        circle: &Circle,
        is_pinned: &[bool],
    ) {
        let mut state = self.lock();
        let is_read = |i: &usize| !is_pinned[*i];
        let order = &state.order;
        if !order.pieces[..order.head]
            .iter()
            .copied()
            .eq(circle.layers.clone().filter(is_read))
            || order.is_new
        {
            state.give_back(disk);
            state.order = Order::new(circle, is_read);
        }
        state.order.wants_head = circle.wants_head;
        let starts_right = match state.ahead.front() {
            Some((piece, _)) => state.order.is_ahead && Some(*piece) == state.order.first(),
            None => state.order.is_ahead && state.order.next == 0,
        };
        if !starts_right {
            state.give_back(disk);
            state.order.next = 0;
        }
        state.order.is_ahead = false;
        state.read_ahead(pieces, disk);
    }

    /// The slot of a piece, when it is read. It goes back with [`free`](Self::free).
    ///
    /// # Errors
    /// What went wrong with reading.
    pub(crate) fn take(
        &self,
        (pieces, disk): (&[Piece], &Disk),
        piece: usize,
    ) -> Result<Slot, Error> {
        let mut state = self.lock();
        loop {
            if state.ahead.front().map(|(p, _)| *p) != Some(piece) {
                state.give_back(disk);
                state.order.seek(piece);
                // A piece that is in no sweep is read alone.
                let next = state.order.upcoming();
                match state.free.pop() {
                    Some(slot) => {
                        let ticket = disk.ask(&pieces[piece].cuts, slot, Turn::Now);
                        state.ahead.push_back((piece, ticket));
                        state.order.next += usize::from(next == Some(piece));
                    }
                    None => {
                        state = self
                            .freed
                            .wait(state)
                            .unwrap_or_else(PoisonError::into_inner);
                        continue;
                    }
                }
            }
            state.read_ahead(pieces, disk);
            let Some((_, ticket)) = state.ahead.pop_front() else {
                continue;
            };
            let (slot, result) = disk.wait(ticket);
            if let Err(error) = result {
                state.free.push(slot);
                return Err(error);
            }
            return Ok(slot);
        }
    }

    /// A slot is done with: the next piece can be read into it.
    pub(crate) fn free(&self, (pieces, disk): (&[Piece], &Disk), slot: Slot) {
        let mut state = self.lock();
        state.free.push(slot);
        state.read_ahead(pieces, disk);
        drop(state);
        self.freed.notify_all();
    }

    /// Lends all slots that are free, for measuring.
    pub(crate) fn lend(&self, disk: &Disk) -> Vec<Slot> {
        let mut state = self.lock();
        state.give_back(disk);
        std::mem::take(&mut state.free)
    }

    /// Takes lent slots back.
    pub(crate) fn take_back(&self, slots: Vec<Slot>) {
        self.lock().free.extend(slots);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Asks for as many of the next pieces as there are free slots.
    fn read_ahead(&mut self, pieces: &[Piece], disk: &Disk) {
        while !self.free.is_empty()
            && let Some(piece) = self.order.upcoming()
            && let Some(slot) = self.free.pop()
        {
            self.ahead
                .push_back((piece, disk.ask(&pieces[piece].cuts, slot, Turn::Next)));
            self.order.next += 1;
        }
    }

    /// Waits for everything that is on its way, and frees its slots.
    fn give_back(&mut self, disk: &Disk) {
        while let Some((_, ticket)) = self.ahead.pop_front() {
            // Nobody wants to know any more whether it could be read.
            let (slot, _) = disk.wait(ticket);
            self.free.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(head: usize, wants_head: bool) -> Order {
        Order {
            pieces: vec![3, 5, 8, 20, 21],
            head,
            next: 0,
            wants_head,
            is_ahead: false,
            is_new: false,
        }
    }

    fn run(order: &mut Order, n: usize) -> Vec<usize> {
        let mut out = Vec::new();
        while out.len() < n
            && let Some(piece) = order.upcoming()
        {
            out.push(piece);
            order.next += 1;
        }
        out
    }

    #[test]
    fn after_the_head_comes_the_next_sweep_up_to_its_head() {
        assert_eq!(run(&mut order(3, true), 20), [3, 5, 8, 20, 21, 3, 5, 8]);
    }

    #[test]
    fn without_the_head_the_next_sweep_follows_at_once() {
        let mut order = order(3, false);
        assert_eq!(run(&mut order, 20), [3, 5, 8, 3, 5, 8]);
        (order.wants_head, order.is_ahead) = (true, false);
        assert_eq!(run(&mut order, 20), [20, 21, 3, 5, 8]);
    }

    #[test]
    fn a_model_of_which_only_the_head_is_read_waits_until_it_is_wanted() {
        let mut order = order(0, true);
        assert_eq!(run(&mut order, 20), [3, 5, 8, 20, 21]);
        assert_eq!(run(&mut order, 20), []);
        assert!(order.is_ahead);
        (order.wants_head, order.is_ahead) = (false, false);
        assert_eq!(run(&mut order, 20), []);
    }

    #[test]
    fn a_search_goes_on_from_what_was_found() {
        let mut order = order(3, true);
        order.seek(20);
        assert_eq!(run(&mut order, 3), [20, 21, 3]);
    }
}
