//! What a text must look like: JSON, a schema, a regular expression, a grammar.
//!
//! Knows bytes and tokens, no model, no session and no sampler. The one idea: after every token
//! *llguidance* says which tokens may follow, from the bytes that they really stand for, and the
//! rest of the vocabulary becomes impossible. What is sampled from what is left is nobody's
//! business here.
//!
//! [`Grammars`] is what a vocabulary needs once, [`Guide`] one text under way, [`closing`] a short
//! way to its end.

mod closing;
pub mod gbnf;
mod grammars;
mod guide;
mod lark;
mod literals;
pub(crate) mod prepare;
pub(crate) mod schema;
#[cfg(test)]
mod tests;
mod vocabulary;

use llguidance::api::TopLevelGrammar;

pub use closing::Closing;
pub use guide::Guide;

pub(crate) use grammars::{Grammars, planned_bytes};

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
    /// The same beside tools: a call stays as it is, since it would not be the model's.
    #[cfg(feature = "chat")]
    CloseReply(crate::tools::Format),
    /// It stays as it is: the beginning of a valid text.
    Cut,
    /// An error.
    Fail,
}

/// Why a constraint cannot be kept to.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// A schema that is no JSON, or asks for what cannot be done.
    #[error("schema: {0}")]
    Schema(String),
    /// A regular expression that is none, or too complex.
    #[error("regular expression: {0}")]
    Regex(String),
    /// A grammar that is none, or too complex.
    #[error("grammar: {0}")]
    Grammar(String),
    /// A vocabulary that cannot be constrained.
    #[error("this vocabulary cannot be constrained: {0}")]
    Vocabulary(String),
    /// The text cannot go on: it became too complex, or no token fits.
    #[error("no token fits the constraint: {0}")]
    Stuck(String),
    /// No way to the end of the text was found.
    #[error(
        "found no short end for the text after {n_tokens} tokens: raise -n, or take --on-length cut"
    )]
    Endless {
        /// Tokens of the text so far.
        n_tokens: usize,
    },
    /// The text was to be an error if it reached its length before its end.
    #[error(
        "the text is not complete after {n_tokens} tokens: raise -n, or take --on-length close"
    )]
    Unfinished {
        /// Tokens of the text so far.
        n_tokens: usize,
    },
}

/// The rules of JSON.
const JSON: &str = include_str!("json.lark");

/// Bytes of a schema, and of a regular expression or a grammar, at most.
const MAX_SCHEMA_BYTES: usize = 4 << 20;
const MAX_GRAMMAR_BYTES: usize = 256 << 10;

impl Constraint {
    /// The constraint of a schema, and remarks: one line for each keyword that was loosened, with
    /// its place.
    ///
    /// # Errors
    /// [`ConstraintError::Schema`] if the schema is no JSON, or cannot be kept to.
    pub fn from_schema(
        text: &str,
        options: SchemaOptions,
    ) -> Result<(Self, Vec<String>), ConstraintError> {
        if text.len() > MAX_SCHEMA_BYTES {
            let what = format!("{} bytes, expected at most {MAX_SCHEMA_BYTES}", text.len());
            return Err(ConstraintError::Schema(what));
        }
        let prepared = schema::read(text, options)?;
        let remarks = prepared
            .remarks
            .iter()
            .map(|remark| format!("schema: {remark}"))
            .collect();
        Ok((Self::Schema(prepared.schema.to_string()), remarks))
    }

    /// Bytes of its text.
    fn n_bytes(&self) -> usize {
        match self {
            Self::JsonObject | Self::JsonValue => 0,
            Self::Schema(text) | Self::Regex(text) | Self::Lark(text) | Self::Gbnf(text) => {
                text.len()
            }
        }
    }

    /// Whether it can ask for a token by its name or number.
    fn may_name_tokens(&self) -> bool {
        matches!(self, Self::Lark(_) | Self::Gbnf(_))
    }

    /// The rule `reply` of a grammar in which such a text is one of several things. `names`: keys
    /// that the outermost object does not have, where any object is allowed.
    ///
    /// # Errors
    /// The constraint's own kind of error if it is no JSON, or its schema cannot be kept to.
    #[cfg(feature = "chat")]
    pub(crate) fn reply(&self, names: &[&str]) -> Result<String, ConstraintError> {
        let (mut schema, with_unicode) = match self {
            Self::Schema(text) => {
                let options = SchemaOptions {
                    strictness: Strictness::Strict,
                    others: OtherProperties::Open,
                };
                let prepared = schema::read(text, options)?;
                (prepared.schema, prepared.with_unicode_escapes)
            }
            Self::JsonObject if names.is_empty() => return Ok(format!("reply: object\n{JSON}")),
            Self::JsonValue if names.is_empty() => return Ok(format!("reply: value\n{JSON}")),
            Self::JsonObject | Self::JsonValue => (schema::object_without(names), false),
            Self::Regex(_) | Self::Lark(_) | Self::Gbnf(_) => {
                return Err(self.error("it cannot be combined with tools; a schema can".to_owned()));
            }
        };
        schema[schema::OPTIONS] = schema::options(schema::Spaces::BehindSeparators, with_unicode);
        Ok(format!("reply: %json {schema}\n"))
    }

    /// What llguidance takes it for.
    fn grammar(&self) -> Result<TopLevelGrammar, ConstraintError> {
        let (Self::Schema(text) | Self::Regex(text) | Self::Lark(text) | Self::Gbnf(text)) = self
        else {
            let start = if *self == Self::JsonObject {
                "object"
            } else {
                "value"
            };
            return Ok(TopLevelGrammar::from_lark(format!(
                "start: SPACE? {start}\n{JSON}"
            )));
        };
        let max = if matches!(self, Self::Schema(_)) {
            MAX_SCHEMA_BYTES
        } else {
            MAX_GRAMMAR_BYTES
        };
        if text.len() > max {
            return Err(self.error(format!("{} bytes, expected at most {max}", text.len())));
        }
        match self {
            Self::Schema(_) => Ok(TopLevelGrammar::from_json_schema(schema::parse(text)?)),
            Self::Regex(_) => Ok(TopLevelGrammar::from_regex(text)),
            Self::Gbnf(_) => Ok(TopLevelGrammar::from_lark(
                gbnf::to_lark(text).map_err(|e| self.error(e.to_string()))?,
            )),
            _ => Ok(TopLevelGrammar::from_lark(lark::prepared(text)?)),
        }
    }

    /// What is wrong with it.
    fn error(&self, what: String) -> ConstraintError {
        match self {
            Self::JsonObject | Self::JsonValue | Self::Schema(_) => ConstraintError::Schema(what),
            Self::Regex(_) => ConstraintError::Regex(what),
            Self::Lark(_) | Self::Gbnf(_) => ConstraintError::Grammar(what),
        }
    }
}
