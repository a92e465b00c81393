//! Slots: the sequences of the executor, with running jobs or cached prefixes.
//!
//! A cached prefix is a sequence without a job. A new job forks the sequence with the longest
//! common prefix instead of evaluating it again; blocks are reference-counted below, so a common
//! prefix is stored once however many share it.

use atta_model::{Executor, SeqId};

use super::job::{JobId, Running};
use crate::{
    prompt_cache::MIN_NEW,
    text::{Text, TokenText},
};

/// A job waits for a prompt that is being prefilled if that saves at least this many tokens.
const WORTH_WAITING: usize = 8;

/// A job with more pending tokens than a grammar forces at once counts as prefilling.
const MAX_PENDING: usize = 32;

/// A sequence with a running job or a cached prefix.
pub(super) struct Slot {
    pub(super) seq: SeqId,
    pub(super) job: Option<Running>,
    /// Evaluated tokens, once the job has ended.
    kept: Text,
    /// Tokens of the text that are evaluated.
    pub(super) n_done: usize,
    /// Tokens of the text that are evaluated or in flight.
    n_submitted: usize,
    /// Batches in flight that have rows of it.
    n_flights: usize,
    /// Time of last use; larger is later.
    used: u64,
    /// Tokens that are also in the prompt cache.
    n_saved: usize,
}

impl Slot {
    /// Whether the job is decoding. A preempted job prefills again first.
    fn is_decoding(&self) -> bool {
        self.job
            .as_ref()
            .is_some_and(|job| job.is_decoding() && job.text.len() - self.n_done <= MAX_PENDING)
    }

    /// Evaluated tokens, if enough of them are unsaved to be worth saving. The prompt cache has no
    /// texts with media.
    pub(super) fn unsaved(&self) -> Option<TokenText<'_>> {
        let is_worth_it = self.n_done >= self.n_saved + MIN_NEW;
        self.text().tokens(self.n_done).filter(|_| is_worth_it)
    }

    /// Records that all evaluated tokens are in the prompt cache.
    pub(super) fn saved(&mut self) {
        self.n_saved = self.n_done;
    }

    /// Records that `n` tokens were restored from the prompt cache.
    pub(super) fn restored(&mut self, n: usize) {
        (self.n_done, self.n_submitted, self.n_saved) = (n, n, n);
    }

    /// Records that the sequence was truncated to `n` tokens.
    pub(super) fn truncated(&mut self, n: usize) {
        (self.n_done, self.n_submitted, self.n_saved) = (n, n, self.n_saved.min(n));
    }

    /// Tokens that are evaluated or in flight.
    pub(super) fn n_submitted(&self) -> usize {
        self.n_submitted
    }

    /// Records that the next `n` tokens were submitted.
    pub(super) fn submitted(&mut self, n: usize) {
        (self.n_submitted, self.n_flights) = (self.n_submitted + n, self.n_flights + 1);
    }

    /// Records that a batch with rows of it was collected.
    pub(super) fn collected(&mut self) {
        self.n_flights -= 1;
    }

    /// Records that all rows in flight were dropped unevaluated.
    pub(super) fn drop_in_flight(&mut self) {
        (self.n_submitted, self.n_flights) = (self.n_done, 0);
    }

    /// Whether it has rows in flight, so that its sequence cannot be changed.
    pub(super) fn is_in_flight(&self) -> bool {
        self.n_flights > 0
    }

    /// Number of positions to submit.
    pub(super) fn n_rest(&self) -> usize {
        self.text().len().saturating_sub(self.n_submitted)
    }

    /// The text of the job, or of the cached prefix.
    pub(super) fn text(&self) -> &Text {
        self.job.as_ref().map_or(&self.kept, |job| &job.text)
    }
}

/// The result of a prefix search.
pub(super) enum PrefixMatch {
    /// Start now, from a cached prefix or from nothing.
    Now(Option<SlotPrefix>),
    /// Wait: a prompt with a longer common prefix is being prefilled.
    Later,
}

/// The first `n` tokens of a slot.
#[derive(Clone, Copy)]
pub(super) struct SlotPrefix {
    pub(super) slot: usize,
    pub(super) n: usize,
}

