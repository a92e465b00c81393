//! Where weight bytes live: mapped from the file, resident on the heap, or (later) streamed under a budget.
//!
//! The crate knows byte ranges and *units*, the portions in which a forward pass asks for weights. It refuses to know
//! what a tensor means or what is computed with it. The one idea: the caller asks for a unit and holds a guard; whether
//! the bytes were already there, and what happens to them after the guard is dropped, is not its business.

#![deny(unsafe_code)]

mod budget;
mod error;
mod files;
mod os;
mod unit;
mod weights;

pub use budget::{Budget, Item, Reservation};
pub use error::Error;
pub use files::{ModelFiles, Placement};
pub use unit::{Extent, Guard, Plan, RowTable, Unit};
pub use weights::{InMemory, Weights};
