//! Why bytes are no frame of this ring.

/// Bytes that are no frame, or none that the plan allows.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Another protocol.
    #[error("the first bytes are {0:02x?}, expected \"ATR1\"")]
    Magic([u8; 4]),
    /// Another version of the protocol.
    #[error("protocol version {got}, this side speaks {expected}")]
    Version {
        /// Of the frame.
        got: u8,
        /// Ours.
        expected: u8,
    },
    /// A checksum that does not match.
    #[error("the checksum of the {0} does not match")]
    Checksum(&'static str),
    /// Fewer or more bytes than the header says.
    #[error("a frame of {got} bytes, expected {expected}")]
    Length {
        /// By the header.
        expected: usize,
        /// Present.
        got: usize,
    },
    /// A field with a value that is unknown, or that the plan or the kind of frame excludes.
    #[error("{field} is {value}, expected {expected}")]
    Field {
        /// Its name.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The values that are accepted.
        expected: &'static str,
    },
    /// More of something than the plan allows.
    #[error("{n} {what}, at most {max}")]
    TooMany {
        /// What.
        what: &'static str,
        /// In the frame.
        n: u64,
        /// By the plan.
        max: u64,
    },
}

impl WireError {
    /// An error about a field.
    pub(super) fn field(
        field: &'static str,
        value: impl Into<u64>,
        expected: &'static str,
    ) -> Self {
        Self::Field {
            field,
            value: value.into(),
            expected,
        }
    }

    /// Fails if there are more than `max`.
    pub(super) fn check_max(
        what: &'static str,
        n: impl Into<u64>,
        max: impl Into<u64>,
    ) -> Result<(), Self> {
        let n: u64 = n.into();
        let max: u64 = max.into();
        match n <= max {
            true => Ok(()),
            false => Err(Self::TooMany { what, n, max }),
        }
    }

    /// Fails if a field is not 0.
    pub(super) fn check_zero(field: &'static str, value: impl Into<u64>) -> Result<(), Self> {
        match value.into() {
            0 => Ok(()),
            value => Err(Self::field(field, value, "0")),
        }
    }
}
