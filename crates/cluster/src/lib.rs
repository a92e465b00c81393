//! Layer rings: one model on several machines, bit for bit as on one.

#![forbid(unsafe_code)]

pub mod key;
pub mod part;
pub mod plan;
