//! Operations on sequences, which travel in order with the rows.

use super::{WireError, frame::Limits, u32_at, u64_at};

/// Bytes of an operation.
pub const OP_BYTES: usize = 48;

/// Name of a saved state.
pub type StateKey = [u8; 32];

/// A change of a sequence, as the coordinator's block tables decided it: every stage does the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Creates an empty sequence.
    New {
        /// Its number.
        seq: u32,
    },
    /// Creates a copy, or replaces an existing sequence by one.
    Fork {
        /// The original.
        from: u32,
        /// The copy.
        to: u32,
    },
    /// Removes the positions from `len` on.
    Truncate {
        /// The sequence.
        seq: u32,
        /// Positions left, if there are as many.
        len: u32,
    },
    /// Evicts positions.
    Shift {
        /// The sequence.
        seq: u32,
        /// First evicted position.
        from: u32,
        /// Evicted positions.
        len: u32,
    },
    /// Removes a sequence.
    Drop {
        /// The sequence.
        seq: u32,
    },
    /// Saves positions.
    Save {
        /// The sequence.
        seq: u32,
        /// First position.
        first: u32,
        /// Positions.
        n: u32,
        /// Name of the state.
        key: StateKey,
    },
    /// Loads the first `n` positions of a saved state into a sequence that ends where it begins.
    Load {
        /// The sequence.
        seq: u32,
        /// First position.
        first: u32,
        /// Positions.
        n: u32,
        /// Name of the state.
        key: StateKey,
    },
    /// Sends the state of some positions to the coordinator, as journal frames.
    Export {
        /// The sequence.
        seq: u32,
        /// First position.
        first: u32,
        /// Positions.
        n: u32,
        /// Name of the state.
        id: u64,
    },
    /// Appends the state of some positions that has come in journal frames.
    Append {
        /// The sequence.
        seq: u32,
        /// First position, behind those that it has.
        first: u32,
        /// Positions.
        n: u32,
        /// Name of the state.
        id: u64,
    },
}

/// The key of a name that is a number.
fn key_of(id: u64) -> StateKey {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&id.to_le_bytes());
    key
}

impl Op {
    /// Whether it appends a state that comes in journal frames.
    pub fn is_append(&self) -> bool {
        matches!(self, Self::Append { .. })
    }

    /// Code, three numbers and key.
    fn fields(&self) -> (u8, [u32; 3], StateKey) {
        let no_key = [0; 32];
        match *self {
            Self::New { seq } => (1, [seq, 0, 0], no_key),
            Self::Fork { from, to } => (2, [from, to, 0], no_key),
            Self::Truncate { seq, len } => (3, [seq, len, 0], no_key),
            Self::Shift { seq, from, len } => (4, [seq, from, len], no_key),
            Self::Drop { seq } => (5, [seq, 0, 0], no_key),
            Self::Save { seq, first, n, key } => (6, [seq, first, n], key),
            Self::Load { seq, first, n, key } => (7, [seq, first, n], key),
            Self::Export { seq, first, n, id } => (8, [seq, first, n], key_of(id)),
            Self::Append { seq, first, n, id } => (9, [seq, first, n], key_of(id)),
        }
    }

    /// Writes it.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let (code, numbers, key) = self.fields();
        out.extend([code, 0, 0, 0]);
        out.extend(numbers.into_iter().flat_map(u32::to_le_bytes));
        out.extend(key);
    }

    /// Reads [`OP_BYTES`] bytes.
    pub(super) fn parse(bytes: &[u8], limits: &Limits) -> Result<Self, WireError> {
        let [a, b, c] = [4, 8, 12].map(|at| u32_at(bytes, at));
        let key: StateKey = super::field(bytes, 16);
        let op = match bytes[0] {
            1 => Self::New { seq: a },
            2 => Self::Fork { from: a, to: b },
            3 => Self::Truncate { seq: a, len: b },
            4 => Self::Shift {
                seq: a,
                from: b,
                len: c,
            },
            5 => Self::Drop { seq: a },
            6 => Self::Save {
                seq: a,
                first: b,
                n: c,
                key,
            },
            7 => Self::Load {
                seq: a,
                first: b,
                n: c,
                key,
            },
            8 => Self::Export {
                seq: a,
                first: b,
                n: c,
                id: u64_at(bytes, 16),
            },
            9 => Self::Append {
                seq: a,
                first: b,
                n: c,
                id: u64_at(bytes, 16),
            },
            code => return Err(WireError::field("operation", code, "1 to 9")),
        };
        op.check(limits)?;
        let mut canonical = Vec::with_capacity(OP_BYTES);
        op.write(&mut canonical);
        match canonical == bytes {
            true => Ok(op),
            false => Err(WireError::field(
                "an unused field of an operation",
                1_u8,
                "0",
            )),
        }
    }

    /// Fails for sequences or positions that the plan does not have.
    fn check(&self, limits: &Limits) -> Result<(), WireError> {
        let (seqs, n) = match *self {
            Self::New { seq } | Self::Drop { seq } => ([seq, seq], 0),
            Self::Fork { from, to } => ([from, to], 0),
            Self::Truncate { seq, len: n } => ([seq, seq], n),
            Self::Shift { seq, from, len } => ([seq, seq], from.saturating_add(len)),
            Self::Save { seq, first, n, .. }
            | Self::Load { seq, first, n, .. }
            | Self::Export { seq, first, n, .. }
            | Self::Append { seq, first, n, .. } => ([seq, seq], first.saturating_add(n)),
        };
        for seq in seqs {
            limits.check_seq(seq)?;
        }
        WireError::check_max("positions", n, limits.n_ctx)
    }
}
