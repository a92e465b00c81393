//! Where weight bytes live: mapped from the file, held in memory of our own, or read piece by piece
//! under a budget.
//!
//! The crate knows byte ranges and *units*, the portions in which a forward pass asks for weights.
//! It refuses to know what a tensor means or what is computed with it. The one idea: the caller
//! asks for a piece of a unit and holds a guard; whether the bytes were already there, and what
//! happens to them after the guard is dropped, is not its business.

#![deny(unsafe_code)]

mod budget;
mod error;
mod files;
mod fingerprint;
mod mapped;
mod os;
mod stream;
pub mod system;
mod unit;
mod weights;

pub use budget::{Budget, Item, Reservation};
pub use error::Error;
pub use files::ModelFiles;
pub use mapped::MappedFile;
pub use os::{Method, catch_bus_errors, give_back_memory};
pub use stream::{Holding, Io, Sizes, Streamed};
pub use unit::{Extent, Guard, Plan, RowTable, Rows, Stage, Stages, Sweep, Unit};
pub use weights::{InMemory, Weights};
