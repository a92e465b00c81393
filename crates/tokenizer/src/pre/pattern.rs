//! The regular expressions of pre-tokenizers: a parser for their dialect, and a matcher.
//!
//! Knows nothing of names, passes or vocabularies. The one idea: these expressions are alternatives
//! of short sequences that repeat single-character sets, so a greedy loop that backtracks one
//! character at a time is the whole matcher, without captures, states or allocation. Groups match
//! atomically, as their first alternative that matches; no published pattern needs backtracking
//! into a group.
//!
//! Supported: literals, escapes, `\s \S \p{..}`, classes, `[..&&[^..]]`, `( )` and `(?: )`, `|`,
//! `? * + {n} {m,n}`, and `(?! )` around one set. Semantics as in Perl: leftmost, first
//! alternative, greedy.

use super::set::Set;
use crate::unicode::Categories;
use std::iter::Peekable;
use std::str::Chars;

/// A compiled expression.
#[derive(Debug)]
pub(super) struct Pattern {
    alternatives: Vec<Vec<Element>>,
}

#[derive(Debug)]
enum Element {
    Run(Run),
    Group(Subpattern),
    NotAhead(Set),
}

/// `min` to `max` characters of a set.
#[derive(Debug)]
struct Run {
    set: Set,
    min: usize,
    max: usize,
}

/// `min` to `max` matches of a parenthesized pattern.
#[derive(Debug)]
struct Subpattern {
    inner: Pattern,
    min: usize,
    max: usize,
}

impl Pattern {
    /// Compiles an expression of `schemes`.
    ///
    /// # Panics
    /// If the expression is not in the dialect. All expressions are constants that a test compiles.
    pub(super) fn new(source: &str) -> Self {
        let mut parser = Parser {
            rest: source.chars().peekable(),
        };
        let pattern = parser.pattern();
        assert!(
            parser.rest.next().is_none(),
            "unbalanced parenthesis in {source}"
        );
        pattern
    }

    /// The end of the match that begins at byte `at` of `text`, a character boundary.
    pub(super) fn match_at(&self, text: &str, at: usize) -> Option<usize> {
        self.alternatives
            .iter()
            .find_map(|elements| match_all(elements, text, at))
    }
}

fn match_all(elements: &[Element], text: &str, at: usize) -> Option<usize> {
    let Some((element, rest)) = elements.split_first() else {
        return Some(at);
    };
    match element {
        Element::Run(run) => match_run(run, rest, text, at),
        Element::Group(group) => match_all(rest, text, match_group(group, text, at)?),
        Element::NotAhead(set) if next_in(set, text, at).is_some() => None,
        Element::NotAhead(_) => match_all(rest, text, at),
    }
}

/// Matches as many characters of `set` as there are, then fewer, until the rest of the sequence
/// matches.
fn match_run(run: &Run, rest: &[Element], text: &str, start: usize) -> Option<usize> {
    let set = &run.set;
    let mut at = start;
    let mut n = 0;
    while n < run.max
        && let Some(next) = next_in(set, text, at)
    {
        (at, n) = (next, n + 1);
    }
    while n >= run.min {
        if let Some(end) = match_all(rest, text, at) {
            return Some(end);
        }
        if n == run.min {
            break;
        }
        (at, n) = (
            text[..at].char_indices().next_back().map_or(0, |(i, _)| i),
            n - 1,
        );
    }
    None
}

fn match_group(group: &Subpattern, text: &str, start: usize) -> Option<usize> {
    let mut at = start;
    let mut n = 0;
    while n < group.max
        && let Some(end) = group.inner.match_at(text, at).filter(|&end| end > at)
    {
        (at, n) = (end, n + 1);
    }
    (n >= group.min).then_some(at)
}

/// The position after the next character, if that is in `set`.
fn next_in(set: &Set, text: &str, at: usize) -> Option<usize> {
    let c = text[at..].chars().next()?;
    set.contains(c).then_some(at + c.len_utf8())
}

