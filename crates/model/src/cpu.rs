//! The executor that runs on the CPU: its memory, and the rules by which rows are let in.
//!
//! What happens to the rows then is in `forward.rs`. A batch is let in whole or not at all, and a step that fails halfway
//! takes its rows back, so that a sequence is always as long as what was computed of it.

use std::{io::Write, ops::Range, sync::Arc};

use atta_kernels::{Kernels, Pool};
use atta_store::{Budget, Reservation};

use crate::{
    Batch, Error, Executor, Input, KvType, Model, Observer, Output, Phase, Row, SeqId, Want,
    blocks::{RopeTables, Scratch, ScratchSize},
    kv::{Cache, CacheSize},
    observe::Silent,
    spec::{ModelSpec, Positions},
};

/// What an executor is made for.
#[derive(Clone, Debug)]
pub struct CpuOptions {
    /// Positions per sequence.
    pub n_ctx: usize,
    /// Sequences at once.
    pub n_seqs: usize,
    /// Rows per step.
    pub n_batch: usize,
    /// Element types of keys and values.
    pub kv: KvType,
    /// The layers to run; `None`: all.
    pub layers: Option<Range<usize>>,
    /// Positions that stay behind a gap when a sequence is shifted, at least; `None`: none will be.
    pub n_recent: Option<usize>,
    /// Positions of all sequences together that have keys and values, at least; `None`: every sequence may be as long as it can.
    /// With fewer, a step may find no room ([`Error::OutOfBlocks`]), and sequences cannot be shifted.
    pub n_shared: Option<usize>,
}

impl CpuOptions {
    fn cache(&self) -> CacheSize {
        let Self { n_ctx, n_seqs, n_batch, kv, n_recent, n_shared, .. } = *self;
        CacheSize { kv, n_ctx, n_seqs, n_batch, n_recent, n_shared }
    }
}

impl Default for CpuOptions {
    fn default() -> Self {
        Self { n_ctx: 4096, n_seqs: 1, n_batch: 512, kv: KvType::F16, layers: None, n_recent: None, n_shared: None }
    }
}

/// Runs a range of layers on the CPU.
pub struct Cpu {
    pub(crate) model: Arc<Model>,
    pub(crate) kernels: Kernels,
    pub(crate) pool: Arc<Pool>,
    pub(crate) layers: Range<usize>,
    n_batch: usize,
    n_shared: Option<usize>,
    pub(crate) cache: Cache,
    pub(crate) ropes: RopeTables,
    pub(crate) scratch: Scratch,
    /// Token ids of the rows of this step, in order.
    pub(crate) ids: Vec<u32>,
    pub(crate) observer: Box<dyn Observer>,
    _memory: [Reservation; 2],
}

impl Executor for Cpu {
    fn step(&mut self, batch: &Batch, out: &mut Output) -> Result<(), Error> {
        self.admit(batch)?;
        if batch.rows.is_empty() {
            out.prepare(&[], self.model.spec().n_vocab, self.model.spec().d_model);
            return Ok(());
        }
        let done = self.run(batch, out);
        self.observer.enter(Phase::Idle);
        if done.is_err() {
            self.take_back(&batch.rows);
        }
        done
    }

    fn new_seq(&mut self) -> Result<SeqId, Error> {
        self.cache.new_seq()
    }

    fn len(&self, seq: SeqId) -> Result<usize, Error> {
        self.cache.len(seq)
    }

    fn fork(&mut self, seq: SeqId) -> Result<SeqId, Error> {
        self.cache.fork(seq)
    }

    fn truncate(&mut self, seq: SeqId, n: usize) -> Result<usize, Error> {
        self.cache.truncate(seq, n)
    }

    fn shift(&mut self, seq: SeqId, gap: Range<usize>) -> Result<(), Error> {
        check_shifting(self.model.spec())?;
        if self.n_shared.is_some() {
            return Err(Error::Options("a shift of sequences that share their room".to_owned()));
        }
        let (kernels, turn) = (self.kernels, self.ropes.turn_back(gap.len()));
        self.cache.shift(seq, gap, kernels, |l, key| turn.apply(kernels, l, key))
    }

    fn drop_seq(&mut self, seq: SeqId) -> Result<(), Error> {
        self.cache.drop_seq(seq)
    }

    fn export(&self, seq: SeqId, positions: Range<usize>, out: &mut dyn Write) -> Result<(), Error> {
        self.cache.export(seq, positions, out)
    }

    fn append_state(&mut self, seq: SeqId, state: &[u8], n: usize) -> Result<(), Error> {
        self.cache.append_state(seq, state, n)
    }
}

