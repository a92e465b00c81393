//! A session: one sequence of tokens, its state, and the logits after its last token.
//!
//! A session and its forks share an executor, and with it the blocks of what they have in common; each step has it alone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
#[cfg(feature = "cache")]
use std::{io::Write, ops::Range};

use atta_model::{Batch, Cpu, CpuOptions, Executor, KvType, Observer, Output, SeqId, Want, spec::ModelSpec};
use atta_store::Reservation;

use crate::{Engine, Error};

/// The longest context that a session gets if none is asked for.
const DEFAULT_N_CTX: usize = 4096;

/// The largest batch that a session gets if none is asked for.
pub(crate) const DEFAULT_N_BATCH: usize = 512;

/// Logits of all positions of a chunk are kept at once; a chunk is cut so that they stay below this.
const MAX_LOGITS_BYTES: usize = 16 << 20;

/// What a session is made for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionOptions {
    /// Positions; `None`: what the model was trained for, at most 4,096.
    pub n_ctx: Option<usize>,
    /// Tokens of a prompt that are computed at once; `None`: an eighth of the context, at most 512, and as many of them as
    /// there is memory for. More is faster, and takes more memory.
    pub n_batch: Option<usize>,
    /// Element types of keys and values.
    pub kv: KvType,
    /// Forks that may live beside the session; each is given the memory of a context of its own.
    pub n_forks: usize,
}

/// The same with every default filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) n_ctx: usize,
    pub(crate) n_batch: usize,
    pub(crate) kv: KvType,
    /// Sequences at once.
    pub(crate) n_seqs: usize,
}

impl Resolved {
    /// What an executor for it is made for.
    pub(crate) fn cpu(&self) -> CpuOptions {
        let Self { n_ctx, n_batch, kv, n_seqs } = *self;
        CpuOptions { n_ctx, n_seqs, n_batch, kv, layers: None }
    }
}

/// Fills in the defaults; the batch may still become smaller where nobody asked for one.
pub(crate) fn resolve(spec: &ModelSpec, options: &SessionOptions) -> Resolved {
    let n_ctx = options.n_ctx.unwrap_or(spec.n_ctx_train.min(DEFAULT_N_CTX));
    let n_batch = options.n_batch.unwrap_or((n_ctx / 8).min(DEFAULT_N_BATCH)).clamp(1, n_ctx.max(1));
    Resolved { n_ctx, n_batch, kv: options.kv, n_seqs: options.n_forks.saturating_add(1) }
}

/// Bytes of the logits that a session keeps.
fn logits_bytes(spec: &ModelSpec) -> u64 {
    4 * spec.n_vocab as u64
}

/// Bytes for what is done with the results of a session: logits and a copy of them, candidates of a sampler with their
/// probabilities, counts over the context.
pub(crate) fn outcome_bytes(spec: &ModelSpec, n_ctx: usize) -> u64 {
    logits_bytes(spec) + 20 * spec.n_vocab as u64 + 16 * n_ctx as u64
}

/// One sequence of tokens and its state.
pub struct Session {
    engine: Engine,
    cpu: Arc<Mutex<Cpu>>,
    seq: SeqId,
    n_ctx: usize,
    n_batch: usize,
    tokens: Vec<u32>,
    batch: Batch,
    out: Output,
    /// The row of the last step that asked for logits.
    last: Option<usize>,
    logits_memory: Reservation,
}

impl Session {
    pub(crate) fn new(engine: &Engine, options: &SessionOptions) -> Result<Self, Error> {
        let planned = engine.planned_session(options)?;
        if planned.n_ctx == 0 {
            return Err(Error::Context(planned.n_ctx));
        }
        let logits_memory = engine.budget().reserve("logits", logits_bytes(engine.spec()))?;
        let (model, kernels, pool) = (engine.model().clone(), engine.kernels(), Arc::clone(engine.pool()));
        let mut cpu = Cpu::new(model, kernels, pool, engine.budget(), planned.cpu())?;
        Ok(Self {
            engine: engine.clone(),
            seq: cpu.new_seq()?,
            cpu: Arc::new(Mutex::new(cpu)),
            n_ctx: planned.n_ctx,
            n_batch: planned.n_batch,
            tokens: Vec::with_capacity(planned.n_ctx),
            batch: Batch::default(),
            out: Output::default(),
            last: None,
            logits_memory,
        })
    }

