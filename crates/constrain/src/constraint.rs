//! Constraints as grammars of llguidance.

use llguidance::api::TopLevelGrammar;

use crate::{
    Constraint, ConstraintError, OtherProperties, SchemaOptions, Strictness, gbnf, lark, schema,
};

/// JSON as a Lark grammar.
const JSON: &str = include_str!("json.lark");

/// Maximum size of a schema, and of a regular expression or a grammar, in bytes.
const MAX_SCHEMA_BYTES: usize = 4 << 20;
const MAX_GRAMMAR_BYTES: usize = 256 << 10;

impl Constraint {
    /// The constraint of a schema, with one warning for each keyword that was ignored, naming its
    /// place.
    ///
    /// # Errors
    /// [`ConstraintError::Schema`] if the schema is not valid JSON, or cannot be enforced.
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

    /// Size of its text in bytes.
    pub(crate) fn n_bytes(&self) -> usize {
        match self {
            Self::JsonObject | Self::JsonValue => 0,
            Self::Schema(text) | Self::Regex(text) | Self::Lark(text) | Self::Gbnf(text) => {
                text.len()
            }
        }
    }

    /// Whether it can ask for tokens by name or number.
    pub(crate) fn may_name_tokens(&self) -> bool {
        matches!(self, Self::Lark(_) | Self::Gbnf(_))
    }

    /// The rule `reply`, for a grammar in which such a text is one of several alternatives.
    /// `names`: keys that the outermost object must not have, where any object is allowed.
    ///
    /// # Errors
    /// The error kind of the constraint, if it is not JSON or its schema cannot be enforced.
    pub fn reply(&self, names: &[&str]) -> Result<String, ConstraintError> {
        let (mut schema, with_unicode) = match self {
            Self::Schema(text) => {
                let prepared = schema::read(
                    text,
                    SchemaOptions {
                        strictness: Strictness::Strict,
                        others: OtherProperties::Open,
                    },
                )?;
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

    fn check_size(&self, text: &str) -> Result<(), ConstraintError> {
        let max = if matches!(self, Self::Schema(_)) {
            MAX_SCHEMA_BYTES
        } else {
            MAX_GRAMMAR_BYTES
        };
        if text.len() > max {
            return Err(self.error(format!("{} bytes, expected at most {max}", text.len())));
        }
        Ok(())
    }

    /// As a grammar of llguidance.
    pub(crate) fn grammar(&self) -> Result<TopLevelGrammar, ConstraintError> {
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
        self.check_size(text)?;
        match self {
            Self::Schema(_) => Ok(TopLevelGrammar::from_json_schema(schema::parse(text)?)),
            Self::Regex(_) => Ok(TopLevelGrammar::from_regex(text)),
            Self::Gbnf(_) => Ok(TopLevelGrammar::from_lark(
                gbnf::to_lark(text).map_err(|e| self.error(e.to_string()))?,
            )),
            _ => Ok(TopLevelGrammar::from_lark(lark::prepared(text)?)),
        }
    }

    /// An error of this kind of constraint.
    pub(crate) fn error(&self, what: String) -> ConstraintError {
        match self {
            Self::JsonObject | Self::JsonValue | Self::Schema(_) => ConstraintError::Schema(what),
            Self::Regex(_) => ConstraintError::Regex(what),
            Self::Lark(_) | Self::Gbnf(_) => ConstraintError::Grammar(what),
        }
    }
}
