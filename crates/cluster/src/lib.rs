//! Layer rings: one model on several machines, with the bits of one machine.
//!
//! A [`Ring`] is an executor. The coordinator embeds tokens and may run the first layers; each
//! stage runs a range of the others and passes rows on; the last one returns rows to the
//! coordinator, which computes logits. [`wire`] is the bytes, [`core`] the protocol without I/O,
//! [`Stage`] computes. The crate opens no connection: stages run in threads of this process
//! ([`RingBackend`]), or in a simulator.

#![forbid(unsafe_code)]

pub mod core;
pub mod wire;

mod backend;
mod history;
mod lane;
mod ring;
mod stage;

pub use backend::{Cut, RingBackend, RingPlan};
pub use history::{History, RebuildStep};
pub use lane::{Lane, ThreadLane};
pub use ring::{Ring, RingParts};
pub use stage::Stage;
