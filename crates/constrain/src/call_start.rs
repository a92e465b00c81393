//! How a tool call begins in an answer, so that a call to a tool that does not exist can be rolled
//! back before any of it is shown.

/// How the first call of a text begins, which may be taken back. Where it is, the text goes on
/// without it, as if the marker could not have come. Not for grammars with `max_tokens=` or
/// `stop=`: they cannot go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallStart {
    /// The token in front of it. Where it is chosen, other tokens must be possible, too, or it is
    /// not taken back.
    pub marker: u32,
    /// Where behind the marker the name is.
    pub name: NamePlace,
    /// Within which no call begins.
    pub thoughts: Option<Thoughts>,
}

/// What stands around the thoughts of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thoughts {
    /// The token that begins them.
    pub begin: u32,
    /// The token that ends them.
    pub end: u32,
    /// Whether the text begins within them.
    pub open: bool,
}

/// Where the name of a tool is, behind the marker of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamePlace {
    /// In quotation marks, the value of the first key of a JSON object.
    FirstValue,
    /// At once, as far as the next `[`.
    UpToBracket,
}

impl NamePlace {
    /// Whether the next token may be one of the name, behind this text.
    pub fn is_next(self, text: &[u8]) -> bool {
        match self {
            // Behind the colon, which may have a token with the mark in front of the name.
            Self::FirstValue => {
                let behind_key = text.splitn(3, |&byte| byte == b'"').nth(2);
                behind_key.is_some_and(|rest| rest.contains(&b':'))
            }
            Self::UpToBracket => true,
        }
    }

    /// Whether the name has begun in this text, if only just.
    pub fn is_open(self, text: &[u8]) -> bool {
        match self {
            Self::FirstValue => n_quotes(text) > 2,
            Self::UpToBracket => true,
        }
    }

    /// What stands behind the name.
    pub fn delimiter(self) -> u8 {
        match self {
            Self::FirstValue => b'"',
            Self::UpToBracket => b'[',
        }
    }

    /// Whether the name is complete in this text.
    pub fn is_complete(self, text: &[u8]) -> bool {
        match self {
            Self::FirstValue => n_quotes(text) > 3,
            Self::UpToBracket => text.contains(&b'['),
        }
    }
}

fn n_quotes(text: &[u8]) -> usize {
    text.iter().filter(|&&byte| byte == b'"').count()
}
