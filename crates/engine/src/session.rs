//! A session: one sequence of tokens, its KV cache, and the logits after its last token.
//!
//! A session and its forks share an executor and the KV blocks of their common prefix. The executor
//! runs one step of one of them at a time.

mod in_flight;
#[cfg(feature = "cache")]
mod suspension;
mod windows;

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use atta_model::{
    AdapterSet, Batch, Executor, ExecutorSize, KvType, Observer, Output, SeqId, Want,
    spec::ModelSpec,
};
use atta_store::Reservation;

use in_flight::InFlight;
use windows::Windows;

use crate::{
    Engine, Error, SpeculationOff,
    speculation::{HiddenSink, StepCosts},
};

/// Maximum default context length.
pub const DEFAULT_N_CTX: usize = 4096;

/// Maximum default batch size.
pub const DEFAULT_N_BATCH: usize = 512;

/// Maximum bytes of the logits of one chunk in [`Session::append_each`].
const MAX_LOGITS_BYTES: usize = 16 << 20;

/// Options of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionOptions {
    /// Context length in tokens; `None`: the training context of the model, at most 4,096.
    pub n_ctx: Option<usize>,
    /// Batch size: prompt tokens per step. `None`: an eighth of the context, at most 512, or fewer
    /// if memory is short. More is faster and takes more memory.
    pub n_batch: Option<usize>,
    /// Element types of the KV cache.
    pub kv: KvType,
    /// Behaviour when the context is full.
    pub overflow: Overflow,
    /// Maximum number of forks beside the session; each has KV memory for a context of its own.
    pub n_forks: usize,
    /// Size of the KV pool that the session and its forks share, in contexts; `None`: one for each.
    /// With fewer, a step fails when the pool is full.
    pub n_contexts: Option<usize>,
    /// Tokens of drafts per step that memory is kept free for, unless that leaves too little for
    /// the rest.
    pub n_draft: usize,
    /// Whether drafts are worth memory for recurrent states, one for each token, in a model that
    /// has some. Else such a model has no drafts.
    pub draft_states: bool,
}

impl SessionOptions {
    /// The size of the executor that such a session has if memory is not short.
    pub fn executor_size(&self, spec: &ModelSpec) -> ExecutorSize {
        resolve(spec, self).size()
    }

    /// Memory for logits and sampling that such a session takes beside its executor, bytes.
    pub fn output_bytes(&self, spec: &ModelSpec) -> u64 {
        let Resolved { n_ctx, n_seqs, .. } = resolve(spec, self);
        output_bytes(spec, n_ctx).saturating_mul(n_seqs as u64)
    }
}

/// Behaviour when a token does not fit the context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// A generation ends; a prompt is an error.
    #[default]
    Stop,
    /// Context shift: half of the context behind the first `n_keep` tokens is evicted (Xiao et al.
    /// 2024: StreamingLLM). The states of later tokens still depend on the evicted ones.
    Shift {
        /// Tokens at the start that stay. Models need the first few (attention sinks).
        n_keep: usize,
    },
}

/// Evicted ranges are multiples of this many positions.
const SHIFT_UNIT: usize = 32;

impl Overflow {
    /// The range of positions that a shift evicts from a full context; `None` without shifts.
    fn evicted_range(self, n_ctx: usize) -> Option<Range<usize>> {
        let Self::Shift { n_keep } = self else {
            return None;
        };
        let n = n_ctx.saturating_sub(n_keep) / 2 / SHIFT_UNIT * SHIFT_UNIT;
        Some(n_keep..n_keep + n)
    }
}

/// [`SessionOptions`] with every default filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) n_ctx: usize,
    pub(crate) n_batch: usize,
    pub(crate) kv: KvType,
    /// Number of sequences.
    pub(crate) n_seqs: usize,
    /// Size of the KV pool in contexts, if not one for each sequence.
    pub(crate) n_contexts: Option<usize>,
    pub(crate) overflow: Overflow,
    /// Tokens of drafts per step.
    pub(crate) n_draft: usize,
    /// Those that have recurrent states.
    pub(crate) n_draft_states: usize,
}

