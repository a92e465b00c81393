//! How much a thread works in: asserted where it is laid out, so that no shape of a model can make
//! it more.

/// Bytes on the stack of a thread that multiplies or attends.
pub(crate) const THREAD: usize = 1 << 20;
/// Of them, what rows of weights are made into before they are multiplied.
pub(crate) const PANEL: usize = 256 << 10;
