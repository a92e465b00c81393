//! An incremental JSON checker (RFC 8259).
//!
//! Tracks the allowed next characters and the open brackets; builds no values. A text that passes
//! may still fail to parse, because of half a surrogate pair or a number out of range.

/// Maximum nesting; serde_json reads 127 levels.
const MAX_DEPTH: usize = 100;

/// A text that is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Checks one JSON object, character by character.
#[derive(Clone, Debug)]
pub(super) struct Json {
    open: Vec<Bracket>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bracket {
    Object,
    Array,
}

/// The expected next characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    FirstKey,
    Key,
    Colon,
    FirstItem,
    Value,
    /// A comma or a closing bracket.
    After,
    Str {
        is_key: bool,
        escape: Escape,
    },
    /// The rest of `true`, `false` or `null`.
    Word(&'static str),
    Number(Number),
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    None,
    Begun,
    /// This many hexadecimal digits.
    Unicode(u8),
}

/// The part of a number that was read last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

/// Whether JSON allows the character between tokens.
pub(super) fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

impl Json {
    /// A checker before an object.
    pub(super) fn new() -> Self {
        Self {
            open: Vec::new(),
            state: State::Start,
        }
    }

    /// A checker before the only value of an object.
    pub(super) fn behind_key() -> Self {
        Self {
            open: vec![Bracket::Object],
            state: State::Value,
        }
    }

    /// Takes the next character.
    ///
    /// # Errors
    /// [`Malformed`] if no JSON continues like this; nothing may be pushed afterwards.
    pub(super) fn push(&mut self, c: char) -> Result<(), Malformed> {
        match self.state {
            State::Str { is_key, escape } => self.string(c, is_key, escape),
            State::Word(rest) => self.word(c, rest),
            State::Number(number) => self.number(c, number),
            _ if is_space(c) => Ok(()),
            _ => self.token(c),
        }
    }

    /// Number of open brackets.
    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Whether a value of an object is expected.
    pub(super) fn awaits_value(&self) -> bool {
        self.state == State::Value
    }

    /// Whether a key was just completed.
    pub(super) fn awaits_colon(&self) -> bool {
        self.state == State::Colon
    }

    /// Whether a value was just completed.
    pub(super) fn is_after_value(&self) -> bool {
        self.state == State::After
    }

    /// Whether a key is being read.
    pub(super) fn is_in_key(&self) -> bool {
        matches!(self.state, State::Str { is_key: true, .. })
    }

    /// Whether a string is being read, a key or a value.
    pub(super) fn is_in_string(&self) -> bool {
        matches!(self.state, State::Str { .. })
    }

    /// Whether a text is one value.
    pub(super) fn is_value(text: &str) -> bool {
        let mut json = Self::behind_key();
        // The space ends a number.
        let mut chars = text.chars().chain([' ']);
        chars.all(|c| json.push(c).is_ok()) && json.is_after_value() && json.depth() == 1
    }

    /// Whether the object is closed.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The first character of a token.
    fn token(&mut self, c: char) -> Result<(), Malformed> {
        match (self.state, c) {
            (State::Start | State::Value | State::FirstItem, '{') => {
                self.open(Bracket::Object, State::FirstKey)
            }
            (State::Value | State::FirstItem, '[') => self.open(Bracket::Array, State::FirstItem),
            (State::FirstItem, ']') | (State::FirstKey, '}') => self.close(c),
            (State::Value | State::FirstItem, _) => self.scalar(c),
            (State::FirstKey | State::Key, '"') => self.go(State::Str {
                is_key: true,
                escape: Escape::None,
            }),
            (State::Colon, ':') => self.go(State::Value),
            (State::After, ',') => self.go(match self.open.last() {
                Some(Bracket::Object) => State::Key,
                _ => State::Value,
            }),
            (State::After, ']' | '}') => self.close(c),
            _ => Err(Malformed),
        }
    }

    fn go(&mut self, state: State) -> Result<(), Malformed> {
        self.state = state;
        Ok(())
    }

    fn open(&mut self, bracket: Bracket, state: State) -> Result<(), Malformed> {
        if self.open.len() == MAX_DEPTH {
            return Err(Malformed);
        }
        self.open.push(bracket);
        self.go(state)
    }

    fn close(&mut self, c: char) -> Result<(), Malformed> {
        let bracket = if c == ']' {
            Bracket::Array
        } else {
            Bracket::Object
        };
        if self.open.pop() != Some(bracket) {
            return Err(Malformed);
        }
        self.go(if self.open.is_empty() {
            State::Done
        } else {
            State::After
        })
    }

    fn scalar(&mut self, c: char) -> Result<(), Malformed> {
        self.go(match c {
            '"' => State::Str {
                is_key: false,
                escape: Escape::None,
            },
            't' => State::Word("rue"),
            'f' => State::Word("alse"),
            'n' => State::Word("ull"),
            '-' => State::Number(Number::Minus),
            '0' => State::Number(Number::Zero),
            '1'..='9' => State::Number(Number::Integer),
            _ => return Err(Malformed),
        })
    }

