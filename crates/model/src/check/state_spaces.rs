//! The conditions on state spaces.

use super::{check_scan, check_taps, ensure, is_positive};
use crate::spec::{AttentionAndMamba2, Mamba2};

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
