//! Tool calls: definitions of tools, a grammar in which a model can only call them rightly, and
//! calls out of its text.
//!
//! Knows no session, no vocabulary, no template engine and no terminal: definitions come as JSON,
//! markers as a function from text to token id, output as text in pieces. The one idea:
//! [`Rules::grammar`] and [`Parser`] speak of the same language per [`Format`]. What the grammar
//! lets through as text is text for the parser, and what begins like a call is one; without a
//! grammar the parser reads whatever a model writes, and gives what is no call as text.

mod call;
mod choice;
mod definition;
mod error;
mod format;
mod grammar;
mod ids;
mod json;
mod parser;
mod piece;
mod place;
mod schema;

pub use choice::ToolChoice;
pub use definition::ToolSet;
pub use error::ToolError;
pub use format::Format;
pub use grammar::{Rules, Thinking};
pub use parser::Parser;
pub use piece::{Outcome, Piece};

/// A call that a model made.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// What the result refers to; unique in the conversation, if [`Parser::after_calls`] was told
    /// of it.
    pub id: String,
    /// Which tool. The parser knows no definitions: without a grammar it may be one that does not
    /// exist.
    pub name: String,
    /// The arguments, a JSON object.
    pub arguments: serde_json::Value,
}
