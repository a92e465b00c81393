//! Slots: the sequences of the executor, with running jobs or cached prefixes.
//!
//! A cached prefix is a sequence without a job. A new job forks the sequence with the longest
//! common prefix instead of evaluating it again; blocks are reference-counted below, so a common
//! prefix is stored once however many share it.
//!
//! Where a job allows it, keys of a cached text are moved to other positions of its own. The state
//! from there on is approximate: only other such jobs start from it, and it is never saved.

use std::collections::VecDeque;

use atta_model::{AdapterSet, Executor, SeqId};

use super::{
    common_runs::CommonRun,
    job::{JobId, Running},
};
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
    /// Tokens whose state is exact; `usize::MAX`: all.
    n_exact: usize,
    /// Moves of keys that the job still waits for.
    moves: Option<MovePlan>,
    /// Length of a prefix that is kept apart, when the job has evaluated it.
    anchor: Option<usize>,
}

/// Keys that a job takes from a cached text, each run when it has evaluated all in front of it.
pub(super) struct MovePlan {
    /// The slot with the cached text, which stays until all are moved.
    pub(super) donor: usize,
    /// In the order of positions.
    pub(super) runs: VecDeque<CommonRun>,
}

impl Slot {
    /// Whether the job is decoding. A preempted job prefills again first.
    fn is_decoding(&self) -> bool {
        self.job
            .as_ref()
            .is_some_and(|job| job.is_decoding() && job.text.len() - self.n_done <= MAX_PENDING)
    }

    /// Evaluated tokens, if enough of them are unsaved to be worth saving. The prompt cache has no
    /// texts with media, and no approximate states.
    pub(super) fn unsaved(&self) -> Option<TokenText<'_>> {
        let n = self.n_done.min(self.n_exact);
        let is_worth_it = n >= self.n_saved + MIN_NEW;
        self.text().tokens(n).filter(|_| is_worth_it)
    }

    /// Records that all exact tokens are in the prompt cache.
    pub(super) fn saved(&mut self) {
        self.n_saved = self.n_done.min(self.n_exact);
    }

    /// Tokens whose state is exact, and will be when the planned moves are made.
    fn n_exact_at_last(&self) -> usize {
        let first = self.next_run().map_or(usize::MAX, |run| run.to);
        self.n_exact.min(first)
    }

    /// Evaluated tokens whose state is approximate.
    pub(super) fn n_approximate(&self) -> usize {
        self.n_done.saturating_sub(self.n_exact)
    }

    /// The keys to move next.
    pub(super) fn next_run(&self) -> Option<&CommonRun> {
        self.moves.as_ref()?.runs.front()
    }

    /// The planned moves and the next of them.
    pub(super) fn moves_now(&self) -> Option<(&MovePlan, &CommonRun)> {
        self.moves.as_ref().zip(self.next_run())
    }

    /// Sets the moves that the job waits for.
    pub(super) fn plan_moves(&mut self, plan: Option<MovePlan>) {
        self.moves = plan;
        let n_done = self.n_done;
        if let Some(plan) = &mut self.moves {
            plan.runs.retain(|run| run.to >= n_done);
        }
        self.end_moves();
    }

    /// Forgets a plan whose moves are all made, so that its cached text can be evicted.
    fn end_moves(&mut self) {
        self.moves = self.moves.take().filter(|plan| !plan.runs.is_empty());
    }

    /// Records that the next run was moved. Returns its number of tokens.
    pub(super) fn moved(&mut self) -> usize {
        let Some(run) = self.moves.as_mut().and_then(|plan| plan.runs.pop_front()) else {
            return 0;
        };
        self.n_exact = self.n_exact.min(run.to);
        self.n_done += run.from.len();
        self.n_submitted = self.n_done;
        self.anchor = self.anchor.filter(|&n| n >= self.n_done);
        self.end_moves();
        run.from.len()
    }

    /// Sets the length of a prefix that is to be kept apart, if the job has not passed it.
    pub(super) fn set_anchor(&mut self, anchor: Option<usize>) {
        self.anchor = anchor.filter(|&n| n >= self.n_done);
    }

    /// Takes the length of the prefix to keep apart, if it is exactly the evaluated one.
    fn take_anchor(&mut self) -> bool {
        let is_due = self.anchor == Some(self.n_done) && !self.is_in_flight();
        if is_due {
            self.anchor = None;
        }
        is_due
    }

    /// Position at which rows stop: the end of the text, keys to move, or a prefix to keep apart.
    fn end_of_rows(&self) -> usize {
        let to = self.next_run().map_or(usize::MAX, |run| run.to);
        let anchor = self.anchor.unwrap_or(usize::MAX);
        self.text().len().min(to).min(anchor)
    }

    /// Records that `n` tokens were restored from the prompt cache.
    pub(super) fn restored(&mut self, n: usize) {
        (self.n_done, self.n_submitted, self.n_saved) = (n, n, n);
        self.n_exact = usize::MAX;
    }

    /// Records that the sequence was truncated to `n` tokens.
    pub(super) fn truncated(&mut self, n: usize) {
        (self.n_done, self.n_submitted, self.n_saved) = (n, n, self.n_saved.min(n));
        if n <= self.n_exact {
            self.n_exact = usize::MAX;
        }
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
        self.end_of_rows().saturating_sub(self.n_submitted)
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

/// A cached text from which keys may be moved.
pub(super) struct CachedText<'a> {
    pub(super) slot: usize,
    pub(super) seq: SeqId,
    /// Evaluated tokens.
    pub(super) ids: &'a [u32],
    /// Time of last use; larger is later.
    pub(super) used: u64,
}

