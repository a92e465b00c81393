//! Where weight bytes live: mapped from the file, resident in private memory, or streamed from disk
//! chunk by chunk under a budget.
//!
//! The crate knows byte ranges and *weight groups*, the sets of matrices that a forward pass
//! multiplies together. It refuses to know what a tensor means or how it is used. The one
//! idea: the caller asks for a chunk of a group and holds a guard; whether the bytes were in memory
//! before, and what happens to them after the guard is dropped, is the store's business.

#![deny(unsafe_code)]

mod budget;
mod checks;
mod disk_rate;
mod error;
mod files;
mod fingerprint;
mod guard;
mod mapped;
mod os;
mod plan;
mod source;
mod stream;
pub mod system;
mod uncached;
mod usage;
mod weights;

pub use budget::{Budget, BudgetItem, Reservation};
pub use checks::{Damage, DamagedPart, FileVerification};
pub use disk_rate::disk_rate;
pub use error::Error;
pub use files::{Hole, ModelFiles, ModelSource};
pub use guard::{ChunkGuard, TensorRows};
pub use mapped::MappedFile;
pub use os::{catch_bus_errors, give_back_memory, return_large_buffers};
pub use plan::{Extent, LayerTables, Plan, Projection, RowTable, WeightGroup, WeightPass};
pub use source::ReadAt;
pub use stream::{Io, ResidencyBytes, ResidencyPolicy, Streamed};
pub use uncached::ReadMethod;
pub use usage::ExpertUsage;
pub use weights::{Amount, Arrived, ExpertRequest, InMemory, Weights};
