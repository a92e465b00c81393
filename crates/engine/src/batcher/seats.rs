//! Who has which sequence: jobs under way, and texts that are kept because another may begin the same way.
//!
//! Knows neither rows nor logits. The one idea: a kept text is a sequence without a job. What a new text has in common with
//! any sequence is forked, not computed; blocks are counted below, so the same beginning is there once however many share
//! it.

use atta_model::{Executor, SeqId};

use super::job::{JobId, Running};
use crate::prompt_cache::MIN_NEW;

/// Waiting for a prompt that is being read is worth it for so many tokens more, at least. It takes no longer than until these
/// tokens are read.
const WORTH_WAITING: usize = 8;

/// Tokens that a grammar may have follow another, so that all of them are pending at once; with more, a job reads.
const MAX_PENDING: usize = 32;

/// A sequence, and perhaps a job.
pub(super) struct Seat {
    pub(super) seq: SeqId,
    pub(super) job: Option<Running>,
    /// What is evaluated, once the job has left.
    kept: Vec<u32>,
    /// Tokens of the text that are evaluated.
    pub(super) n_done: usize,
    /// Tokens of the text that are evaluated or in flight.
    n_sent: usize,
    /// Batches in flight that have rows of it.
    n_flights: usize,
    /// When it was used last; larger is later.
    used: u64,
    /// Tokens that are on disk, too.
    n_saved: usize,
}

impl Seat {
    /// Whether a job goes on writing with its next rows; one that has lost its place has to be read again first.
    fn is_writing(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.is_writing() && job.text.len() - self.n_done <= MAX_PENDING)
    }

    /// What is evaluated, if so much of it is not on disk that it is worth saving.
    pub(super) fn unsaved(&self) -> Option<&[u32]> {
        (self.n_done >= self.n_saved + MIN_NEW).then(|| &self.text()[..self.n_done])
    }

    /// Notes that all that is evaluated is on disk.
    pub(super) fn saved(&mut self) {
        self.n_saved = self.n_done;
    }

    /// Notes that its sequence holds so many tokens of the text now, which came from the disk.
    pub(super) fn restored(&mut self, n: usize) {
        (self.n_done, self.n_sent, self.n_saved) = (n, n, n);
    }

    /// Notes that its sequence was cut behind so many tokens.
    pub(super) fn truncated(&mut self, n: usize) {
        (self.n_done, self.n_sent, self.n_saved) = (n, n, self.n_saved.min(n));
    }

    /// Tokens that are evaluated or in flight.
    pub(super) fn n_sent(&self) -> usize {
        self.n_sent
    }

    /// Records that the next `n` tokens were submitted.
    pub(super) fn sent(&mut self, n: usize) {
        (self.n_sent, self.n_flights) = (self.n_sent + n, self.n_flights + 1);
    }

    /// Records that a batch with rows of it was collected.
    pub(super) fn back(&mut self) {
        self.n_flights -= 1;
    }

    /// Records that all rows in flight were dropped unevaluated.
    pub(super) fn lost(&mut self) {
        (self.n_sent, self.n_flights) = (self.n_done, 0);
    }

    /// Whether it has rows in flight, so that its sequence cannot be changed.
    pub(super) fn is_away(&self) -> bool {
        self.n_flights > 0
    }

    /// What is to be evaluated.
    pub(super) fn rest(&self) -> &[u32] {
        self.text().get(self.n_sent..).unwrap_or_default()
    }

    /// What is, or is going to be, evaluated.
    pub(super) fn text(&self) -> &[u32] {
        self.job.as_ref().map_or(&self.kept, |job| &job.text)
    }
}

/// Where a text may begin.
pub(super) enum Beginning {
    /// Behind the first tokens of a sequence, or as a new one.
    Now(Option<Source>),
    /// A prompt that begins the same way is being read.
    Later,
}

/// So many tokens of the sequence in that seat.
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub(super) seat: usize,
    pub(super) n: usize,
}

pub(super) struct Seats {
    /// Empty ones are free sequences of the executor.
    seats: Vec<Option<Seat>>,
    n_jobs: usize,
    n_running: usize,
    clock: u64,
}

impl Seats {
    /// For so many jobs, and so many sequences in all.
    pub(super) fn new(n_jobs: usize, n_seqs: usize) -> Self {
        Self { seats: (0..n_seqs).map(|_| None).collect(), n_jobs, n_running: 0, clock: 0 }
    }

    pub(super) fn at(&self, seat: usize) -> &Seat {
        self.seats[seat].as_ref().expect("a seat that was just used")
    }

    pub(super) fn at_mut(&mut self, seat: usize) -> &mut Seat {
        self.seats[seat].as_mut().expect("a seat that was just used")
    }

    pub(super) fn n_running(&self) -> usize {
        self.n_running
    }

    pub(super) fn has_place(&self) -> bool {
        self.n_running < self.n_jobs
    }

    pub(super) fn find(&self, id: JobId) -> Option<usize> {
        self.taken().find(|(_, seat)| seat.job.as_ref().is_some_and(|job| job.id == id)).map(|(i, _)| i)
    }

    fn taken(&self) -> impl Iterator<Item = (usize, &Seat)> {
        self.seats.iter().enumerate().filter_map(|(i, seat)| Some((i, seat.as_ref()?)))
    }

    /// Seats of jobs that write, the one whose last row is longest ago first, and of those that are read, in the order of the
    /// queue.
    pub(super) fn in_turn(&self) -> (Vec<usize>, Vec<usize>) {
        let jobs = self.taken().filter_map(|(i, seat)| Some((i, seat, seat.job.as_ref()?)));
        let (mut writing, mut reading): (Vec<_>, Vec<_>) = jobs.partition(|(_, seat, _)| seat.is_writing());
        writing.sort_by_key(|(_, seat, _)| seat.used);
        reading.sort_by_key(|(_, _, job)| job.order());
        let seats = |list: Vec<(usize, &Seat, &Running)>| list.into_iter().map(|(i, _, _)| i).collect();
        (seats(writing), seats(reading))
    }

