//! The constraints a caller can ask for, as plain data.

use std::fmt;

/// Constrains a text from its first byte to its last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constraint {
    /// A JSON object.
    JsonObject,
    /// Any JSON value.
    JsonValue,
    /// A JSON value that a schema allows (JSON Schema, drafts 4 to 2020-12), with open objects.
    /// Keywords that no grammar can enforce are errors; [`Constraint::from_schema`] can loosen
    /// them. Properties come in the order of the schema, others after them.
    Schema(String),
    /// A text that a regular expression matches as a whole, in the syntax of the crate *regex*,
    /// without anchors and look-around.
    Regex(String),
    /// A text of a grammar in llguidance's dialect of Lark.
    Lark(String),
    /// A text of a grammar in llama.cpp's GBNF.
    Gbnf(String),
}

/// How to treat keywords of a schema that no grammar can enforce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// Each of them is an error.
    #[default]
    Strict,
    /// They are ignored, and a warning names each of them.
    Loose,
}

/// Whether objects may have unlisted properties where their schema lists some and does not set
/// `additionalProperties`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherProperties {
    /// Unlisted properties are not allowed.
    #[default]
    Closed,
    /// Unlisted properties are allowed, as JSON Schema says.
    Open,
}

/// How a schema is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchemaOptions {
    /// How to treat keywords that cannot be enforced.
    pub strictness: Strictness,
    /// Whether objects may have unlisted properties.
    pub others: OtherProperties,
}

/// What happens when a constrained text reaches its length limit before its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLength {
    /// A short ending is appended, if one is found; else the text stays incomplete. The model did
    /// not write the ending, and the session does not hold it.
    #[default]
    Close,
    /// As [`Close`](Self::Close), unless the text is a tool call: arguments that the model did not
    /// write are never added to a call.
    CloseUnlessCall(CallTest),
    /// The text stays incomplete: a prefix of a valid text.
    Cut,
    /// An error, [`ConstraintError::Unfinished`](crate::ConstraintError::Unfinished).
    Fail,
}

/// A part of the ending that [`Guide::closing`](crate::Guide::closing) appends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Text, at least one byte; not always whole characters.
    Bytes(Vec<u8>),
    /// A special token that the grammar asks for by name and that has no text.
    Token(u32),
}

/// Tells whether the beginning of an answer is, or may become, a tool call.
#[derive(Clone, Copy)]
pub struct CallTest(pub fn(&[u8]) -> bool);

impl fmt::Debug for CallTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallTest")
    }
}

impl PartialEq for CallTest {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.0, other.0)
    }
}

impl Eq for CallTest {}
