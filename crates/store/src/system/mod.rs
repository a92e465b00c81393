//! What the system says about memory: how much this process has, and how much it may have.

mod limit;
mod usage;

pub use limit::{memory_available, memory_limit};
pub use usage::{Usage, read_bytes};
