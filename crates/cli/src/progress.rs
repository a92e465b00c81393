//! The progress line: one line on standard error that is overwritten, on a terminal only.

use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

/// Prefill that is faster shows no progress.
const DELAY: Duration = Duration::from_millis(300);

/// The progress line.
pub(crate) struct Progress {
    enabled: bool,
    shown: bool,
    start: Instant,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            enabled: io::stderr().is_terminal(),
            shown: false,
            start: Instant::now(),
        }
    }

    /// Shows how many tokens of the prompt are evaluated, once that takes a while.
    pub(crate) fn prompt(&mut self, done: usize, total: usize) {
        if done > 0 && done < total && self.start.elapsed() >= DELAY {
            self.busy(|| format!("reading the prompt: {done} of {total} tokens"));
        }
    }

    /// Shows what takes long. `what` is called only if it is shown.
    pub(crate) fn busy(&mut self, what: impl FnOnce() -> String) {
        if self.enabled {
            self.overwrite(&what());
            self.shown = true;
        }
    }

    /// Wipes the line before other output to the terminal.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            self.overwrite("");
        }
    }

    fn overwrite(&self, text: &str) {
        // A closed standard error is no reason to stop.
        let _ = write!(io::stderr(), "\r\x1b[K{text}");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
