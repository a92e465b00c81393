//! The peak of private memory, as seen by whoever looks now and then.

use atta::system::Usage;

/// The most private memory of all moments at which somebody looked, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeakPrivate(Option<u64>);

impl PeakPrivate {
    /// Looks.
    pub(crate) fn sample(&mut self) {
        self.0 = self.0.max(Usage::now().map(|usage| usage.private()));
    }

    /// Takes over what another one saw.
    pub(crate) fn merge(&mut self, other: Self) {
        self.0 = self.0.max(other.0);
    }

    /// The most so far.
    pub(crate) fn bytes(self) -> Option<u64> {
        self.0
    }
}
