//! The only unsafe corner of this crate: memory maps, and memory of our own in large pages.
#![allow(unsafe_code, reason = "mapping a file and owning parts of a map cannot be expressed in safe Rust")]

mod map;
mod region;
mod source;

pub(crate) use map::Map;
pub(crate) use region::{ALIGN, Slot};
pub use source::Method;
pub(crate) use source::Source;
