//! Continuous batching: a scheduler for many jobs on one executor.
//!
//! A job is a text and the number of its evaluated tokens: a decoding job is a token or two ahead
//! of them, a prefilling one up to its whole prompt. Each [`step`](Batcher::step) fills batches
//! with rows of all jobs, decoding first. When a job ends, its sequence stays in its slot as a
//! cached prefix until the KV pool needs room; a new job with the same first tokens forks it.
//!
//! The scheduler has no threads, network or deadlines: the owner calls `step` while there is work,
//! and receives events. Logits do not depend on the rest of a batch, so each text is bit-equal to
//! one that is written alone.

mod anchors;
mod borders;
mod common_runs;
mod counts;
mod disk_tier;
mod drafts;
mod filling;
mod job;
mod moving;
mod prefill_budget;
mod slots;
#[cfg(test)]
mod tests;
mod windows;

use std::{
    collections::VecDeque,
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

use atta_model::{Batch, Error as ModelError, Executor, Output, Ticket, spec::ModelSpec};
use atta_store::Reservation;

pub use counts::Counts;
pub use job::{Done, Job, JobId};

use crate::{
    Engine, Error, Event, FinishReason, PromptCache, SessionOptions, SpeculationOff, TappedRows,
    Text,
    prompt_cache::SegmentPrefix,
    session::{logits_bytes, planned_drafts},
    speculation::BatchRows,
};
use anchors::has_windows;
use disk_tier::DiskTier;
use drafts::DraftRows;
use filling::{MayDraft, RowSpan};
use job::{LogitSpan, Running};
use prefill_budget::PrefillBudget;
use slots::{PrefixMatch, SlotPrefix, SlotTable, Spared};

/// Positions of the KV pool reserved per running job when another one is admitted.
const SPARE: usize = 32;
/// Hidden states per batch; embedding requests that want more are evaluated in smaller chunks.
const MAX_HIDDEN_BYTES: usize = 1 << 20;

/// Least tokens of a cached part that is moved: shorter ones stand in many texts by chance, and
/// their state has more of the text in front of them than of themselves.
pub const MIN_CACHE_REUSE: usize = 16;

/// Configuration of a batcher.
#[derive(Clone, Debug)]
pub struct BatcherOptions {
    /// Context length and KV types. `n_forks + 1` is the number of slots (running jobs and cached
    /// prefixes), `n_contexts` the size of the KV pool that they share.
    pub session: SessionOptions,
    /// Maximum number of running jobs; at most the number of slots.
    pub n_jobs: usize,
    /// Target for the longest pause between two tokens of a decoding job while prompts are
    /// prefilled.
    pub max_gap: Duration,
    /// Directory of the prompt cache, to which evicted prefixes are saved and from which they are
    /// restored.
    pub cache: Option<Arc<PromptCache>>,
}

/// An event of a job.
#[derive(Clone, Debug)]
pub enum Update<'a> {
    /// An event of its text, as in a session.
    Event(Event),
    /// The embedding of the text, `[d_model]`, of length 1, or its scores; `Done` follows.
    Embedding(&'a [f32]),
    /// The job is complete.
    Done(&'a Done),
    /// The job failed and was removed.
    Failed(&'a Error),
}

/// Callback for events; `Break` cancels the job.
pub type OnUpdate<'a> = dyn FnMut(JobId, Update<'_>) -> ControlFlow<()> + 'a;

/// Jobs, their slots, and the executor that they share.
pub struct Batcher {
    engine: Engine,
    executor: Box<dyn Executor>,
    n_ctx: usize,
    n_batch: usize,
    slots: SlotTable,
    disk_tier: Option<DiskTier>,
    queue: VecDeque<Running>,
    next_id: u64,
    prefill_budget: PrefillBudget,
    drafts: DraftRows,
    counts: Counts,
    batch: Batch,
    out: Output,
    /// Row ranges of `batch` by slot.
    spans: Vec<RowSpan>,
    /// Batches in flight, oldest first.
    flights: VecDeque<Flight>,
    /// Empty lists to be reused.
    spare_spans: Vec<Vec<RowSpan>>,
    /// Rows per batch that may want hidden states.
    n_hidden: usize,
    /// Whether the model sees each text whole, so that one is evaluated in one batch.
    is_encoder: bool,
    /// Whether a sequence cannot be truncated anywhere, so that it is worth being able to at the
    /// borders of prompts.
    keeps_borders: bool,
    has_windows: bool,
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

/// A batch in flight.
struct Flight {
    ticket: Ticket,
    spans: Vec<RowSpan>,
    n_rows: usize,
    /// Its rows, if it prefills nothing.
    decoding: Option<BatchRows>,
    /// Time that submitting took.
    time: Duration,
}

impl Batcher {
    /// Creates a batcher with an executor of its own and all of its memory.
    ///
    /// # Errors
    /// The memory budget is exceeded, or a size is 0.
    pub fn new(engine: &Engine, options: &BatcherOptions) -> Result<Self, Error> {
        let planned = engine.planned_session(&options.session)?;
        let n_jobs = options.n_jobs;
        if !(1..=planned.n_seqs).contains(&n_jobs) {
            let why = format!("{n_jobs} jobs and {} sequences", planned.n_seqs);
            return Err(ModelError::Options(why).into());
        }
        if planned.n_batch < 2 {
            // Decoding and prefill could not share a batch.
            return Err(ModelError::Options("many texts and batches of one row".to_owned()).into());
        }
        let executor =
            engine
                .backend()
                .open(engine.model().clone(), &planned.size(), engine.budget())?;
        Self::on(executor, engine, options)
    }

    /// Creates a batcher on an existing executor.
    fn on(
        mut executor: Box<dyn Executor>,
        engine: &Engine,
        options: &BatcherOptions,
    ) -> Result<Self, Error> {
        let planned = engine.planned_session(&options.session)?;
        let n_jobs = options.n_jobs;
        let logits = logits_bytes(engine.spec()).saturating_mul(n_jobs as u64);
        let logits_memory = engine.budget().reserve("logits", logits)?;
        let disk_tier = options
            .cache
            .clone()
            .map(|cache| DiskTier::new(engine, executor.as_mut(), cache))
            .transpose()?;
        let max_draft = executor.seqs().max_draft();
        let n_draft = planned_drafts(&options.session, &planned);
        let mut drafts = DraftRows::new(n_draft, max_draft);
        if let Some(tier) = &disk_tier {
            tier.recall_costs(drafts.costs_mut())?;
        }
        let has_states = executor.seqs().has_states();
        Ok(Self {
            executor,
            disk_tier,
            engine: engine.clone(),
            n_ctx: planned.n_ctx,
            n_batch: planned.n_batch,
            slots: SlotTable::new(n_jobs, planned.n_seqs),
            queue: VecDeque::new(),
            next_id: 0,
            prefill_budget: PrefillBudget::new(options.max_gap),
            drafts,
            counts: Counts::default(),
            batch: Batch::default(),
            out: Output::default(),
            spans: Vec::new(),
            flights: VecDeque::new(),
            spare_spans: Vec::new(),
            n_hidden: n_hidden(engine.spec()),
            is_encoder: engine.spec().is_encoder(),
            keeps_borders: has_states || has_windows(engine.spec()),
            has_windows: has_windows(engine.spec()),
            _logits_memory: logits_memory,
        })
    }

    /// Queues a job, behind all jobs of the same or a higher priority.
    ///
    /// # Errors
    /// [`Error::PromptTooLong`], [`Error::EmptyPrompt`], a token that the model does not have,
    /// embeddings of another width than its own.
    pub fn submit(&mut self, mut job: Job) -> Result<JobId, Error> {
        self.check_prompt(&job.prompt)?;
        job.of_model(&self.engine);
        let id = JobId(self.next_id);
        self.next_id += 1;
        let mut job = Running::new(id, job);
        if self.executor.seqs().max_draft() == 0 {
            job.turn_drafts_off(SpeculationOff::Recurrent);
        } else if job.has_drafts() && !self.drafts.has_room(&self.engine) {
            job.turn_drafts_off(SpeculationOff::NoRoom);
        } else if let Err(why) = self.begin_taps(&job) {
            job.turn_drafts_off(why);
        }
        if self.keeps_borders {
            job.find_borders(&self.engine);
        }
        self.enqueue(job);
        Ok(id)
    }

    fn check_prompt(&self, prompt: &Text) -> Result<(), Error> {
        let n_prompt = prompt.len();
        let n_ctx = self.n_ctx;
        let n_vocab = self.engine.spec().n_vocab;
        if n_prompt == 0 {
            return Err(Error::EmptyPrompt);
        }
        if n_prompt > n_ctx {
            return Err(Error::PromptTooLong { n_prompt, n_ctx });
        }
        let mut ids = prompt.ids().iter();
        if let Some(&id) = ids.find(|&&id| id as usize >= n_vocab) {
            return Err(ModelError::Token { id, n_vocab }.into());
        }
        if let Some(row) = prompt.other_width(self.engine.spec().d_model) {
            let what = "an embedding of another width than the model's";
            return Err(ModelError::Row { row, what }.into());
        }
        Ok(())
    }

    /// Cancels a job without further events. Its evaluated tokens stay cached.
    pub fn cancel(&mut self, id: JobId) {
        self.queue.retain(|job| job.id != id);
        if let Some(slot) = self.slots.find(id) {
            self.slots.retire(slot);
        }
    }

    /// Cancels all jobs, as [`cancel`](Self::cancel) does.
    pub fn cancel_all(&mut self) {
        self.queue.clear();
        self.slots.retire_all();
    }

    /// Ends a job as if it had reached its length limit.
    pub fn finish(&mut self, id: JobId, on_update: &mut OnUpdate<'_>) {
        let queued = self
            .queue
            .iter()
            .position(|job| job.id == id)
            .and_then(|i| self.queue.remove(i));
        if let Some(mut job) = queued {
            finish(&mut job, on_update);
        } else if let Some(slot) = self.slots.find(id) {
            if let Some(job) = &mut self.slots.at_mut(slot).job {
                finish(job, on_update);
            }
            self.slots.retire(slot);
        }
    }

    /// Whether there is no job and no batch in flight.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.slots.n_running() == 0 && self.flights.is_empty()
    }

    /// Queued jobs, including preempted ones.
    pub fn n_waiting(&self) -> usize {
        self.queue.len()
    }

    /// Running jobs.
    pub fn n_running(&self) -> usize {
        self.slots.n_running()
    }

    /// Positions of the KV pool in use (shared blocks count once) and in total, in whole blocks.
    pub fn n_positions(&self) -> (usize, usize) {
        self.executor.seqs().n_positions()
    }

    /// Statistics so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The engine behind it.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Maximum positions of a text.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Admits jobs, submits batches up to the executor's depth, collects the oldest one and
    /// advances its jobs.
    ///
    /// # Errors
    /// A failed step, for example because weights cannot be read; all jobs are as before, and the
    /// next step tries the same again unless they are cancelled. Errors of a single job are events.
    pub fn step(&mut self, on_update: &mut OnUpdate<'_>) -> Result<(), Error> {
        self.admit();
        self.move_keys();
        self.keep_anchors();
        let sent = self.send();
        if self.flights.is_empty() {
            return sent;
        }
        // A batch that cannot be submitted is no reason to leave earlier ones uncollected.
        self.collect(on_update).and(sent)
    }

    /// Collects the oldest batch in flight and advances its jobs.
    fn collect(&mut self, on_update: &mut OnUpdate<'_>) -> Result<(), Error> {
        let Some(mut flight) = self.flights.pop_front() else {
            return Ok(());
        };
        let start = Instant::now();
        if let Err(error) = self.executor.collect(flight.ticket, &mut self.out) {
            // The executor has dropped all later batches, too.
            self.flights.clear();
            self.slots.drop_all_in_flight();
            let has_drafts = flight.decoding.is_some_and(|rows| rows.n_draft > 0);
            if has_drafts {
                // Its rows may need weights that no text does: the next step has no drafts.
                self.drafts.pause();
                return Ok(());
            }
            return Err(error.into());
        }
        let time = flight.time + start.elapsed();
        self.prefill_budget.note(time, flight.n_rows);
        self.counts.n_steps += 1;
        if let Some(window) = flight.spans.first_mut().filter(|span| span.is_ahead) {
            flight.decoding = self.begin_window(window);
        }
        for span in flight.spans.drain(..) {
            self.advance(&span, on_update);
        }
        self.drafts.collected(flight.decoding, time.as_secs_f64());
        self.spare_spans.push(flight.spans);
        self.engine.heat_control().rest(time);
        Ok(())
    }

    /// Records the batch as submitted in `time`.
    fn record_flight(&mut self, ticket: Ticket, time: Duration) {
        let spare = self.spare_spans.pop().unwrap_or_default();
        let spans = std::mem::replace(&mut self.spans, spare);
        spans
            .iter()
            .for_each(|span| self.slots.at_mut(span.slot).submitted(span.rows.len()));
        self.flights.push_back(Flight {
            ticket,
            spans,
            n_rows: self.batch.rows.len(),
            decoding: self.drafts.rows(),
            time,
        });
    }

    /// Fills and submits batches until no rows are left or the executor's depth is reached.
    fn send(&mut self) -> Result<(), Error> {
        let mut drafts = MayDraft::Yes;
        while self.flights.len() < self.executor.depth() {
            self.fill(drafts);
            let is_full =
                self.batch.rows.is_empty() && (drafts == MayDraft::No || !self.fill_window());
            if is_full {
                break;
            }
            let start = Instant::now();
            match self.executor.submit(&self.batch) {
                Ok(ticket) => self.record_flight(ticket, start.elapsed()),
                // No job is preempted for a guess.
                Err(ModelError::OutOfBlocks) if self.has_drafts() => drafts = MayDraft::No,
                // Jobs in flight cannot be preempted; collecting them may free blocks.
                Err(ModelError::OutOfBlocks) if !self.flights.is_empty() => break,
                Err(ModelError::OutOfBlocks) => self.free_blocks()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Admits queued jobs in order while the KV pool has room for their prompts. A job whose prompt
    /// starts like one that is being prefilled waits for it, in order to reuse more of it.
    fn admit(&mut self) {
        if self.slots.has_retiring() {
            // Their sequences cannot be changed before their rows are collected.
            return;
        }
        let mut i = 0;
        while i < self.queue.len() && self.slots.may_admit() {
            let job = &self.queue[i];
            let text = &job.text;
            let beginning = match job.may_share() && !self.is_encoder {
                true => self.slots.match_prefix(job, self.executor.as_ref()),
                false => PrefixMatch::Now(None),
            };
            match beginning {
                PrefixMatch::Later => i += 1,
                PrefixMatch::Now(from) => {
                    if !self.reserve_blocks(text.len() - from.map_or(0, |from| from.n), from) {
                        return;
                    }
                    self.begin(i, from);
                }
            }
        }
    }

    /// Starts queued job `i` in a slot, from the longest cached prefix in memory or on disk.
    fn begin(&mut self, i: usize, from: Option<SlotPrefix>) {
        let n = from.map_or(0, |from| from.n);
        let found = self.find_on_disk(i, from);
        // The on-disk prefix replaces the in-memory one.
        let from = from.filter(|_| found.is_empty());
        if !self.slots.has_evictable() {
            self.slots.abandon_moves();
        }
        let n_known = found.iter().map(|part| part.n).sum::<usize>().max(n);
        let plan = self.plan_moves(&self.queue[i], from, n_known);
        let donor = plan.as_ref().map(|plan| plan.donor);
        self.ensure_slot(from, donor);
        let job = self.queue.remove(i).expect("it was just looked at");
        let slot = self.slots.acquire(job, from, donor, self.executor.as_mut());
        self.counts.n_reused += self.slots.at(slot).n_done as u64;
        self.fill_from_disk(slot, found);
        let place = self.slots.at_mut(slot);
        place.plan_moves(plan);
        let n_done = place.n_done;
        let n_approximate = place.n_approximate();
        self.counts.n_approximate += n_approximate as u64;
        if let Some(job) = &mut place.job {
            job.begin(n_done, n_approximate);
        }
        self.plan_anchor(slot);
    }

    /// Finds a prefix of queued job `i` on disk that is longer than this one, and makes room for
    /// it.
    fn find_on_disk(&mut self, i: usize, from: Option<SlotPrefix>) -> Vec<SegmentPrefix> {
        let job = &self.queue[i];
        let n_text = job.text.len();
        let may_share = job.may_share() && !self.is_encoder;
        let disk_tier = self.disk_tier.as_mut().filter(|_| may_share);
        let n = from.map_or(0, |from| from.n);
        let found = disk_tier.and_then(|tier| Some(tier.find(&job.text.tokens(n_text)?, n)));
        let found = found.unwrap_or_default();
        // The in-memory prefix may be evicted to make room.
        let beside = from.filter(|_| self.slots.n_running() > 0);
        match found.is_empty() || self.reserve_blocks(n_text, beside) {
            true => found,
            false => Vec::new(),
        }
    }

    /// Loads a prefix from disk into the empty sequence of a slot.
    fn fill_from_disk(&mut self, slot: usize, found: Vec<SegmentPrefix>) {
        if let Some(disk_tier) = self.disk_tier.as_mut().filter(|_| !found.is_empty()) {
            let place = self.slots.at_mut(slot);
            let n = disk_tier.fill(self.executor.as_mut(), place.seq, found, place.text().ids());
            place.restored(n);
            self.counts.n_restored += n as u64;
        }
    }

    /// Ensures a slot for a job that starts from this prefix and takes keys from slot `donor`.
    fn ensure_slot(&mut self, from: Option<SlotPrefix>, donor: Option<usize>) {
        match from {
            Some(source) if self.slots.may_reuse(source, donor) => {
                if source.n < self.slots.at(source.slot).n_done {
                    self.save(source.slot);
                }
            }
            _ if self.slots.has_free_slot() => {}
            _ => drop(self.evict([from.map(|from| from.slot), donor])),
        }
    }

    /// Evicts the least recently used cached prefix except the spared slots; `false` if there is
    /// none.
    fn evict(&mut self, spared: Spared) -> bool {
        let Some(slot) = self.slots.oldest_cached(spared) else {
            return false;
        };
        self.save(slot);
        self.slots.release(slot, self.executor.as_mut());
        self.counts.n_evicted += 1;
        true
    }

    /// Saves the prefix of a slot to the prompt cache, if there is one and it lacks the prefix.
    fn save(&mut self, slot: usize) {
        let Some(disk_tier) = &mut self.disk_tier else {
            return;
        };
        let place = self.slots.at_mut(slot);
        let seqs = self.executor.seqs();
        let is_saved = place.unsaved().is_some_and(|text| {
            // Without a window behind it, an exact part could not be continued.
            let n = text.tokens.len();
            let is_whole = n == place.n_done || seqs.keeps(place.seq, n).ok() == Some(n);
            let costs = self.drafts.costs();
            is_whole && disk_tier.save(self.executor.as_ref(), place.seq, &text, costs)
        });
        if is_saved {
            place.saved();
        }
    }

    /// Saves all cached prefixes to the prompt cache, for later processes.
    pub fn save_cached_prefixes(&mut self) {
        if let Some(disk_tier) = &self.disk_tier {
            disk_tier.try_again();
        }
        self.slots
            .kept()
            .into_iter()
            .for_each(|slot| self.save(slot));
    }

    /// Drains warnings about the prompt cache, one line each.
    pub fn take_notes(&mut self) -> Vec<String> {
        self.disk_tier
            .as_mut()
            .map_or_else(Vec::new, DiskTier::take_notes)
    }

    /// Evicts cached prefixes until the KV pool has room for `n` positions and a reserve for
    /// decoding; `false`, and none is evicted, if they would not make enough room. A single job
    /// always fits.
    fn reserve_blocks(&mut self, n: usize, from: Option<SlotPrefix>) -> bool {
        let but = from.map(|from| from.slot);
        let n_running = self.slots.n_running();
        let n_wanted = n.saturating_add((n_running + 1) * SPARE);
        if n_running > 0 && self.n_free() < n_wanted {
            let n_evictable = self.n_evictable(but);
            if self.n_free() + n_evictable < n_wanted {
                return false;
            }
        }
        while self.n_free() < n_wanted && self.evict([but, None]) {}
        true
    }

    /// Free positions of the KV pool.
    fn n_free(&self) -> usize {
        let (n_taken, n_all) = self.executor.seqs().n_positions();
        n_all - n_taken
    }

    /// Positions of the KV pool that evicting all cached prefixes except slot `but` frees.
    fn n_evictable(&self, but: Option<usize>) -> usize {
        let seqs: Vec<_> = self
            .slots
            .evictable_slots()
            .filter(|&slot| Some(slot) != but)
            .map(|slot| self.slots.at(slot).seq)
            .collect();
        let seqs_table = self.executor.seqs();
        seqs_table
            .n_positions_freed_by(&seqs)
            .expect("a slot has a sequence")
    }

    /// Frees KV blocks: evicts a cached prefix, else preempts the running job that comes last in
    /// the queue order. Cached texts whose keys are to be moved go before jobs.
    fn free_blocks(&mut self) -> Result<(), Error> {
        if self.evict([None; 2]) || self.slots.abandon_moves() {
            return Ok(());
        }
        match self.slots.preempt(self.executor.as_mut()) {
            Some(job) => {
                self.counts.n_preempted += 1;
                self.enqueue(job);
                Ok(())
            }
            // A single job always fits: the pool has at least `n_ctx` positions.
            None => Err(ModelError::OutOfBlocks.into()),
        }
    }

    /// Inserts a job behind all jobs of the same or a higher priority.
    fn enqueue(&mut self, job: Running) {
        let at = self
            .queue
            .partition_point(|other| other.order() <= job.order());
        self.queue.insert(at, job);
    }

    /// Records evaluated rows of a job; samples its next token if its whole text is evaluated.
    fn advance(&mut self, span: &RowSpan, on_update: &mut OnUpdate<'_>) {
        let slot = span.slot;
        let rows = span.text_rows();
        self.slots.touch(slot);
        let place = self.slots.at_mut(slot);
        place.collected();
        if place.job.is_none() {
            self.settle(slot);
            return;
        }
        let pos = place.n_done;
        place.n_done += rows.len();
        let (n_done, Some(job)) = (place.n_done, &mut place.job) else {
            return;
        };
        if let Some(row) = self.out.first_not_finite(rows.clone()) {
            report_end(
                job,
                Err(self.engine.not_finite(pos + row - rows.start)),
                on_update,
            );
            self.fail(slot, pos);
            return;
        }
        if span.is_tapped {
            job.show_states(
                TappedRows::new(&self.out, span.rows.clone()),
                pos,
                &span.draft,
            );
        }
        let id = job.id;
        let was_prefilling = n_done <= job.n_prompt;
        if was_prefilling {
            self.counts.n_read += rows.len() as u64;
        }
        if let Err(error) = job.pool(&self.engine, &self.out, rows.clone(), pos) {
            report_end(job, Err(error), on_update);
            self.fail(slot, pos);
            return;
        }
        if n_done < job.text.len() {
            let update = Update::Event(Event::Prompt {
                done: n_done,
                total: job.n_prompt,
            });
            if was_prefilling && on_update(id, update).is_break() {
                self.slots.retire(slot);
            }
            return;
        }
        self.select(span, on_update);
    }

    /// Samples the next tokens of a job whose whole text is evaluated, and removes evaluated tokens
    /// that are not part of it: a call that was rolled back, and the rest of a draft.
    fn select(&mut self, span: &RowSpan, on_update: &mut OnUpdate<'_>) {
        let rows = span.text_rows();
        // Behind the first row without numbers a draft is no use.
        let end = self.out.first_not_finite(span.rows.clone());
        let n_draft = end.unwrap_or(span.rows.end) - rows.end;
        let place = self.slots.at_mut(span.slot);
        let Some(job) = &mut place.job else { return };
        let id = job.id;
        let n_before = job.n_generated();
        let logits = LogitSpan {
            rows: rows.end - 1..rows.end + n_draft,
            draft: &span.draft[..n_draft],
        };
        let ended = job.advance(&self.out, logits, self.n_ctx, &mut |update| {
            on_update(id, update)
        });
        let ended = ended.transpose();
        // Tokens that were rolled back count as generated, those of a draft do not. An interrupted
        // text may have become shorter.
        let n_accepted = job.verdict.n_accepted;
        let n_after = job.n_generated() + job.n_rolled_back + n_accepted;
        let n_written = n_after.saturating_sub(n_before + n_draft);
        self.counts
            .add_step(n_written, span.draft.len(), n_accepted);
        let draft_seconds = job.judged(span.draft.len());
        self.drafts.judged(job.verdict, draft_seconds);
        if let Some(ended) = ended {
            job.end_drafts();
            report_end(job, ended, on_update);
            self.keep_verified(span.slot, n_draft);
            return self.slots.retire(span.slot);
        }
        self.keep_verified(span.slot, n_draft);
    }

    /// Removes evaluated tokens that are not part of the text of a job, after a draft of `n_draft`
    /// tokens was judged, and windows that do not continue it.
    fn keep_verified(&mut self, slot: usize, n_draft: usize) {
        let place = self.slots.at_mut(slot);
        let n_rolled_back = place.job.as_ref().map_or(0, |job| job.n_rolled_back);
        let n_verified = place.n_done + n_draft - n_rolled_back;
        if n_verified == place.n_submitted() || self.window_goes_on(slot, n_verified) {
            self.slots.at_mut(slot).n_done = n_verified;
            return;
        }
        let seq = self.slots.at(slot).seq;
        let left = self
            .executor
            .truncate(seq, n_verified)
            .expect("a slot has a sequence, and windows in flight are taken back");
        self.drop_windows(slot);
        self.slots.at_mut(slot).truncated(left);
    }
}

impl Batcher {
    /// Ends the job of a slot and drops its tokens from position `n` on.
    fn fail(&mut self, slot: usize, n: usize) {
        self.slots.at_mut(slot).n_done = n;
        self.slots.retire(slot);
        self.settle(slot);
    }

    /// Truncates the sequence of a finished job to its evaluated tokens, once no rows of it are in
    /// flight.
    fn settle(&mut self, slot: usize) {
        let place = self.slots.at_mut(slot);
        if !place.is_in_flight() {
            let left = self
                .executor
                .truncate(place.seq, place.n_done)
                .expect("a slot has a sequence");
            place.truncated(left);
        }
    }
}

/// Rows of a batch that may want hidden states: all of an encoder's, since no text is divided.
fn n_hidden(spec: &ModelSpec) -> usize {
    match spec.is_encoder() {
        true => usize::MAX,
        false => (MAX_HIDDEN_BYTES / (4 * spec.d_model)).max(1),
    }
}

/// Ends a job as if it had reached its length limit.
fn finish(job: &mut Running, on_update: &mut OnUpdate<'_>) {
    let id = job.id;
    let ended = job.end(&mut |event| on_update(id, Update::Event(event)));
    report_end(job, ended, on_update);
}

/// Reports the end of a job, unless the callback ended it.
fn report_end(job: &Running, ended: Result<FinishReason, Error>, on_update: &mut OnUpdate<'_>) {
    // The job has ended, whatever the callback returns.
    let _ = match ended {
        Ok(FinishReason::Interrupted) => ControlFlow::Continue(()),
        Ok(reason) => on_update(job.id, Update::Done(&job.done(reason))),
        Err(error) => on_update(job.id, Update::Failed(&error)),
    };
}
