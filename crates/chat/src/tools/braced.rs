//! Scans a call of Gemma 4, `NAME{key:value,…}`, or of Python, `NAME(key=value, …)`, and writes its
//! arguments as JSON.
//!
//! Gemma's keys are bare and its strings stand between two marks, without escapes. Python's strings
//! stand between quotation marks of either kind. JSON is read in place of any value. Knows no
//! markers around the call.

use super::{
    definition::{is_name, is_name_char},
    json::{Malformed, is_space},
    place::QUOTE,
    tagged::quoted,
};

/// Maximum nesting; serde_json reads 127 levels.
const MAX_DEPTH: usize = 100;

/// How a call is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BracedSyntax {
    Gemma,
    Python,
}

/// The scanner of one call.
#[derive(Clone, Debug)]
pub(super) struct BracedScan {
    syntax: BracedSyntax,
    state: BracedState,
    /// Start of the current token in the held text.
    start: usize,
    name: Option<String>,
    open: Vec<Bracket>,
    /// The arguments so far.
    json: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bracket {
    /// The parameters of a call in Python.
    Parameters,
    Object,
    Array,
}

/// The next part of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BracedState {
    Name,
    /// A key, or the end of an object if it is the first.
    Key {
        is_first: bool,
    },
    BareKey,
    Colon,
    /// A value, or the end of an array if it is the first.
    Value {
        is_first: bool,
    },
    /// A number or a word.
    Scalar,
    /// The mark in front of a string.
    Quote {
        is_key: bool,
    },
    /// A string up to the next mark.
    Text {
        is_key: bool,
    },
    /// A string in JSON or Python, up to this quotation mark.
    JsonText {
        is_key: bool,
        is_escaped: bool,
        end: char,
    },
    /// A comma or a closing bracket.
    After,
    Done,
}

impl BracedScan {
    /// A scanner of a call whose name begins at `start`.
    pub(super) fn new(syntax: BracedSyntax, start: usize) -> Self {
        Self {
            syntax,
            state: BracedState::Name,
            start,
            name: None,
            open: Vec::new(),
            json: String::new(),
        }
    }

    /// Takes the next character, which is the last of `held`. Returns whether the call is complete.
    ///
    /// # Errors
    /// [`Malformed`] if no call continues like this.
    pub(super) fn push(&mut self, held: &str, c: char) -> Result<bool, Malformed> {
        let token = &held[self.start..];
        match self.state {
            BracedState::Name => self.name(token, c)?,
            BracedState::BareKey => self.bare_key(token, c)?,
            BracedState::Scalar => self.scalar(token, c)?,
            BracedState::Quote { is_key } => self.quote(held, is_key)?,
            BracedState::Text { is_key } => self.text(held, is_key),
            BracedState::JsonText {
                is_key,
                is_escaped,
                end,
            } => self.json_text(c, is_key, is_escaped, end)?,
            _ if is_space(c) => {}
            _ => self.token(held, c)?,
        }
        Ok(self.state == BracedState::Done)
    }

