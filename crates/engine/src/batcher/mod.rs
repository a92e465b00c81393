//! Many texts at once: jobs come and go, and each step computes rows of all of them.
//!
//! Knows no threads, no network and no deadlines: whoever owns a [`Batcher`] calls [`step`](Batcher::step) while there is
//! work, and hears what came of it. The one idea: a job is a text of which some tokens have been evaluated. One that
//! writes is a token or two ahead, one whose prompt is read a thousand; a step brings each as far as its share of rows goes,
//! writers first. A sequence whose job has ended stays until its room is needed, and whoever begins with the same tokens
//! begins with a fork of it.
//!
//! Logits do not depend on what else is in a batch, so a text is the same, bit for bit, as if it had been written alone.

mod counts;
mod job;
mod pace;
mod seats;
mod shelf;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    ops::{ControlFlow, Range},
    sync::Arc,
    time::{Duration, Instant},
};

use atta_model::{Batch, Error as ModelError, Executor, Output, Ticket, Want};
use atta_store::Reservation;

pub use counts::Counts;
pub use job::{Done, Job, JobId};

use crate::{Engine, Error, Event, FinishReason, PromptCache, SessionOptions, session::logits_bytes};
use job::Running;
use pace::Pace;
use seats::{Beginning, Seats, Source};
use shelf::Shelf;

/// Positions that are kept free for each text under way when another one begins.
const SPARE: usize = 32;
/// Hidden states of a step; a text of which more are wanted is read in smaller chunks.
const MAX_HIDDEN_BYTES: usize = 1 << 20;

/// What a batcher is made for.
#[derive(Clone, Debug)]
pub struct BatcherOptions {
    /// The length and the types of each text; `n_forks` and one more are the sequences that there are, those of texts under way
    /// and those that are kept for texts that begin the same way, and `n_contexts` is the room that they share.
    pub session: SessionOptions,
    /// Texts that are read or written at the same time; not more than there are sequences.
    pub n_jobs: usize,
    /// How long those that write may have to wait for those that are read, about.
    pub max_gap: Duration,
    /// A directory for texts that make room for others, and that come back when one begins the same way.
    pub cache: Option<Arc<PromptCache>>,
}

/// What is told of a job.
#[derive(Clone, Copy, Debug)]
pub enum Update<'a> {
    /// As a session would tell of it.
    Event(Event<'a>),
    /// The vector of a text that was only to be read, of length 1, `[d_model]`; its end comes next.
    Embedding(&'a [f32]),
    /// It has come to its end.
    Done(&'a Done),
    /// It has failed, and is no more.
    Failed(&'a Error),
}

/// Whoever hears of jobs; to break is to cancel that job.
pub type OnUpdate<'a> = dyn FnMut(JobId, Update<'_>) -> ControlFlow<()> + 'a;

/// Jobs, their sequences, and the executor that they share.
pub struct Batcher {
    engine: Engine,
    executor: Box<dyn Executor>,
    n_ctx: usize,
    n_batch: usize,
    seats: Seats,
    shelf: Option<Shelf>,
    queue: VecDeque<Running>,
    next_id: u64,
    pace: Pace,
    counts: Counts,
    batch: Batch,
    out: Output,
    /// Row ranges of `batch` by slot.
    shares: Vec<Share>,
    /// Batches in flight, oldest first.
    flights: VecDeque<Flight>,
    /// Empty lists to be reused.
    spare_shares: Vec<Vec<Share>>,
    /// Rows of a step that may want hidden states.
    n_hidden: usize,
    _logits_memory: Reservation,
}

impl std::fmt::Debug for Batcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batcher")
            .field("n_ctx", &self.n_ctx)
            .field("n_batch", &self.n_batch)
            .field("n_running", &self.n_running())
            .field("n_waiting", &self.n_waiting())
            .field("n_flights", &self.flights.len())
            .finish_non_exhaustive()
    }
}

/// The rows of a job in a batch.
struct Share {
    seat: usize,
    rows: Range<usize>,
}

/// A batch in flight.
struct Flight {
    ticket: Ticket,
    shares: Vec<Share>,
    n_rows: usize,
    /// Time that submitting took.
    time: Duration,
}

