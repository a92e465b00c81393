//! Lines of the user: edited on a terminal, with those before at the arrow keys, or as they come
//! from a pipe.
//!
//! Knows nothing of what is in them.

use std::io::{self, BufRead, IsTerminal};

use rustyline::{Config, Editor, error::ReadlineError, history::MemHistory};

use crate::{failure::Failure, interrupt::Interrupt};

/// What stands before a line on a terminal.
const PROMPT: &str = "> ";

/// How many lines are kept to be called back.
const MAX_HISTORY: usize = 1000;

pub(super) enum Lines {
    Terminal(Box<Editor<(), MemHistory>>),
    Pipe,
}

pub(super) enum Line {
    Text(String),
    /// Ctrl-C at the prompt.
    Interrupt,
    End,
}

/// What is said to a question.
pub(super) enum Consent {
    Yes,
    /// Yes, and to all questions of this kind.
    Always,
    No,
    /// Ctrl-C or Ctrl-D.
    Stop,
}

impl Lines {
    /// A terminal, if the user types and reads at one.
    pub(super) fn open() -> Result<Self, Failure> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(Self::Pipe);
        }
        let config = Config::builder()
            .max_history_size(MAX_HISTORY)
            .map_err(unusable)?
            .build();
        let history = MemHistory::with_config(&config);
        Ok(Self::Terminal(Box::new(
            Editor::with_history(config, history).map_err(unusable)?,
        )))
    }

    /// What somebody at a terminal says to a question; in a pipe nobody says yes.
    pub(super) fn ask(&mut self, question: &str) -> Result<Consent, Failure> {
        let Self::Terminal(editor) = self else {
            return Ok(Consent::No);
        };
        match editor.readline(question) {
            Ok(answer) if matches!(answer.trim(), "y" | "Y" | "yes") => Ok(Consent::Yes),
            Ok(answer) if matches!(answer.trim(), "a" | "A" | "always") => Ok(Consent::Always),
            Ok(_) => Ok(Consent::No),
            Err(ReadlineError::Interrupted | ReadlineError::Eof) => Ok(Consent::Stop),
            Err(error) => Err(unusable(error)),
        }
    }

    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// The next line, without its end. In a pipe Ctrl-C calls `give_up` and ends the program.
    pub(super) fn next(
        &mut self,
        interrupt: &Interrupt,
        give_up: impl FnOnce() + Send,
    ) -> Result<Line, Failure> {
        match self {
            Self::Terminal(editor) => match editor.readline(PROMPT) {
                Ok(line) => {
                    // A line that cannot be kept can still be used.
                    let _ = editor.add_history_entry(&line);
                    Ok(Line::Text(line))
                }
                Err(ReadlineError::Interrupted) => Ok(Line::Interrupt),
                Err(ReadlineError::Eof) => Ok(Line::End),
                Err(error) => Err(unusable(error)),
            },
            Self::Pipe => interrupt.watch(give_up, read_line),
        }
    }
}

fn unusable(error: ReadlineError) -> Failure {
    Failure::Failed(format!("cannot read from the terminal: {error}"))
}

fn read_line() -> Result<Line, Failure> {
    let mut bytes = Vec::new();
    let read = io::stdin().lock().read_until(b'\n', &mut bytes);
    match read.map_err(|error| Failure::Failed(format!("cannot read standard input: {error}")))? {
        0 => Ok(Line::End),
        // Windows puts a byte order mark in front of what is piped.
        _ => Ok(Line::Text(
            String::from_utf8_lossy(&bytes)
                .trim_start_matches('\u{feff}')
                .to_owned(),
        )),
    }
}
