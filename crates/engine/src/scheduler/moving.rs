//! Moves of keys: a job that allows it takes the later parts that its text shares with a cached one
//! from there, although other tokens are in front of them.
//!
//! The text between is evaluated as ever; rows stop where a move is due. Whatever prevents a move
//! costs time only: its tokens are evaluated instead.

use atta_model::Error as ModelError;

use super::{
    Batcher, MIN_CACHE_REUSE,
    common_runs::{CommonRun, common_runs},
    job::Running,
    slots::{CachedText, MovePlan, SlotPrefix},
};
use crate::Error;

impl Batcher {
    /// Whether jobs may take keys from other positions ([`Job::with_cache_reuse`](super::Job)).
    ///
    /// # Errors
    /// [`Error::Step`] with the reason if the model or its executor cannot move them.
    pub fn check_cache_reuse(&self) -> Result<(), Error> {
        Ok(self.executor.check_moving()?)
    }

    /// The moves that save the most for a job that starts from this prefix, with `n` tokens of its
    /// text evaluated. Their cached text stays until they are made.
    pub(super) fn plan_moves(
        &self,
        job: &Running,
        from: Option<SlotPrefix>,
        n: usize,
    ) -> Option<MovePlan> {
        let n_min = job.cache_reuse()?.max(MIN_CACHE_REUSE);
        self.executor.check_moving().ok()?;
        let text = job.text.tokens(job.text.len() - 1)?;
        if text.tokens.len() < n + n_min {
            return None;
        }
        let plans = self.slots.cached_texts(text.adapters).map(|cached| {
            let runs = self.movable(text.tokens, &cached, n, n_min);
            let n_moved: usize = runs.iter().map(|run| run.from.len()).sum();
            (n_moved, cached.used, cached.slot, runs)
        });
        let best = plans.max_by_key(|(n_moved, used, ..)| (*n_moved, *used));
        let (_, _, donor, runs) = best.filter(|(n_moved, ..)| *n_moved > 0)?;
        let runs = runs.into();
        self.slots
            .can_spare(donor, from)
            .then_some(MovePlan { donor, runs })
    }

    /// The runs that a text has in common with a cached one and whose keys are there.
    fn movable(
        &self,
        tokens: &[u32],
        cached: &CachedText<'_>,
        n: usize,
        n_min: usize,
    ) -> Vec<CommonRun> {
        let same = tokens.iter().zip(cached.ids).take_while(|(a, b)| a == b);
        let n_cached = same.count().min(n);
        let mut runs = common_runs(tokens, cached.ids, [n, n_cached], n_min);
        let seqs = self.executor.seqs();
        runs.retain(|run| seqs.may_move(cached.seq, &run.from).unwrap_or(false));
        runs
    }

    /// Makes all moves that are due.
    pub(super) fn move_keys(&mut self) {
        while let Some(slot) = self.slots.due_move() {
            let place = self.slots.at(slot);
            let Some((plan, run)) = place.moves_now() else {
                return;
            };
            let donor = self.slots.at(plan.donor).seq;
            let positions = run.from.clone();
            let seq = place.seq;
            match self.executor.append_moved(donor, positions, seq) {
                Ok(()) => self.record_move(slot),
                Err(ModelError::OutOfBlocks) if self.evict([None; 2]) => {}
                Err(_) => self.slots.at_mut(slot).plan_moves(None),
            }
        }
    }

    fn record_move(&mut self, slot: usize) {
        let place = self.slots.at_mut(slot);
        let n = place.moved();
        if let Some(job) = &mut place.job {
            job.moved(n);
        }
        self.counts.n_approximate += n as u64;
    }
}
