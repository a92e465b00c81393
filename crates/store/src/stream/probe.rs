//! Measures how fast the disk reads the chunks of this model, for a moment before the first pass,
//! with the chunks and the slots of the pass.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{
    chunk::Chunk,
    readers::{MAX_READERS, Priority, Readers},
};
use crate::{Error, os::Slot};

/// How long each number of readers is tried.
const TRIAL: Duration = Duration::from_millis(120);
/// How long the best number of readers is measured.
const MEASUREMENT: Duration = Duration::from_millis(600);
/// How often every chunk is read at most: further rounds over a small model measure the same rate.
const ROUNDS: u64 = 4;
/// How much faster more readers have to be to be worth their memory and their noise.
const GAIN: f64 = 1.05;

/// Chooses the number of readers and returns the rate that they reach, bytes per second. It takes a
/// second at most, unless a single chunk takes longer.
///
/// # Errors
/// A file that cannot be read.
pub(crate) fn probe(
    readers: &Readers,
    chunks: &[&Chunk],
    slots: &mut Vec<Slot>,
) -> Result<f64, Error> {
    let n_slots = slots.len();
    let mut cycle = ChunkCycle {
        readers,
        chunks,
        next: 0,
    };
    let mut best = 0.0;
    let mut n_best = 1;
    for n in [1, 2, MAX_READERS].into_iter().filter(|&n| n <= n_slots) {
        readers.set_active(n);
        let rate = cycle.rate(slots, n, TRIAL)?;
        if rate > best * GAIN {
            best = rate;
            n_best = n;
        }
    }
    readers.set_active(n_best);
    cycle.rate(slots, n_slots, MEASUREMENT)
}

/// Chunks in the order of the pass, again and again.
struct ChunkCycle<'a> {
    readers: &'a Readers,
    chunks: &'a [&'a Chunk],
    next: usize,
}

impl ChunkCycle<'_> {
    /// Measures bytes per second with `n` requests in flight.
    fn rate(&mut self, slots: &mut Vec<Slot>, n: usize, time: Duration) -> Result<f64, Error> {
        let start = Instant::now();
        let before = self.readers.n_bytes();
        let enough = ROUNDS * self.chunks.iter().map(|c| c.len as u64).sum::<u64>();
        let mut in_flight = VecDeque::new();
        let mut outcome = Ok(());
        while outcome.is_ok() && start.elapsed() < time && self.readers.n_bytes() - before < enough
        {
            while in_flight.len() < n
                && let Some(slot) = slots.pop()
            {
                let chunk = self.chunks[self.next % self.chunks.len()];
                self.next += 1;
                in_flight.push_back(self.readers.request(&chunk.slices, slot, Priority::Queued));
            }
            let Some(ticket) = in_flight.pop_front() else {
                break;
            };
            let (slot, result) = self.readers.wait(ticket);
            slots.push(slot);
            outcome = result;
        }
        for ticket in in_flight {
            let (slot, result) = self.readers.wait(ticket);
            slots.push(slot);
            outcome = outcome.and(result);
        }
        outcome?;
        Ok((self.readers.n_bytes() - before) as f64 / start.elapsed().as_secs_f64())
    }
}