impl Resolved {
    /// The size of an executor for it.
    pub(crate) fn size(&self) -> ExecutorSize {
        let Self {
            n_ctx,
            n_batch,
            kv,
            n_seqs,
            n_contexts,
            overflow,
            n_draft,
            n_draft_states,
        } = *self;
        let n_shared = n_contexts.map(|n| n.max(1).saturating_mul(n_ctx));
        let n_recent = overflow
            .evicted_range(n_ctx)
            .map(|evicted| n_ctx.saturating_sub(evicted.end));
        ExecutorSize {
            n_ctx,
            n_seqs,
            n_batch,
            kv,
            n_recent,
            n_shared,
            n_draft: n_draft_states.min(n_draft),
            ..ExecutorSize::default()
        }
    }
}

/// Fills in the defaults. The memory plan may still reduce a default batch size.
pub(crate) fn resolve(spec: &ModelSpec, options: &SessionOptions) -> Resolved {
    let n_ctx = options.n_ctx.unwrap_or(spec.n_ctx_train.min(DEFAULT_N_CTX));
    let n_batch = match spec.is_encoder() {
        // A text is evaluated whole.
        true => n_ctx.max(1),
        false => options
            .n_batch
            .unwrap_or((n_ctx / 8).min(DEFAULT_N_BATCH))
            .clamp(1, n_ctx.max(1)),
    };
    Resolved {
        n_ctx,
        n_batch,
        kv: options.kv,
        n_seqs: options.n_forks.saturating_add(1),
        n_contexts: options.n_contexts,
        overflow: options.overflow,
        n_draft: options.n_draft,
        n_draft_states: match spec.is_recurrent() && options.draft_states {
            true => options.n_draft,
            false => 0,
        },
    }
}

/// Tokens of drafts that a plan has memory for, if these options ask for some.
pub(crate) fn planned_drafts(options: &SessionOptions, planned: &Resolved) -> Option<usize> {
    (options.n_draft > 0).then_some(planned.n_draft)
}

/// Bytes of one row of logits.
pub(crate) fn logits_bytes(spec: &ModelSpec) -> u64 {
    4 * spec.n_vocab as u64
}

/// Bytes for logits and sampling: logits and a copy of them, candidates with their probabilities,
/// counts over the context.
pub(crate) fn output_bytes(spec: &ModelSpec, n_ctx: usize) -> u64 {
    logits_bytes(spec) + 20 * spec.n_vocab as u64 + 16 * n_ctx as u64
}

/// One sequence of tokens and its KV cache.
pub struct Session {
    engine: Engine,
    executor: Arc<Mutex<Box<dyn Executor>>>,
    pub(crate) seq: SeqId,
    /// While the session has no memory for its state.
    #[cfg(feature = "cache")]
    suspended: Option<suspension::Suspended>,
    /// The size of the executor.
    #[cfg(feature = "cache")]
    size: ExecutorSize,
    n_ctx: usize,
    n_batch: usize,
    /// Positions that each context shift evicts; `None` without shifts.
    evicted_range: Option<Range<usize>>,
    /// The adapters that all tokens are computed with.
    adapters: AdapterSet,
    /// Includes the tokens of batches in flight.
    tokens: Vec<u32>,
    /// Batches of a prompt that the executor computes, oldest first.
    in_flight: VecDeque<InFlight>,
    /// Batches of an answer that the executor computes.
    windows: Windows,
    /// Tokens up to here may have been filled in and are of no text; 0 where all are.
    n_filled: usize,
    /// Evicted tokens, all behind the first `evicted_range.start`.
    n_evicted: usize,
    /// Tokens whose state is in the prompt cache; 0 without one.
    pub(crate) n_saved: usize,
    batch: Batch,
    out: Output,
    /// The row of `out` with the logits after the last token.
    last: Option<usize>,
    /// The rows of `out` with logits.
    rows: LogitRows,
    logits_memory: Reservation,
    /// Maximum tokens of drafts, if the memory plan says; else what memory there is.
    n_draft: Option<usize>,
    /// Times of steps, for speculation.
    pub(crate) costs: StepCosts,
    /// What takes hidden states, with the memory for those of a batch.
    sink: Option<(Arc<dyn HiddenSink>, Reservation)>,
}

