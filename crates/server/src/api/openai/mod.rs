//! OpenAI's interface: `/v1/chat/completions`, `/v1/completions`, `/v1/responses`,
//! `/v1/embeddings`, `/v1/models`.
//!
//! Source: OpenAI, "API reference", 2025. A field that is not supported is refused by its name.

pub(crate) mod chat;
pub(crate) mod choices;
pub(crate) mod completions;
pub(crate) mod embeddings;
pub(crate) mod messages;
pub(crate) mod models;
pub(crate) mod response;
#[cfg(feature = "interfaces")]
pub(crate) mod responses;
pub(crate) mod sampling;
mod tier;
