//! The only unsafe corner of this crate: memory maps and what can go wrong with them, memory of our
//! own in large pages, and the allocator.
#![allow(
    unsafe_code,
    reason = "mapping a file, owning parts of a map, handling a signal and asking the allocator cannot be expressed in safe Rust"
)]

mod bus;
mod heap;
mod map;
mod region;
mod source;

pub use bus::catch_bus_errors;
pub use heap::give_back_memory;
pub(crate) use map::Map;
pub(crate) use region::{ALIGN, Slot};
pub use source::ReadMethod;
pub(crate) use source::{Source, check_unchanged};
