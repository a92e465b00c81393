//! What a waiting user sees: one line on standard error that is overwritten, and nothing if that is no terminal.

use std::io::{self, IsTerminal, Write};

/// The line.
pub(crate) struct Progress {
    enabled: bool,
    shown: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { enabled: io::stderr().is_terminal(), shown: false }
    }

    /// Whether anybody sees it, for figures that cost something.
    #[cfg(feature = "perplexity")]
    pub(crate) fn is_seen(&self) -> bool {
        self.enabled
    }

    /// Says how far the prompt has been read, tokens.
    pub(crate) fn prompt(&mut self, done: usize, total: usize) {
        // A prompt of one chunk is read before anybody could read about it.
        if done > 0 && done < total {
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
