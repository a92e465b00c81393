//! The only unsafe corner of this crate: memory maps.
#![allow(unsafe_code, reason = "mapping a file cannot be expressed in safe Rust")]

mod map;

pub(crate) use map::Map;
