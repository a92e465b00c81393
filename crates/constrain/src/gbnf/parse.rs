//! GBNF text to expressions, as llama.cpp reads it (its `grammars/README.md` and parser), and a
//! little more: `_` in names, and an alternative that begins on a new line. A rule that is defined
//! twice is what the last definition says.
//!
//! What the expressions are for is not known here.

use super::charset::CharSet;
use super::error::GbnfError;
use super::expr::{Expr, Times};
use std::collections::HashMap;

/// Rules by number, those of `root` and everything it needs among them.
#[derive(Clone, Debug)]
pub(super) struct Grammar {
    pub(super) bodies: Vec<Expr>,
    pub(super) root: usize,
}

const MAX_BYTES: usize = 1 << 20;
pub(super) const MAX_RULES: usize = 4000;
const MAX_GROUPS: usize = 24;
const MAX_OPERATORS: usize = 4;
/// What one repetition may ask for. llama.cpp's limit is 2,000.
const MAX_TIMES: usize = 10_000;

pub(super) fn parse(source: &str) -> Result<Grammar, GbnfError> {
    limit("bytes of the grammar", source.len(), MAX_BYTES)?;
    let mut parser = Parser {
        source,
        at: 0,
        rules: HashMap::new(),
        bodies: Vec::new(),
        uses: Vec::new(),
        groups: 0,
    };
    parser.space(LineEnds::May);
    while parser.peek().is_some() {
        parser.rule()?;
        parser.space(LineEnds::May);
    }
    parser.finish()
}

/// Refuses more than `max` of something.
pub(super) fn limit(what: &'static str, n: usize, max: usize) -> Result<(), GbnfError> {
    if n > max {
        Err(GbnfError::TooLarge { what, limit: max })
    } else {
        Ok(())
    }
}

/// Whether white space may hold the end of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineEnds {
    May,
    Not,
}

struct Parser<'a> {
    source: &'a str,
    /// Byte offset, always between characters.
    at: usize,
    rules: HashMap<&'a str, usize>,
    bodies: Vec<Option<Expr>>,
    /// Of each rule, its name and where it stands first.
    uses: Vec<(&'a str, usize)>,
    groups: usize,
}

impl<'a> Parser<'a> {
    fn finish(self) -> Result<Grammar, GbnfError> {
        let root = *self.rules.get("root").ok_or(GbnfError::NoRoot)?;
        let mut bodies = Vec::with_capacity(self.bodies.len());
        for (body, &(name, at)) in self.bodies.into_iter().zip(&self.uses) {
            bodies.push(body.ok_or_else(|| undefined(self.source, name, at))?);
        }
        Ok(Grammar { bodies, root })
    }

    fn rule(&mut self) -> Result<(), GbnfError> {
        let rule = self.name()?;
        self.space(LineEnds::Not);
        self.expect("::=", "\"::=\"")?;
        self.space(LineEnds::May);
        let body = self.alternatives(LineEnds::Not)?;
        if !matches!(self.peek(), None | Some('\r' | '\n')) {
            return Err(self.unexpected("an item, \"|\" or the end of the line"));
        }
        self.bodies[rule] = Some(body);
        Ok(())
    }

    fn alternatives(&mut self, lines: LineEnds) -> Result<Expr, GbnfError> {
        let mut choices = vec![self.sequence(lines)?];
        loop {
            let before = self.at;
            self.space(LineEnds::May);
            if !self.take('|') {
                self.at = before;
                return Ok(Expr::alt(choices));
            }
            self.space(LineEnds::May);
            choices.push(self.sequence(lines)?);
        }
    }

    fn sequence(&mut self, lines: LineEnds) -> Result<Expr, GbnfError> {
        let mut items = Vec::new();
        while let Some(item) = self.item()? {
            self.space(lines);
            items.push(self.repetitions(item, lines)?);
        }
        Ok(Expr::seq(items))
    }

