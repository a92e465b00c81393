//! Constrained decoding: answers that are JSON, match a schema, a regular expression or a grammar.
//!
//! Knows bytes, tokens and logits; no model, no session, no sampler. After every token *llguidance*
//! says which tokens may follow, from the bytes they stand for, and the logits of all others become
//! −∞. The sampler then chooses among the remaining tokens.
//!
//! [`Grammars`] is made once per vocabulary, a [`Guide`] once per constrained text; [`Closing`] is
//! a short end for a text that reaches its length limit.
//!
//! # Features
//! - `grammars` (default): the implementation, by llguidance. Without it the types are the same and
//!   every constraint is [`ConstraintError::NotBuilt`].

#![forbid(unsafe_code)]

#[cfg(not(feature = "grammars"))]
mod absent;
mod call_start;
mod error;
mod options;

#[cfg(feature = "grammars")]
mod closing;
#[cfg(feature = "grammars")]
mod constraint;
#[cfg(feature = "grammars")]
pub mod gbnf;
#[cfg(feature = "grammars")]
mod grammars;
#[cfg(feature = "grammars")]
mod guide;
#[cfg(feature = "grammars")]
mod lark;
#[cfg(feature = "grammars")]
mod literals;
#[cfg(feature = "grammars")]
mod prepare;
#[cfg(feature = "grammars")]
pub mod schema;
#[cfg(all(test, feature = "grammars"))]
mod tests;
#[cfg(feature = "grammars")]
mod vocabulary;

#[cfg(not(feature = "grammars"))]
pub use absent::{Grammars, Guide, planned_bytes};
pub use call_start::{CallStart, NamePlace, Thoughts};
pub use error::{ConstraintError, Error};
#[cfg(feature = "grammars")]
pub use grammars::{Grammars, planned_bytes};
#[cfg(feature = "grammars")]
pub use guide::Guide;
pub use options::{
    CallTest, Closing, Constraint, OnLength, OtherProperties, SchemaOptions, Strictness,
};
