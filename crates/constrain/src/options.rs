//! The constraints a caller can ask for, as plain data.

use std::fmt;

/// What a text must look like from its first byte to its last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constraint {
    /// A JSON object.
    JsonObject,
    /// Any JSON value.
    JsonValue,
    /// A JSON value that a schema allows (JSON Schema, drafts 4 to 2020-12), with open objects.
    /// Keywords that cannot be kept to are errors; [`Constraint::from_schema`] gives a choice.
    /// Properties come in the order of the schema, others after them.
    Schema(String),
    /// A text that a regular expression matches as a whole, in the syntax of the crate *regex*,
    /// without anchors and look-around.
    Regex(String),
    /// A text of a grammar in llguidance's dialect of Lark.
    Lark(String),
    /// A text of a grammar in llama.cpp's GBNF.
    Gbnf(String),
}

/// What becomes of a schema's keywords that no grammar can keep to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// Each of them is an error.
    #[default]
    Strict,
    /// They are left out, and a remark names each of them.
    Loose,
}

/// Whether objects may have properties that their schema does not list, where it lists some and
/// says nothing of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherProperties {
    /// They may not.
    #[default]
    Closed,
    /// They may, as JSON Schema has it.
    Open,
}

/// How a schema is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchemaOptions {
    /// What becomes of keywords that cannot be kept.
    pub strictness: Strictness,
    /// Whether objects may have more properties than those listed.
    pub others: OtherProperties,
}

/// What happens when a constrained text reaches its length before its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLength {
    /// A short text that ends it is added. It is not the model's, and no token of the session.
    #[default]
    Close,
    /// As [`Close`](Self::Close), unless the text is a tool call: arguments that the model did not
    /// write are never added to a call.
    CloseUnlessCall(CallTest),
    /// It stays as it is: the beginning of a valid text.
    Cut,
    /// An error.
    Fail,
}

/// A part of a text that no model has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Bytes of text, at least one; not always whole characters.
    Bytes(Vec<u8>),
    /// A token that has a name, but no text, as a grammar may ask for.
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
