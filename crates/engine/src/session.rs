//! A session: one sequence of tokens, its state, and the logits after its last token.
//!
//! A session and its forks share an executor, and with it the blocks of what they have in common;
//! each step has it alone.

use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use atta_model::{
    Batch, Executor, ExecutorSize, KvType, Observer, Output, SeqId, Want, spec::ModelSpec,
};
use atta_store::Reservation;

use crate::{Engine, Error};

/// The longest context that a session gets if none is asked for.
const DEFAULT_N_CTX: usize = 4096;

/// The largest batch that a session gets if none is asked for.
pub const DEFAULT_N_BATCH: usize = 512;

/// Logits of all positions of a chunk are kept at once; a chunk is cut so that they stay below
/// this.
const MAX_LOGITS_BYTES: usize = 16 << 20;

/// What a session is made for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionOptions {
    /// Positions; `None`: what the model was trained for, at most 4,096.
    pub n_ctx: Option<usize>,
    /// Tokens of a prompt that are computed at once; `None`: an eighth of the context, at most
    /// 512, and as many of them as there is memory for. More is faster, and takes more memory.
    pub n_batch: Option<usize>,
    /// Element types of keys and values.
    pub kv: KvType,
    /// What happens when the context is full.
    pub overflow: Overflow,
    /// Forks that may live beside the session; each is given the memory of a context of its own.
    pub n_forks: usize,
    /// Contexts that the session and its forks have room for together; `None`: each has its own.
    /// With fewer, a step may find no room.
    pub n_contexts: Option<usize>,
}

/// What happens when a context is full and a token is to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// A generation ends, a prompt is refused.
    #[default]
    Stop,
    /// Half of the context is forgotten, but not the first `n_keep` tokens (Xiao et al. 2024:
    /// StreamingLLM). What was forgotten has still left its traces in what stays; nothing else
    /// of it can be recalled.
    Shift {
        /// Tokens at the beginning that stay: without the first few, models lose their balance.
        n_keep: usize,
    },
}

/// Positions are forgotten by multiples of this.
const GAP_UNIT: usize = 32;

impl Overflow {
    /// The positions of a full context that are forgotten; `None`: none are.
    fn gap(self, n_ctx: usize) -> Option<Range<usize>> {
        let Self::Shift { n_keep } = self else {
            return None;
        };
        let n = n_ctx.saturating_sub(n_keep) / 2 / GAP_UNIT * GAP_UNIT;
        Some(n_keep..n_keep + n)
    }
}

/// The same with every default filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) n_ctx: usize,
    pub(crate) n_batch: usize,
    pub(crate) kv: KvType,
    /// Sequences at once.
    pub(crate) n_seqs: usize,
    /// Contexts that there is room for, if not one for each sequence.
    pub(crate) n_contexts: Option<usize>,
    pub(crate) overflow: Overflow,
}

impl Resolved {
    /// What an executor for it is made for.
    pub(crate) fn size(&self) -> ExecutorSize {
        let Self {
            n_ctx,
            n_batch,
            kv,
            n_seqs,
            n_contexts,
            overflow,
        } = *self;
        let n_shared = n_contexts.map(|n| n.max(1).saturating_mul(n_ctx));
        let n_recent = overflow.gap(n_ctx).map(|gap| n_ctx.saturating_sub(gap.end));
        ExecutorSize {
            n_ctx,
            n_seqs,
            n_batch,
            kv,
            n_recent,
            n_shared,
            ..ExecutorSize::default()
        }
    }
}

/// Fills in the defaults; the batch may still become smaller where nobody asked for one.
pub(crate) fn resolve(spec: &ModelSpec, options: &SessionOptions) -> Resolved {
    let n_ctx = options.n_ctx.unwrap_or(spec.n_ctx_train.min(DEFAULT_N_CTX));
    let n_batch = options
        .n_batch
        .unwrap_or((n_ctx / 8).min(DEFAULT_N_BATCH))
        .clamp(1, n_ctx.max(1));
    let n_seqs = options.n_forks.saturating_add(1);
    let (n_contexts, overflow) = (options.n_contexts, options.overflow);
    Resolved {
        n_ctx,
        n_batch,
        kv: options.kv,
        n_seqs,
        n_contexts,
        overflow,
    }
}

/// Bytes of the logits that a session keeps.
pub(crate) fn logits_bytes(spec: &ModelSpec) -> u64 {
    4 * spec.n_vocab as u64
}

/// Bytes for what is done with the results of a session: logits and a copy of them, candidates of a
/// sampler with their probabilities, counts over the context.
pub(crate) fn outcome_bytes(spec: &ModelSpec, n_ctx: usize) -> u64 {
    logits_bytes(spec) + 20 * spec.n_vocab as u64 + 16 * n_ctx as u64
}

