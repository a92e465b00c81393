//! Layer rings: one model on several machines, with the bits of one machine.
//!
//! A [`Ring`] is an executor. The coordinator embeds tokens and may run the first layers; each
//! stage runs a range of the others and passes rows on; the last one returns rows to the
//! coordinator, which computes logits. [`wire`] is the bytes, [`core`] the protocol without input
//! or output, [`Stage`] computes. [`plan`] decides which machine runs which layers, [`part`] holds
//! the share of a model file that a machine needs, [`key`] makes the identities of a cluster,
//! [`tensor`] divides a stage among several machines,
//! `control` (feature `zenoh`) knows its members, and [`lane::tcp`] carries frames between
//! machines. No node joins the last two to a stage yet: stages run in threads of this process
//! ([`RingBackend`]), or in a simulator.

#![forbid(unsafe_code)]

#[cfg(feature = "zenoh")]
pub mod control;
pub mod core;
pub mod key;
pub mod lane;
pub mod part;
pub mod plan;
pub mod tensor;
pub mod wire;

mod backend;
mod disk;
mod history;
mod ring;
mod stage;

pub use backend::{Cut, RingBackend, RingPlan};
pub use history::{History, RebuildStep};
pub use lane::{Lane, ThreadLane};
pub use ring::{Ring, RingParts};
pub use stage::Stage;