    /// One item without what says how often, if there is one here.
    fn item(&mut self) -> Result<Option<Expr>, GbnfError> {
        Ok(Some(match self.peek() {
            Some('"') => self.literal()?,
            Some('[') => Expr::Set(self.class()?),
            Some('(') => self.group()?,
            Some('<' | '!') => self.token()?,
            Some('.') => {
                self.take('.');
                Expr::Set(CharSet::any())
            }
            Some(c) if is_name(c) => Expr::Rule(self.name()?),
            Some('*' | '+' | '?' | '{') => {
                return Err(self.unexpected("an item before what says how often"));
            }
            _ => return Ok(None),
        }))
    }

    fn group(&mut self) -> Result<Expr, GbnfError> {
        self.groups += 1;
        limit("groups in one another", self.groups, MAX_GROUPS)?;
        self.take('(');
        self.space(LineEnds::May);
        let inner = self.alternatives(LineEnds::May)?;
        self.space(LineEnds::May);
        self.expect(")", "an item, \"|\" or \")\"")?;
        self.groups -= 1;
        Ok(inner)
    }

    fn repetitions(&mut self, mut item: Expr, lines: LineEnds) -> Result<Expr, GbnfError> {
        for _ in 0..MAX_OPERATORS {
            let Some(times) = self.times(lines)? else {
                return Ok(item);
            };
            item = item.repeat(times);
            self.space(lines);
        }
        match self.peek() {
            Some('*' | '+' | '?' | '{') => {
                Err(self.unexpected("at most four repetitions of one item"))
            }
            _ => Ok(item),
        }
    }

    fn times(&mut self, lines: LineEnds) -> Result<Option<Times>, GbnfError> {
        let times = match self.peek() {
            Some('*') => Times::ANY,
            Some('+') => Times::SOME,
            Some('?') => Times::OPTIONAL,
            Some('{') => return self.braces(lines).map(Some),
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(times))
    }

    /// `{m}`, `{m,}` or `{m,n}`.
    fn braces(&mut self, lines: LineEnds) -> Result<Times, GbnfError> {
        self.take('{');
        self.space(lines);
        let min = self.number()?;
        self.space(lines);
        let mut max = Some(min);
        if self.take(',') {
            self.space(lines);
            max = if self.peek() == Some('}') {
                None
            } else {
                Some(self.number()?)
            };
            self.space(lines);
        }
        if max.is_some_and(|max| max < min) {
            return Err(self.unexpected("a repetition whose end is not below its beginning"));
        }
        self.expect("}", "\"}\"")?;
        Ok(Times { min, max })
    }

    fn number(&mut self) -> Result<u32, GbnfError> {
        let digits = self.while_true(|c| c.is_ascii_digit());
        if digits.is_empty() {
            return Err(self.unexpected("a number"));
        }
        let number = digits.parse().unwrap_or(usize::MAX);
        limit("repetitions of an item", number, MAX_TIMES)?;
        u32::try_from(number).map_err(|_| self.unexpected("a number"))
    }

    fn literal(&mut self) -> Result<Expr, GbnfError> {
        self.take('"');
        let mut characters = Vec::new();
        while !self.take('"') {
            characters.push(Expr::character(self.character()?));
        }
        Ok(Expr::seq(characters))
    }

    fn class(&mut self) -> Result<CharSet, GbnfError> {
        self.take('[');
        let is_negated = self.take('^');
        let mut ranges = Vec::new();
        while !self.take(']') {
            let low = u32::from(self.character()?);
            let mut high = low;
            if self.rest().starts_with('-') && !self.rest().starts_with("-]") {
                self.take('-');
                high = u32::from(self.character()?);
            }
            ranges.push((low, high));
        }
        let listed = CharSet::new(ranges);
        let set = if is_negated {
            listed.negated()
        } else {
            listed.clone()
        };
        if set.is_empty() || listed.is_empty() {
            return Err(self
                .unexpected("before this a class with at least one character, ranges ascending"));
        }
        Ok(set)
    }

