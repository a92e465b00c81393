//! A FIFO lock around the steps of all models: one model computes at a time, so that the thread
//! pools of several models do not compete for cores. With a thermal throttle, the lock is held for
//! a pause after each step, during which no model computes.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use crate::thermal::ThermalThrottle;

/// Grants the right to compute in the order of requests. A `Mutex` alone is not fair: one thread
/// could take it again and again.
#[derive(Default)]
pub(crate) struct StepLock {
    tickets: Mutex<Tickets>,
    changed: Condvar,
    throttle: Option<Arc<ThermalThrottle>>,
}

#[derive(Default)]
struct Tickets {
    /// The next ticket to hand out.
    next: u64,
    /// The ticket that may compute.
    serving: u64,
}

/// The right to compute, until it is dropped.
pub(crate) struct StepGuard<'a> {
    lock: &'a StepLock,
    acquired: Instant,
}

impl StepLock {
    /// A lock that pauses after each step as the throttle demands.
    pub(crate) fn with(throttle: Option<Arc<ThermalThrottle>>) -> Self {
        Self {
            throttle,
            ..Self::default()
        }
    }

    /// Blocks until all threads that asked earlier have computed.
    pub(crate) fn acquire(&self) -> StepGuard<'_> {
        let mut tickets = self.tickets();
        let mine = tickets.next;
        tickets.next += 1;
        while tickets.serving != mine {
            tickets = self
                .changed
                .wait(tickets)
                .unwrap_or_else(PoisonError::into_inner);
        }
        StepGuard {
            lock: self,
            acquired: Instant::now(),
        }
    }

    fn tickets(&self) -> MutexGuard<'_, Tickets> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StepGuard<'_> {
    fn drop(&mut self) {
        if let Some(throttle) = &self.lock.throttle {
            thread::sleep(throttle.pause(self.acquired.elapsed()));
        }
        self.lock.tickets().serving += 1;
        self.lock.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn one_thread_computes_at_a_time() {
        let lock = StepLock::default();
        let is_taken = AtomicBool::new(false);
        let work = || {
            for _ in 0..1000 {
                let _guard = lock.acquire();
                assert!(!is_taken.swap(true, Ordering::SeqCst));
                is_taken.store(false, Ordering::SeqCst);
            }
        };
        thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
        assert_eq!(lock.tickets().serving, 4000);
    }

    #[test]
    fn a_waiting_thread_comes_before_one_that_returns() {
        let lock = StepLock::default();
        let order = Mutex::new(Vec::new());
        let guard = lock.acquire();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _guard = lock.acquire();
                order.lock().unwrap().push("other");
            });
            while lock.tickets().next < 2 {
                thread::yield_now();
            }
            drop(guard);
            let _guard = lock.acquire();
            order.lock().unwrap().push("first again");
        });
        assert_eq!(*order.lock().unwrap(), ["other", "first again"]);
    }
}
