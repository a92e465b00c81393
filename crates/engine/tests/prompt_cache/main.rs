//! The prompt cache on disk: whatever is there, logits are those of a session that computed
//! everything itself.
#![cfg(feature = "cache")]

mod costs;
mod experts;
mod files;
mod restore;
mod sessions;
mod support;
mod suspend;
