//! The failure of a command: one line on standard error, and an exit code.
//!
//! Codes: 1 failed, 2 wrong usage, 130 interrupted. A closed pipe is no failure: the reader has
//! seen enough, so the program ends silently with 0.

use std::{
    fmt::Display,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use atta::Explain;

use crate::args::flag;

/// The exit code after Ctrl-C: 128 plus the number of the signal, as in shells.
pub(crate) const INTERRUPTED: u8 = 130;

/// What makes the measurements that a file lacks.
const HOW_TO_MEASURE: &str = "`atta sensitivity MODEL -f TEXT -o NEW.gguf` writes a file with them";

/// Why a command did not complete.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Wrong usage; nothing was done.
    Usage(String),
    /// The work failed.
    Failed(String),
    /// Ctrl-C.
    Interrupted,
    /// The reader of our output has closed it.
    ClosedPipe,
}

impl Failure {
    /// A failure at a file.
    pub(crate) fn at(path: &Path, what: impl Display) -> Self {
        Self::Failed(format!("{}: {what}", path.display()))
    }

    /// The failure of a write to standard output.
    pub(crate) fn stdout(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ClosedPipe,
            _ => Self::Failed(format!("cannot write to standard output: {error}")),
        }
    }

    /// Prints the failure and returns its exit code.
    pub(crate) fn report(self) -> ExitCode {
        let (code, message) = match self {
            Self::Usage(message) => (2, message),
            Self::Failed(message) => (1, message),
            Self::Interrupted => return ExitCode::from(INTERRUPTED),
            Self::ClosedPipe => return ExitCode::SUCCESS,
        };
        // If standard error is closed too, only the exit code is left.
        let _ = writeln!(io::stderr(), "atta: error: {}", one_line(&message));
        ExitCode::from(code)
    }
}

impl From<atta::Error> for Failure {
    fn from(error: atta::Error) -> Self {
        let why = error.explain(flag);
        Self::Failed(match error {
            atta::Error::Unmeasured { .. } => format!("{why}: {HOW_TO_MEASURE}"),
            _ => why,
        })
    }
}

/// A message as one line without terminal escapes: names in it may come from a hostile file.
pub(crate) fn one_line(message: &str) -> String {
    message.chars().flat_map(visible).collect()
}

/// A character, or its escape if it does not print.
fn visible(c: char) -> impl Iterator<Item = char> {
    let (shown, escaped) = if is_invisible(c) {
        (None, Some(c.escape_default()))
    } else {
        (Some(c), None)
    };
    shown.into_iter().chain(escaped.into_iter().flatten())
}

/// Control characters, line and paragraph separators, and marks that change the direction of text.
pub(crate) fn is_invisible(c: char) -> bool {
    let is_direction = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    c.is_control() || is_direction || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_without_control_characters() {
        assert_eq!(
            one_line("a\nb\u{1b}[31m\u{202e}ü\""),
            "a\\nb\\u{1b}[31m\\u{202e}ü\""
        );
    }

    #[test]
    fn a_closed_pipe_is_told_from_a_full_disk() {
        let failure = |kind| Failure::stdout(io::Error::from(kind));
        assert!(matches!(
            failure(io::ErrorKind::BrokenPipe),
            Failure::ClosedPipe
        ));
        assert!(matches!(
            failure(io::ErrorKind::StorageFull),
            Failure::Failed(_)
        ));
    }
}
