//! The protocol of a ring, without input or output: `on(now, event)` gives actions.
//!
//! Knows no socket, thread, clock, random number or model: the same code runs in a node and in the
//! simulator (`tests/simulator`). [`Coordinator`] owns the ring: it numbers batches, counts epochs
//! and repairs. A [`Node`] is one stage. A [`Link`] tells whether the other side is alive.
//!
//! Nothing is believed but acks and results. Whatever goes wrong ends in a fence: a new epoch,
//! which every stage answers with what it has done. A stage that kept its state gets the operations
//! that it lacks, and the rows of all batches without a result are sent again; if one has lost its
//! state, all are emptied and the owner computes every sequence again.

mod coordinator;
mod link;
mod node;

use std::time::Duration;

pub use coordinator::{Action, Coordinator, Counts, Event};
pub use link::Link;
pub use node::{Node, NodeAction, NodeCounts, NodeEvent, Peer};

use crate::wire::{Frame, FrameKind, Header, Limits, Op, Run, Status};

/// Time since the driver began, on its own monotonic clock.
pub type Time = Duration;

/// Frames that an edge between two stages takes before the first is acknowledged.
pub const CREDITS: u32 = 2;

/// Number of the catch-up that begins every epoch.
pub const CATCH_UP: u32 = 1;

/// Operations and rows for one lap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Number of the submission; each is larger than the one before, over all epochs.
    pub serial: u64,
    /// Operations, before the rows.
    pub ops: Vec<Op>,
    /// Rows.
    pub runs: Vec<Run>,
    /// `[n_rows, d_row]`.
    pub data: Vec<u8>,
}

/// The answer of a stage to a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceAnswer {
    /// Epoch of the fence.
    pub epoch: u32,
    /// Epoch and number of the last batch whose operations it applied; `None`: it has no state.
    pub served: Option<(u32, u32)>,
}

/// What a stage made of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is computed.
    Computed {
        /// Rows to pass on.
        runs: Vec<Run>,
        /// `[n_rows, d_row]` of these rows.
        data: Vec<u8>,
        /// [`Status::Ok`] or [`Status::NonFinite`].
        status: Status,
    },
    /// Operations are applied, rows are not computed.
    Failed(Status),
}

/// Times of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A lap of a batch without rows.
    pub lap: Duration,
    /// What a row adds to it.
    pub row: Duration,
    /// Added to three laps for the deadline of a batch.
    pub slack: Duration,
    /// Time for all answers to a fence.
    pub fence: Duration,
    /// Time between pings of a link; `None`: the links report their end themselves.
    pub ping: Option<Duration>,
    /// Time without word of the coordinator after which a stage drops its state.
    pub orphan: Duration,
}

impl Timing {
    /// Pings without an answer after which a link is suspect.
    pub const MAX_MISSED: u32 = 4;

    /// Pings without an answer after which a repair is given up.
    pub const MAX_SILENT: u32 = 12;

    /// Fences without a result in between after which requests end.
    pub const MAX_FENCES: u32 = 3;

    /// Added to the deadline of a batch for each state that stages save or load with it.
    pub const STATE: Duration = Duration::from_secs(5);

    /// The deadline of a batch behind others, `n_rows` in `n` batches with its own.
    pub(crate) fn deadline(&self, n: usize, n_rows: usize) -> Duration {
        let times = |x: Duration, n: usize| x.saturating_mul(u32::try_from(n).unwrap_or(u32::MAX));
        let laps = times(self.lap, n).saturating_add(times(self.row, n_rows));
        laps.saturating_mul(3).saturating_add(self.slack)
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lap: Duration::from_secs(1),
            row: Duration::from_millis(100),
            slack: Duration::from_millis(500),
            fence: Duration::from_secs(2),
            ping: Some(Duration::from_millis(100)),
            orphan: Duration::from_secs(60),
        }
    }
}

impl Limits {
    /// A header of this ring.
    fn header(&self, kind: FrameKind, epoch: u32, batch: u32, stage: u16) -> Header {
        Header {
            ring: self.ring,
            dtype: self.dtype,
            epoch,
            batch,
            stage,
            ..Header::new(kind)
        }
    }

    /// A frame of this ring that is a header alone.
    fn bare(&self, kind: FrameKind, epoch: u32, batch: u32, stage: u16) -> Frame {
        Frame::bare(self.header(kind, epoch, batch, stage))
    }
}

#[cfg(test)]
mod tests;