/// A recursive-descent parser: pattern = sequence ('|' sequence)*, sequence = (element
/// quantifier?)*.
struct Parser<'p> {
    rest: Peekable<Chars<'p>>,
}

impl Parser<'_> {
    fn pattern(&mut self) -> Pattern {
        let mut alternatives = vec![self.sequence()];
        while self.take('|') {
            alternatives.push(self.sequence());
        }
        Pattern { alternatives }
    }

    fn sequence(&mut self) -> Vec<Element> {
        let mut elements = Vec::new();
        while let Some(c) = self.rest.next_if(|&c| c != '|' && c != ')') {
            elements.push(if c == '(' { self.group() } else { self.run(c) });
        }
        elements
    }

    fn group(&mut self) -> Element {
        let kind = if self.take('?') { self.next() } else { ':' };
        let inner = self.pattern();
        assert!(self.take(')'), "unbalanced parenthesis");
        match kind {
            '!' => Element::NotAhead(single_set(inner)),
            _ => {
                let (min, max) = self.quantifier();
                Element::Group(Subpattern { inner, min, max })
            }
        }
    }

    fn run(&mut self, first: char) -> Element {
        let set = match first {
            '[' => self.class(),
            '\\' => match self.escape() {
                Escape::Categories(categories) => Set::new(categories, Vec::new(), false),
                Escape::Char(c) => Set::new(Categories::NONE, vec![(c, c)], false),
            },
            c => Set::new(Categories::NONE, vec![(c, c)], false),
        };
        let (min, max) = self.quantifier();
        Element::Run(Run { set, min, max })
    }

    fn class(&mut self) -> Set {
        let negated = self.take('^');
        let mut categories = Categories::NONE;
        let mut ranges = Vec::new();
        while !self.take(']') {
            if self.rest.clone().take(2).eq("&&".chars()) {
                return Set::new(categories, ranges, negated).without(self.except());
            }
            match self.class_element() {
                Escape::Categories(more) => categories = categories.union(more),
                Escape::Char(first) if self.take('-') => match self.class_element() {
                    Escape::Char(last) => ranges.push((first, last)),
                    Escape::Categories(_) => panic!("a range ends in a category"),
                },
                Escape::Char(c) => ranges.push((c, c)),
            }
        }
        Set::new(categories, ranges, negated)
    }

    /// The ranges of `&&[^..]]`, the end of a class.
    fn except(&mut self) -> Vec<(char, char)> {
        assert!("&&[^".chars().all(|c| self.take(c)), "an intersection");
        let mut ranges = Vec::new();
        while !self.take(']') {
            let first = self.next();
            let last = if self.take('-') { self.next() } else { first };
            ranges.push((first, last));
        }
        assert!(self.take(']'), "an intersection ends its class");
        ranges
    }

    fn class_element(&mut self) -> Escape {
        match self.next() {
            '\\' => self.escape(),
            c => Escape::Char(c),
        }
    }

    fn escape(&mut self) -> Escape {
        match self.next() {
            's' => Escape::Categories(Categories::SPACE),
            'S' => Escape::Categories(Categories::NOT_SPACE),
            'p' => Escape::Categories(self.property()),
            'r' => Escape::Char('\r'),
            'n' => Escape::Char('\n'),
            't' => Escape::Char('\t'),
            c if c.is_ascii_punctuation() => Escape::Char(c),
            c => panic!("unknown escape \\{c}"),
        }
    }

    fn property(&mut self) -> Categories {
        assert!(self.take('{'), "a property stands in braces");
        let name: String = std::iter::from_fn(|| self.rest.next_if(|&c| c != '}')).collect();
        self.next();
        match name.as_str() {
            "L" => Categories::LETTER,
            "Lu" => Categories::UPPER,
            "Ll" => Categories::LOWER,
            "Lt" => Categories::TITLE,
            "Lm" | "Lo" => Categories::OTHER_LETTER,
            "M" => Categories::MARK,
            "N" => Categories::NUMBER,
            "P" => Categories::PUNCTUATION,
            "S" => Categories::SYMBOL,
            _ => panic!("unknown property {name}"),
        }
    }

    fn quantifier(&mut self) -> (usize, usize) {
        match self.rest.peek() {
            Some('?') => self.quantified((0, 1)),
            Some('*') => self.quantified((0, usize::MAX)),
            Some('+') => self.quantified((1, usize::MAX)),
            Some('{') => self.counted(),
            _ => (1, 1),
        }
    }

    fn quantified(&mut self, bounds: (usize, usize)) -> (usize, usize) {
        self.next();
        bounds
    }

    fn counted(&mut self) -> (usize, usize) {
        self.next();
        let min = self.number();
        let max = if self.take(',') { self.number() } else { min };
        assert!(self.take('}'), "unbalanced brace");
        (min, max)
    }

    fn number(&mut self) -> usize {
        let digits: String =
            std::iter::from_fn(|| self.rest.next_if(char::is_ascii_digit)).collect();
        digits.parse().expect("a repetition count has digits")
    }

    fn take(&mut self, c: char) -> bool {
        self.rest.next_if_eq(&c).is_some()
    }

    fn next(&mut self) -> char {
        self.rest
            .next()
            .expect("a published expression is complete")
    }
}