    fn string(&mut self, c: char, is_key: bool, escape: Escape) -> Result<(), Malformed> {
        let escape = match (escape, c) {
            (Escape::None, '"') => {
                return self.go(if is_key { State::Colon } else { State::After });
            }
            (Escape::None, '\\') => Escape::Begun,
            (Escape::None, '\0'..='\x1f') => return Err(Malformed),
            (Escape::None, _) => Escape::None,
            (Escape::Begun, 'u') => Escape::Unicode(0),
            (Escape::Begun, '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => Escape::None,
            (Escape::Unicode(3), c) if c.is_ascii_hexdigit() => Escape::None,
            (Escape::Unicode(n), c) if c.is_ascii_hexdigit() => Escape::Unicode(n + 1),
            _ => return Err(Malformed),
        };
        self.go(State::Str { is_key, escape })
    }

    fn word(&mut self, c: char, rest: &'static str) -> Result<(), Malformed> {
        match rest.strip_prefix(c) {
            Some("") => self.go(State::After),
            Some(rest) => self.go(State::Word(rest)),
            None => Err(Malformed),
        }
    }

    fn number(&mut self, c: char, number: Number) -> Result<(), Malformed> {
        if let Some(next) = number.next(c) {
            return self.go(State::Number(next));
        }
        if !number.is_whole() {
            return Err(Malformed);
        }
        self.state = State::After;
        self.push(c)
    }
}

impl Number {
    fn next(self, c: char) -> Option<Self> {
        Some(match (self, c) {
            (Self::Minus, '0') => Self::Zero,
            (Self::Minus, '1'..='9') | (Self::Integer, '0'..='9') => Self::Integer,
            (Self::Zero | Self::Integer, '.') => Self::Point,
            (Self::Point | Self::Fraction, '0'..='9') => Self::Fraction,
            (Self::Zero | Self::Integer | Self::Fraction, 'e' | 'E') => Self::Exponent,
            (Self::Exponent, '+' | '-') => Self::ExponentSign,
            (Self::Exponent | Self::ExponentSign | Self::ExponentDigits, '0'..='9') => {
                Self::ExponentDigits
            }
            _ => return None,
        })
    }

    fn is_whole(self) -> bool {
        matches!(
            self,
            Self::Zero | Self::Integer | Self::Fraction | Self::ExponentDigits
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    /// What became of a text: whether it is an object, or goes on like one, or neither.
    fn read(text: &str) -> Option<bool> {
        let mut json = Json::new();
        text.chars().try_for_each(|c| json.push(c)).ok()?;
        Some(json.is_done())
    }

    #[test]
    fn objects_are_read_to_their_end_and_no_further() {
        for text in [
            "{}",
            " {\"a\": [1, -0.5e+3, 0, \"\\u00e9\\\"}\"], \"b\": {\"c\": [], \"d\": null}} ",
            "{\"\":[true,false]}",
        ] {
            assert_eq!(read(text), Some(true), "{text}");
        }
        assert_eq!(read("{}x"), None);
    }

    #[test]
    fn what_is_not_json_is_malformed() {
        let texts = [
            "[]",
            "1",
            "{a",
            "{\"a\"}",
            "{\"a\":}",
            "{,",
            "{\"a\":1,}",
            "{\"a\":[1,]",
            "{\"a\":01",
            "{\"a\":1.}",
        ];
        for text in texts.into_iter().chain([
            "{\"a\":-}",
            "{\"a\":1e}",
            "{\"a\":nul}",
            "{\"a\\x",
            "{\"\\u00g",
            "{\"\\u}",
            "{\"a\n",
            "{]",
        ]) {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn nesting_has_a_limit() {
        let nested = |n: usize| format!("{{\"a\":{}", "[".repeat(n));
        assert_eq!(read(&nested(MAX_DEPTH - 1)), Some(false));
        assert_eq!(read(&nested(MAX_DEPTH)), None);
        assert_eq!(read(&nested(60_000)), None);
    }

    /// An independent opinion: a text goes on like JSON if serde_json complains of nothing but its
    /// end.
    fn reference(text: &str) -> Option<bool> {
        let text = with_whole_escape(text);
        match serde_json::from_str::<Value>(&text) {
            Ok(value) => value.is_object().then_some(true),
            Err(error) if error.is_eof() && text.trim_start().starts_with('{') => Some(false),
            Err(error) if error.is_eof() && text.trim().is_empty() => Some(false),
            Err(_) => None,
        }
    }

    /// The text with as many zeros behind it as the `\u` at its end lacks: serde_json looks at none
    /// of the four digits before all of them are there, and calls `\u}` unfinished until then.
    fn with_whole_escape(text: &str) -> String {
        let lacking = text.rfind("\\u").map_or(0, |at| {
            let before = &text[..at];
            let escaped = (before.len() - before.trim_end_matches('\\').len()) % 2 == 1;
            if escaped {
                0
            } else {
                6_usize.saturating_sub(text.len() - at)
            }
        });
        format!("{text}{}", "0".repeat(lacking))
    }

    const LIKE_JSON: &str = concat!(
        r#"\{"[ab]?"?:?[\[{]?"#,
        r#"([-01.eE+ ,:{}\[\]"nulltrefas\\/ub]|"a":|\[1,|true|\\n){0,12}"#,
        r#"[}\]]{0,3}"#,
    );

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn it_agrees_with_serde_json(text in LIKE_JSON) {
            prop_assert_eq!(read(&text), reference(&text), "{}", text);
        }
    }
}