impl Batcher {
    /// An executor of its own, with memory for all that may come.
    ///
    /// # Errors
    /// Memory that the budget does not grant, sizes of nothing.
    pub fn new(engine: &Engine, options: &BatcherOptions) -> Result<Self, Error> {
        let planned = engine.planned_session(&options.session)?;
        let n_jobs = options.n_jobs;
        if !(1..=planned.n_seqs).contains(&n_jobs) {
            let why = format!("{n_jobs} jobs and {} sequences", planned.n_seqs);
            return Err(ModelError::Options(why).into());
        }
        if planned.n_batch < 2 {
            // Who writes and who reads would have to take turns.
            return Err(ModelError::Options("many texts and batches of one row".to_owned()).into());
        }
        let executor = engine.backend().open(engine.model().clone(), &planned.size(), engine.budget())?;
        Self::on(executor, engine, options)
    }

    /// Creates a batcher on an existing executor.
    fn on(mut executor: Box<dyn Executor>, engine: &Engine, options: &BatcherOptions) -> Result<Self, Error> {
        let (planned, n_jobs) = (engine.planned_session(&options.session)?, options.n_jobs);
        let logits = logits_bytes(engine.spec()).saturating_mul(n_jobs as u64);
        let logits_memory = engine.budget().reserve("logits", logits)?;
        let shelf = options.cache.clone().map(|cache| Shelf::new(engine, executor.as_mut(), cache)).transpose()?;
        Ok(Self {
            executor,
            shelf,
            engine: engine.clone(),
            n_ctx: planned.n_ctx,
            n_batch: planned.n_batch,
            seats: Seats::new(n_jobs, planned.n_seqs),
            queue: VecDeque::new(),
            next_id: 0,
            pace: Pace::new(options.max_gap),
            counts: Counts::default(),
            batch: Batch::default(),
            out: Output::default(),
            shares: Vec::new(),
            flights: VecDeque::new(),
            spare_shares: Vec::new(),
            n_hidden: (MAX_HIDDEN_BYTES / (4 * engine.spec().d_model)).max(1),
            _logits_memory: logits_memory,
        })
    }

    /// Puts a job at the end of the queue; those of a higher priority go first.
    ///
    /// # Errors
    /// [`Error::PromptTooLong`], [`Error::EmptyPrompt`], a token that the model does not have.
    pub fn submit(&mut self, job: Job) -> Result<JobId, Error> {
        let (n_prompt, n_ctx, n_vocab) = (job.prompt.len(), self.n_ctx, self.engine.spec().n_vocab);
        if n_prompt == 0 {
            return Err(Error::EmptyPrompt);
        }
        if n_prompt > n_ctx {
            return Err(Error::PromptTooLong { n_prompt, n_ctx });
        }
        if let Some(&id) = job.prompt.iter().find(|&&id| id as usize >= n_vocab) {
            return Err(ModelError::Token { id, n_vocab }.into());
        }
        let id = JobId(self.next_id);
        self.next_id += 1;
        self.enqueue(Running::new(id, job));
        Ok(id)
    }

    /// Ends a job wherever it is; nothing more is told of it. Its text stays for those that begin the same way.
    pub fn cancel(&mut self, id: JobId) {
        self.queue.retain(|job| job.id != id);
        if let Some(seat) = self.seats.find(id) {
            self.seats.leave(seat);
        }
    }

