//! Splits Rust source into words, literals, punctuation and comments.
//!
//! It refuses to know grammar: no items, no expressions, no macro expansion, and so it sees the
//! inside of macros as well as the outside. The one idea: house rules need to tell code from
//! strings and comments, and nothing more; a parser such as syn drops the comments (where `SAFETY:`
//! lives) and does not look into `macro_rules!`.

/// What a token is, as far as the house rules care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// An identifier or keyword; raw identifiers keep their `r#`.
    Word,
    /// A string literal of any kind, with its quotes.
    Text,
    /// A line or block comment, doc comments included.
    Comment,
    /// One character of punctuation.
    Punct,
    /// Numbers, characters and lifetimes.
    Other,
}

/// One token of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RustToken<'a> {
    pub(crate) kind: TokenKind,
    pub(crate) text: &'a str,
    /// Byte offset in the file.
    pub(crate) start: usize,
    /// Line of the first byte, from 1.
    pub(crate) line: usize,
}

impl RustToken<'_> {
    /// Whether this is the given word or punctuation mark, as code.
    pub(crate) fn is(&self, text: &str) -> bool {
        matches!(self.kind, TokenKind::Word | TokenKind::Punct) && self.text == text
    }
}

/// All tokens of `source` in order. Unfinished literals and comments run to the end of the file.
pub(crate) fn lex(source: &str) -> Vec<RustToken<'_>> {
    let mut tokens = Vec::new();
    let mut start = 0;
    let mut line = 1;
    while let Some(first) = source[start..].chars().next() {
        let (kind, len) = measure(&source[start..], first);
        let text = &source[start..start + len];
        if let Some(kind) = kind {
            tokens.push(RustToken {
                kind,
                text,
                start,
                line,
            });
        }
        line += text.matches('\n').count();
        start += len;
    }
    tokens
}

/// The kind (none for white space) and length in bytes of the token that `rest` begins with.
fn measure(rest: &str, first: char) -> (Option<TokenKind>, usize) {
    if first.is_whitespace() {
        (None, first.len_utf8())
    } else if rest.starts_with("//") {
        (Some(TokenKind::Comment), line_comment(rest))
    } else if rest.starts_with("/*") {
        (Some(TokenKind::Comment), block_comment(rest))
    } else if let Some(len) = string(rest) {
        (Some(TokenKind::Text), len)
    } else if let Some(len) = character(rest).or_else(|| lifetime(rest)) {
        (Some(TokenKind::Other), len)
    } else if is_word_start(first) {
        (Some(TokenKind::Word), word(rest))
    } else if first.is_ascii_digit() {
        (Some(TokenKind::Other), word_tail(rest))
    } else {
        (Some(TokenKind::Punct), first.len_utf8())
    }
}

fn is_word_start(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

fn word_tail(rest: &str) -> usize {
    rest.find(|c: char| c != '_' && !c.is_alphanumeric())
        .unwrap_or(rest.len())
}

fn word(rest: &str) -> usize {
    match rest.strip_prefix("r#") {
        Some(raw) if raw.starts_with(is_word_start) => 2 + word_tail(raw),
        _ => word_tail(rest),
    }
}

/// Length of a comment that ends with its line.
fn line_comment(rest: &str) -> usize {
    rest.find('\n').unwrap_or(rest.len())
}

/// Length of a block comment; they nest.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        let pair = rest.as_bytes().get(at..at + 2);
        match pair {
            Some(b"/*") => depth += 1,
            Some(b"*/") => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// Length of the string literal that `rest` begins with, whatever its prefix.
fn string(rest: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r", ""]
        .into_iter()
        .find(|p| rest.starts_with(p))?;
    let body = &rest[prefix.len()..];
    if prefix.ends_with('r') {
        return raw_string(body).map(|len| prefix.len() + len);
    }
    body.starts_with('"')
        .then(|| prefix.len() + escaped(body, b'"'))
}

/// Length of `#"…"#` with any number of hashes.
fn raw_string(body: &str) -> Option<usize> {
    let hashes = body.len() - body.trim_start_matches('#').len();
    let inner = body[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let len = inner
        .find(&close)
        .map_or(inner.len(), |at| at + close.len());
    Some(hashes + 1 + len)
}

/// Length of a quoted literal from its opening quote to its closing one; a backslash hides the byte
/// after it.
fn escaped(body: &str, quote: u8) -> usize {
    let bytes = body.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    body.len()
}

/// Length of a character or byte literal; `'a` without a closing quote is a lifetime.
fn character(rest: &str) -> Option<usize> {
    let prefix = usize::from(rest.starts_with("b'"));
    let body = &rest[prefix..];
    let mut chars = body.strip_prefix('\'')?.chars();
    let closes = match chars.next()? {
        '\\' => true,
        _ => chars.next() == Some('\''),
    };
    closes.then(|| prefix + escaped(body, b'\''))
}

fn lifetime(rest: &str) -> Option<usize> {
    rest.strip_prefix('\'').map(|name| 1 + word_tail(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str, kind: TokenKind) -> Vec<&str> {
        lex(source)
            .into_iter()
            .filter(|t| t.kind == kind)
            .map(|t| t.text)
            .collect()
    }

    #[test]
    fn code_inside_strings_and_comments_is_not_code() {
        let source = r###"let a = "unsafe \" fn"; // unsafe
            let b = r#"fn " unsafe"#; /* fn /* nested */ unsafe */ let c = b"fn"; let d = br##"fn"# "##; c"fn""###;
        let words = texts(source, TokenKind::Word);
        assert_eq!(words, ["let", "a", "let", "b", "let", "c", "let", "d"]);
        assert_eq!(texts(source, TokenKind::Comment).len(), 2);
        assert_eq!(texts(source, TokenKind::Text).len(), 5);
    }

    #[test]
    fn quotes_and_braces_in_characters_open_nothing() {
        let source = r"let x = ['{', '\'', '\\', b'}', '\u{7d}', '字', '\n']; 'a: loop {}";
        assert_eq!(texts(source, TokenKind::Other).len(), 8);
        assert_eq!(
            texts(source, TokenKind::Punct)
                .iter()
                .filter(|p| **p == "{")
                .count(),
            1
        );
    }

    #[test]
    fn lifetimes_are_not_unfinished_characters() {
        assert_eq!(
            texts(
                "fn f<'a>(x: &'a str, y: &'_ u8) -> &'static str",
                TokenKind::Other
            ),
            ["'a", "'a", "'_", "'static"]
        );
    }

    #[test]
    fn raw_identifiers_and_byte_prefixes_are_words() {
        assert_eq!(
            texts("r#type br b c r x_1", TokenKind::Word),
            ["r#type", "br", "b", "c", "r", "x_1"]
        );
    }

    #[test]
    fn lines_are_counted_through_literals() {
        let tokens = lex("a\n\"x\ny\"\nb /* \n */ c");
        let lines: Vec<usize> = tokens.iter().map(|t| t.line).collect();
        assert_eq!(lines, [1, 2, 4, 4, 5]);
    }

    #[test]
    fn unfinished_literals_end_with_the_file() {
        for source in [
            "\"abc", "r#\"abc", "/* abc", "'\\", "\"abc\\", "'", "b'", "r#",
        ] {
            let end: usize = lex(source).iter().map(|t| t.text.len()).sum();
            assert!(end <= source.len(), "{source}");
        }
    }
}