impl Cpu {
    /// Makes an executor with all the memory that it will ever need.
    ///
    /// # Errors
    /// Memory that the budget does not grant.
    pub fn new(
        model: Arc<Model>,
        kernels: Kernels,
        pool: Arc<Pool>,
        budget: &Budget,
        options: CpuOptions,
    ) -> Result<Self, Error> {
        let spec = model.spec();
        let cache_size = options.cache();
        let CpuOptions { n_ctx, n_seqs, n_batch, layers, n_recent, .. } = options;
        let layers = layers.unwrap_or(0..spec.layers.len());
        check_options(spec, &layers, [n_ctx, n_seqs, n_batch, options.n_shared.unwrap_or(n_ctx)])?;
        if n_recent.is_some() {
            check_shifting(spec)?;
            if options.n_shared.is_some() {
                return Err(Error::Options("sequences that share their room, and are shifted".to_owned()));
            }
        }
        let size = ScratchSize { n_threads: pool.n_threads(), n_rows: n_batch, n_ctx };
        // An absurd size is refused before anything is allocated.
        let memory = [
            budget.reserve("kv cache", Cache::bytes(spec, layers.clone(), &cache_size))?,
            budget.reserve("activations", Scratch::bytes(spec, size))?,
        ];
        let factors = model.globals().rope_factors();
        Ok(Self {
            cache: Cache::new(spec, layers.clone(), &cache_size),
            ropes: RopeTables::new(&spec.layers, factors, n_batch, n_ctx),
            scratch: Scratch::new(spec, size),
            ids: Vec::with_capacity(n_batch),
            observer: Box::new(Silent),
            _memory: memory,
            model,
            kernels,
            pool,
            layers,
            n_batch,
            n_shared: options.n_shared,
        })
    }

    /// Bytes of keys and values, and of buffers, of an executor with so many threads.
    pub fn bytes(spec: &ModelSpec, n_threads: usize, options: &CpuOptions) -> [u64; 2] {
        let layers = options.layers.clone().unwrap_or(0..spec.layers.len());
        let size = ScratchSize { n_threads, n_rows: options.n_batch, n_ctx: options.n_ctx };
        [Cache::bytes(spec, layers, &options.cache()), Scratch::bytes(spec, size)]
    }

    /// What [`truncate`](Executor::truncate) of a sequence to `n` positions would leave.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn keeps(&self, seq: SeqId, n: usize) -> Result<usize, Error> {
        self.cache.keeps(seq, n)
    }

    /// Positions that have keys and values, shared ones once, in whole blocks; and how many there may be.
    pub fn n_positions(&self) -> (usize, usize) {
        self.cache.taken()
    }

    /// Lets `observer` hear what each step turns to.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observer = observer;
    }

    /// Checks every row and gives it its place in the state; changes nothing if one is refused.
    fn admit(&mut self, batch: &Batch) -> Result<(), Error> {
        if batch.rows.len() > self.n_batch {
            return Err(Error::BatchTooLarge { n_rows: batch.rows.len(), max: self.n_batch });
        }
        for (i, row) in batch.rows.iter().enumerate() {
            let admitted = self.check(batch, i).and_then(|()| self.cache.extend(row.seq));
            if admitted.is_err() {
                self.take_back(&batch.rows[..i]);
                return admitted;
            }
        }
        Ok(())
    }

    fn check(&self, batch: &Batch, i: usize) -> Result<(), Error> {
        let (row, spec) = (batch.rows[i], self.model.spec());
        let expected = self.cache.len(row.seq)?;
        if row.pos != expected {
            return Err(Error::Position { seq: row.seq, expected, got: row.pos });
        }
        let refuse = |what| Err(Error::Row { row: i, what });
        match row.input {
            Input::Token(_) if self.layers.start > 0 => return refuse("a token, but the first layer is elsewhere"),
            Input::Token(id) if id as usize >= spec.n_vocab => return Err(Error::Token { id, n_vocab: spec.n_vocab }),
            Input::Hidden(_) if self.layers.start == 0 => {
                return refuse("a hidden state, but this executor embeds tokens");
            }
            Input::Hidden(i) if i >= batch.hidden.len() / spec.d_model => {
                return refuse("a hidden state that the batch does not hold");
            }
            _ => {}
        }
        if row.want == Want::Logits && self.layers.end < spec.layers.len() {
            return refuse("logits, but the last layer is elsewhere");
        }
        Ok(())
    }

    /// Takes the positions of rows away again.
    fn take_back(&mut self, rows: &[Row]) {
        for row in rows.iter().rev() {
            // A row that was admitted has a sequence, and truncating cannot fail otherwise.
            let _ = self.cache.truncate(row.seq, row.pos);
        }
    }
}

/// Refuses sizes of nothing, and layers that the model does not have.
fn check_options(spec: &ModelSpec, layers: &Range<usize>, sizes: [usize; 4]) -> Result<(), Error> {
    let n_layers = spec.layers.len();
    if layers.is_empty() || layers.end > n_layers {
        return Err(Error::Options(format!("layers {layers:?} of a model of {n_layers}")));
    }
    if let Positions::Learned(n) = spec.positions
        && sizes[0] > n
    {
        return Err(Error::Options(format!("{} positions of a model that has learned {n}", sizes[0])));
    }
    // Positions are counted in u32 in states, blocks in u32 in tables.
    match sizes.iter().find(|&&size| size == 0 || size > u32::MAX as usize / 2) {
        Some(size) => Err(Error::Options(format!("{size} positions, sequences or rows"))),
        None => Ok(()),
    }
}

/// Refuses models whose positions are part of what they compute with, and cannot be changed later.
fn check_shifting(spec: &ModelSpec) -> Result<(), Error> {
    match spec.positions {
        Positions::Learned(_) => {
            Err(Error::Options("a context that shifts, of a model whose positions are learned".to_owned()))
        }
        _ => Ok(()),
    }
}