    /// Ends a job wherever it is, as if it had come to its length.
    pub fn finish(&mut self, id: JobId, on_update: &mut OnUpdate<'_>) {
        let queued = self.queue.iter().position(|job| job.id == id).and_then(|i| self.queue.remove(i));
        if let Some(mut job) = queued {
            finish(&mut job, on_update);
        } else if let Some(seat) = self.seats.find(id) {
            if let Some(job) = &mut self.seats.at_mut(seat).job {
                finish(job, on_update);
            }
            self.seats.leave(seat);
        }
    }

    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.seats.n_running() == 0 && self.flights.is_empty()
    }

    /// Jobs that have not begun, or were taken their place.
    pub fn n_waiting(&self) -> usize {
        self.queue.len()
    }

    /// Jobs under way.
    pub fn n_running(&self) -> usize {
        self.seats.n_running()
    }

    /// Positions that have keys and values, shared ones once, in whole blocks; and how many there may be.
    pub fn n_positions(&self) -> (usize, usize) {
        self.executor.seqs().n_positions()
    }

    /// What has been done so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The engine behind it.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Positions that a text may have.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Admits jobs, submits batches up to the executor's depth, collects the oldest one and advances its jobs.
    ///
    /// # Errors
    /// A step that failed, as one does that cannot read its weights; all jobs are as before. What goes wrong with one job is
    /// told of that job.
    pub fn step(&mut self, on_update: &mut OnUpdate<'_>) -> Result<(), Error> {
        self.admit();
        let sent = self.send();
        if self.flights.is_empty() {
            return sent;
        }
        // A batch that cannot be submitted is no reason to leave earlier ones uncollected.
        self.collect(on_update).and(sent)
    }

    /// Collects the oldest batch in flight and advances its jobs.
    fn collect(&mut self, on_update: &mut OnUpdate<'_>) -> Result<(), Error> {
        let Some(mut flight) = self.flights.pop_front() else { return Ok(()) };
        let start = Instant::now();
        if let Err(error) = self.executor.collect(flight.ticket, &mut self.out) {
            // The executor has dropped all later batches, too.
            self.flights.clear();
            self.seats.lost_all();
            return Err(error.into());
        }
        self.pace.note(flight.time + start.elapsed(), flight.n_rows);
        self.counts.n_steps += 1;
        for share in flight.shares.drain(..) {
            self.go_on(share, on_update);
        }
        self.spare_shares.push(flight.shares);
        Ok(())
    }

    /// Fills and submits batches until no rows are left or the executor's depth is reached.
    fn send(&mut self) -> Result<(), Error> {
        while self.flights.len() < self.executor.depth() {
            self.fill();
            if self.batch.rows.is_empty() {
                break;
            }
            let start = Instant::now();
            match self.executor.submit(&self.batch) {
                Ok(ticket) => {
                    let time = start.elapsed();
                    let n_rows = self.batch.rows.len();
                    let shares = std::mem::replace(&mut self.shares, self.spare_shares.pop().unwrap_or_default());
                    shares.iter().for_each(|share| self.seats.at_mut(share.seat).sent(share.rows.len()));
                    self.flights.push_back(Flight { ticket, shares, n_rows, time });
                }
                // Jobs in flight cannot be preempted; collecting them may free blocks.
                Err(ModelError::OutOfBlocks) if !self.flights.is_empty() => break,
                Err(ModelError::OutOfBlocks) => self.make_room()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Gives places to those who wait, in the order of the queue, as long as there is room for what has to be read. One that begins
    /// like a prompt that is just being read waits for it, because it can take over more of it later than now.
    fn admit(&mut self) {
        if self.seats.has_leaving() {
            // Their sequences cannot be changed before their rows are collected.
            return;
        }
        let mut i = 0;
        while i < self.queue.len() && self.seats.has_place() {
            let job = &self.queue[i];
            let text = &job.text;
            let beginning = match job.may_share() {
                true => self.seats.beginning(text, self.executor.as_ref()),
                false => Beginning::Now(None),
            };
            match beginning {
                Beginning::Later => i += 1,
                Beginning::Now(from) => {
                    if !self.clear_room(text.len() - from.map_or(0, |from| from.n), from) {
                        return;
                    }
                    self.begin(i, from);
                }
            }
        }
    }

    /// Gives the job at a place of the queue a sequence, with what there is of its text in memory or, if that is more, on disk.
    fn begin(&mut self, i: usize, from: Option<Source>) {
        let (job, n) = (&self.queue[i], from.map_or(0, |from| from.n));
        let n_text = job.text.len();
        let shelf = self.shelf.as_mut().filter(|_| job.may_share());
        let mut found = shelf.map_or_else(Vec::new, |shelf| shelf.find(&job.text, n));
        // It takes the place of what is in memory, which may go if that is all that is in its way.
        let beside = from.filter(|_| self.seats.n_running() > 0);
        if !found.is_empty() && !self.clear_room(n_text, beside) {
            found.clear();
        }
        let from = from.filter(|_| found.is_empty());
        self.make_ready(from);
        let job = self.queue.remove(i).expect("it was just looked at");
        let seat = self.seats.sit(job, from, self.executor.as_mut());
        let place = self.seats.at_mut(seat);
        self.counts.n_reused += place.n_done as u64;
        if let Some(shelf) = self.shelf.as_mut().filter(|_| !found.is_empty()) {
            let n = shelf.fill((self.executor.as_mut(), place.seq), found, place.text());
            place.restored(n);
            self.counts.n_restored += n as u64;
        }
        if let Some(job) = &mut place.job {
            job.begin(place.n_done);
        }
    }

    /// Sees that there is a sequence for a text that begins there.
    fn make_ready(&mut self, from: Option<Source>) {
        match from {
            Some(source) if self.seats.may_take_over(source) => {
                if source.n < self.seats.at(source.seat).n_done {
                    self.save(source.seat);
                }
            }
            _ if self.seats.has_free_seat() => {}
            _ => drop(self.evict(from.map(|from| from.seat))),
        }
    }

    /// Gives up the kept sequence that was used longest ago, but not that in seat `but`; whether there was one.
    fn evict(&mut self, but: Option<usize>) -> bool {
        let Some(seat) = self.seats.oldest_kept(but) else { return false };
        self.save(seat);
        self.seats.vacate(seat, self.executor.as_mut());
        self.counts.n_evicted += 1;
        true
    }

    /// Puts what a sequence holds on disk, if there is a place for that and it is not there.
    fn save(&mut self, seat: usize) {
        let Some(shelf) = &mut self.shelf else { return };
        let place = self.seats.at_mut(seat);
        if place.unsaved().is_some_and(|tokens| shelf.save((self.executor.as_ref(), place.seq), tokens)) {
            place.saved();
        }
    }

    /// Puts all kept texts on disk, for those who begin the same way after this batcher is gone.
    pub fn save_kept(&mut self) {
        if let Some(shelf) = &self.shelf {
            shelf.try_again();
        }
        self.seats.kept().into_iter().for_each(|seat| self.save(seat));
    }

    /// What was wrong with the directory of texts or files in it, a line for each, since this was asked last.
    pub fn take_notes(&mut self) -> Vec<String> {
        self.shelf.as_mut().map_or_else(Vec::new, Shelf::take_notes)
    }

    /// Gives up kept sequences until there is room for so many positions, and some for those who write; whether there is. One text
    /// alone always has room.
    fn clear_room(&mut self, n: usize, from: Option<Source>) -> bool {
        loop {
            let (n_taken, n_all) = self.executor.seqs().n_positions();
            let n_spare = (self.seats.n_running() + 1) * SPARE;
            if n_all - n_taken >= n.saturating_add(n_spare) {
                return true;
            }
            if !self.evict(from.map(|from| from.seat)) {
                return self.seats.n_running() == 0;
            }
        }
    }

    /// The rows of a batch: first of all who write, the longest waiting first, then of prompts, as many as the gap allows. A quarter
    /// of the rows is theirs in any case. Decoding jobs are spread over the batches in flight.
    fn fill(&mut self) {
        self.batch.clear();
        self.shares.clear();
        let (writing, reading) = self.seats.in_turn();
        let n_batch = self.n_batch;
        let mut left = if reading.is_empty() { n_batch } else { n_batch - n_batch.div_ceil(4) };
        let n_writers = writing.len().div_ceil(self.executor.depth());
        let ready = writing.into_iter().filter(|&seat| !self.seats.at(seat).rest().is_empty());
        for seat in ready.take(n_writers).collect::<Vec<_>>() {
            left -= self.give(seat, left);
        }
        left = n_batch - self.batch.rows.len();
        if !self.shares.is_empty() {
            left = left.min(self.pace.rows_beside(self.batch.rows.len()));
        }
        let rests: Vec<usize> = reading.iter().map(|&seat| self.seats.at(seat).rest().len()).collect();
        for (seat, n_rows) in reading.into_iter().zip(pace::portions(&rests, left)) {
            self.give(seat, n_rows);
        }
    }

    /// Puts up to `max` rows of a job into the batch; how many.
    fn give(&mut self, seat: usize, max: usize) -> usize {
        let place = self.seats.at(seat);
        let Some(job) = &place.job else { return 0 };
        let start = self.batch.rows.len();
        let mut n_hidden = self.batch.rows.iter().filter(|row| row.want == Want::Hidden).count();
        for (&token, pos) in place.rest().iter().take(max).zip(place.n_sent()..) {
            let want = job.want(pos);
            n_hidden += usize::from(want == Want::Hidden);
            if n_hidden > self.n_hidden {
                break;
            }
            self.batch.push_token(place.seq, pos, token, want);
        }
        let rows = start..self.batch.rows.len();
        let n_rows = rows.len();
        if n_rows > 0 {
            self.shares.push(Share { seat, rows });
        }
        n_rows
    }

    /// Makes room for keys and values: a kept sequence goes, or, if there is none, the job that came last goes back to the queue.
    fn make_room(&mut self) -> Result<(), Error> {
        if self.evict(None) {
            return Ok(());
        }
        match self.seats.preempt(self.executor.as_mut()) {
            Some(job) => {
                self.counts.n_preempted += 1;
                self.enqueue(job);
                Ok(())
            }
            // One text alone always has room: there are at least `n_ctx` positions.
            None => Err(ModelError::OutOfBlocks.into()),
        }
    }

    /// Behind all of the same or a higher priority that came before.
    fn enqueue(&mut self, job: Running) {
        let at = self.queue.partition_point(|other| other.order() <= job.order());
        self.queue.insert(at, job);
    }

    /// Notes what was evaluated of a job, and goes on with it if that was all of its text.
    fn go_on(&mut self, Share { seat, rows }: Share, on_update: &mut OnUpdate<'_>) {
        let n_ctx = self.n_ctx;
        self.seats.touch(seat);
        let place = self.seats.at_mut(seat);
        place.back();
        if place.job.is_none() {
            self.settle(seat);
            return;
        }
        let pos = place.n_done;
        place.n_done += rows.len();
        let (n_done, Some(job)) = (place.n_done, &mut place.job) else { return };
        if let Some(row) = self.out.first_not_finite(rows.clone()) {
            conclude(job, Err(self.engine.not_finite(pos + row - rows.start)), on_update);
            self.forget(seat, pos);
            return;
        }
        let id = job.id;
        let was_reading = n_done <= job.n_prompt;
        if was_reading {
            self.counts.n_read += rows.len() as u64;
        }
        job.take_in(&self.engine, &self.out, rows.clone(), pos);
        if n_done < job.text.len() {
            let update = Update::Event(Event::Prompt { done: n_done, total: job.n_prompt });
            if was_reading && on_update(id, update).is_break() {
                self.seats.leave(seat);
            }
            return;
        }
        let n_before = job.n_written();
        let ended = job.go_on(&self.out, rows.end - 1, n_ctx, &mut |update| on_update(id, update));
        let (ended, n_cut) = (ended.transpose(), job.n_cut);
        // Chosen is chosen, whatever is taken back. Of a text that was interrupted there may be less than before.
        self.counts.n_written += (job.n_written() + n_cut).saturating_sub(n_before) as u64;
        let has_ended = ended.is_some();
        if let Some(ended) = ended {
            conclude(job, ended, on_update);
        }
        if n_cut > 0 {
            let left = self.executor.truncate(place.seq, n_done - n_cut).expect("a seat has a sequence");
            place.truncated(left);
        }
        if has_ended {
            self.seats.leave(seat);
        }
    }
}

impl Batcher {
    /// Ends the job of a seat and gives up what was evaluated of its text from position `n` on.
    fn forget(&mut self, seat: usize, n: usize) {
        self.seats.at_mut(seat).n_done = n;
        self.seats.leave(seat);
        self.settle(seat);
    }

    /// Truncates the sequence of a finished job to its evaluated tokens, once no rows of it are in flight.
    fn settle(&mut self, seat: usize) {
        let place = self.seats.at_mut(seat);
        if !place.is_away() {
            let left = self.executor.truncate(place.seq, place.n_done).expect("a seat has a sequence");
            place.truncated(left);
        }
    }
}

/// Ends a job as if it had come to its length.
fn finish(job: &mut Running, on_update: &mut OnUpdate<'_>) {
    let id = job.id;
    let ended = job.end(FinishReason::Length, &mut |event| on_update(id, Update::Event(event)));
    conclude(job, ended, on_update);
}

/// Tells how a job has ended, unless whoever hears of it has ended it.
fn conclude(job: &Running, ended: Result<FinishReason, Error>, on_update: &mut OnUpdate<'_>) {
    // It has ended anyway, whatever is answered.
    let _ = match ended {
        Ok(FinishReason::Interrupted) => ControlFlow::Continue(()),
        Ok(reason) => on_update(job.id, Update::Done(&job.done(reason))),
        Err(error) => on_update(job.id, Update::Failed(&error)),
    };
}