/// Rows with logits of the last batch.
#[derive(Clone, Copy, Debug, Default)]
struct LogitRows {
    /// Tokens in front of the batch.
    n_before: usize,
    /// First row with logits.
    first: usize,
    /// The end of the rows.
    end: usize,
}

impl LogitRows {
    /// The row with the logits after `n` tokens.
    fn after(self, n: usize) -> Option<usize> {
        let row = n.checked_sub(self.n_before + 1)?;
        (self.first..self.end).contains(&row).then_some(row)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("seq", &self.seq)
            .field("n_ctx", &self.n_ctx)
            .field("n_batch", &self.n_batch)
            .field("n_tokens", &self.tokens.len())
            .field("n_evicted", &self.n_evicted)
            .finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn new(engine: &Engine, options: &SessionOptions) -> Result<Self, Error> {
        engine.check_writes()?;
        let planned = engine.planned_session(options)?;
        let n_ctx = planned.n_ctx;
        let evicted_range = planned.overflow.evicted_range(n_ctx);
        if n_ctx == 0 {
            return Err(Error::Context(n_ctx));
        }
        if let Some(range) = evicted_range.as_ref().filter(|range| range.is_empty()) {
            return Err(Error::ShortWindow {
                n_ctx,
                n_keep: range.start,
                min: range.start.saturating_add(2 * SHIFT_UNIT),
            });
        }
        let logits_memory = engine
            .budget()
            .reserve("logits", logits_bytes(engine.spec()))?;
        let size = planned.size();
        let mut executor = engine
            .backend()
            .open(engine.model().clone(), &size, engine.budget())?;
        Ok(Self {
            engine: engine.clone(),
            seq: executor.new_seq()?,
            #[cfg(feature = "cache")]
            suspended: None,
            #[cfg(feature = "cache")]
            size,
            executor: Arc::new(Mutex::new(executor)),
            n_ctx,
            n_batch: planned.n_batch,
            evicted_range,
            adapters: engine.default_adapters(),
            tokens: Vec::with_capacity(n_ctx),
            in_flight: VecDeque::new(),
            windows: Windows::default(),
            n_filled: 0,
            n_evicted: 0,
            n_saved: 0,
            batch: Batch::default(),
            out: Output::default(),
            last: None,
            rows: LogitRows::default(),
            logits_memory,
            n_draft: planned_drafts(options, &planned),
            costs: StepCosts::new(),
            sink: None,
        })
    }

    /// Forks the session: both have the same tokens, whose KV blocks they share, and go on
    /// independently. The fork has no logits before its first token.
    ///
    /// # Errors
    /// More forks than [`SessionOptions::n_forks`]; an exceeded memory budget.
    pub fn fork(&self) -> Result<Self, Error> {
        let logits_memory = self
            .engine
            .budget()
            .reserve("logits", logits_bytes(self.engine.spec()))?;
        let mut tokens = Vec::with_capacity(self.n_ctx);
        tokens.extend_from_slice(&self.tokens);
        let seq = self.executor().fork(self.seq)?;
        Ok(Self {
            engine: self.engine.clone(),
            executor: Arc::clone(&self.executor),
            seq,
            #[cfg(feature = "cache")]
            suspended: None,
            #[cfg(feature = "cache")]
            size: self.size.clone(),
            n_ctx: self.n_ctx,
            n_batch: self.n_batch,
            evicted_range: self.evicted_range.clone(),
            adapters: self.adapters,
            tokens,
            in_flight: VecDeque::new(),
            windows: Windows::default(),
            n_filled: self.n_filled,
            n_evicted: self.n_evicted,
            n_saved: self.n_saved,
            batch: Batch::default(),
            out: Output::default(),
            last: None,
            rows: LogitRows::default(),
            logits_memory,
            n_draft: self.n_draft,
            costs: self.costs.of_fork(),
            sink: None,
        })
    }

    /// Shows hidden states to no sink any more.
    pub(crate) fn hide_states(&mut self) {
        self.sink = None;
    }

    /// Shows hidden states to a sink from now on.
    ///
    /// # Errors
    /// The reason why there are none to show.
    pub(crate) fn show_states(&mut self, sink: Arc<dyn HiddenSink>) -> Result<(), SpeculationOff> {
        if !self.executor().can_tap() {
            return Err(SpeculationOff::NoStates);
        }
        let d = sink.taps().len() * self.engine.spec().d_model;
        let n_bytes = 4 * (self.n_batch * d) as u64;
        let memory = self.engine.budget().reserve("hidden states", n_bytes);
        let memory = memory.map_err(|_| SpeculationOff::NoRoom)?;
        self.sink = Some((sink, memory));
        Ok(())
    }

    /// Sets the adapters of all tokens; at first those that the engine has by default. With others,
    /// the session becomes empty: its state was computed without them.
    ///
    /// # Errors
    /// As [`truncate`](Self::truncate).
    pub fn set_adapters(&mut self, adapters: AdapterSet) -> Result<(), Error> {
        if adapters != self.adapters {
            self.truncate(0)?;
            self.adapters = adapters;
        }
        Ok(())
    }

    /// The adapters of all tokens.
    pub fn adapters(&self) -> AdapterSet {
        self.adapters
    }

    /// Appends tokens and computes the logits after the last one.
    ///
    /// # Errors
    /// [`Error::PromptTooLong`] before anything is computed; a step that failed.
    pub fn append(&mut self, ids: &[u32]) -> Result<(), Error> {
        self.append_with(ids, |_| true).map(|_| ())
    }

    /// Appends tokens in chunks. Before each chunk `go_on` gets the number of tokens done, and may
    /// stop with `false`. Returns the number of appended tokens. An executor with a depth computes
    /// several chunks at the same time, unless forks share it or the context shifts.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_with(
        &mut self,
        ids: &[u32],
        mut go_on: impl FnMut(usize) -> bool,
    ) -> Result<usize, Error> {
        if !self.shifts() {
            self.check_room(ids.len())?;
        }
        let mut done = 0;
        while done < ids.len() {
            if !go_on(done - self.n_in_flight()) {
                break;
            }
            done += self.append_chunk(&ids[done..])?;
        }
        self.settle()?;
        Ok(done)
    }