/// Slots that are not evicted: of the prefix that a job starts from, and of keys that it takes.
pub(super) type Spared = [Option<usize>; 2];

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

    /// Finds the longest prefix that a sequence has in common with the text of a job, and of equal
    /// ones the most exact and the newest. The last token is never part of it, since its logits are
    /// needed.
    pub(super) fn match_prefix(&self, job: &Running, executor: &dyn Executor) -> PrefixMatch {
        let text = &job.text;
        let same = |slot: &Slot| {
            let n = text.n_common(slot.text()).min(text.len() - 1);
            match job.takes_approximate() {
                true => n,
                false => n.min(slot.n_exact_at_last()),
            }
        };
        // A sliding window may have freed positions that the prefix needs, and recurrent layers
        // have their state at checkpoints only.
        let kept = |slot: &Slot| {
            let n = same(slot).min(slot.n_done);
            executor.seqs().keeps(slot.seq, n).unwrap_or(0)
        };
        let prefixes = self.taken().map(|(i, slot)| {
            let n = kept(slot);
            (n, n.min(slot.n_exact), slot.used, i)
        });
        let best = prefixes.max().filter(|(n, ..)| *n > 0);
        let best = best.map(|(n, _, _, slot)| SlotPrefix { slot, n });
        // `best` counts the slots that have passed the common prefix, as far as they truncate.
        let prefilling = self.taken().filter(|(_, slot)| {
            slot.job.is_some() && !slot.is_decoding() && slot.n_done < same(slot)
        });
        let coming = prefilling.map(|(_, slot)| same(slot)).max().unwrap_or(0);
        match coming >= best.map_or(0, |source| source.n) + WORTH_WAITING {
            true => PrefixMatch::Later,
            false => PrefixMatch::Now(best),
        }
    }

    /// Puts a job into a slot that was made ready with the same prefix and donor of keys. Returns
    /// its index.
    pub(super) fn acquire(
        &mut self,
        job: Running,
        from: Option<SlotPrefix>,
        donor: Option<usize>,
        executor: &mut dyn Executor,
    ) -> usize {
        let n_saved = from.map_or(0, |source| self.at(source.slot).n_saved);
        let n_exact = from.map_or(usize::MAX, |source| self.at(source.slot).n_exact);
        let (place, seq) = match from {
            Some(source) if self.may_reuse(source, donor) => {
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
            n_exact: if n_done <= n_exact {
                usize::MAX
            } else {
                n_exact
            },
            moves: None,
            anchor: None,
        });
        place
    }

    /// Whether a cached prefix may be continued in place: it is used whole, or there is no other
    /// slot but that of a text which must stay, `donor`; and no job waits for its keys.
    pub(super) fn may_reuse(&self, source: SlotPrefix, donor: Option<usize>) -> bool {
        let slot = self.at(source.slot);
        let is_only =
            || !self.has_free_slot() && self.oldest_cached([Some(source.slot), donor]).is_none();
        let must_stay = donor == Some(source.slot) || self.is_donor(source.slot);
        slot.job.is_none() && !must_stay && (source.n == slot.n_done || is_only())
    }

    /// Whether a job takes keys from this slot.
    fn is_donor(&self, slot: usize) -> bool {
        let mut plans = self.taken().filter_map(|(_, slot)| slot.moves.as_ref());
        plans.any(|plan| plan.donor == slot)
    }

    /// Whether a job that starts from this prefix can have a slot while another one stays, from
    /// which it takes keys.
    pub(super) fn can_spare(&self, donor: usize, from: Option<SlotPrefix>) -> bool {
        let spared = [Some(donor), from.map(|from| from.slot)];
        let continues = |from: SlotPrefix| self.may_reuse(from, Some(donor));
        self.has_free_slot() || self.oldest_cached(spared).is_some() || from.is_some_and(continues)
    }

    /// The slot of a job whose next keys are to be moved now.
    pub(super) fn due_move(&self) -> Option<usize> {
        let is_due = |slot: &Slot| {
            let run = slot.next_run().filter(|run| run.to == slot.n_done);
            run.is_some() && !slot.is_in_flight()
        };
        let mut due = self.taken().filter(|(_, slot)| is_due(slot));
        due.next().map(|(i, _)| i)
    }

    /// Gives up all planned moves, so that their slots can be evicted; `false` if there are none.
    pub(super) fn abandon_moves(&mut self) -> bool {
        let plans = self.slots.iter_mut().flatten();
        plans.filter_map(|slot| slot.moves.take()).count() > 0
    }

    /// Cached texts without media that were computed with these adapters, with their evaluated
    /// tokens.
    pub(super) fn cached_texts(
        &self,
        adapters: AdapterSet,
    ) -> impl Iterator<Item = CachedText<'_>> {
        let cached = self.taken().filter(|(_, slot)| slot.job.is_none());
        cached.filter_map(move |(i, slot)| {
            let text = slot.kept.tokens(slot.n_done.min(slot.kept.len()))?;
            (text.adapters == adapters).then_some(CachedText {
                slot: i,
                seq: slot.seq,
                ids: text.tokens,
                used: slot.used,
            })
        })
    }

    /// The slot of a job that has just evaluated a prefix which is to be kept apart.
    pub(super) fn take_due_anchor(&mut self) -> Option<usize> {
        let mut slots = self.slots.iter_mut().enumerate();
        slots.find_map(|(i, slot)| slot.as_mut()?.take_anchor().then_some(i))
    }

    /// Keeps the evaluated prefix of a job as a cached one in a free slot.
    pub(super) fn keep_anchor(&mut self, slot: usize, executor: &mut dyn Executor) {
        let Some(free) = self.free_slot() else { return };
        let used = self.tick();
        let of = self.at(slot);
        let Ok(seq) = executor.fork(of.seq) else {
            return;
        };
        let mut kept = of.text().clone();
        kept.truncate(of.n_done);
        self.slots[free] = Some(Slot {
            seq,
            job: None,
            kept,
            n_done: of.n_done,
            n_submitted: of.n_done,
            n_flights: 0,
            used,
            n_saved: of.n_saved,
            n_exact: of.n_exact,
            moves: None,
            anchor: None,
        });
    }

    /// Whether a cached sequence can be truncated to the first `n` tokens of a text.
    pub(super) fn has_cached(&self, text: &Text, n: usize, executor: &dyn Executor) -> bool {
        let cached = self.taken().filter(|(_, slot)| slot.job.is_none());
        cached
            .filter(|(_, slot)| slot.n_done >= n)
            .any(|(_, slot)| {
                let is_same = slot.n_exact >= n && text.n_common(&slot.kept) >= n;
                is_same && executor.seqs().keeps(slot.seq, n).ok() == Some(n)
            })
    }

    /// Whether a slot is free or can be.
    pub(super) fn has_evictable(&self) -> bool {
        self.has_free_slot() || self.evictable().next().is_some()
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
            (slot.moves, slot.anchor) = (None, None);
            self.n_running -= 1;
        }
    }

    /// Removes the jobs of all slots, as [`retire`](Self::retire) does.
    pub(super) fn retire_all(&mut self) {
        let taken: Vec<usize> = self.taken().map(|(slot, _)| slot).collect();
        taken.into_iter().for_each(|slot| self.retire(slot));
    }

    /// The least recently used cached prefix that may be evicted, except the spared slots.
    pub(super) fn oldest_cached(&self, spared: Spared) -> Option<usize> {
        let cached = self
            .evictable()
            .filter(|(i, _)| !spared.contains(&Some(*i)));
        cached.min_by_key(|(_, slot)| slot.used).map(|(i, _)| i)
    }

    /// Cached prefixes that no job takes keys from.
    fn evictable(&self) -> impl Iterator<Item = (usize, &Slot)> {
        self.taken()
            .filter(|&(i, slot)| slot.job.is_none() && !slot.is_in_flight() && !self.is_donor(i))
    }

    /// Slots of cached prefixes that may be evicted.
    pub(super) fn evictable_slots(&self) -> impl Iterator<Item = usize> {
        self.evictable().map(|(i, _)| i)
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