    /// Where a text may begin: the longest common beginning with any sequence, without the last token, whose logits are
    /// wanted.
    pub(super) fn beginning(&self, text: &[u32], executor: &dyn Executor) -> Beginning {
        let text = &text[..text.len() - 1];
        let same = |other: &[u32]| text.iter().zip(other).take_while(|(a, b)| a == b).count();
        // A layer with a window may have let go of what would be needed.
        let kept = |seat: &Seat| executor.seqs().keeps(seat.seq, same(&seat.text()[..seat.n_done])).unwrap_or(0);
        let best = self.taken().map(|(i, seat)| Source { seat: i, n: kept(seat) });
        let best = best.max_by_key(|source| source.n).filter(|source| source.n > 0);
        let reading = self.taken().filter(|(_, seat)| seat.job.is_some() && !seat.is_writing());
        let coming = reading.map(|(_, seat)| same(seat.text())).max().unwrap_or(0);
        match coming >= best.map_or(0, |source| source.n) + WORTH_WAITING {
            true => Beginning::Later,
            false => Beginning::Now(best),
        }
    }

    /// Gives a job the sequence of a place that is ready for it; which seat that is.
    pub(super) fn sit(&mut self, job: Running, from: Option<Source>, executor: &mut dyn Executor) -> usize {
        let n_saved = from.map_or(0, |source| self.at(source.seat).n_saved);
        let (place, seq) = match from {
            Some(source) if self.may_take_over(source) => {
                let seat = self.seats[source.seat].take().expect("it was found there");
                (source.seat, seat.seq)
            }
            _ => {
                let place = self.free_seat().expect("a place was made ready");
                let seq = match from {
                    Some(source) => executor.fork(self.at(source.seat).seq),
                    None => executor.new_seq(),
                };
                (place, seq.expect("a seat stands for a free sequence"))
            }
        };
        let n_done = executor.truncate(seq, from.map_or(0, |source| source.n)).expect("the sequence is there");
        self.n_running += 1;
        let (used, n_saved) = (self.tick(), n_saved.min(n_done));
        self.seats[place] =
            Some(Seat { seq, job: Some(job), kept: Vec::new(), n_done, n_sent: n_done, n_flights: 0, used, n_saved });
        place
    }

    /// Whether a kept sequence may be gone on with itself: it ends where the text goes on, or there is no other place.
    pub(super) fn may_take_over(&self, source: Source) -> bool {
        let seat = self.at(source.seat);
        let is_only = || !self.has_free_seat() && !self.taken().any(|(i, s)| s.job.is_none() && i != source.seat);
        seat.job.is_none() && (source.n == seat.n_done || is_only())
    }

    /// Whether there is a sequence that nobody has.
    pub(super) fn has_free_seat(&self) -> bool {
        self.free_seat().is_some()
    }

    fn free_seat(&self) -> Option<usize> {
        self.seats.iter().position(Option::is_none)
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Notes that a job had rows in a step.
    pub(super) fn touch(&mut self, seat: usize) {
        let now = self.tick();
        self.at_mut(seat).used = now;
    }

    /// Ends a job; what was evaluated of it is kept. That of a text that was only to be read goes before all others, and is not
    /// worth a place on disk: most of them are never seen again.
    pub(super) fn leave(&mut self, seat: usize) {
        let now = self.tick();
        let seat = self.at_mut(seat);
        if let Some(job) = seat.job.take() {
            seat.used = now;
            if job.is_only_read() {
                (seat.used, seat.n_saved) = (0, seat.n_done);
            }
            seat.kept = job.text;
            seat.kept.truncate(seat.n_done);
            self.n_running -= 1;
        }
    }

    /// The kept sequence that was used longest ago, but not that in seat `but`.
    pub(super) fn oldest_kept(&self, but: Option<usize>) -> Option<usize> {
        let kept = self.taken().filter(|&(i, seat)| seat.job.is_none() && !seat.is_away() && Some(i) != but);
        kept.min_by_key(|(_, seat)| seat.used).map(|(i, _)| i)
    }

    /// Whether a finished job still has rows in flight.
    pub(super) fn has_leaving(&self) -> bool {
        self.taken().any(|(_, seat)| seat.job.is_none() && seat.is_away())
    }

    /// Records that all batches in flight were dropped unevaluated.
    pub(super) fn lost_all(&mut self) {
        self.seats.iter_mut().flatten().for_each(Seat::lost);
    }

    /// All cached sequences without rows in flight.
    pub(super) fn kept(&self) -> Vec<usize> {
        self.taken().filter(|(_, seat)| seat.job.is_none() && !seat.is_away()).map(|(i, _)| i).collect()
    }

    /// Takes the place of the job that is last in the order of the queue, unless it is the only one.
    pub(super) fn preempt(&mut self, executor: &mut dyn Executor) -> Option<Running> {
        if self.n_running < 2 {
            return None;
        }
        let jobs = self.taken().filter_map(|(i, seat)| Some((i, seat.job.as_ref()?.order())));
        let (last, _) = jobs.max_by_key(|&(_, order)| order)?;
        self.n_running -= 1;
        self.vacate(last, executor)
    }

    /// Gives up a sequence.
    pub(super) fn vacate(&mut self, seat: usize, executor: &mut dyn Executor) -> Option<Running> {
        let seat = self.seats[seat].take()?;
        executor.drop_seq(seat.seq).expect("a seat has a sequence");
        seat.job
    }
}
