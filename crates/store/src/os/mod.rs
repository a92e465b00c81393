//! The only unsafe code of this crate: memory maps and their bus errors, private memory in huge
//! pages, the allocator, and what systems say of memory.
#![allow(
    unsafe_code,
    reason = "mapping a file, owning parts of a map, handling a signal and asking the system cannot be expressed in safe Rust"
)]

mod bus;
pub(crate) mod facts;
mod heap;
mod map;
mod pages;
mod region;

pub use bus::catch_bus_errors;
pub use heap::{give_back_memory, return_large_buffers};
pub(crate) use map::Map;
pub(crate) use region::{ALIGN, Slot};
