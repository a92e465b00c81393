//! What a waiting user sees: one line on standard error that is overwritten, and nothing if that is
//! no terminal.

use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

/// Prompts that are read faster show no progress.
const DELAY: Duration = Duration::from_millis(300);

/// The line.
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

    /// Whether anybody sees it, for figures that cost something.
    #[cfg(feature = "perplexity")]
    pub(crate) fn is_seen(&self) -> bool {
        self.enabled
    }

    /// Shows how many tokens of the prompt have been read, once that takes a while.
    pub(crate) fn prompt(&mut self, done: usize, total: usize) {
        if done > 0 && done < total && self.start.elapsed() >= DELAY {
            self.busy(&format!("reading the prompt: {done} of {total} tokens"));
        }
    }

    /// Says what takes long.
    pub(crate) fn busy(&mut self, what: &str) {
        if self.enabled {
            self.overwrite(what);
            self.shown = true;
        }
    }

    /// Wipes the line, before something else is written to the terminal.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            self.overwrite("");
        }
    }

    /// Wipes a line that belongs to work which is being given up.
    #[cfg(feature = "pull")]
    pub(crate) fn wipe() {
        let mut line = Self::new();
        line.busy("");
        line.clear();
    }

    fn overwrite(&self, text: &str) {
        // Progress that cannot be shown is no reason to stop.
        let _ = write!(io::stderr(), "\r\x1b[K{text}");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
