//! The user's input, line by line: edited on a terminal, with the history at the arrow keys, or
//! read from a pipe.

use std::io::{self, BufRead, IsTerminal};

use rustyline::{Config, Editor, error::ReadlineError, history::MemHistory};

use crate::{failure::Failure, interrupt::Interrupt};

/// The prompt on a terminal.
const PROMPT: &str = "> ";

/// Lines of history.
const MAX_HISTORY: usize = 1000;

pub(in crate::commands) enum Lines {
    Terminal(Box<Editor<(), MemHistory>>),
    Pipe,
}

pub(in crate::commands) enum UserInput {
    Line(String),
    /// Ctrl-C at the prompt.
    Interrupt,
    End,
}

/// The answer to a question.
pub(in crate::commands) enum Consent {
    Yes,
    /// Yes, to this and all later questions of the kind.
    Always,
    No,
    /// Ctrl-C or Ctrl-D.
    Stop,
}

impl Lines {
    /// A terminal if standard input and output are one, else a pipe.
    pub(in crate::commands) fn open() -> Result<Self, Failure> {
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

    /// Asks the user at the terminal; in a pipe the answer is no.
    pub(in crate::commands) fn ask(&mut self, question: &str) -> Result<Consent, Failure> {
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

    pub(in crate::commands) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// Reads the next line, without its end. In a pipe, Ctrl-C calls `give_up` and ends the
    /// program.
    pub(in crate::commands) fn next(
        &mut self,
        interrupt: &Interrupt,
        give_up: impl FnOnce() + Send,
    ) -> Result<UserInput, Failure> {
        match self {
            Self::Terminal(editor) => match editor.readline(PROMPT) {
                Ok(line) => {
                    // A line that does not go into the history can still be used.
                    let _ = editor.add_history_entry(&line);
                    Ok(UserInput::Line(line))
                }
                Err(ReadlineError::Interrupted) => Ok(UserInput::Interrupt),
                Err(ReadlineError::Eof) => Ok(UserInput::End),
                Err(error) => Err(unusable(error)),
            },
            Self::Pipe => interrupt.watch(give_up, read_line),
        }
    }
}

fn unusable(error: ReadlineError) -> Failure {
    Failure::Failed(format!("cannot read from the terminal: {error}"))
}

fn read_line() -> Result<UserInput, Failure> {
    let mut bytes = Vec::new();
    let read = io::stdin().lock().read_until(b'\n', &mut bytes);
    match read.map_err(|error| Failure::Failed(format!("cannot read standard input: {error}")))? {
        0 => Ok(UserInput::End),
        // Windows begins piped text with a byte order mark.
        _ => Ok(UserInput::Line(
            String::from_utf8_lossy(&bytes)
                .trim_start_matches('\u{feff}')
                .to_owned(),
        )),
    }
}
