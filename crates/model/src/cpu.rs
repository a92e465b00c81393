//! The executor that runs on the CPU: its memory, and the admission of rows.
//!
//! `forward.rs` computes the admitted rows. A batch is admitted whole or not at all, and a step
//! that fails removes its rows again, so that a sequence has exactly its computed positions.

use std::{io::Write, ops::Range, sync::Arc};

use atta_kernels::{Kernels, Pool, StepThreads};
use atta_store::{Budget, Reservation};

use crate::{
    AdapterSizes, Backend, Batch, Error, Executor, ExecutorBytes, ExecutorInfo, ExecutorSize,
    Footprint, Model, Observer, Output, Phase, Row, SeqId, SeqTable, Share, Ticket,
    adapters::AdapterScratch,
    admission,
    blocks::{MoeScratch, Scratch, ScratchSize},
    kv::{Arena, Cache, StateArena},
    members::{Exchange, Members},
    observe::NoObserver,
    rope::RopeTables,
    seqs::{StateRuns, StateStep},
    spec::{ModelSpec, Tap},
};

/// The CPU backend.
pub struct CpuBackend {
    kernels: Kernels,
    pool: Arc<Pool>,
    threads: Arc<StepThreads>,
}

impl std::fmt::Debug for CpuBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuBackend")
            .field("n_threads", &self.pool.n_threads())
            .field("isa", &self.kernels.isa())
            .finish_non_exhaustive()
    }
}

impl CpuBackend {
    /// Uses these kernels, and all threads of this pool.
    pub fn new(kernels: Kernels, pool: Arc<Pool>) -> Self {
        let threads = Arc::new(StepThreads::all(&pool));
        Self {
            kernels,
            pool,
            threads,
        }
    }

    /// The same with so many threads of the pool in each step.
    pub fn with_threads(self, threads: Arc<StepThreads>) -> Self {
        Self { threads, ..self }
    }
}

impl Footprint for CpuBackend {
    fn executor_bytes(&self, spec: &ModelSpec, size: &ExecutorSize) -> ExecutorBytes {
        Cpu::executor_bytes(spec, self.pool.n_threads(), size)
    }

    fn keeps_draft_states(&self) -> bool {
        true
    }

    fn takes_adapters(&self) -> bool {
        true
    }
}

/// Memory of CPU executors with this many threads.
#[derive(Clone, Copy, Debug)]
pub struct CpuFootprint(pub usize);

impl Footprint for CpuFootprint {
    fn executor_bytes(&self, spec: &ModelSpec, size: &ExecutorSize) -> ExecutorBytes {
        Cpu::executor_bytes(spec, self.0, size)
    }

    fn keeps_draft_states(&self) -> bool {
        true
    }

    fn takes_adapters(&self) -> bool {
        true
    }
}

impl Backend for CpuBackend {
    fn open(
        &self,
        model: Arc<Model>,
        size: &ExecutorSize,
        budget: &Budget,
    ) -> Result<Box<dyn Executor>, Error> {
        let pool = Arc::clone(&self.pool);
        let mut cpu = Cpu::new(model, self.kernels, pool, budget, size.clone())?;
        cpu.threads = Arc::clone(&self.threads);
        Ok(Box::new(cpu))
    }
}

/// Runs a range of layers on the CPU.
pub struct Cpu {
    pub(crate) model: Arc<Model>,
    pub(crate) kernels: Kernels,
    pub(crate) pool: Arc<Pool>,
    /// Of the pool, in a step.
    threads: Arc<StepThreads>,
    pub(crate) layers: Range<usize>,
    info: ExecutorInfo,
    has_shared_pool: bool,
    /// The batch in flight if `is_busy`, else a buffer for the next one.
    submitted: Batch,
    is_busy: bool,
    n_submitted: u64,
    pub(crate) cache: Cache,
    /// Blocks of the recurrent states of the admitted batch, one step per row.
    pub(crate) steps: Vec<StateStep>,
    pub(crate) runs: StateRuns,
    pub(crate) ropes: RopeTables,
    pub(crate) scratch: Scratch,
    pub(crate) adapter_scratch: AdapterScratch,
    /// Token ids of the rows of this step, in order.
    pub(crate) ids: Vec<u32>,
    pub(crate) observer: Box<dyn Observer>,
    /// The members that compute the model together, if it is not this executor alone.
    pub(crate) members: Option<Members>,
    _memory: [Reservation; 3],
}

