//! The terminal behind standard output: its width, and whether it takes escape sequences and shows
//! colours.

use std::io::{self, IsTerminal};

/// Columns of the terminal; `None` if standard output is none, or the system does not tell.
pub(crate) fn width() -> Option<usize> {
    if io::stdout().is_terminal() {
        columns().filter(|&width| width > 0)
    } else {
        None
    }
}

fn columns() -> Option<usize> {
    let (width, _) = terminal_size::terminal_size_of(io::stdout())?;
    Some(width.0.into())
}

/// Whether the terminal behind standard output takes escape sequences. A console of Windows must be
/// told.
#[cfg(windows)]
pub(crate) fn takes_sequences() -> bool {
    anstyle_query::windows::enable_ansi_colors() == Some(true)
}

#[cfg(not(windows))]
pub(crate) fn takes_sequences() -> bool {
    true
}

/// Whether standard output is a terminal whose user has nothing against colours
/// (<https://no-color.org>).
pub(crate) fn has_colours() -> bool {
    let is_unset = |name| std::env::var_os(name).is_none_or(|value| value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stdout().is_terminal() && is_unset("NO_COLOR") && !is_dumb && takes_sequences()
}