    /// A character of a literal or a class.
    fn character(&mut self) -> Result<char, GbnfError> {
        if !self.take('\\') {
            let c = self.peek().ok_or_else(|| self.unexpected("a character"))?;
            self.at += c.len_utf8();
            return Ok(c);
        }
        let Some(kind) = self.peek() else {
            return Err(self.unexpected("a character after \"\\\""));
        };
        let escaped = match kind {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            '\\' | '"' | '[' | ']' | '-' | '^' | '/' => kind,
            'x' => return self.hex(2),
            'u' => return self.hex(4),
            'U' => return self.hex(8),
            _ => return Err(self.unexpected("one of n r t x u U \\ \" [ ] - ^ / after \"\\\"")),
        };
        self.at += 1;
        Ok(escaped)
    }

    /// The character whose number stands in `n` hexadecimal digits, after the letter that announces
    /// them.
    fn hex(&mut self, n: usize) -> Result<char, GbnfError> {
        let digits = self
            .rest()
            .get(1..=n)
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let Some(c) = number.and_then(char::from_u32) else {
            return Err(self.unexpected(
                "the number of a character in 2 (x), 4 (u) or 8 (U) hexadecimal digits",
            ));
        };
        self.at += 1 + n;
        Ok(c)
    }

    /// `<[id]>`, `<name>`, `!<[id]>`; there is no way to tell llguidance `!<name>`.
    fn token(&mut self) -> Result<Expr, GbnfError> {
        let is_negated = self.take('!');
        self.expect("<", "\"<\" of a token")?;
        if self.take('[') {
            let id = self.number_of_token()?;
            self.expect("]>", "\"]>\"")?;
            return Ok(Expr::Token(if is_negated {
                format!("<[^{id}]>")
            } else {
                format!("<[{id}]>")
            }));
        }
        if is_negated {
            return Err(
                self.unexpected("\"[\" and the number of a token (\"!<name>\" is not supported)")
            );
        }
        let name = self.while_true(|c| !c.is_whitespace() && !matches!(c, '<' | '>'));
        if name.is_empty() {
            return Err(self.unexpected("the name of a token, or its number in brackets"));
        }
        self.expect(">", "\">\"")?;
        Ok(Expr::Token(format!("<{name}>")))
    }

    fn number_of_token(&mut self) -> Result<u32, GbnfError> {
        let before = self.at;
        let digits = self.while_true(|c| c.is_ascii_digit());
        digits.parse().map_err(|_| {
            self.at = before;
            self.unexpected("the number of a token")
        })
    }

    /// The number of the rule that is named here.
    fn name(&mut self) -> Result<usize, GbnfError> {
        let at = self.at;
        let name = self.while_true(is_name);
        if name.is_empty() {
            return Err(self.unexpected("the name of a rule"));
        }
        if let Some(&rule) = self.rules.get(name) {
            return Ok(rule);
        }
        let rule = self.bodies.len();
        limit("rules", rule + 1, MAX_RULES)?;
        self.rules.insert(name, rule);
        self.uses.push((name, at));
        self.bodies.push(None);
        Ok(rule)
    }

    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }

    fn while_true(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let n_bytes = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        self.at += n_bytes;
        &rest[..n_bytes]
    }

    fn expect(&mut self, text: &str, expected: &'static str) -> Result<(), GbnfError> {
        if !self.rest().starts_with(text) {
            return Err(self.unexpected(expected));
        }
        self.at += text.len();
        Ok(())
    }

    /// Skips white space and comments.
    fn space(&mut self, lines: LineEnds) {
        loop {
            self.while_true(|c| {
                matches!(c, ' ' | '\t') || lines == LineEnds::May && matches!(c, '\r' | '\n')
            });
            if self.peek() != Some('#') {
                return;
            }
            self.while_true(|c| !matches!(c, '\r' | '\n'));
        }
    }

    fn unexpected(&self, expected: &'static str) -> GbnfError {
        let (line, column) = place(self.source, self.at);
        let got = self
            .peek()
            .map_or("the end".to_owned(), |c| format!("{c:?}"));
        GbnfError::Syntax {
            line,
            column,
            expected,
            got,
        }
    }
}

