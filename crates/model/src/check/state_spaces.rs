//! The conditions on state spaces.

use super::{check_scan, check_taps, ensure, is_positive, is_width};
use crate::spec::{AttentionAndMamba2, Mamba, Mamba2, StateNorms};

impl Mamba {
    pub(super) fn check(&self) -> Result<(), String> {
        check_taps(self.n_taps)?;
        check_scan([1, 1, self.d_state, self.d_inner])?;
        ensure(is_width(self.d_rank), || {
            format!("steps of {} numbers", self.d_rank)
        })?;
        match self.norms {
            StateNorms::Unit { eps } | StateNorms::Weighted { eps } => {
                ensure(is_positive(eps), || format!("norms with {eps}"))
            }
            StateNorms::None => Ok(()),
        }
    }
}

impl Mamba2 {
    pub(super) fn check(&self) -> Result<(), String> {
        check_taps(self.n_taps)?;
        check_scan([self.n_heads, self.n_groups, self.d_state, self.d_head])?;
        ensure(self.min_step >= 0.0 && self.min_step.is_finite(), || {
            format!("steps of at least {}", self.min_step)
        })?;
        ensure(is_positive(self.eps), || format!("norms with {}", self.eps))
    }
}

impl AttentionAndMamba2 {
    pub(super) fn check(&self) -> Result<(), String> {
        self.attention.check()?;
        self.mamba.check()
    }
}