pub(super) struct SlotTable {
    /// `None`: free.
    slots: Vec<Option<Slot>>,
    n_jobs: usize,
    n_running: usize,
    clock: u64,
}

impl SlotTable {
    /// Creates free slots.
    pub(super) fn new(n_jobs: usize, n_seqs: usize) -> Self {
        Self {
            slots: (0..n_seqs).map(|_| None).collect(),
            n_jobs,
            n_running: 0,
            clock: 0,
        }
    }

    pub(super) fn at(&self, slot: usize) -> &Slot {
        self.slots[slot]
            .as_ref()
            .expect("a slot that was just used")
    }

    pub(super) fn at_mut(&mut self, slot: usize) -> &mut Slot {
        self.slots[slot]
            .as_mut()
            .expect("a slot that was just used")
    }

    pub(super) fn n_running(&self) -> usize {
        self.n_running
    }

    pub(super) fn may_admit(&self) -> bool {
        self.n_running < self.n_jobs
    }

    pub(super) fn find(&self, id: JobId) -> Option<usize> {
        self.taken()
            .find(|(_, slot)| slot.job.as_ref().is_some_and(|job| job.id == id))
            .map(|(i, _)| i)
    }

    fn taken(&self) -> impl Iterator<Item = (usize, &Slot)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(i, slot)| Some((i, slot.as_ref()?)))
    }

    /// Slots of decoding jobs, longest-waiting first, and of prefilling jobs, in queue order.
    pub(super) fn by_phase(&self) -> (Vec<usize>, Vec<usize>) {
        let jobs = self
            .taken()
            .filter_map(|(i, slot)| Some((i, slot, slot.job.as_ref()?)));
        let (mut decoding, mut prefilling): (Vec<_>, Vec<_>) =
            jobs.partition(|(_, slot, _)| slot.is_decoding());
        decoding.sort_by_key(|(_, slot, _)| slot.used);
        prefilling.sort_by_key(|(_, _, job)| job.order());
        let slots =
            |list: Vec<(usize, &Slot, &Running)>| list.into_iter().map(|(i, _, _)| i).collect();
        (slots(decoding), slots(prefilling))
    }

    /// Finds the longest prefix that a sequence has in common with a text. The last token is never
    /// part of it, since its logits are needed.
    pub(super) fn match_prefix(&self, text: &Text, executor: &dyn Executor) -> PrefixMatch {
        let same = |other: &Text| text.n_common(other).min(text.len() - 1);
        // A sliding window may have freed positions that the prefix needs, and recurrent layers have
        // their state at checkpoints only.
        let kept = |slot: &Slot| {
            executor
                .seqs()
                .keeps(slot.seq, same(slot.text()).min(slot.n_done))
                .unwrap_or(0)
        };
        let best = self.taken().map(|(i, slot)| SlotPrefix {
            slot: i,
            n: kept(slot),
        });
        let best = best
            .max_by_key(|source| source.n)
            .filter(|source| source.n > 0);
        // `best` counts the slots that have passed the common prefix, as far as they truncate.
        let prefilling = self.taken().filter(|(_, slot)| {
            slot.job.is_some() && !slot.is_decoding() && slot.n_done < same(slot.text())
        });
        let coming = prefilling
            .map(|(_, slot)| same(slot.text()))
            .max()
            .unwrap_or(0);
        match coming >= best.map_or(0, |source| source.n) + WORTH_WAITING {
            true => PrefixMatch::Later,
            false => PrefixMatch::Now(best),
        }
    }

    /// Puts a job into a prepared slot and returns its index.
    pub(super) fn acquire(
        &mut self,
        job: Running,
        from: Option<SlotPrefix>,
        executor: &mut dyn Executor,
    ) -> usize {
        let n_saved = from.map_or(0, |source| self.at(source.slot).n_saved);
        let (place, seq) = match from {
            Some(source) if self.may_reuse(source) => {
                let slot = self.slots[source.slot].take().expect("it was found there");
                (source.slot, slot.seq)
            }
            _ => {
                let place = self.free_slot().expect("a place was made ready");
                let seq = match from {
                    Some(source) => executor.fork(self.at(source.slot).seq),
                    None => executor.new_seq(),
                };
                (place, seq.expect("a slot stands for a free sequence"))
            }
        };
        let n_done = executor
            .truncate(seq, from.map_or(0, |source| source.n))
            .expect("the sequence is there");
        self.n_running += 1;
        let used = self.tick();
        self.slots[place] = Some(Slot {
            seq,
            job: Some(job),
            kept: Text::default(),
            n_done,
            n_submitted: n_done,
            n_flights: 0,
            used,
            n_saved: n_saved.min(n_done),
        });
        place
    }

    /// Whether a cached prefix may be continued in place: it is used whole, or there is no other
    /// slot.
    pub(super) fn may_reuse(&self, source: SlotPrefix) -> bool {
        let slot = self.at(source.slot);
        let is_only = || {
            !self.has_free_slot()
                && !self
                    .taken()
                    .any(|(i, s)| s.job.is_none() && i != source.slot)
        };
        slot.job.is_none() && (source.n == slot.n_done || is_only())
    }

    /// Whether a slot is free.
    pub(super) fn has_free_slot(&self) -> bool {
        self.free_slot().is_some()
    }

    fn free_slot(&self) -> Option<usize> {
        self.slots.iter().position(Option::is_none)
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Records a use of a slot.
    pub(super) fn touch(&mut self, slot: usize) {
        let now = self.tick();
        self.at_mut(slot).used = now;
    }

    /// Removes the job of a slot and keeps its evaluated tokens as a cached prefix. Those of
    /// embedding requests are evicted first and never saved, since they are rarely seen again.
    pub(super) fn retire(&mut self, slot: usize) {
        let now = self.tick();
        let slot = self.at_mut(slot);
        if let Some(job) = slot.job.take() {
            slot.used = now;
            if job.is_embedding() {
                (slot.used, slot.n_saved) = (0, slot.n_done);
            }
            slot.kept = job.text;
            slot.kept.truncate(slot.n_done);
            self.n_running -= 1;
        }
    }

    /// Removes the jobs of all slots, as [`retire`](Self::retire) does.
    pub(super) fn retire_all(&mut self) {
        let taken: Vec<usize> = self.taken().map(|(slot, _)| slot).collect();
        taken.into_iter().for_each(|slot| self.retire(slot));
    }

    /// The least recently used cached prefix except slot `but`.
    pub(super) fn oldest_cached(&self, but: Option<usize>) -> Option<usize> {
        let kept = self
            .taken()
            .filter(|&(i, slot)| slot.job.is_none() && !slot.is_in_flight() && Some(i) != but);
        kept.min_by_key(|(_, slot)| slot.used).map(|(i, _)| i)
    }

    /// Whether a finished job still has rows in flight.
    pub(super) fn has_retiring(&self) -> bool {
        self.taken()
            .any(|(_, slot)| slot.job.is_none() && slot.is_in_flight())
    }

    /// Records that all batches in flight were dropped unevaluated.
    pub(super) fn drop_all_in_flight(&mut self) {
        self.slots
            .iter_mut()
            .flatten()
            .for_each(Slot::drop_in_flight);
    }

    /// All cached sequences without rows in flight.
    pub(super) fn kept(&self) -> Vec<usize> {
        self.taken()
            .filter(|(_, slot)| slot.job.is_none() && !slot.is_in_flight())
            .map(|(i, _)| i)
            .collect()
    }

    /// Preempts the running job that comes last in queue order, unless it is the only one.
    pub(super) fn preempt(&mut self, executor: &mut dyn Executor) -> Option<Running> {
        if self.n_running < 2 {
            return None;
        }
        let jobs = self
            .taken()
            .filter_map(|(i, slot)| Some((i, slot.job.as_ref()?.order())));
        let (last, _) = jobs.max_by_key(|&(_, order)| order)?;
        self.n_running -= 1;
        self.release(last, executor)
    }

    /// Frees a slot and drops its sequence.
    pub(super) fn release(&mut self, slot: usize, executor: &mut dyn Executor) -> Option<Running> {
        let slot = self.slots[slot].take()?;
        executor.drop_seq(slot.seq).expect("a slot has a sequence");
        slot.job
    }
}
