//! Where the time of a step goes, for those who measure.
//!
//! A forward pass has no clock. It tells an observer what it turns to, and the observer may look at one.

/// What a step is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for a unit of weights.
    Weights,
    /// Multiplying with weights.
    Matmul,
    /// Attending to keys and values.
    Attention,
    /// Everything else: norms, rotations, quantizing activations, storing keys and values.
    Other,
    /// Nothing: the step is over.
    Idle,
}

/// Hears what a step turns to.
pub trait Observer: Send {
    /// The step turns to `phase` now.
    fn enter(&mut self, phase: Phase);
}

/// Nobody listens.
pub(crate) struct Silent;

impl Observer for Silent {
    fn enter(&mut self, _: Phase) {}
}