impl std::fmt::Debug for Cpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cpu")
            .field("info", &self.info)
            .field("is_busy", &self.is_busy)
            .finish_non_exhaustive()
    }
}

impl Executor for Cpu {
    fn info(&self) -> &ExecutorInfo {
        &self.info
    }

    fn seqs(&self) -> &SeqTable {
        self.cache.seqs()
    }

    /// Members have rows of layers; several streams are no hidden state.
    fn can_tap(&self) -> bool {
        let spec = self.model.spec();
        self.members.is_none() && spec.streams.is_none() && spec.alt_up.is_none()
    }

    fn submit(&mut self, batch: &Batch) -> Result<Ticket, Error> {
        self.admit(batch)?;
        self.submitted.copy_from(batch);
        self.is_busy = true;
        self.n_submitted += 1;
        Ok(Ticket(self.n_submitted))
    }

    /// Computes the batch now: on one machine, starting in `submit` would gain nothing.
    fn collect(&mut self, Ticket(n): Ticket, out: &mut Output) -> Result<(), Error> {
        if !self.is_busy || n != self.n_submitted {
            return Err(Error::Ticket(n));
        }
        self.is_busy = false;
        let batch = std::mem::take(&mut self.submitted);
        let done = self.compute(&batch, out);
        self.submitted = batch;
        done
    }

    fn step(&mut self, batch: &Batch, out: &mut Output) -> Result<(), Error> {
        self.admit(batch)?;
        self.compute(batch, out)
    }

    fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observer = observer;
    }

    fn new_seq(&mut self) -> Result<SeqId, Error> {
        self.cache.seqs_mut().new_seq()
    }

    fn fork(&mut self, seq: SeqId) -> Result<SeqId, Error> {
        self.cache.seqs_mut().fork(seq)
    }

    fn truncate(&mut self, seq: SeqId, n: usize) -> Result<usize, Error> {
        self.check_idle(seq)?;
        self.cache.seqs_mut().truncate(seq, n)
    }

    fn shift(&mut self, seq: SeqId, evicted: Range<usize>) -> Result<(), Error> {
        self.check_idle(seq)?;
        admission::check_shifting(self.model.spec())?;
        if self.has_shared_pool {
            return Err(Error::Options(
                "a shift of sequences that share a KV pool".to_owned(),
            ));
        }
        let turns = self.ropes.shift(evicted.end, evicted.start);
        self.cache.shift(seq, evicted, &turns)
    }

    fn check_moving(&self) -> Result<(), Error> {
        admission::check_moving(self.model.spec())
    }

    fn append_moved(
        &mut self,
        from: SeqId,
        positions: Range<usize>,
        to: SeqId,
    ) -> Result<(), Error> {
        self.check_moving()?;
        self.check_idle(from)?;
        self.check_idle(to)?;
        let turns = self
            .ropes
            .shift(positions.start, self.cache.seqs().len(to)?);
        self.cache.append_moved(from, positions, to, &turns)
    }

    fn fill(&mut self, seq: SeqId, n: usize) -> Result<(), Error> {
        self.check_idle(seq)?;
        match self.model.spec().is_encoder() {
            // It sees each text whole, so no row could follow.
            true => Err(Error::NoFill),
            false => self.cache.fill(seq, n, self.kernels),
        }
    }

    fn drop_seq(&mut self, seq: SeqId) -> Result<(), Error> {
        self.check_idle(seq)?;
        self.cache.seqs_mut().drop_seq(seq)
    }

    fn export(
        &self,
        seq: SeqId,
        positions: Range<usize>,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        let layers = self.info.part.layers.clone();
        self.export_layers(seq, layers, positions, out)
    }

    fn export_layers(
        &self,
        seq: SeqId,
        layers: Range<usize>,
        positions: Range<usize>,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        self.check_idle(seq)?;
        self.cache.export(seq, layers, positions, out)
    }

    fn append_state(&mut self, seq: SeqId, state: &[u8], n: usize) -> Result<(), Error> {
        self.append_layers(seq, &[state], n)
    }

    fn append_layers(&mut self, seq: SeqId, states: &[&[u8]], n: usize) -> Result<(), Error> {
        self.check_idle(seq)?;
        self.cache.append_states(seq, states, n)
    }
}

