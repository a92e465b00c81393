//! Statistics of a batcher.

/// Statistics of a batcher since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Steps.
    pub n_steps: u64,
    /// Prompt tokens evaluated.
    pub n_read: u64,
    /// Prompt tokens reused from slots.
    pub n_reused: u64,
    /// Prompt tokens restored from the prompt cache.
    pub n_restored: u64,
    /// Prompt tokens reused whose state is approximate.
    pub n_approximate: u64,
    /// Tokens generated.
    pub n_written: u64,
    /// Tokens of drafts evaluated.
    pub n_drafted: u64,
    /// Tokens of drafts that became part of a text.
    pub n_accepted: u64,
    /// Jobs preempted because the KV pool was full.
    pub n_preempted: u64,
    /// Cached prefixes evicted because the KV pool was full, or no slot was free.
    pub n_evicted: u64,
}

impl Counts {
    /// Counts a step that has written tokens with a draft.
    pub(super) fn add_step(&mut self, n_written: usize, n_drafted: usize, n_accepted: usize) {
        self.n_written += n_written as u64;
        self.n_drafted += n_drafted as u64;
        self.n_accepted += n_accepted as u64;
    }

    /// Adds the statistics of another batcher.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            n_steps: self.n_steps + other.n_steps,
            n_read: self.n_read + other.n_read,
            n_reused: self.n_reused + other.n_reused,
            n_restored: self.n_restored + other.n_restored,
            n_approximate: self.n_approximate + other.n_approximate,
            n_written: self.n_written + other.n_written,
            n_drafted: self.n_drafted + other.n_drafted,
            n_accepted: self.n_accepted + other.n_accepted,
            n_preempted: self.n_preempted + other.n_preempted,
            n_evicted: self.n_evicted + other.n_evicted,
        }
    }
}
