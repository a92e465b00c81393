//! How frames come from one machine to another.
//!
//! A lane carries whole frames in one direction between two stages, in order, or ends. It knows no
//! model and no protocol beyond the bytes of a frame.

pub mod tcp;
