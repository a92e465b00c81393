//! Patterns for names of tensors.

use std::{fmt, str::FromStr};

use regex_lite::Regex;

/// A regular expression that matches the names of tensors in which it occurs.
#[derive(Clone, Debug)]
pub struct NamePattern(Regex);

/// Why a text is not a [`NamePattern`].
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPattern(String);

impl NamePattern {
    /// Whether the pattern occurs in the name.
    pub(crate) fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

impl FromStr for NamePattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        let invalid = |error: regex_lite::Error| InvalidPattern(error.to_string());
        text.parse().map(Self).map_err(invalid)
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}
