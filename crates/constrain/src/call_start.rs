//! How a tool call begins in an answer, so that a call to a tool that does not exist can be rolled
//! back before any of it is shown.

/// How the first tool call of a text begins. Until its name is complete, the call is tentative: if
/// the model meant a tool that does not exist, the call is rolled back and generation continues
/// with the marker banned. Not for grammars with `max_tokens=` or `stop=`, which cannot be rolled
/// back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallStart {
    /// Token in front of the call. A call is rolled back only if other tokens were possible where
    /// the marker was chosen.
    pub marker: u32,
    /// Where the name is, behind the marker.
    pub name: NamePlace,
    /// Thinking section, in which no call begins.
    pub thoughts: Option<Thoughts>,
}

/// The tokens around the thinking of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thoughts {
    /// Token that begins thinking.
    pub begin: u32,
    /// Token that ends thinking.
    pub end: u32,
    /// Whether the text begins inside thinking.
    pub open: bool,
}

/// Where the name of the tool is, behind the marker of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamePlace {
    /// The first string value of a JSON object.
    FirstValue,
    /// Directly behind the marker, up to the next `[`.
    UpToBracket,
    /// Behind the first such text, up to a delimiter.
    Behind {
        /// The text in front of the name.
        lead: &'static str,
        /// The bytes that may end the name.
        delimiters: &'static [u8],
    },
}

impl NamePlace {
    /// Whether the next token may belong to the name, after this text.
    pub fn is_next(self, text: &[u8]) -> bool {
        match self {
            // After the colon; the next token may include the opening quote.
            Self::FirstValue => {
                let behind_key = text.splitn(3, |&byte| byte == b'"').nth(2);
                behind_key.is_some_and(|rest| rest.contains(&b':'))
            }
            Self::UpToBracket => true,
            // The next token may include the last byte of the lead.
            Self::Behind { lead, .. } => {
                let n_before = lead.len().saturating_sub(1);
                holds(text, &lead.as_bytes()[..n_before])
            }
        }
    }

    /// Whether the name has begun in this text; the name may still be empty.
    pub fn is_open(self, text: &[u8]) -> bool {
        match self {
            Self::FirstValue => n_quotes(text) > 2,
            Self::UpToBracket => true,
            Self::Behind { lead, .. } => holds(text, lead.as_bytes()),
        }
    }

    /// Whether a byte ends the name.
    pub fn is_end(self, byte: u8) -> bool {
        match self {
            Self::FirstValue => byte == b'"',
            Self::UpToBracket => byte == b'[',
            Self::Behind { delimiters, .. } => delimiters.contains(&byte),
        }
    }

    /// Whether the name is complete in this text.
    pub fn is_complete(self, text: &[u8]) -> bool {
        match self {
            Self::FirstValue => n_quotes(text) > 3,
            Self::UpToBracket => text.contains(&b'['),
            Self::Behind { delimiters, .. } => text.iter().any(|byte| delimiters.contains(byte)),
        }
    }
}

fn holds(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || text.windows(part.len()).any(|window| window == part)
}

fn n_quotes(text: &[u8]) -> usize {
    text.iter().filter(|&&byte| byte == b'"').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_lies_between_its_lead_and_its_delimiter() {
        let at = |text: &[u8]| {
            let place = NamePlace::Behind {
                lead: "<function=",
                delimiters: b">",
            };
            let stages = [
                place.is_next(text),
                place.is_open(text),
                place.is_complete(text),
            ];
            stages.iter().filter(|&&is_reached| is_reached).count()
        };
        let n_stages = [
            "",
            "\n<func",
            "\n<function",
            "\n<function=",
            "\n<function=f",
            "\n<function=f>",
        ]
        .map(|text| at(text.as_bytes()));
        assert_eq!(n_stages, [0, 0, 1, 2, 2, 3]);
    }
}
