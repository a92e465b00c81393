//! Prints an answer: plain into a pipe, wrapped and with dimmed thoughts on a terminal.
//!
//! Thoughts go to a terminal only, and not even there where they are hidden; then the progress line
//! tells how long the model has been thinking.

use std::ops::ControlFlow;

use atta::{Event, chat::ChatEvent, tools::Piece};

use super::{
    screen::Screen,
    settings::{Thoughts, View},
};
use crate::{
    failure::Failure, generation_printer::GenerationPrinter, interrupt::Interrupt, output::Stdout,
    stats::Stats,
};

/// Printed in front of thoughts.
const THOUGHTS_BEGIN: &str = "thinking: ";

/// Prints the events of an answer.
pub(super) struct AnswerPrinter {
    inner: GenerationPrinter,
    /// `None`: a pipe.
    screen: Option<Screen>,
    thoughts: Thoughts,
    /// Tokens so far.
    n_tokens: usize,
    /// Whether thoughts were printed that no text has followed.
    is_thinking: bool,
    has_text: bool,
}

impl AnswerPrinter {
    /// A printer to a terminal with this view, or to a pipe.
    pub(super) fn new(interrupt: Interrupt, view: Option<View>) -> Self {
        Self {
            inner: GenerationPrinter::new(interrupt),
            screen: view.map(|view| Screen::stdout(view.wrap)),
            thoughts: view.map_or(Thoughts::Hidden, |view| view.thoughts),
            n_tokens: 0,
            is_thinking: false,
            has_text: false,
        }
    }

    pub(super) fn on_event(&mut self, event: Event) -> ControlFlow<()> {
        match event {
            Event::Text(text) => self.text(&text),
            Event::Token { n, .. } => {
                self.n_tokens = n;
                self.inner.on_event(event)
            }
            event => self.inner.on_event(event),
        }
    }

    pub(super) fn on_chat_event(&mut self, event: ChatEvent<'_>) -> ControlFlow<()> {
        match event {
            ChatEvent::Event(event) => self.on_event(event),
            ChatEvent::Piece(Piece::Text(text)) => self.text(text),
            ChatEvent::Piece(Piece::Reasoning(text)) => self.thought(text),
            ChatEvent::Piece(_) => ControlFlow::Continue(()),
        }
    }

    /// Prints text of the answer, without white space in front of it.
    fn text(&mut self, text: &str) -> ControlFlow<()> {
        let text = if self.has_text {
            text
        } else {
            text.trim_start()
        };
        if text.is_empty() {
            return ControlFlow::Continue(());
        }
        if std::mem::take(&mut self.is_thinking) {
            self.end_thoughts()?;
        }
        self.has_text = true;
        match &mut self.screen {
            Some(screen) => self.inner.print(&screen.text(text)),
            None => self.inner.print(text),
        }
    }

    fn thought(&mut self, text: &str) -> ControlFlow<()> {
        let begins = !std::mem::replace(&mut self.is_thinking, true);
        match (&mut self.screen, self.thoughts) {
            (Some(screen), Thoughts::Shown) => {
                let begin = if begins { THOUGHTS_BEGIN } else { "" };
                let text = screen.dimmed(&format!("{begin}{text}"));
                self.inner.print(&text)
            }
            _ => {
                let n = self.n_tokens;
                self.inner.busy(|| format!("thinking: {n} tokens"));
                ControlFlow::Continue(())
            }
        }
    }

    /// Separates thoughts from what follows.
    fn end_thoughts(&mut self) -> ControlFlow<()> {
        self.inner.clear_progress();
        match (&mut self.screen, self.thoughts) {
            (Some(screen), Thoughts::Shown) => {
                let gap = screen.text("\n\n");
                self.inner.print(&gap)
            }
            _ => ControlFlow::Continue(()),
        }
    }

    /// As [`GenerationPrinter::end`].
    pub(super) fn end(
        self,
        stats: &mut Stats,
        finish: impl FnOnce(&mut Stdout, bool) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.inner.end(stats, finish)
    }
}
