//! Prose of comments and pages, with the line breaks taken out.
//!
//! It refuses to know which words are looked for. The one idea: a phrase may be broken over two
//! lines, so lines are joined before they are searched.

use crate::source::RustFile;

/// Adjacent lines of prose as one text, in lower case, without quotations and code.
#[derive(Default)]
pub(crate) struct Paragraph {
    text: String,
    /// Offset in `text` and number of each line.
    lines: Vec<LineStart>,
}

struct LineStart {
    offset: usize,
    number: usize,
}

/// A quotation of more bytes is taken for two unpaired marks.
const MAX_QUOTATION: usize = 120;

impl Paragraph {
    fn push(&mut self, number: usize, line: &str) {
        let offset = self.text.len();
        self.lines.push(LineStart { offset, number });
        self.text.push_str(&line.trim().to_ascii_lowercase());
        self.text.push(' ');
    }

    fn continues(&self, number: usize) -> bool {
        self.lines.last().is_some_and(|l| l.number + 1 == number)
    }

    fn finish(mut self) -> Self {
        for mark in ['`', '"'] {
            self.text = blank_between(&self.text, mark);
        }
        self
    }

    /// The number of the line of each place where `phrase` stands as whole words.
    pub(crate) fn lines_with(&self, phrase: &str) -> Vec<usize> {
        let found = self.text.match_indices(phrase).map(|(at, _)| at);
        found
            .filter(|&at| self.is_whole(at, at + phrase.len()))
            .map(|at| {
                let after = self.lines.partition_point(|l| l.offset <= at);
                self.lines[after - 1].number
            })
            .collect()
    }

    fn is_whole(&self, start: usize, end: usize) -> bool {
        let before = self.text[..start].chars().next_back();
        let after = self.text[end..].chars().next();
        let in_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !in_word(before) && !in_word(after)
    }
}

/// Replaces the bytes between pairs of `mark` by spaces.
fn blank_between(text: &str, mark: char) -> String {
    let mut blanked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find(mark) {
        let inside = &rest[open + 1..];
        let quoted = inside.find(mark).filter(|&len| len <= MAX_QUOTATION);
        let len = quoted.map_or(0, |len| len + 1);
        blanked.push_str(&rest[..=open]);
        blanked.extend(std::iter::repeat_n(' ', len));
        rest = &inside[len..];
    }
    blanked + rest
}

/// The prose of numbered lines; an empty line ends a paragraph.
pub(crate) fn paragraphs<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Paragraph> {
    let mut all = Vec::new();
    let mut last = Paragraph::default();
    for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        if !last.continues(number) {
            all.push(std::mem::take(&mut last).finish());
        }
        last.push(number, line);
    }
    all.push(last.finish());
    all
}

/// The prose of all comments of a file; those on adjacent lines are one paragraph.
pub(crate) fn comments(source: &RustFile<'_>) -> Vec<Paragraph> {
    let lines = source.comments.iter().flat_map(|comment| {
        let lines = comment.text.lines().enumerate();
        lines.map(|(i, line)| {
            let text = line.trim_start().trim_start_matches(['/', '!', '*']);
            (comment.line + i, text)
        })
    });
    paragraphs(lines)
}
