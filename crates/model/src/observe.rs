//! Where the time of a step goes and what passes through it, for those who measure.
//!
//! A forward pass has no clock. It tells an observer what it turns to, and the observer may look at
//! one.

use crate::Role;

/// What a step is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for a group of weights.
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

    /// These rows are about to be multiplied with matrices of a layer.
    fn inputs(&mut self, _: Inputs<'_>) {}
}

/// The inputs of matrices.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The layer.
    pub layer: usize,
    /// The matrices that all get these rows; those that a model does not have may be among them.
    pub roles: &'a [Role],
    /// Of matrices with experts: which one.
    pub expert: Option<usize>,
    /// `[n_rows, d]`.
    pub rows: &'a [f32],
    /// Width of a row.
    pub d: usize,
}

/// Nobody listens.
pub(crate) struct Silent;

impl Observer for Silent {
    fn enter(&mut self, _: Phase) {}
}
