//! The only unsafe corner of this crate: memory maps and what can go wrong with them, and memory of our own in large pages.
#![allow(
    unsafe_code,
    reason = "mapping a file, owning parts of a map and handling a signal cannot be expressed in safe Rust"
)]

mod bus;
mod map;
mod region;
mod source;

pub use bus::catch_bus_errors;
pub(crate) use map::Map;
pub(crate) use region::{ALIGN, Slot};
pub use source::Method;
pub(crate) use source::{Source, check_unchanged};