/// One sequence of tokens and its state.
pub struct Session {
    engine: Engine,
    executor: Arc<Mutex<Box<dyn Executor>>>,
    pub(crate) seq: SeqId,
    n_ctx: usize,
    n_batch: usize,
    /// What is forgotten each time that the context is full.
    gap: Option<Range<usize>>,
    tokens: Vec<u32>,
    /// Tokens that were forgotten, all behind the first `gap.start`.
    n_forgotten: usize,
    /// Tokens whose state was saved, or restored, last; 0 without a prompt cache.
    pub(crate) n_saved: usize,
    batch: Batch,
    out: Output,
    /// The row of the last step that asked for logits.
    last: Option<usize>,
    logits_memory: Reservation,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("seq", &self.seq)
            .field("n_ctx", &self.n_ctx)
            .field("n_batch", &self.n_batch)
            .field("n_tokens", &self.tokens.len())
            .field("n_forgotten", &self.n_forgotten)
            .finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn new(engine: &Engine, options: &SessionOptions) -> Result<Self, Error> {
        let planned = engine.planned_session(options)?;
        let (n_ctx, gap) = (planned.n_ctx, planned.overflow.gap(planned.n_ctx));
        if n_ctx == 0 {
            return Err(Error::Context(n_ctx));
        }
        if let Some(gap) = gap.as_ref().filter(|gap| gap.is_empty()) {
            return Err(Error::ShortWindow {
                n_ctx,
                n_keep: gap.start,
                min: gap.start.saturating_add(2 * GAP_UNIT),
            });
        }
        let logits_memory = engine
            .budget()
            .reserve("logits", logits_bytes(engine.spec()))?;
        let mut executor =
            engine
                .backend()
                .open(engine.model().clone(), &planned.size(), engine.budget())?;
        Ok(Self {
            engine: engine.clone(),
            seq: executor.new_seq()?,
            executor: Arc::new(Mutex::new(executor)),
            n_ctx,
            n_batch: planned.n_batch,
            gap,
            tokens: Vec::with_capacity(n_ctx),
            n_forgotten: 0,
            n_saved: 0,
            batch: Batch::default(),
            out: Output::default(),
            last: None,
            logits_memory,
        })
    }

