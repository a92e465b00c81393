//! How fast the disk gives the pieces of this model: measured for a moment before the first sweep,
//! on the pieces and with the slots that the sweep will use.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{
    cut::Piece,
    disk::{Disk, MAX_READERS, Turn},
};
use crate::{Error, os::Slot};

/// How long each number of readers is tried.
const TRIAL: Duration = Duration::from_millis(120);
/// How long the best of them is measured.
const MEASUREMENT: Duration = Duration::from_millis(600);
/// How often everything is read at most: a model so small is as fast as it will be after that.
const ROUNDS: u64 = 4;
/// How much faster more readers have to be to be worth their memory and their noise.
const GAIN: f64 = 1.05;

/// Chooses the number of readers and returns the rate that they reach, bytes per second. It takes a
/// second at most, unless a single piece takes longer.
///
/// # Errors
/// A file that cannot be read.
pub(crate) fn probe(disk: &Disk, pieces: &[&Piece], slots: &mut Vec<Slot>) -> Result<f64, Error> {
    let mut track = Track {
        disk,
        pieces,
        next: 0,
    };
    let (mut best, mut n_best, n_slots) = (0.0, 1, slots.len());
    for n in [1, 2, MAX_READERS].into_iter().filter(|&n| n <= n_slots) {
        disk.set_active(n);
        let rate = track.rate(slots, n, TRIAL)?;
        if rate > best * GAIN {
            (best, n_best) = (rate, n);
        }
    }
    disk.set_active(n_best);
    track.rate(slots, n_slots, MEASUREMENT)
}

/// Pieces in the order of the sweep, around and around.
struct Track<'a> {
    disk: &'a Disk,
    pieces: &'a [&'a Piece],
    next: usize,
}

impl Track<'_> {
    /// Bytes per second with `n` requests on their way at any time.
    fn rate(&mut self, slots: &mut Vec<Slot>, n: usize, time: Duration) -> Result<f64, Error> {
        let (start, before) = (Instant::now(), self.disk.n_bytes());
        let mut on_their_way = VecDeque::new();
        let enough = ROUNDS
            * self
                .pieces
                .iter()
                .map(|piece| piece.len as u64)
                .sum::<u64>();
        let mut outcome = Ok(());
        while outcome.is_ok() && start.elapsed() < time && self.disk.n_bytes() - before < enough {
            while on_their_way.len() < n
                && let Some(slot) = slots.pop()
            {
                let piece = self.pieces[self.next % self.pieces.len()];
                self.next += 1;
                on_their_way.push_back(self.disk.ask(&piece.cuts, slot, Turn::Next));
            }
            let Some(ticket) = on_their_way.pop_front() else {
                break;
            };
            let (slot, result) = self.disk.wait(ticket);
            slots.push(slot);
            outcome = result;
        }
        for ticket in on_their_way {
            let (slot, result) = self.disk.wait(ticket);
            slots.push(slot);
            outcome = outcome.and(result);
        }
        outcome?;
        Ok((self.disk.n_bytes() - before) as f64 / start.elapsed().as_secs_f64())
    }
}
