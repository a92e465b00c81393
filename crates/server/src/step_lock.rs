//! Models take turns: one step of one of them computes at a time, so that their threads do not get
//! into each other's way. On a machine that must be kept cool there is a pause behind a turn, in
//! which none computes.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use crate::thermal::Manners;

/// Whoever came first is next; a mutex alone lets one thread come back again and again.
#[derive(Default)]
pub(crate) struct Turns {
    tickets: Mutex<Tickets>,
    changed: Condvar,
    manners: Option<Arc<Manners>>,
}

#[derive(Default)]
struct Tickets {
    given: u64,
    called: u64,
}

/// The right to compute, until it is dropped.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    began: Instant,
}

impl Turns {
    /// With pauses as these manners want them.
    pub(crate) fn with(manners: Option<Arc<Manners>>) -> Self {
        Self {
            manners,
            ..Self::default()
        }
    }

    /// Waits for one's turn.
    pub(crate) fn wait(&self) -> Turn<'_> {
        let mut tickets = self.tickets();
        let mine = tickets.given;
        tickets.given += 1;
        while tickets.called != mine {
            tickets = self
                .changed
                .wait(tickets)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Turn {
            turns: self,
            began: Instant::now(),
        }
    }

    fn tickets(&self) -> MutexGuard<'_, Tickets> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(manners) = &self.turns.manners {
            thread::sleep(manners.pause(self.began.elapsed()));
        }
        self.turns.tickets().called += 1;
        self.turns.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, atomic::AtomicBool, atomic::Ordering},
        thread,
    };

    use super::*;

    #[test]
    fn one_at_a_time_in_the_order_they_came() {
        let (turns, is_taken) = (Arc::new(Turns::default()), Arc::new(AtomicBool::new(false)));
        let work = |turns: Arc<Turns>, is_taken: Arc<AtomicBool>| {
            for _ in 0..1000 {
                let _turn = turns.wait();
                assert!(!is_taken.swap(true, Ordering::SeqCst));
                is_taken.store(false, Ordering::SeqCst);
            }
        };
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (turns, is_taken) = (Arc::clone(&turns), Arc::clone(&is_taken));
                thread::spawn(move || work(turns, is_taken))
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        // Who waits is next, however often the other one comes back.
        let turn = turns.wait();
        let (waiting, order) = (Arc::clone(&turns), Arc::new(Mutex::new(Vec::new())));
        let theirs = Arc::clone(&order);
        let other = thread::spawn(move || {
            let _turn = waiting.wait();
            theirs.lock().unwrap().push("other");
        });
        while turns.tickets().given < 4002 {
            thread::yield_now();
        }
        drop(turn);
        let _turn = turns.wait();
        order.lock().unwrap().push("first again");
        other.join().unwrap();
        assert_eq!(*order.lock().unwrap(), ["other", "first again"]);
    }
}
