//! Tool calls: definitions, grammars that allow only valid calls, and a parser of calls in answers.
//!
//! Definitions come as JSON, markers as a function from text to token id, output as text in pieces;
//! no session, vocabulary, template engine or terminal is involved. [`Rules::grammar`] and
//! [`Parser`] agree on one language per [`CallFormat`]: text that the grammar allows as text is
//! text for the parser, and the beginning of a call is a call. Without a grammar the parser reads
//! anything, and returns malformed calls as text.

mod braced;
mod braced_lark;
mod call;
mod choice;
mod definition;
mod error;
mod format;
mod grammar;
mod harmony;
mod harmony_lark;
mod ids;
mod json;
mod parameters;
mod parser;
mod piece;
mod place;
mod schema;
mod sequence;
mod tagged;

pub use choice::ToolChoice;
pub use definition::ToolSet;
pub use error::ToolError;
pub use format::CallFormat;
pub use grammar::{Rules, Thinking};
pub(crate) use harmony::CHANNEL as HARMONY_CHANNEL;
pub use parser::{Parser, TextEnd};
pub use piece::{Outcome, Piece};
pub(crate) use place::{PYTHON_CALLS, PYTHON_CALLS_END};

/// A tool call of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Its id, to which the result refers; unique in the conversation if [`Parser::after_calls`]
    /// was used.
    pub id: String,
    /// Name of the tool. Without a grammar it may not exist.
    pub name: String,
    /// The arguments, a JSON object.
    pub arguments: serde_json::Value,
}
