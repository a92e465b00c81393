//! What async code runs on: one thread, and a few for work that blocks.
//!
//! Knows no request. The one idea: where a program may have no threads (WebAssembly), work that
//! blocks is done at once by the thread that asks, and nothing waits for a timer: tokio's wait with
//! a time limit does not wake up early there, so that [`Parker`] waits in its place.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    task::Wake,
    time::Duration,
};

use tokio::{
    runtime::{Builder, Runtime},
    task::JoinError,
};

use crate::ServeError;

/// Threads that prepare requests, and one for loading a model meanwhile.
const MAX_BLOCKING_THREADS: usize = 3;

/// The runtime on whose thread requests are answered.
///
/// # Errors
/// [`ServeError::Start`].
pub(crate) fn new() -> Result<Runtime, ServeError> {
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .build()
        .map_err(ServeError::Start)
}

/// Runs work that takes milliseconds outside of the async thread.
///
/// # Errors
/// Work that panicked.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    if cfg!(target_family = "wasm") {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await
}

/// Lets a thread sleep until a future has something new.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    is_woken: Mutex<bool>,
    woken: Condvar,
}

impl Parker {
    /// Sleeps until [`wake`](Wake::wake) was called, or for this time; false if it was not.
    pub(crate) fn park(&self, time: Duration) -> bool {
        let is_woken = self.is_woken.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .woken
            .wait_timeout_while(is_woken, time, |is_woken| !*is_woken);
        let (mut is_woken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *is_woken)
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        *self.is_woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.woken.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::{task::Waker, thread};

    use super::*;

    #[test]
    fn a_call_before_the_sleep_is_not_missed_and_counts_once() {
        let parker = Arc::new(Parker::default());
        Waker::from(Arc::clone(&parker)).wake();
        assert!(parker.park(Duration::from_secs(60)));
        assert!(!parker.park(Duration::ZERO));
    }

    #[test]
    fn another_thread_ends_the_sleep() {
        let parker = Arc::new(Parker::default());
        let waker = Waker::from(Arc::clone(&parker));
        thread::scope(|scope| {
            scope.spawn(|| waker.wake());
            assert!(parker.park(Duration::from_secs(60)));
        });
    }
}