    /// The name, once it is complete.
    pub(super) fn name_if_known(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The arguments as JSON, as far as they are certain.
    pub(super) fn json(&self) -> &str {
        &self.json
    }

    fn name(&mut self, text: &str, c: char) -> Result<(), Malformed> {
        let (brace, bracket) = match self.syntax {
            BracedSyntax::Gemma => ('{', Bracket::Object),
            BracedSyntax::Python => ('(', Bracket::Parameters),
        };
        match text.strip_suffix(brace) {
            Some(name) if is_name(name) => {
                self.name = Some(name.to_owned());
                self.open(bracket)
            }
            None if is_space(c) && text.len() == 1 => {
                self.start += 1;
                Ok(())
            }
            None if is_name_char(c) => Ok(()),
            _ => Err(Malformed),
        }
    }

    /// The first character of a token.
    fn token(&mut self, held: &str, c: char) -> Result<(), Malformed> {
        self.start = held.len() - c.len_utf8();
        let is_key = matches!(self.state, BracedState::Key { .. });
        let is_value = matches!(self.state, BracedState::Value { .. });
        let may_close = matches!(
            self.state,
            BracedState::Key { is_first: true }
                | BracedState::Value { is_first: true }
                | BracedState::After
        );
        match c {
            '}' | ']' | ')' if may_close => self.close(c),
            ',' if self.state == BracedState::After => self.comma(),
            _ if self.state == BracedState::Colon && c == self.colon_char() => self.colon(),
            '{' if is_value => self.open(Bracket::Object),
            '[' if is_value => self.open(Bracket::Array),
            '<' if (is_key || is_value) && self.syntax == BracedSyntax::Gemma => {
                self.go(BracedState::Quote { is_key })
            }
            '"' | '\'' if (is_key || is_value) && self.may_quote(c) => {
                self.json.push('"');
                self.go(BracedState::JsonText {
                    is_key,
                    is_escaped: false,
                    end: c,
                })
            }
            _ if is_key && is_bare(c) && self.may_be_bare() => self.go(BracedState::BareKey),
            _ if is_value && is_scalar(c) => self.go(BracedState::Scalar),
            _ => Err(Malformed),
        }
    }

    fn go(&mut self, state: BracedState) -> Result<(), Malformed> {
        self.state = state;
        Ok(())
    }

    fn open(&mut self, bracket: Bracket) -> Result<(), Malformed> {
        if self.open.len() == MAX_DEPTH {
            return Err(Malformed);
        }
        self.open.push(bracket);
        let is_first = true;
        let (text, state) = match bracket {
            Bracket::Object | Bracket::Parameters => ('{', BracedState::Key { is_first }),
            Bracket::Array => ('[', BracedState::Value { is_first }),
        };
        self.json.push(text);
        self.go(state)
    }

    fn close(&mut self, c: char) -> Result<(), Malformed> {
        let (bracket, text) = match c {
            ']' => (Bracket::Array, ']'),
            ')' => (Bracket::Parameters, '}'),
            _ => (Bracket::Object, '}'),
        };
        if self.open.pop() != Some(bracket) {
            return Err(Malformed);
        }
        self.json.push(text);
        self.go(if self.open.is_empty() {
            BracedState::Done
        } else {
            BracedState::After
        })
    }

    fn comma(&mut self) -> Result<(), Malformed> {
        self.json.push_str(", ");
        let is_first = false;
        self.go(match self.open.last() {
            Some(Bracket::Object | Bracket::Parameters) => BracedState::Key { is_first },
            _ => BracedState::Value { is_first },
        })
    }

    fn colon(&mut self) -> Result<(), Malformed> {
        self.json.push_str(": ");
        self.go(BracedState::Value { is_first: false })
    }

    fn bare_key(&mut self, token: &str, c: char) -> Result<(), Malformed> {
        if is_bare(c) {
            return Ok(());
        }
        self.json
            .push_str(&quoted(&token[..token.len() - c.len_utf8()]));
        match c {
            _ if c == self.colon_char() => self.colon(),
            _ if is_space(c) => self.go(BracedState::Colon),
            _ => Err(Malformed),
        }
    }

    fn scalar(&mut self, token: &str, c: char) -> Result<(), Malformed> {
        if is_scalar(c) {
            return Ok(());
        }
        let json = match &token[..token.len() - c.len_utf8()] {
            "True" => "true",
            "False" => "false",
            "None" => "null",
            text => text,
        };
        if serde_json::from_str::<serde_json::Value>(json).is_err() {
            return Err(Malformed);
        }
        self.json.push_str(json);
        self.state = BracedState::After;
        match c {
            ',' => self.comma(),
            '}' | ']' | ')' => self.close(c),
            _ if is_space(c) => Ok(()),
            _ => Err(Malformed),
        }
    }

    fn quote(&mut self, held: &str, is_key: bool) -> Result<(), Malformed> {
        let token = &held[self.start..];
        if token == QUOTE {
            self.json.push('"');
            self.start = held.len();
            return self.go(BracedState::Text { is_key });
        }
        if QUOTE.starts_with(token) {
            Ok(())
        } else {
            Err(Malformed)
        }
    }

    /// Writes the beginning of the held text that cannot belong to the mark behind it.
    fn text(&mut self, held: &str, is_key: bool) {
        let text = &held[self.start..];
        if let Some(last) = text.strip_suffix(QUOTE) {
            self.write_escaped(last);
            self.json.push('"');
            self.after_text(is_key);
            return;
        }
        let mut starts = text.char_indices().map(|(at, _)| at);
        let n = starts
            .find(|&at| QUOTE.starts_with(&text[at..]))
            .unwrap_or(text.len());
        self.write_escaped(&text[..n]);
        self.start += n;
    }

    fn write_escaped(&mut self, text: &str) {
        let quoted = quoted(text);
        self.json.push_str(&quoted[1..quoted.len() - 1]);
    }

    fn json_text(
        &mut self,
        c: char,
        is_key: bool,
        is_escaped: bool,
        end: char,
    ) -> Result<(), Malformed> {
        if c < ' ' {
            return Err(Malformed);
        }
        if c == end && !is_escaped {
            self.json.push('"');
            self.after_text(is_key);
            return Ok(());
        }
        match (c, is_escaped) {
            // The backslash is written with the character behind it.
            ('\\', false) => {}
            ('\'', true) => self.json.push('\''),
            ('"', false) => self.json.push_str("\\\""),
            (_, true) => self.json.extend(['\\', c]),
            (_, false) => self.json.push(c),
        }
        self.go(BracedState::JsonText {
            is_key,
            is_escaped: c == '\\' && !is_escaped,
            end,
        })
    }

    /// The character between a key and its value.
    fn colon_char(&self) -> char {
        match self.open.last() {
            Some(Bracket::Parameters) => '=',
            _ => ':',
        }
    }

    /// Whether a string may begin with this quotation mark. Python's parameters are bare.
    fn may_quote(&self, c: char) -> bool {
        let is_name = matches!(self.state, BracedState::Key { .. })
            && self.open.last() == Some(&Bracket::Parameters);
        !is_name && (c == '"' || self.syntax == BracedSyntax::Python)
    }

    /// Whether a key may be bare.
    fn may_be_bare(&self) -> bool {
        self.syntax == BracedSyntax::Gemma || self.open.last() == Some(&Bracket::Parameters)
    }

    fn after_text(&mut self, is_key: bool) {
        self.state = if is_key {
            BracedState::Colon
        } else {
            BracedState::After
        };
    }
}

/// Whether a key may have this character without marks around it.
pub(super) fn is_bare(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '$' | '@' | '/')
}

fn is_scalar(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')
}