    /// A session with the same past, which goes its own way from here. The past is shared, not
    /// copied. Its logits are there after its first token.
    ///
    /// # Errors
    /// More forks than [`SessionOptions::n_forks`], or memory that the budget does not grant.
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
            n_ctx: self.n_ctx,
            n_batch: self.n_batch,
            gap: self.gap.clone(),
            tokens,
            n_forgotten: self.n_forgotten,
            n_saved: self.n_saved,
            batch: Batch::default(),
            out: Output::default(),
            last: None,
            logits_memory,
        })
    }

    /// Appends tokens; the logits after the last one are there afterwards.
    ///
    /// # Errors
    /// [`Error::PromptTooLong`] before anything is computed; a step that failed.
    pub fn append(&mut self, ids: &[u32]) -> Result<(), Error> {
        self.append_with(ids, |_| true).map(|_| ())
    }

    /// Appends tokens in chunks; before each one `go_on` hears how many are done, and may stop
    /// there with `false`. Returns the number of tokens appended.
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
            if !go_on(done) {
                return Ok(done);
            }
            done += self.append_chunk(&ids[done..])?;
        }
        Ok(ids.len())
    }

    /// Appends as many of `ids` as fit one batch, and returns how many. The logits after the last
    /// of `ids` are there afterwards if it was among them.
    pub(crate) fn append_chunk(&mut self, ids: &[u32]) -> Result<usize, Error> {
        self.shift_if_full()?;
        // A context is always shifted when it is full, so that the size of chunks makes no
        // difference.
        let n = ids.len().min(self.n_batch).min(self.n_ctx - self.n_held());
        let is_last = n == ids.len();
        let want = |i| {
            if is_last && i + 1 == n {
                Want::Logits
            } else {
                Want::Nothing
            }
        };
        // Another answer to the same prompt starts before its last token.
        self.step(&ids[..n], want, ids.len().checked_sub(2))?;
        self.last = is_last.then_some(n - 1);
        Ok(n)
    }

    /// Appends tokens and gives the logits after each of them, `[n_vocab]`, to `each`, with its
    /// position. The context is not shifted for them.
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
        // The buffer stays as large as this, and so does what is reserved for it.
        if n_rows * row_bytes > self.logits_memory.bytes() as usize {
            self.logits_memory = self
                .engine
                .budget()
                .reserve("logits", (n_rows * row_bytes) as u64)?;
        }
        for chunk in ids.chunks(n_rows) {
            let pos = self.tokens.len();
            self.step(chunk, |_| Want::Logits, None)?;
            (0..chunk.len()).for_each(|i| each(pos + i, self.out.logits(i)));
            self.last = Some(chunk.len() - 1);
        }
        Ok(())
    }

    /// The logits after the last token, `[n_vocab]`; `None` before the first one, and after
    /// [`truncate`](Self::truncate) has taken tokens away.
    pub fn logits(&self) -> Option<&[f32]> {
        self.last.map(|row| self.out.logits(row))
    }

    /// All tokens of the session, those that were forgotten included.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Positions of the context.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Whether another token has a place, be it that others are forgotten for it.
    pub fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// How many tokens have a place.
    pub fn room(&self) -> usize {
        if self.shifts() {
            usize::MAX
        } else {
            self.n_ctx - self.n_held()
        }
    }

    /// Whether tokens are forgotten when the context is full.
    pub fn shifts(&self) -> bool {
        self.gap.is_some()
    }

    /// Tokens that were forgotten to make room.
    pub fn n_forgotten(&self) -> usize {
        self.n_forgotten
    }

    /// Number of tokens that may be appended before the context is shifted for the first time;
    /// `None` if it was, or never is.
    pub(crate) fn n_until_shift(&self) -> Option<usize> {
        let is_whole = self.shifts() && self.n_forgotten == 0;
        is_whole.then(|| self.n_ctx - self.tokens.len())
    }

    /// Tokens that are computed at once, at most.
    pub fn n_batch(&self) -> usize {
        self.n_batch
    }

    /// The engine behind it.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Forgets everything from token `n` on, and returns how many tokens are left: fewer than `n`
    /// if there were fewer, where they were forgotten already, or none where a layer with a
    /// window has let go of what token `n` sees.
    ///
    /// # Errors
    /// None that a session can cause itself.
    pub fn truncate(&mut self, n: usize) -> Result<usize, Error> {
        if n < self.tokens.len() {
            let n_kept = self.gap.as_ref().map_or(0, |gap| gap.start);
            let (held, n_forgotten) = match n.checked_sub(self.n_forgotten) {
                Some(held) if held > n_kept => (held, self.n_forgotten),
                _ => (n.min(n_kept), 0),
            };
            let left = self.executor().truncate(self.seq, held)?;
            self.n_forgotten = if left == 0 { 0 } else { n_forgotten };
            self.tokens.truncate(left + self.n_forgotten);
            self.n_saved = self.n_saved.min(self.tokens.len());
            self.last = None;
        }
        Ok(self.tokens.len())
    }

    /// Removes the last `n` tokens. Evaluates the one in front of them again if its logits are
    /// wanted, and all tokens of which a layer with a window has let go.
    pub(crate) fn roll_back(&mut self, n: usize, with_logits: bool) -> Result<(), Error> {
        if n == 0 {
            return Ok(());
        }
        let rest = self.tokens[..self.tokens.len() - n].to_vec();
        let left = self.truncate(rest.len() - usize::from(with_logits).min(rest.len()))?;
        self.append(&rest[left..])
    }

    /// Forgets everything from where the session differs from `ids` on, and returns how many tokens
    /// are left. At least the last of `ids` is not among them, so that to append the rest gives
    /// its logits.
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
        self.truncate(same.min(ids.len().saturating_sub(1)))
    }

    /// Notes that these tokens are what the sequence holds now.
    #[cfg(feature = "cache")]
    pub(crate) fn hold(&mut self, ids: &[u32]) {
        self.tokens.clear();
        self.tokens.extend_from_slice(ids);
        self.n_forgotten = 0;
        self.last = None;
    }

    /// Lets an observer hear what each step turns to, and what passes through it.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.executor().observe(observer);
    }

    pub(crate) fn executor(&self) -> MutexGuard<'_, Box<dyn Executor>> {
        executor(&self.executor)
    }

    /// Tokens whose keys and values are there.
    fn n_held(&self) -> usize {
        self.tokens.len() - self.n_forgotten
    }

    /// Shifts a full context, if it may.
    fn shift_if_full(&mut self) -> Result<(), Error> {
        if self.n_held() == self.n_ctx
            && let Some(gap) = self.gap.clone()
        {
            self.executor().shift(self.seq, gap.clone())?;
            self.n_forgotten += gap.len();
        }
        Ok(())
    }

    pub(crate) fn check_room(&self, n: usize) -> Result<(), Error> {
        let n_prompt = self.n_held() + n;
        if n_prompt > self.n_ctx {
            return Err(Error::PromptTooLong {
                n_prompt,
                n_ctx: self.n_ctx,
            });
        }
        Ok(())
    }

    /// Evaluates tokens as one batch, with a checkpoint behind token `checkpoint` of them.
    fn step(
        &mut self,
        ids: &[u32],
        want: impl Fn(usize) -> Want,
        checkpoint: Option<usize>,
    ) -> Result<(), Error> {
        self.batch.clear();
        let pos = self.n_held();
        for (i, &id) in ids.iter().enumerate() {
            self.batch.push_token(self.seq, pos + i, id, want(i));
            if checkpoint == Some(i) {
                self.batch.mark_checkpoint();
            }
        }
        self.last = None;
        executor(&self.executor).step(&self.batch, &mut self.out)?;
        let n_before = self.tokens.len();
        self.tokens.extend_from_slice(ids);
        match self.out.first_not_finite(0..ids.len()) {
            Some(row) => {
                self.truncate(n_before)?;
                Err(self.engine.not_finite(n_before + row))
            }
            None => Ok(()),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The sequence is there as long as its session.
        let _ = self.executor().drop_seq(self.seq);
    }
}

/// The executor, even if another session panicked over it: a step that fails takes its rows back,
/// so what it holds is whole.
fn executor(executor: &Mutex<Box<dyn Executor>>) -> MutexGuard<'_, Box<dyn Executor>> {
    executor.lock().unwrap_or_else(PoisonError::into_inner)
}
