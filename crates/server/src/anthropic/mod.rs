//! Anthropic's interface: `/v1/messages`, `/v1/messages/count_tokens`.
//!
//! Source: Anthropic, "API reference: Messages", 2025. A field or a block that is not supported is refused by its name.

mod content;
pub(crate) mod count;
pub(crate) mod messages;
mod parts;
mod says;
mod talk;
mod tools;
