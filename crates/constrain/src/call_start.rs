//! How a tool call begins in an answer, so that a call to a tool that does not exist can be rolled
//! back before any of it is shown.

/// How the first tool call of a text begins, which may be rolled back. The text then goes on
/// without it, with the marker banned at that place. Not for grammars with `max_tokens=` or
/// `stop=`: they cannot be rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallStart {
    /// The token in front of the call. A marker that the grammar forces is never rolled back.
    pub marker: u32,
    /// Where the name is, behind the marker.
    pub name: NamePlace,
    /// The thinking section, in which no call begins.
    pub thoughts: Option<Thoughts>,
}

/// The tokens around the thinking section of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thoughts {
    /// The token that begins it.
    pub begin: u32,
    /// The token that ends it.
    pub end: u32,
    /// Whether the text begins inside.
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
            // Behind the colon: it may share a token with the quotation mark before the name.
            Self::FirstValue => {
                let behind_key = text.splitn(3, |&byte| byte == b'"').nth(2);
                behind_key.is_some_and(|rest| rest.contains(&b':'))
            }
            Self::UpToBracket => true,
        }
    }

    /// Whether the name has begun in this text.
    pub fn is_open(self, text: &[u8]) -> bool {
        match self {
            Self::FirstValue => n_quotes(text) > 2,
            Self::UpToBracket => true,
        }
    }

    /// The byte behind the name.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_where_their_place_says() {
        let first = NamePlace::FirstValue;
        for (text, is_next, is_complete) in [
            ("", false, false),
            ("\n{\"na", false, false),
            ("\n{\"name\"", false, false),
            ("\n{\"name\":", true, false),
            ("{\"name\": \"set_", true, false),
            ("{\"name\": \"set_light\", ", true, true),
        ] {
            assert_eq!(
                (
                    first.is_next(text.as_bytes()),
                    first.is_complete(text.as_bytes())
                ),
                (is_next, is_complete),
                "{text}"
            );
        }
        let bare = NamePlace::UpToBracket;
        assert!(
            bare.is_next(b"")
                && !bare.is_complete(b"set_light")
                && bare.is_complete(b"set_light[ARGS]")
        );
    }
}
