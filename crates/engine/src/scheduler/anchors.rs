//! Prefixes that are kept apart: the first part of a prompt, of a model with sliding windows.
//!
//! Its sequences free what their windows have passed, so they cannot be truncated far. The one
//! idea: a fork that stays where the first part ends has all that another prompt needs there, at
//! the cost of a slot and one window of blocks.

use atta_model::spec::{ModelSpec, Retention};

use super::Batcher;

/// Tokens that follow the first part of a prompt for it to be kept apart, at least: a sequence that
/// is a little longer can still be truncated.
const MIN_BEHIND: usize = 64;

/// Whether some layers see the last positions only.
pub(super) fn has_windows(spec: &ModelSpec) -> bool {
    let mut attentions = spec.attentions();
    attentions.any(|a| matches!(a.retention(), Retention::Window(_)))
}

impl Batcher {
    /// Plans to keep the first part of a prompt apart, of a model whose windows will forget what
    /// another prompt needs to start from there.
    pub(super) fn plan_anchor(&mut self, slot: usize) {
        let place = self.slots.at(slot);
        let Some(job) = place.job.as_ref().filter(|_| self.has_windows) else {
            return;
        };
        let is_far = |&n: &usize| job.n_prompt >= n + self.n_batch.max(MIN_BEHIND);
        let is_new = |&n: &usize| !self.slots.has_cached(&job.text, n, self.executor.as_ref());
        let anchor = job.first_border().filter(is_far).filter(is_new);
        self.slots.at_mut(slot).set_anchor(anchor);
    }

    /// Keeps the prefixes apart that jobs have evaluated, in place of the least recently used
    /// cached ones.
    pub(super) fn keep_anchors(&mut self) {
        while let Some(slot) = self.slots.take_due_anchor() {
            if self.slots.has_free_slot() || self.evict([None; 2]) {
                self.slots.keep_anchor(slot, self.executor.as_mut());
            }
        }
    }
}