fn undefined(source: &str, name: &str, at: usize) -> GbnfError {
    let (line, column) = place(source, at);
    GbnfError::UndefinedRule {
        line,
        column,
        name: name.to_owned(),
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

/// Line and column of a byte offset, from 1.
fn place(source: &str, at: usize) -> (usize, usize) {
    let before = &source[..at];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(source: &str) -> String {
        parse(source).expect_err("the grammar is wrong").to_string()
    }

    #[test]
    fn errors_say_where_and_what_was_expected() {
        assert_eq!(
            message("root ::= \"a\" )\n"),
            "1:14: expected an item, \"|\" or the end of the line, got ')'"
        );
        assert_eq!(
            message("root ::= \"a\"\nx = y"),
            "2:3: expected \"::=\", got '='"
        );
        assert_eq!(
            message("root ::= \"a\\q\""),
            "1:13: expected one of n r t x u U \\ \" [ ] - ^ / after \"\\\", got 'q'"
        );
        assert_eq!(
            message("root ::= \"a"),
            "1:12: expected a character, got the end"
        );
        assert_eq!(
            message("root ::= (\n  word\n)"),
            "2:3: rule \"word\" is not defined"
        );
        assert_eq!(message("a ::= \"é\""), "no rule \"root\"");
        assert_eq!(message(""), "no rule \"root\"");
        assert_eq!(
            message("root ::= * \"a\""),
            "1:10: expected an item before what says how often, got '*'"
        );
        assert_eq!(
            message("root ::= \"\\uD800\""),
            "1:12: expected the number of a character in 2 (x), 4 (u) or 8 (U) hexadecimal digits, got 'u'"
        );
    }

    #[test]
    fn classes_may_not_be_empty_or_run_backwards() {
        for class in ["[]", "[^]", "[z-a]", "[^\\x00-\\U0010FFFF]"] {
            assert!(
                message(&format!("root ::= {class}")).contains("class"),
                "{class}"
            );
        }
    }

    #[test]
    fn the_last_definition_of_a_rule_counts() {
        let grammar = parse("root ::= \"a\"\nroot ::= \"b\"").unwrap();
        assert_eq!(grammar.bodies, [Expr::character('b')]);
    }

    #[test]
    fn a_rule_goes_on_after_a_bar_and_within_parentheses() {
        let short = parse("root ::= \"a\" | (\"b\" \"c\") | \"d\"").unwrap();
        let long = parse("# one\nroot ::= # two\n \"a\" |\n (\"b\"\n\"c\" # )\n)\r\n | \"d\"\n\n")
            .unwrap();
        assert_eq!(short.bodies, long.bodies);
    }

    #[test]
    fn escapes_are_characters() {
        let grammar =
            parse(r#"root ::= "\x41\u00e9\U0001F600\n\t\r\\\"\[\]\^\/" [\]\--a\\]"#).unwrap();
        let characters = "A\u{e9}\u{1F600}\n\t\r\\\"[]^/"
            .chars()
            .map(Expr::character);
        let class = Expr::Set(CharSet::new([(0x5D, 0x5D), (0x2D, 0x61)]));
        assert_eq!(grammar.bodies, [Expr::seq(characters.chain([class]))]);
    }

    #[test]
    fn tokens_are_written_as_llguidance_reads_them() {
        let grammar = parse("root ::= <think> !<[7]> <[12]>").unwrap();
        assert_eq!(
            grammar.bodies,
            [Expr::seq(
                ["<think>", "<[^7]>", "<[12]>"].map(|t| Expr::Token(t.to_owned()))
            )]
        );
        assert!(message("root ::= !<think>").contains("is not supported"));
        assert!(message("root ::= <[]>").contains("number of a token"));
    }

    #[test]
    fn what_is_too_much_is_refused() {
        let deep = format!("root ::= {}\"a\"{}", "(".repeat(60_000), ")".repeat(60_000));
        assert_eq!(message(&deep), "groups in one another: more than 24");
        assert_eq!(
            message("root ::= \"a\"{1,100000}"),
            "repetitions of an item: more than 10000"
        );
        assert!(
            message(&format!("root ::= \"a\"{}", "{2}".repeat(60_000)))
                .contains("at most four repetitions")
        );
        assert!(message(&" ".repeat(MAX_BYTES + 1)).starts_with("bytes of the grammar"));
    }
}