    /// Appends as many tokens of a prompt as fit one batch, and returns how many. Computes logits
    /// if the last of `ids` is among them; else batches may be left in flight, and what follows is
    /// another chunk or [`settle`](Self::settle). Marks a checkpoint before the last one, where
    /// another answer to the same prompt starts.
    pub(crate) fn append_chunk(&mut self, ids: &[u32]) -> Result<usize, Error> {
        self.append_part(ids, ids.len().checked_sub(2))
    }

    /// Appends tokens of an answer, and computes the logits after the last one. Marks no
    /// checkpoint: those of the prompt stay.
    pub(crate) fn append_generated(&mut self, ids: &[u32]) -> Result<(), Error> {
        if !self.shifts() {
            self.check_room(ids.len())?;
        }
        let mut done = 0;
        while done < ids.len() {
            done += self.append_part(&ids[done..], None)?;
        }
        Ok(())
    }

    /// Appends as many of `ids` as fit one batch, with a checkpoint behind token `checkpoint`.
    fn append_part(&mut self, ids: &[u32], checkpoint: Option<usize>) -> Result<usize, Error> {
        self.shift_if_full()?;
        // Shifts happen at the same positions for any batch size.
        let n_chunk = self.executor().n_chunk();
        let n = ids
            .len()
            .min(self.n_batch)
            .min(n_chunk)
            .min(self.n_ctx - self.n_cached());
        let is_last = n == ids.len();
        let want = |i| {
            if is_last && i + 1 == n {
                Want::Logits
            } else {
                Want::Nothing
            }
        };
        self.submit(&ids[..n], want, checkpoint)?;
        self.settle_to(if is_last { 0 } else { self.max_in_flight() })?;
        self.last = is_last.then_some(n - 1);
        self.rows.first = n - usize::from(is_last);
        Ok(n)
    }

