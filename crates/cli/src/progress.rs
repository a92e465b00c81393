//! The progress line: one line on standard error that is overwritten, on a terminal only.

use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

/// Prefill that is faster shows no progress, unless its prompt is long.
const DELAY: Duration = Duration::from_millis(300);

/// Tokens of a prompt whose bar is shown from the start: the first batch may take long.
const LONG_PROMPT: usize = 256;

/// Characters of the bar.
const BAR_CHARS: usize = 16;

/// The progress line.
pub(crate) struct Progress {
    enabled: bool,
    /// Bytes of the text that is shown: no fewer than its columns.
    n_shown: usize,
    start: Instant,
    /// When the prompt began to be evaluated, and its tokens that were done then.
    prompt: Option<(Instant, usize)>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            enabled: io::stderr().is_terminal(),
            n_shown: 0,
            start: Instant::now(),
            prompt: None,
        }
    }

    /// Shows how many tokens of the prompt are evaluated, how fast, and the time left: from the
    /// start if the prompt is long, else once it takes a while.
    pub(crate) fn prompt(&mut self, done: usize, total: usize) {
        let (start, n_before) = *self.prompt.get_or_insert((Instant::now(), done));
        let is_slow = done > n_before && self.start.elapsed() >= DELAY;
        if done < total && (is_slow || total - n_before >= LONG_PROMPT) {
            self.busy(|| prompt_line(done, total, done - n_before, start.elapsed()));
        }
    }

    /// Shows what takes long. `what` is called only if it is shown.
    pub(crate) fn busy(&mut self, what: impl FnOnce() -> String) {
        if self.enabled {
            self.overwrite(&what());
        }
    }

    /// Wipes the line before other output to the terminal.
    pub(crate) fn clear(&mut self) {
        if self.n_shown > 0 {
            self.overwrite("");
        }
    }

    fn overwrite(&mut self, text: &str) {
        let n_columns = n_columns();
        let text = fitting(text, n_columns);
        // A closed standard error is no reason to stop.
        let _ = io::stderr().write_all(replacing(self.n_shown, text, n_columns).as_bytes());
        self.n_shown = text.len();
    }
}

/// Wipes `n_shown` columns and writes `text` there. With blanks: a console of Windows shows escape
/// sequences as text until it is told not to.
fn replacing(n_shown: usize, text: &str, n_columns: usize) -> String {
    format!("\r{}\r{text}", " ".repeat(n_shown.min(n_columns)))
}

/// A bar, tokens done of all, the rate of the `n` tokens that took `time`, and the time left.
fn prompt_line(done: usize, total: usize, n: usize, time: Duration) -> String {
    let bar = bar(done as f64 / total.max(1) as f64);
    let line = format!("prompt {bar} {done} of {total} tokens");
    if n == 0 {
        return line;
    }
    let rate = n as f64 / time.as_secs_f64().max(1e-9);
    let left = Duration::from_secs_f64(((total - done) as f64 / rate).min(1e9));
    let rate = if rate < 10.0 {
        format!("{rate:.1}")
    } else {
        format!("{rate:.0}")
    };
    format!("{line}, {rate} tokens/s, {} left", spoken(left))
}

/// A bar that is filled by this part.
pub(crate) fn bar(part: f64) -> String {
    let filled = ((BAR_CHARS as f64 * part) as usize).min(BAR_CHARS);
    format!("[{}{}]", "#".repeat(filled), "-".repeat(BAR_CHARS - filled))
}

/// Columns that a line of the terminal may fill, where they are known. The last one stays free:
/// terminals differ in where the cursor is behind it.
#[cfg(feature = "cli-extras")]
fn n_columns() -> usize {
    match terminal_size::terminal_size_of(io::stderr()) {
        Some((width, _)) if width.0 > 1 => usize::from(width.0) - 1,
        _ => usize::MAX,
    }
}

#[cfg(not(feature = "cli-extras"))]
fn n_columns() -> usize {
    usize::MAX
}

/// The beginning of a text that fits a line: a longer one could not be wiped.
fn fitting(text: &str, n_columns: usize) -> &str {
    let end = text.char_indices().nth(n_columns);
    end.map_or(text, |(end, _)| &text[..end])
}

/// A time in its two largest units.
pub(crate) fn spoken(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_spoken_in_two_units() {
        let spoken = [5, 65, 3700].map(|s| spoken(Duration::from_secs(s)));
        assert_eq!(spoken, ["5 s", "1 min 5 s", "1 h 1 min"]);
    }

    #[test]
    fn a_line_is_wiped_within_the_terminal_and_written_anew() {
        assert_eq!(replacing(0, "ab", 9), "\r\rab");
        assert_eq!(replacing(3, "", 9), "\r   \r");
        assert_eq!(replacing(12, "x", 9), format!("\r{}\rx", " ".repeat(9)));
        assert_eq!(fitting("Jürgen", 3), "Jür");
        assert_eq!(fitting("Jür", usize::MAX), "Jür");
    }

    #[test]
    fn the_line_of_a_prompt_has_its_rate_and_the_time_left_and_fits_a_terminal() {
        assert_eq!(
            prompt_line(1024, 4096, 512, Duration::from_secs(16)),
            "prompt [####------------] 1024 of 4096 tokens, 32 tokens/s, 1 min 36 s left"
        );
        assert_eq!(
            prompt_line(0, 300, 0, Duration::ZERO),
            "prompt [----------------] 0 of 300 tokens"
        );
        let slow = prompt_line(99_999, 131_072, 512, Duration::from_secs(100));
        assert!(slow.ends_with("5.1 tokens/s, 1 h 41 min left"), "{slow}");
        assert!(slow.len() <= 80, "{slow}");
    }
}
