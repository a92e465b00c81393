//! Runs of rows: consecutive positions of one sequence.

use super::{WireError, frame::Limits, u16_at, u32_at};

/// Bytes of a run.
pub const RUN_BYTES: usize = 16;

const IS_WANTED: u8 = 1;
const IS_CHECKPOINT: u8 = 2;
const IS_AUDITED: u8 = 4;

/// Consecutive positions of a sequence that want the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The sequence.
    pub seq: u32,
    /// Branch of a speculation; 0 without one.
    pub branch: u16,
    /// Rows, at least one.
    pub n: u16,
    /// First position.
    pub pos: u32,
    /// Whether the last stage returns the rows.
    pub is_wanted: bool,
    /// Whether the recurrent state behind the last row is kept.
    pub is_checkpoint: bool,
    /// Whether each stage tells the digest of the rows as they came.
    pub is_audited: bool,
}

impl Run {
    /// Writes it.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let wanted = if self.is_wanted { IS_WANTED } else { 0 };
        let checkpoint = if self.is_checkpoint { IS_CHECKPOINT } else { 0 };
        let audited = if self.is_audited { IS_AUDITED } else { 0 };
        out.extend(self.seq.to_le_bytes());
        out.extend([self.branch, self.n].into_iter().flat_map(u16::to_le_bytes));
        out.extend(self.pos.to_le_bytes());
        out.extend([wanted | checkpoint | audited, 0, 0, 0]);
    }

    /// Reads [`RUN_BYTES`] bytes.
    pub(super) fn parse(bytes: &[u8], limits: &Limits) -> Result<Self, WireError> {
        let run = Self {
            seq: u32_at(bytes, 0),
            branch: u16_at(bytes, 4),
            n: u16_at(bytes, 6),
            pos: u32_at(bytes, 8),
            is_wanted: bytes[12] & IS_WANTED != 0,
            is_checkpoint: bytes[12] & IS_CHECKPOINT != 0,
            is_audited: bytes[12] & IS_AUDITED != 0,
        };
        let want = bytes[12] & !(IS_WANTED | IS_CHECKPOINT | IS_AUDITED);
        WireError::check_zero("an unknown wish of a run", want)?;
        let spare = bytes[13..RUN_BYTES].iter().copied().max().unwrap_or(0);
        WireError::check_zero("an unused field of a run", spare)?;
        limits.check_seq(run.seq)?;
        if run.n == 0 {
            return Err(WireError::field("rows of a run", 0_u8, "at least 1"));
        }
        let end = u64::from(run.pos) + u64::from(run.n);
        WireError::check_max("positions", end, limits.n_ctx)?;
        Ok(run)
    }
}