    /// Maximum tokens of a draft behind the windows in flight and `n_pending` tokens: it shares the
    /// batch of these, does not shift the context, and at most `n_max` rows of logits have memory.
    pub(crate) fn draft_room(&mut self, n_pending: usize, n_max: usize) -> usize {
        let n_free = self.n_ctx - self.n_cached();
        let n_free = n_free.saturating_sub(self.n_window_tokens());
        let n = n_max.min(n_free.min(self.n_batch).saturating_sub(n_pending));
        self.reserve_drafts(n)
    }

    /// Reserves memory for the logits of drafts of up to `n` tokens, and returns for how many there
    /// is some.
    pub(crate) fn reserve_drafts(&mut self, n: usize) -> usize {
        let row_bytes = logits_bytes(self.engine.spec()) as usize;
        let left = self.engine.budget().left() as usize;
        let n_reserved = self.logits_memory.bytes() as usize / row_bytes;
        let n = n.min(self.n_draft.unwrap_or(n));
        let n = n.min(self.executor().seqs().max_draft());
        let n = n.min(n_reserved.max(left / row_bytes).saturating_sub(1));
        match self.reserve_logits((n + 1) * row_bytes) {
            Ok(()) => n,
            Err(_) => 0,
        }
    }

    /// The logits after each of the last `n` tokens and the one before them, of one batch.
    pub(crate) fn last_logits(&self, n: usize) -> Vec<&[f32]> {
        let last = self.last.expect("the last token's were wanted");
        (last - n..=last).map(|row| self.out.logits(row)).collect()
    }