impl Cpu {
    /// Creates an executor and allocates all of its memory.
    ///
    /// # Errors
    /// The memory budget is exceeded, the size is invalid, or the model has a member's rows only.
    pub fn new(
        model: Arc<Model>,
        kernels: Kernels,
        pool: Arc<Pool>,
        budget: &Budget,
        size: ExecutorSize,
    ) -> Result<Self, Error> {
        if model.member().is_some() {
            return Err(Error::Options(
                "some rows of a model, without the other members".to_owned(),
            ));
        }
        Self::of_rows(model, kernels, pool, budget, size)
    }

    /// Makes an executor one of several members that compute a model together, each with its own
    /// rows: [`Model::with_member`]. All of them are asked for the same batches and the same
    /// operations on sequences, in one order; logits are at member 0.
    ///
    /// # Errors
    /// As [`new`](Self::new), and a model with all rows.
    pub fn new_member(
        model: Arc<Model>,
        kernels: Kernels,
        pool: Arc<Pool>,
        budget: &Budget,
        size: ExecutorSize,
        exchange: Box<dyn Exchange>,
    ) -> Result<Self, Error> {
        let Some(member) = model.member().cloned() else {
            return Err(Error::Options(
                "all rows of a model, as one of several members".to_owned(),
            ));
        };
        if !model.adapters().is_empty() {
            return Err(Error::Options(
                "some rows of a model with adapters".to_owned(),
            ));
        }
        let mut cpu = Self::of_rows(model, kernels, pool, budget, size)?;
        let spec = cpu.model.spec();
        cpu.members = Some(Members::new(
            member,
            exchange,
            spec,
            cpu.info.n_batch,
            budget,
        )?);
        Ok(cpu)
    }

    fn of_rows(
        model: Arc<Model>,
        kernels: Kernels,
        pool: Arc<Pool>,
        budget: &Budget,
        size: ExecutorSize,
    ) -> Result<Self, Error> {
        let spec = model.spec();
        let part = size.part_of(spec);
        let layers = part.layers.clone();
        admission::check_size(spec, model.share(), &size)?;
        let ExecutorSize {
            n_ctx,
            n_seqs,
            n_batch,
            n_shared,
            ..
        } = size;
        let scratch = ScratchSize {
            n_threads: pool.n_threads(),
            n_rows: n_batch,
            n_ctx,
        };
        let adapters = AdapterSizes::of(model.adapters());
        let cache = size.cache(spec);
        // An absurd size is refused before anything is allocated.
        let memory = [
            budget.reserve("kv cache", cache.bytes())?,
            budget.reserve("activations", Scratch::bytes(spec, scratch))?,
            budget.reserve("activations of adapters", adapters.bytes(spec, n_batch))?,
        ];
        Ok(Self {
            cache: Cache::new(
                cache,
                |n, bytes| Ok::<_, Error>(Arena::new(n, bytes, kernels)),
                |n, floats| Ok(StateArena::new(n, floats)),
            )?,
            steps: Vec::with_capacity(if spec.is_recurrent() { n_batch } else { 0 }),
            runs: StateRuns::with_capacity(if spec.is_recurrent() { n_batch } else { 0 }),
            ropes: RopeTables::of(&model, n_batch, n_ctx),
            scratch: Scratch::new(spec, scratch),
            adapter_scratch: AdapterScratch::new(&adapters, MoeScratch::n_act_rows(spec, n_batch)),
            ids: Vec::with_capacity(n_batch),
            observer: Box::new(NoObserver),
            members: None,
            _memory: memory,
            model,
            kernels,
            threads: Arc::new(StepThreads::all(&pool)),
            pool,
            info: ExecutorInfo {
                part,
                n_ctx,
                n_seqs,
                n_batch,
                numerics: kernels.isa().to_owned(),
            },
            layers,
            has_shared_pool: n_shared.is_some(),
            submitted: Batch {
                rows: Vec::with_capacity(n_batch),
                ..Batch::default()
            },
            is_busy: false,
            n_submitted: 0,
        })
    }