enum Escape {
    Char(char),
    Categories(Categories),
}

/// The set of a negative lookahead.
fn single_set(pattern: Pattern) -> Set {
    match pattern
        .alternatives
        .into_iter()
        .next()
        .and_then(|mut elements| elements.pop())
    {
        Some(Element::Run(Run {
            set,
            min: 1,
            max: 1,
        })) => set,
        _ => panic!("a lookahead holds one set"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched<'t>(pattern: &str, text: &'t str) -> Option<&'t str> {
        Pattern::new(pattern)
            .match_at(text, 0)
            .map(|end| &text[..end])
    }

    #[test]
    fn the_first_alternative_that_fits_wins() {
        assert_eq!(matched("a|ab", "ab"), Some("a"));
        assert_eq!(matched("ac|ab", "ab"), Some("ab"));
        assert_eq!(matched("b", "ab"), None);
    }

    #[test]
    fn a_run_gives_back_what_the_rest_needs() {
        assert_eq!(matched(r"\s*[\r\n]+", " \n \n  x"), Some(" \n \n"));
        assert_eq!(matched(r"\s+(?!\S)", "   x"), Some("  "));
        assert_eq!(matched(r"\s+(?!\S)", " x"), None);
        assert_eq!(
            matched(r"[^\r\n\p{L}]?[\p{L}\p{M}]+", "\u{301}"),
            Some("\u{301}")
        );
    }

    #[test]
    fn counts_and_groups_repeat() {
        assert_eq!(matched(r"\p{N}{1,3}", "12345"), Some("123"));
        assert_eq!(matched("(ab|c){2}d?", "abcd"), Some("abcd"));
        assert_eq!(matched("(ab|c){3}", "abcd"), None);
        assert_eq!(matched("x(?:'[sS])?", "x'Sy"), Some("x'S"));
    }

    #[test]
    fn a_class_may_leave_characters_out() {
        let pattern = r"[\p{Lo}\p{Ll}&&[^一-龥々]]+";
        assert_eq!(matched(pattern, "カa中"), Some("カa"));
        assert_eq!(matched(pattern, "々"), None);
        assert_eq!(matched("[a&]+", "a&b"), Some("a&"));
    }

    #[test]
    fn classes_hold_ranges_escapes_and_categories() {
        assert_eq!(matched(r"[a-c\-\]\p{N}é]+", "b-]7éd"), Some("b-]7é"));
        assert_eq!(matched(r"[^\s\p{L}]+", "+=a"), Some("+="));
    }

    #[test]
    fn an_empty_repetition_of_a_group_ends() {
        assert_eq!(matched("(a*)*", "b"), Some(""));
    }
}
