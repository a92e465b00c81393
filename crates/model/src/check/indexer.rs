//! The conditions on the choice of positions.

use atta_kernels::D_HEAD_MAX;

use super::{ensure, is_positive, is_width};
use crate::spec::{Attention, Indexer, KvSource, Mask};

impl Indexer {
    /// Checks it as that of `a`: keys of its own stay as long as the sequence.
    pub(super) fn check(&self, a: &Attention) -> Result<(), String> {
        let is_plain = matches!(a.kv, KvSource::Own { .. }) && a.mask == Mask::Causal;
        ensure(is_plain, || {
            format!("an indexer of attention with {:?}, {:?}", a.kv, a.mask)
        })?;
        let d_rope = a.rope.as_ref().map_or(0, |rope| rope.d_rope);
        let fits = (d_rope.max(1)..=D_HEAD_MAX).contains(&self.d_head);
        let d = self.n_heads.checked_mul(self.d_head);
        ensure(fits && d.is_some_and(is_width), || {
            format!(
                "an indexer of {} heads of {}, {d_rope} rotated",
                self.n_heads, self.d_head
            )
        })?;
        ensure(is_width(self.block_len) && is_width(self.n_blocks), || {
            format!("{} blocks of {} positions", self.n_blocks, self.block_len)
        })?;
        ensure(is_positive(self.eps), || format!("norms with {}", self.eps))
    }
}