    /// Memory of an executor with this many threads.
    pub fn executor_bytes(
        spec: &ModelSpec,
        n_threads: usize,
        size: &ExecutorSize,
    ) -> ExecutorBytes {
        let scratch = ScratchSize {
            n_threads,
            n_rows: size.n_batch,
            n_ctx: size.n_ctx,
        };
        ExecutorBytes {
            state: size.cache(spec).bytes(),
            activations: Scratch::bytes(spec, scratch),
        }
    }

    /// Computes admitted rows; removes them again on an error or a panic.
    fn compute(&mut self, batch: &Batch, out: &mut Output) -> Result<(), Error> {
        if batch.rows.is_empty() {
            out.prepare(&[], self.model.spec().n_logits(), self.d_hidden());
            return Ok(());
        }
        let admitted = AdmittedRows {
            cpu: self,
            rows: &batch.rows,
        };
        let done = admitted.cpu.run_on_threads(batch, out);
        let done = match &mut admitted.cpu.members {
            Some(members) => members.end(done),
            None => done,
        };
        admitted.cpu.observer.enter(Phase::Idle);
        if done.is_ok() {
            admitted.keep();
        }
        done
    }

    fn run_on_threads(&mut self, batch: &Batch, out: &mut Output) -> Result<(), Error> {
        let threads = Arc::clone(&self.threads);
        let pool = Arc::clone(&self.pool);
        let model = Arc::clone(&self.model);
        let waited = || model.weights().io().wait;
        threads.run(&pool, batch.rows.len(), &waited, || self.run(batch, out))
    }

    /// Fails if a sequence has rows in flight.
    fn check_idle(&self, seq: SeqId) -> Result<(), Error> {
        match self.is_busy && self.submitted.rows.iter().any(|row| row.seq == seq) {
            true => Err(Error::Busy),
            false => Ok(()),
        }
    }

    /// Checks every row and appends it to its sequence; changes nothing if one is refused.
    fn admit(&mut self, batch: &Batch) -> Result<(), Error> {
        if self.is_busy {
            return Err(Error::Busy);
        }
        if batch.rows.len() > self.info.n_batch {
            return Err(Error::BatchTooLarge {
                n_rows: batch.rows.len(),
                max: self.info.n_batch,
            });
        }
        check_taps(self, batch)?;
        let model = &self.model;
        let part = &self.info.part;
        check_adapters(model, &batch.rows)?;
        self.cache.admit(&batch.rows, |i, row| {
            admission::check_row(model.spec(), part, batch, i, row)
        })?;
        let seqs = self.cache.seqs_mut();
        seqs.state_steps(&batch.rows, &mut self.steps);
        self.runs.find(&self.steps);
        Ok(())
    }
}

/// Rows that are admitted and not yet computed. Dropped before [`keep`](Self::keep), it removes
/// them from their sequences.
struct AdmittedRows<'a> {
    cpu: &'a mut Cpu,
    rows: &'a [Row],
}

impl AdmittedRows<'_> {
    /// Leaves the rows in their sequences: they are computed.
    fn keep(mut self) {
        self.rows = &[];
    }
}

impl Drop for AdmittedRows<'_> {
    fn drop(&mut self) {
        self.cpu.cache.seqs_mut().remove(self.rows);
    }
}

/// Fails for hidden states that the executor does not compute.
fn check_taps(cpu: &Cpu, batch: &Batch) -> Result<(), Error> {
    let Share { layers, head, .. } = &cpu.info.part;
    let is_here = |tap: &Tap| match *tap {
        Tap::Before(l) => layers.start <= l && l <= layers.end,
        Tap::Normed => *head,
    };
    match batch.taps.is_empty() || cpu.can_tap() && batch.taps.iter().all(is_here) {
        true => Ok(()),
        false => Err(Error::Options(format!(
            "layers {layers:?} with {:?}",
            batch.taps
        ))),
    }
}

/// Fails for a row with an adapter that the model does not have.
fn check_adapters(model: &Model, rows: &[Row]) -> Result<(), Error> {
    let n = model.adapters().len();
    let is_unknown = |row: &Row| row.adapters.iter().any(|at| at.adapter >= n);
    match rows.iter().position(is_unknown) {
        Some(row) => Err(Error::Row {
            row,
            what: "an adapter that is not loaded",
        }),
        None => Ok(()),
    }
}