    /// A session with the same past, which goes its own way from here. The past is shared, not copied. Its logits are there
    /// after its first token.
    ///
    /// # Errors
    /// More forks than [`SessionOptions::n_forks`], or memory that the budget does not grant.
    pub fn fork(&self) -> Result<Self, Error> {
        let logits_memory = self.engine.budget().reserve("logits", logits_bytes(self.engine.spec()))?;
        let mut tokens = Vec::with_capacity(self.n_ctx);
        tokens.extend_from_slice(&self.tokens);
        let seq = self.executor().fork(self.seq)?;
        Ok(Self {
            engine: self.engine.clone(),
            cpu: Arc::clone(&self.cpu),
            seq,
            n_ctx: self.n_ctx,
            n_batch: self.n_batch,
            tokens,
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

    /// Appends tokens in chunks; before each one `go_on` hears how many are done, and may stop there with `false`.
    /// Returns the number of tokens appended.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_with(&mut self, ids: &[u32], mut go_on: impl FnMut(usize) -> bool) -> Result<usize, Error> {
        self.check_room(ids.len())?;
        for (i, chunk) in ids.chunks(self.n_batch).enumerate() {
            let done = i * self.n_batch;
            if !go_on(done) {
                return Ok(done);
            }
            let is_last = done + chunk.len() == ids.len();
            self.step(chunk, |i| if is_last && i + 1 == chunk.len() { Want::Logits } else { Want::Nothing })?;
            self.last = is_last.then_some(chunk.len() - 1);
        }
        Ok(ids.len())
    }

    /// Appends tokens and gives the logits after each of them, `[n_vocab]`, to `each`, with its position.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_each(&mut self, ids: &[u32], mut each: impl FnMut(usize, &[f32])) -> Result<(), Error> {
        self.check_room(ids.len())?;
        let row_bytes = 4 * self.engine.spec().n_vocab;
        let room = self.engine.budget().left().min(MAX_LOGITS_BYTES as u64) as usize;
        let n_rows = (room / row_bytes).clamp(1, self.n_batch);
        // The buffer stays as large as this, and so does what is reserved for it.
        if n_rows * row_bytes > self.logits_memory.bytes() as usize {
            self.logits_memory = self.engine.budget().reserve("logits", (n_rows * row_bytes) as u64)?;
        }
        for chunk in ids.chunks(n_rows) {
            let pos = self.tokens.len();
            self.step(chunk, |_| Want::Logits)?;
            (0..chunk.len()).for_each(|i| each(pos + i, self.out.logits(i)));
            self.last = Some(chunk.len() - 1);
        }
        Ok(())
    }

    /// The logits after the last token, `[n_vocab]`; `None` before the first one, and after [`truncate`](Self::truncate) has
    /// taken tokens away.
    pub fn logits(&self) -> Option<&[f32]> {
        self.last.map(|row| self.out.logits(row))
    }

    /// All tokens of the session.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Positions of the context.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Tokens that are computed at once, at most.
    pub fn n_batch(&self) -> usize {
        self.n_batch
    }

    /// The engine behind it.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Forgets everything from token `n` on, and returns how many tokens are left: fewer than `n` if there were fewer, or none
    /// where a layer with a window has already forgotten what token `n` sees.
    ///
    /// # Errors
    /// None that a session can cause itself.
    pub fn truncate(&mut self, n: usize) -> Result<usize, Error> {
        if n < self.tokens.len() {
            let left = self.executor().truncate(self.seq, n)?;
            self.tokens.truncate(left);
            self.last = None;
        }
        Ok(self.tokens.len())
    }

    /// Forgets everything from where the session differs from `ids` on, and returns how many tokens are left. At least the
    /// last of `ids` is not among them, so that to append the rest gives its logits.
    ///
    /// # Errors
    /// As [`truncate`](Self::truncate).
    pub fn keep_common(&mut self, ids: &[u32]) -> Result<usize, Error> {
        let same = self.tokens.iter().zip(ids).take_while(|(a, b)| a == b).count();
        self.truncate(same.min(ids.len().saturating_sub(1)))
    }

    /// Writes the state of these positions.
    #[cfg(feature = "cache")]
    pub(crate) fn export_state(&self, positions: Range<usize>, out: &mut dyn Write) -> Result<(), atta_model::Error> {
        self.executor().export(self.seq, positions, out)
    }

    /// Appends tokens whose state is known: the beginning of `state`, which begins where the session ends.
    #[cfg(feature = "cache")]
    pub(crate) fn append_state(&mut self, ids: &[u32], state: &[u8]) -> Result<(), atta_model::Error> {
        self.executor().append_state(self.seq, state, ids.len())?;
        self.tokens.extend_from_slice(ids);
        self.last = None;
        Ok(())
    }

    /// Forgets everything if a window is not complete after [`append_state`](Self::append_state); how many tokens are left.
    #[cfg(feature = "cache")]
    pub(crate) fn settle(&mut self) -> Result<usize, Error> {
        let left = self.executor().truncate(self.seq, self.tokens.len())?;
        self.tokens.truncate(left);
        Ok(left)
    }

    /// Lets an observer hear what each step turns to.
    pub(crate) fn observe(&mut self, observer: Box<dyn Observer>) {
        self.executor().observe(observer);
    }

    fn executor(&self) -> MutexGuard<'_, Cpu> {
        executor(&self.cpu)
    }

    fn check_room(&self, n: usize) -> Result<(), Error> {
        let n_prompt = self.tokens.len() + n;
        if n_prompt > self.n_ctx {
            return Err(Error::PromptTooLong { n_prompt, n_ctx: self.n_ctx });
        }
        Ok(())
    }

    fn step(&mut self, ids: &[u32], want: impl Fn(usize) -> Want) -> Result<(), Error> {
        self.batch.clear();
        let pos = self.tokens.len();
        for (i, &id) in ids.iter().enumerate() {
            self.batch.push_token(self.seq, pos + i, id, want(i));
        }
        self.last = None;
        executor(&self.cpu).step(&self.batch, &mut self.out)?;
        self.tokens.extend_from_slice(ids);
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The sequence is there as long as its session.
        let _ = self.executor().drop_seq(self.seq);
    }
}

/// The executor, even if another session panicked over it: a step that fails takes its rows back, so what it holds is whole.
fn executor(cpu: &Mutex<Cpu>) -> MutexGuard<'_, Cpu> {
    cpu.lock().unwrap_or_else(PoisonError::into_inner)
}
