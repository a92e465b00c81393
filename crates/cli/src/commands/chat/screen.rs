//! Text for a reader at a terminal: wrapped between words, thoughts dimmed, without control
//! characters.
//!
//! Knows no conversation. Each character goes out at once; a word that turns out to be too long for
//! its line is wiped there and written again on the next one.

use unicode_width::UnicodeWidthChar;

use crate::{failure::is_invisible, terminal};

/// Narrower terminals wrap by themselves.
const MIN_WIDTH: usize = 20;

/// Begins and ends dimmed text.
const DIM: &str = "\u{1b}[2m";
const PLAIN: &str = "\u{1b}[0m";

/// The state of the screen behind the text so far.
#[derive(Debug)]
pub(super) struct Screen {
    /// Columns that a line may fill; `None`: lines are not wrapped.
    n_columns: Option<usize>,
    has_colours: bool,
    /// Columns that the current line fills.
    column: usize,
    /// The word at the end of the line, and its columns.
    word: String,
    word_width: usize,
}

/// Whether lines are wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrap {
    On,
    Off,
}

impl Screen {
    /// The terminal behind standard output.
    pub(super) fn stdout(wrap: Wrap) -> Self {
        // Words are carried to the next line by escape sequences.
        let wraps = wrap == Wrap::On && terminal::takes_sequences();
        let width = terminal::width().filter(|_| wraps);
        Self::of(width, terminal::has_colours())
    }

    fn of(width: Option<usize>, has_colours: bool) -> Self {
        Self {
            // The last column stays free: terminals differ in where the cursor is behind it.
            n_columns: width.filter(|&n| n >= MIN_WIDTH).map(|n| n - 1),
            has_colours,
            column: 0,
            word: String::new(),
            word_width: 0,
        }
    }

    /// The text as it is to be written.
    pub(super) fn text(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                '\n' => self.break_line(&mut out),
                ' ' | '\t' => self.space(&mut out),
                c if is_invisible(c) => {}
                c => self.letter(c, &mut out),
            }
        }
        out
    }

    /// Text that is dimmed, where the terminal has colours.
    pub(super) fn dimmed(&mut self, text: &str) -> String {
        let text = self.text(text);
        match self.has_colours {
            true => format!("{DIM}{text}{PLAIN}"),
            false => text,
        }
    }

    fn break_line(&mut self, out: &mut String) {
        out.push('\n');
        self.column = 0;
        self.end_word();
    }

    fn end_word(&mut self) {
        self.word.clear();
        self.word_width = 0;
    }

    fn space(&mut self, out: &mut String) {
        self.end_word();
        // A space at the edge is the end of the line: the next word begins another one.
        if self.n_columns.is_none_or(|n| self.column < n) {
            out.push(' ');
            self.column += 1;
        }
    }

    fn letter(&mut self, c: char, out: &mut String) {
        let width = c.width().unwrap_or(0);
        if self.n_columns.is_some_and(|n| self.column + width > n) {
            self.carry_word(out);
        }
        out.push(c);
        self.column += width;
        if width > 1 {
            // Scripts of wide characters have no spaces: lines break anywhere.
            self.end_word();
        } else {
            self.word.push(c);
            self.word_width += width;
        }
    }

    /// Begins a line with the word at the end of the current one, unless the word fills that.
    fn carry_word(&mut self, out: &mut String) {
        if self.word_width == 0 || self.word_width >= self.column {
            return self.break_line(out);
        }
        out.push_str(&format!(
            "\u{1b}[{}D\u{1b}[K\n{}",
            self.word_width, self.word
        ));
        self.column = self.word_width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The screen after these pieces: what a terminal shows.
    fn shown(width: usize, pieces: &[&str]) -> String {
        let mut screen = Screen::of(Some(width), false);
        let mut lines = vec![String::new()];
        let written: String = pieces.iter().map(|piece| screen.text(piece)).collect();
        let mut chars = written.chars();
        while let Some(c) = chars.next() {
            let line = lines.last_mut().unwrap();
            match c {
                '\n' => lines.push(String::new()),
                '\u{1b}' => {
                    let n: String = chars.by_ref().skip(1).take_while(|&c| c != 'D').collect();
                    let n_kept = line.chars().count() - n.parse::<usize>().unwrap();
                    *line = line.chars().take(n_kept).collect();
                    assert_eq!(chars.by_ref().take(3).collect::<String>(), "\u{1b}[K");
                }
                c => line.push(c),
            }
        }
        lines.join("\n")
    }

    #[test]
    fn lines_end_between_words_however_the_text_comes() {
        let expected = "a leafcutter ant is \nnot a termite";
        let text = "a leafcutter ant is not a termite";
        assert_eq!(shown(21, &[text]), expected);
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        assert_eq!(shown(21, &letters), expected);
    }

    #[test]
    fn a_word_longer_than_a_line_is_broken_and_lines_of_the_text_stay() {
        let word = "x".repeat(25);
        let broken = format!("{}\n{}", "x".repeat(19), "x".repeat(6));
        assert_eq!(shown(20, &[&word]), broken);
        assert_eq!(shown(20, &["a\n\n  b\n"]), "a\n\n  b\n");
    }

    #[test]
    fn wide_characters_take_two_columns_and_need_no_space() {
        let text = "\u{87fb}".repeat(12);
        let lines: Vec<usize> = shown(20, &[&text])
            .lines()
            .map(|line| line.chars().count())
            .collect();
        assert_eq!(lines, [9, 3]);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let mut screen = Screen::of(None, true);
        assert_eq!(screen.text("a\u{1b}[31mb\r\u{7}\n"), "a[31mb\n");
        assert_eq!(screen.dimmed("hm"), "\u{1b}[2mhm\u{1b}[0m");
        assert_eq!(Screen::of(None, false).dimmed("hm"), "hm");
    }
}
