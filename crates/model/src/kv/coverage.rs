//! What an exported state holds, read from its header without a cache.
//!
//! States of one text differ in what a sequence has kept of it: a layer with a sliding window frees
//! its first positions, and recurrent layers have some checkpoints. All else is a function of the
//! text. Knows the header of `state.rs` and no data.

use super::state::{FIXED_BYTES, MAGIC, PART_BYTES, STATE_CODE};

/// The positions that a state restores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateCoverage {
    /// First position.
    start: usize,
    /// Number of positions.
    n: usize,
    /// Missing first positions of each part.
    n_missing: Vec<usize>,
    /// Positions of checkpoints; none without recurrent layers.
    checkpoints: Vec<usize>,
}

impl StateCoverage {
    /// Reads the header of a state; `None` if it is no such header or is cut short.
    pub fn parse(state: &[u8]) -> Option<Self> {
        let field = |at: usize| {
            let bytes = state.get(at..)?.first_chunk()?;
            Some(u32::from_le_bytes(*bytes) as usize)
        };
        if !state.starts_with(MAGIC) {
            return None;
        }
        let checkpoints_at = PART_BYTES
            .checked_mul(field(8)?)?
            .checked_add(FIXED_BYTES)?;
        let parts = state.get(FIXED_BYTES..checkpoints_at)?;
        let fields = |part: &[u8], i: usize| part.as_chunks().0.get(i).copied();
        let parts = parts.chunks_exact(PART_BYTES);
        let is_recurrent = parts
            .clone()
            .any(|part| fields(part, 2) == Some(STATE_CODE.to_le_bytes()));
        let n_missing = parts.map(|part| Some(u32::from_le_bytes(fields(part, 4)?) as usize));
        let n_checkpoints = if is_recurrent {
            field(checkpoints_at)?
        } else {
            0
        };
        let first = checkpoints_at + 4;
        let checkpoints = if n_checkpoints > 0 {
            state.get(first..first.checked_add(n_checkpoints.checked_mul(4)?)?)?
        } else {
            &[]
        };
        let checkpoints = checkpoints.as_chunks().0.iter();
        Some(Self {
            start: field(20)?,
            n: field(24)?,
            n_missing: n_missing.collect::<Option<_>>()?,
            checkpoints: checkpoints
                .map(|&pos| u32::from_le_bytes(pos) as usize)
                .collect(),
        })
    }

    /// Positions behind which the state has checkpoints of recurrent layers.
    pub(crate) fn checkpoints(&self) -> &[usize] {
        &self.checkpoints
    }

    /// Whether this state restores all that `other`, a state of the same text, restores of its own
    /// positions: each layer has as many of them, and the last checkpoint is as far.
    pub fn includes(&self, other: &Self) -> bool {
        self.start == other.start
            && self.n >= other.n
            && self.n_missing.len() == other.n_missing.len()
            && self
                .n_missing
                .iter()
                .zip(&other.n_missing)
                .all(|(&own, &others)| own.min(other.n) <= others)
            && self.last_checkpoint(other.n) >= other.last_checkpoint(other.n)
    }

    /// The last checkpoint within the first `n` positions.
    fn last_checkpoint(&self, n: usize) -> Option<usize> {
        let inside = |&&pos: &&usize| pos <= self.start.saturating_add(n);
        self.checkpoints.iter().filter(inside).max().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of a state of an attention layer and a recurrent one.
    fn header(positions: std::ops::Range<u32>, n_missing: u32, checkpoints: &[u32]) -> Vec<u8> {
        let mut fields = vec![2, 0, 0, positions.start, positions.len() as u32];
        fields.extend([1, 8, 1, 1, n_missing]);
        fields.extend([0, 8, STATE_CODE, STATE_CODE, 0]);
        fields.push(checkpoints.len() as u32);
        fields.extend(checkpoints);
        let fields = fields.iter().flat_map(|field| field.to_le_bytes());
        MAGIC.iter().copied().chain(fields).collect()
    }

    #[test]
    fn a_state_includes_those_that_restore_no_more_of_their_positions() {
        let state = |end, n_missing, checkpoints: &[u32]| {
            StateCoverage::parse(&header(128..end, n_missing, checkpoints)).unwrap()
        };
        let whole = state(256, 0, &[200, 256]);
        assert!(whole.includes(&state(256, 0, &[256])), "fewer checkpoints");
        assert!(state(256, 0, &[256]).includes(&whole), "the last is enough");
        assert!(whole.includes(&state(200, 0, &[200])));
        assert!(!whole.includes(&state(220, 0, &[220])), "no checkpoint");
        assert!(!state(256, 0, &[]).includes(&whole));
        assert!(!state(256, 1, &[256]).includes(&whole), "a freed position");
        assert!(whole.includes(&state(256, 1, &[256])));
        assert!(!whole.includes(&state(300, 0, &[256])), "longer");
    }

    #[test]
    fn a_header_that_is_cut_short_has_no_coverage() {
        let bytes = header(0..9, 3, &[4, 9]);
        assert!(StateCoverage::parse(&bytes).is_some());
        for end in 0..bytes.len() {
            assert_eq!(StateCoverage::parse(&bytes[..end]), None, "{end}");
        }
        assert_eq!(StateCoverage::parse(&[0xff; 100]), None);
    }
}
