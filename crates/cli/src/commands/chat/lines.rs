//! The user's input, line by line: edited on a terminal, with the history at the arrow keys, or
//! read from a pipe.

use std::io::{self, BufRead, IsTerminal};

use rustyline::{
    Config, Editor, Helper, completion::Completer, error::ReadlineError, highlight::Highlighter,
    hint::Hinter, history::MemHistory, validate,
};

use crate::{failure::Failure, interrupt::Interrupt};

/// The prompt on a terminal, plain and coloured; the editor chooses by NO_COLOR.
const PROMPT: (&str, &str) = ("> ", "\u{1b}[1;36m>\u{1b}[0m ");

/// Begins and ends a message of several lines.
const QUOTES: &str = "\"\"\"";

/// Lines of history.
const MAX_HISTORY: usize = 1000;

pub(in crate::commands) enum Lines {
    Terminal(Box<Editor<Quoted, MemHistory>>),
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
        let mut editor = Editor::with_history(config, history).map_err(unusable)?;
        editor.set_helper(Some(Quoted));
        Ok(Self::Terminal(Box::new(editor)))
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
            Self::Terminal(editor) => match editor.readline(&PROMPT) {
                Ok(line) => {
                    // A line that does not go into the history can still be used.
                    let _ = editor.add_history_entry(&line);
                    Ok(UserInput::Line(unquoted(line)))
                }
                Err(ReadlineError::Interrupted) => Ok(UserInput::Interrupt),
                Err(ReadlineError::Eof) => Ok(UserInput::End),
                Err(error) => Err(unusable(error)),
            },
            Self::Pipe => interrupt.watch(give_up, read_line),
        }
    }
}

/// Lets a message go on over lines until its quotes are closed.
pub(in crate::commands) struct Quoted;

impl validate::Validator for Quoted {
    fn validate(
        &self,
        context: &mut validate::ValidationContext<'_>,
    ) -> rustyline::Result<validate::ValidationResult> {
        Ok(match is_open(context.input()) {
            true => validate::ValidationResult::Incomplete,
            false => validate::ValidationResult::Valid(None),
        })
    }
}

impl Completer for Quoted {
    type Candidate = String;
}

impl Hinter for Quoted {
    type Hint = String;
}

impl Highlighter for Quoted {}

impl Helper for Quoted {}

/// Whether a message has begun with quotes that are not closed.
fn is_open(input: &str) -> bool {
    let begun = input.trim().strip_prefix(QUOTES);
    begun.is_some_and(|rest| !rest.ends_with(QUOTES))
}

/// A message without its quotes. In quotes, a slash at the beginning is text.
fn unquoted(line: String) -> String {
    let inner = line
        .trim()
        .strip_prefix(QUOTES)
        .and_then(|rest| rest.strip_suffix(QUOTES));
    match inner.map(str::trim) {
        Some(text) if text.starts_with('/') => format!("/{text}"),
        Some(text) => text.to_owned(),
        None => line,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_a_message_together_and_are_no_part_of_it() {
        assert!(is_open("\"\"\"") && is_open(" \"\"\"one\ntwo"));
        assert!(!is_open("one \"\"\"") && !is_open("\"\"\"one\ntwo\"\"\""));
        let text = |line: &str| unquoted(line.to_owned());
        assert_eq!(text("\"\"\"one\ntwo\n\"\"\""), "one\ntwo");
        assert_eq!(text("\"\"\"/etc\"\"\""), "//etc");
        assert_eq!(text("plain \"\"\""), "plain \"\"\"");
    }
}
