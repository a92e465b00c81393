//! Hidden states that a batch wants of every row, beside its results.
//!
//! Knows no use for them. The residual is copied where the forward pass goes by.

use super::Pass;
use crate::{Batch, Output, spec::Tap};

/// Where the wanted hidden states of a batch go.
pub(crate) struct Taps<'a> {
    wanted: &'a [Tap],
    /// `[n_rows, wanted, d_model]`.
    out: &'a mut [f32],
    /// The first layer whose input was not passed.
    next: usize,
}

impl<'a> Taps<'a> {
    /// Makes room for the taps of a batch.
    pub(crate) fn new(batch: &'a Batch, d_model: usize, out: &'a mut Output) -> Self {
        let wanted = &batch.taps[..];
        Self {
            wanted,
            out: out.prepare_taps(batch.rows.len(), wanted.len() * d_model),
            next: 0,
        }
    }
}

impl Pass<'_> {
    /// Copies the residual, where it is the input of layer `l`, or of one before it that is left
    /// out.
    pub(crate) fn tap_before(&mut self, l: usize) {
        let inputs = self.taps.next..=l;
        self.taps.next = l + 1;
        self.tap(
            |tap| matches!(tap, Tap::Before(l) if inputs.contains(l)),
            |_, x, to| {
                to.copy_from_slice(x);
            },
        );
    }

    /// Copies the normed residual, behind the last layer.
    pub(crate) fn tap_normed(&mut self) {
        self.tap(
            |tap| *tap == Tap::Normed,
            |p, x, to| {
                p.model.output_norm(p.kernels, x, to);
            },
        );
    }

    /// Copies each row of the residual to the places of some taps.
    fn tap(&mut self, is_due: impl Fn(&Tap) -> bool, copy: impl Fn(&Self, &[f32], &mut [f32])) {
        let d = self.model.spec().d_model;
        let wanted = self.taps.wanted;
        let out = std::mem::take(&mut self.taps.out);
        for (i, _) in wanted.iter().enumerate().filter(|(_, tap)| is_due(tap)) {
            let rows = out.chunks_exact_mut(wanted.len() * d);
            for (row, x) in rows.zip(self.s.x.chunks_exact(d)) {
                copy(self, x, &mut row[i * d..][..d]);
            }
        }
        self.taps.out = out;
    }
}
