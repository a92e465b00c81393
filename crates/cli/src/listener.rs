//! Hears what happens during a generation: the text goes to standard output, progress to the
//! terminal, figures to the statistics.

use std::ops::ControlFlow;

use atta::Event;

use crate::{
    failure::Failure, interrupt::Interrupt, load::warn, memory::PeakPrivate, output::Stdout,
    progress::Progress, stats::Stats,
};

/// Private memory is looked at whenever this many tokens have come.
const SAMPLE_EVERY: usize = 16;

/// Hears what happens during the generation, passes text on, and stops it if nobody wants more.
pub(crate) struct Listener {
    out: Stdout,
    interrupt: Interrupt,
    progress: Progress,
    peak: PeakPrivate,
    n_generated: usize,
    has_text: bool,
    written: Result<(), Failure>,
    /// Said at the end, when no line of the text is unfinished.
    notes: Vec<String>,
    ending: Ending,
}

/// What stands behind the text.
#[derive(Clone, Copy, PartialEq)]
enum Ending {
    /// Nothing, but a new line for the eyes.
    AsItIs,
    /// The end of its line, since another text follows.
    #[cfg(feature = "chat")]
    Line,
    /// The same, if there is a text.
    #[cfg(feature = "chat")]
    LineOfText,
}

impl Listener {
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
            ending: Ending::AsItIs,
        }
    }

    /// For a text that others follow, each on lines of its own.
    #[cfg(feature = "chat")]
    pub(crate) fn of_lines(interrupt: Interrupt) -> Self {
        Self {
            ending: Ending::Line,
            ..Self::new(interrupt)
        }
    }

    /// For a text that others follow, and that may have none itself.
    #[cfg(feature = "chat")]
    pub(crate) fn of_rounds(interrupt: Interrupt) -> Self {
        Self {
            ending: Ending::LineOfText,
            ..Self::new(interrupt)
        }
    }

    /// Notes that there is no answer, but perhaps the beginning of one.
    #[cfg(feature = "chat")]
    pub(crate) fn failed(&mut self) {
        self.ending = Ending::LineOfText;
    }

    pub(crate) fn hear(&mut self, event: Event) -> ControlFlow<()> {
        match event {
            Event::Prompt { done, total } => self.prompt(done, total),
            Event::Token { n, .. } => self.token(n),
            Event::Tentative => {}
            Event::Note(note) => self.notes.push(note),
            Event::Text(text) => return self.text(&text),
        }
        self.flow()
    }

    /// Writes text of the answer.
    pub(crate) fn text(&mut self, text: &str) -> ControlFlow<()> {
        self.has_text = true;
        self.written = self.out.write(text).and_then(|()| self.out.flush());
        self.flow()
    }

    /// Whether the generation goes on.
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

    /// Hands over what was counted; says whether all text could be written.
    pub(crate) fn end(mut self, stats: &mut Stats) -> Result<(), Failure> {
        stats.n_generated = self.n_generated;
        stats.peak.merge(self.peak);
        self.progress.clear();
        let end = |out: &mut Stdout| match self.ending {
            Ending::AsItIs => out.end_line_on_terminal(),
            #[cfg(feature = "chat")]
            Ending::LineOfText if !self.has_text => Ok(()),
            #[cfg(feature = "chat")]
            Ending::Line | Ending::LineOfText => out.line("").and_then(|()| out.flush()),
        };
        let written = self.written.and_then(|()| end(&mut self.out));
        self.notes.iter().for_each(|note| warn(note));
        match written {
            // Ctrl-C reaches everybody in a pipeline, so that our reader may be gone before we are.
            Err(Failure::ClosedPipe) if self.interrupt.is_asked() => Err(Failure::Interrupted),
            written => written,
        }
    }
}
