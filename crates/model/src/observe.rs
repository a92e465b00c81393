//! Observers of a step: its phases, for measurements of time, and the inputs of its matrices, for
//! importance matrices.
//!
//! The forward pass has no clock. It reports each phase to an observer, which may have one.

use crate::Role;

/// A phase of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for a group of weights.
    Weights,
    /// Multiplying with weights.
    Matmul,
    /// Attending to keys and values.
    Attention,
    /// Convolutions, and updating and reading recurrent states.
    Scan,
    /// Everything else: norms, rotations, quantizing activations, storing keys and values.
    Other,
    /// The step is complete.
    Idle,
}

/// Receives the phases and inputs of a step.
pub trait Observer: Send {
    /// A phase begins.
    fn enter(&mut self, phase: Phase);

    /// Rows are about to be multiplied with matrices of a layer.
    fn inputs(&mut self, _: Inputs<'_>) {}

    /// Whether the inputs of the output head are wanted, of every row: they cost a norm each.
    fn wants_head_inputs(&self) -> bool {
        false
    }

    /// A row that the output head would be multiplied with, `[d_model]`, whether or not its logits
    /// are wanted.
    fn head_input(&mut self, _: &[f32]) {}
}

/// The inputs of matrices.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The layer.
    pub layer: usize,
    /// The matrices that are multiplied with the rows; the model may lack some of them.
    pub roles: &'a [Role],
    /// The expert, for matrices of experts.
    pub expert: Option<usize>,
    /// `[n_rows, d]`.
    pub rows: &'a [f32],
    /// Width of a row.
    pub d: usize,
}

/// Ignores everything.
pub(crate) struct NoObserver;

impl Observer for NoObserver {
    fn enter(&mut self, _: Phase) {}
}
