//! Ollama's interface: `/api/chat`, `/api/generate`, `/api/tags`, `/api/ps`, `/api/show`, `/api/version`.
//!
//! Source: Ollama, API reference (docs/api.md), 2025. Answers are lines of JSON unless `stream` is false; times are
//! nanoseconds. A field or an option that is not supported is refused by its name.

pub(crate) mod chat;
pub(crate) mod generate;
mod keep_alive;
pub(crate) mod models;
mod says;
pub(crate) mod settings;
mod tell;

/// That of requests which do not say how urgent they are.
const PRIORITY: u8 = 1;
