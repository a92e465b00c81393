//! Ctrl-C: the first press asks the work at hand to stop, the second ends the program at once.

use std::{
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use crate::{
    failure::INTERRUPTED,
    signals::{self, Requests},
};

/// The latency of Ctrl-C during work that does not check for it.
const POLL: Duration = Duration::from_millis(20);

/// Whether the user has asked us to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Handles Ctrl-C from now on. Before, and where no handler can be installed, Ctrl-C ends the
    /// program as usual.
    pub(crate) fn listen() -> Self {
        let asked = Arc::default();
        let _ = signals::listen(Requests::Interrupt, INTERRUPTED, &asked);
        Self(asked)
    }

    /// Whether Ctrl-C was pressed.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Acts as Ctrl-C.
    #[cfg(all(test, unix, feature = "chat"))]
    pub(crate) fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Forgets the last press: the work has stopped, and the program continues.
    #[cfg(feature = "chat")]
    pub(crate) fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Runs work that cannot check for Ctrl-C, since it waits for a disk or for standard input. On
    /// Ctrl-C another thread calls `give_up` and ends the program.
    ///
    /// The work stays on the caller's thread, since loading a model may bind that to a CPU.
    pub(crate) fn watch<T>(&self, give_up: impl FnOnce() + Send, work: impl FnOnce() -> T) -> T {
        let (working, end) = mpsc::channel();
        let watch = move || {
            if self.comes_before(&end) {
                give_up();
                process::exit(INTERRUPTED.into());
            }
        };
        thread::scope(|scope| {
            // Without the thread, Ctrl-C has to wait for the work.
            let _ = thread::Builder::new()
                .name("atta-interrupt".into())
                .spawn_scoped(scope, watch);
            let result = work();
            drop(working);
            result
        })
    }

    /// Whether Ctrl-C comes before the other end of the channel is dropped.
    fn comes_before(&self, end: &Receiver<()>) -> bool {
        loop {
            if self.is_asked() {
                return true;
            }
            if end.recv_timeout(POLL) == Err(RecvTimeoutError::Disconnected) {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_is_left_alone_gives_its_result_at_once() {
        let start = std::time::Instant::now();
        let sum = (0..100)
            .map(|i| Interrupt::default().watch(|| unreachable!("nobody asked"), || i))
            .sum::<i32>();
        assert_eq!(sum, 4950);
        assert!(start.elapsed() < 50 * POLL);
    }
}
