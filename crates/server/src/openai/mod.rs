//! OpenAI's interface: `/v1/chat/completions`, `/v1/completions`, `/v1/responses`,
//! `/v1/embeddings`, `/v1/models`.
//!
//! Source: OpenAI, "API reference", 2025. A field that is not supported is refused by its name.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod embeddings;
mod format;
pub(crate) mod models;
mod prompt;
pub(crate) mod responses;
pub(crate) mod says;
mod thinking;
mod tier;
pub(crate) mod tools;
pub(crate) mod wire;
