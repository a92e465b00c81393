//! Prints a generation as it happens: text to standard output, progress to the terminal, counts to
//! the statistics.

use std::ops::ControlFlow;

use atta::Event;

use crate::{
    failure::Failure, interrupt::Interrupt, load::warn, memory::PeakPrivate, output::Stdout,
    progress::Progress, stats::Stats,
};

/// Tokens between two samples of private memory.
const SAMPLE_EVERY: usize = 16;

/// Prints the events of a generation, and stops it after Ctrl-C or when output fails.
pub(crate) struct GenerationPrinter {
    out: Stdout,
    interrupt: Interrupt,
    progress: Progress,
    peak: PeakPrivate,
    n_generated: usize,
    has_text: bool,
    written: Result<(), Failure>,
    /// Printed at the end, when no line of the text is unfinished.
    notes: Vec<String>,
}

impl GenerationPrinter {
    pub(crate) fn new(interrupt: Interrupt) -> Self {
        Self {
            out: Stdout::lock(),
            interrupt,
            progress: Progress::new(),
            peak: PeakPrivate::default(),
            n_generated: 0,
            has_text: false,
            written: Ok(()),
            notes: Vec::new(),
        }
    }

    pub(crate) fn on_event(&mut self, event: Event) -> ControlFlow<()> {
        match event {
            Event::Prompt { done, total } => self.prompt(done, total),
            Event::Token { n, .. } => self.token(n),
            Event::Tentative => {}
            Event::Note(note) => self.notes.push(note),
            Event::Text(text) => return self.print(&text),
        }
        self.flow()
    }

    /// Prints a part of the output.
    pub(crate) fn print(&mut self, text: &str) -> ControlFlow<()> {
        self.has_text = true;
        self.written = self.out.write(text).and_then(|()| self.out.flush());
        self.flow()
    }

    /// Shows in the progress line what takes long.
    #[cfg(feature = "chat")]
    pub(crate) fn busy(&mut self, what: impl FnOnce() -> String) {
        self.progress.busy(what);
    }

    /// Wipes the progress line.
    #[cfg(feature = "chat")]
    pub(crate) fn clear_progress(&mut self) {
        self.progress.clear();
    }

    /// Whether the generation continues.
    fn flow(&self) -> ControlFlow<()> {
        if self.written.is_err() || self.interrupt.is_asked() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn prompt(&mut self, done: usize, total: usize) {
        self.progress.prompt(done, total);
        if done == total {
            self.progress.clear();
            self.peak.sample();
        }
    }

    fn token(&mut self, n: usize) {
        self.n_generated = n;
        if n.is_multiple_of(SAMPLE_EVERY) {
            self.peak.sample();
        }
    }

    /// Hands the counts to the statistics and calls `finish` with the output and whether any text
    /// was generated. An error means that not all text could be written.
    pub(crate) fn end(
        mut self,
        stats: &mut Stats,
        finish: impl FnOnce(&mut Stdout, bool) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        stats.n_generated = self.n_generated;
        stats.peak.merge(self.peak);
        self.progress.clear();
        let has_text = self.has_text;
        let written = self.written.and_then(|()| finish(&mut self.out, has_text));
        self.notes.iter().for_each(|note| warn(note));
        match written {
            // Ctrl-C goes to all programs of a pipeline, so our reader may end before we do.
            Err(Failure::ClosedPipe) if self.interrupt.is_asked() => Err(Failure::Interrupted),
            written => written,
        }
    }
}
