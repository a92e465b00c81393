//! What carries frames between the coordinator and the stages.
//!
//! A lane keeps the order of frames between two sides, and may lose, delay or damage any. It has
//! the clock of the ring. [`ThreadLane`] runs the stages in threads of this process.

mod sim;
pub mod tcp;
mod udp;

pub use sim::ThreadLane;

use std::time::Instant;

use crate::{
    core::{Event, Time},
    wire::Frame,
};

/// The coordinator's side of all links of a ring.
pub trait Lane: Send {
    /// Time since the lane was opened.
    fn now(&self) -> Time;

    /// Sends a frame to a stage, from 1. A loss is found by the protocol.
    fn send(&mut self, stage: u16, frame: Frame);

    /// Asks a stage to enter an epoch; the answer is an [`Event::Fenced`].
    fn fence(&mut self, stage: u16, epoch: u32);

    /// The next event; `None` if none comes before `until`. Without `until` it waits for one, with
    /// a time that is past it does not wait.
    fn recv(&mut self, until: Option<Time>) -> Option<Event>;
}

/// The lane of a ring without stages: nothing comes.
pub(crate) struct NoStages {
    start: Instant,
}

impl Default for NoStages {
    fn default() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Lane for NoStages {
    fn now(&self) -> Time {
        self.start.elapsed()
    }

    fn send(&mut self, _: u16, _: Frame) {}

    fn fence(&mut self, _: u16, _: u32) {}

    fn recv(&mut self, _: Option<Time>) -> Option<Event> {
        None
    }
}