    /// Appends tokens and calls `each` with the position of each token and the logits after it,
    /// `[n_vocab]`. The context is not shifted.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_each(
        &mut self,
        ids: &[u32],
        mut each: impl FnMut(usize, &[f32]),
    ) -> Result<(), Error> {
        self.check_room(ids.len())?;
        let row_bytes = 4 * self.engine.spec().n_vocab;
        let room = self.engine.budget().left().min(MAX_LOGITS_BYTES as u64) as usize;
        let n_rows = (room / row_bytes).clamp(1, self.n_batch);
        self.reserve_logits(n_rows * row_bytes)?;
        for chunk in ids.chunks(n_rows) {
            let pos = self.tokens.len();
            self.step(chunk, |_| Want::Logits, None)?;
            self.rows.first = 0;
            (0..chunk.len()).for_each(|i| each(pos + i, self.out.logits(i)));
            self.last = Some(chunk.len() - 1);
        }
        Ok(())
    }

    /// Appends `n` positions without computing them: for measurements of speed behind a long
    /// context. They count as tokens of id 0, but no prompt continues them, and the session is
    /// neither saved nor exported until they are removed.
    ///
    /// # Errors
    /// [`Error::PromptTooLong`]; [`Error::Step`] with [`atta_model::Error::NoFill`] of an executor
    /// that cannot.
    pub fn fill(&mut self, n: usize) -> Result<(), Error> {
        self.check_room(n)?;
        self.executor().fill(self.seq, n)?;
        self.tokens.resize(self.tokens.len() + n, 0);
        self.rows = LogitRows::default();
        if n > 0 {
            self.n_filled = self.tokens.len();
            self.last = None;
        }
        Ok(())
    }

    /// The end of the positions that [`fill`](Self::fill) appended; 0 without any.
    #[cfg(feature = "cache")]
    pub(crate) fn n_filled(&self) -> usize {
        self.n_filled
    }

    /// The logits after the last token, `[n_vocab]`; `None` before the first token, and after
    /// [`truncate`](Self::truncate) has removed tokens.
    pub fn logits(&self) -> Option<&[f32]> {
        self.last.map(|row| self.out.logits(row))
    }

    /// All tokens of the session, including evicted ones.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Context length in tokens.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Whether another token fits, if need be after a context shift.
    pub fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// Number of tokens that fit; unlimited if the context shifts.
    pub fn room(&self) -> usize {
        if self.shifts() {
            usize::MAX
        } else {
            self.n_ctx - self.n_cached()
        }
    }

    /// Whether a full context is shifted.
    pub fn shifts(&self) -> bool {
        self.evicted_range.is_some()
    }

    /// Number of tokens evicted by context shifts.
    pub fn n_evicted(&self) -> usize {
        self.n_evicted
    }

    /// Number of tokens that may be appended before the context is shifted for the first time;
    /// `None` if it was, or never is.
    pub(crate) fn n_until_shift(&self) -> Option<usize> {
        let is_whole = self.shifts() && self.n_evicted == 0;
        is_whole.then(|| self.n_ctx - self.tokens.len())
    }

    /// Batch size: maximum tokens per step.
    pub fn n_batch(&self) -> usize {
        self.n_batch
    }

    /// The engine of the session.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Removes all tokens from token `n` on, and returns how many are left. Fewer than `n` are left
    /// if there were fewer or if they were evicted; none if a layer with a sliding window has freed
    /// positions that token `n` attends to. A model with recurrent layers returns to the nearest
    /// checkpoint.
    ///
    /// # Errors
    /// An executor that fails; the one on CPUs does not.
    pub fn truncate(&mut self, n: usize) -> Result<usize, Error> {
        self.settle_to(0)?;
        #[cfg(feature = "cache")]
        if self.is_suspended() {
            return self.truncate_suspended(n);
        }
        if n < self.tokens.len() {
            self.take_windows_back()?;
            let n_kept = self.evicted_range.as_ref().map_or(0, |range| range.start);
            let behind = n
                .checked_sub(self.n_evicted)
                .filter(|&n_cached| n_cached > n_kept);
            let left = self
                .executor()
                .truncate(self.seq, behind.unwrap_or(n.min(n_kept)))?;
            if behind.is_none() || left == 0 {
                self.n_evicted = 0;
            }
            self.tokens.truncate(left + self.n_evicted);
            self.n_saved = self.n_saved.min(self.tokens.len());
            self.n_filled = self.n_filled.min(self.tokens.len());
            self.last = None;
        }
        Ok(self.tokens.len())
    }

    /// Removes the last `n` tokens. Evaluates the last remaining token again if its logits are
    /// wanted and were not among those of the last batch, and all tokens whose state is gone: freed
    /// by a sliding window, or behind the nearest checkpoint of recurrent layers.
    pub(crate) fn roll_back(&mut self, n: usize, with_logits: bool) -> Result<(), Error> {
        if n == 0 {
            return Ok(());
        }
        let rest = self.tokens[..self.tokens.len() - n].to_vec();
        let row = self.rows.after(rest.len());
        let is_missing = with_logits && row.is_none();
        let left = self.truncate(rest.len() - usize::from(is_missing).min(rest.len()))?;
        if left == rest.len() {
            self.last = row;
            return Ok(());
        }
        self.append_generated(&rest[left..])
    }

    /// Truncates the session to its common prefix with `ids`, and returns the length of the prefix.
    /// The last of `ids` is never part of it, so that appending the rest computes logits. Positions
    /// that were [filled in](Self::fill) are a prefix of nothing.
    ///
    /// # Errors
    /// As [`truncate`](Self::truncate).
    pub fn keep_common(&mut self, ids: &[u32]) -> Result<usize, Error> {
        let same = self
            .tokens
            .iter()
            .zip(ids)
            .take_while(|(a, b)| a == b)
            .count();
        let same = if self.n_filled > 0 { 0 } else { same };
        self.truncate(same.min(ids.len().saturating_sub(1)))
    }

    /// Records that the sequence now holds these tokens.
    #[cfg(feature = "cache")]
    pub(crate) fn set_tokens(&mut self, ids: &[u32]) {
        self.tokens.clear();
        self.tokens.extend_from_slice(ids);
        self.n_filled = 0;
        self.n_evicted = 0;
        self.last = None;
        self.rows = LogitRows::default();
    }

    /// Sets an observer of the phases and matrix inputs of each step.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.executor().observe(observer);
    }

    /// Lets the executor take changes that its backend has been asked for, such as other machines.
    ///
    /// # Errors
    /// [`Error::Step`]: they are not possible.
    pub fn refresh(&self) -> Result<(), Error> {
        Ok(self.executor().refresh()?)
    }

    pub(crate) fn executor(&self) -> MutexGuard<'_, Box<dyn Executor>> {
        executor(&self.executor)
    }

    /// Number of tokens in the KV cache.
    fn n_cached(&self) -> usize {
        self.tokens.len() - self.n_evicted
    }

    /// Shifts the context if it is full and may be shifted.
    fn shift_if_full(&mut self) -> Result<(), Error> {
        if self.n_cached() == self.n_ctx
            && let Some(evicted) = self.evicted_range.clone()
        {
            self.executor().shift(self.seq, evicted.clone())?;
            self.n_evicted += evicted.len();
        }
        Ok(())
    }

    pub(crate) fn check_room(&self, n: usize) -> Result<(), Error> {
        let n_prompt = self.n_cached() + n;
        if n_prompt > self.n_ctx {
            return Err(Error::PromptTooLong {
                n_prompt,
                n_ctx: self.n_ctx,
            });
        }
        Ok(())
    }

    /// Reserves memory for logits. Their buffer never shrinks, and neither does its reservation.
    fn reserve_logits(&mut self, n_bytes: usize) -> Result<(), Error> {
        if n_bytes > self.logits_memory.bytes() as usize {
            let budget = self.engine.budget();
            self.logits_memory = budget.reserve("logits", n_bytes as u64)?;
        }
        Ok(())
    }

    fn fill_batch(&mut self, ids: &[u32], want: impl Fn(usize) -> Want, checkpoint: Option<usize>) {
        self.batch.clear();
        if let Some((sink, _)) = &self.sink {
            self.batch.taps.extend_from_slice(sink.taps());
        }
        let pos = self.n_cached() + self.n_window_tokens();
        for (i, &id) in ids.iter().enumerate() {
            self.batch.push_token(self.seq, pos + i, id, want(i));
            self.batch.set_adapters(self.adapters);
            if checkpoint == Some(i) {
                self.batch.mark_checkpoint();
            }
        }
    }

    /// Evaluates tokens as one batch, with a checkpoint behind token `checkpoint` of them.
    fn step(
        &mut self,
        ids: &[u32],
        want: impl Fn(usize) -> Want,
        checkpoint: Option<usize>,
    ) -> Result<(), Error> {
        self.submit(ids, want, checkpoint)?;
        self.settle()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.take_windows_back();
        // The sequence exists as long as its session.
        let _ = self.executor().drop_seq(self.seq);
    }
}

/// Locks the executor, even if another session panicked while it held the lock: a step that fails
/// or panics removes its rows, so the executor is in a valid state.
fn executor(executor: &Mutex<Box<dyn Executor>>) -> MutexGuard<'_, Box<dyn Executor>> {
    executor.lock().unwrap_or_else(PoisonError::into_inner)
}
