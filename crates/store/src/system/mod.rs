//! Memory as the system reports it: the memory of this process, and its limits.

mod limit;
mod usage;

pub use limit::{memory_available, memory_limit};
pub use usage::{Usage, read_bytes};
