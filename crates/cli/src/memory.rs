//! The peak of private memory, from samples.

use atta::system::Usage;

/// The largest sample of private memory, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeakPrivate(Option<u64>);

impl PeakPrivate {
    /// Takes a sample.
    pub(crate) fn sample(&mut self) {
        self.0 = self.0.max(Usage::now().map(|usage| usage.private()));
    }

    /// Adds the samples of another peak.
    pub(crate) fn merge(&mut self, other: Self) {
        self.0 = self.0.max(other.0);
    }

    /// The peak so far; `None` where the system does not report it.
    pub(crate) fn bytes(self) -> Option<u64> {
        self.0
    }
}
