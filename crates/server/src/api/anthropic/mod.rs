//! Anthropic's interface: `/v1/messages`, `/v1/messages/count_tokens`, and its form of
//! `/v1/models`.
//!
//! Source: Anthropic, "API reference: Messages", 2026. [`accepted`] has the fields without effect.

mod accepted;
mod blocks;
mod content;
pub(crate) mod count;
pub(crate) mod create;
mod events;
mod messages;
pub(crate) mod models;
mod request;
mod response;
mod tools;
