//! The forward pass on the CPU: the one that runs every model.
//!
//! ```text
//! x = embed[token] * embed_scale
//! for each layer:  x += attention(norm(x));  x += mlp(norm(x))
//! logits = softcap(logit_scale * (W_head norm(x)))
//! ```
//! What a layer does is read from the spec; nothing here depends on an architecture, on where weights lie, or on how
//! many sequences the rows belong to. Logits are bit-equal for any batch, thread count and chunking, because every row
//! is computed by the same operations in the same order.

use std::{ops::Range, sync::Arc};

use atta_kernels::{Activations, AttnScratch, Job, Kernels, Pool, Store, math::tanh};
use atta_store::{Budget, Reservation, Unit};

use crate::{
    Batch, Error, Executor, Input, KvType, Model, Observer, Output, Phase, Role, Row, SeqId, Want,
    blocks::{Normalize, Pass, RopeTables, Scratch, attention, mlp},
    kv::Cache,
    observe::Silent,
    spec::ModelSpec,
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
}

impl Default for CpuOptions {
    fn default() -> Self {
        Self { n_ctx: 4096, n_seqs: 1, n_batch: 512, kv: KvType::F16, layers: None }
    }
}

/// Runs a range of layers on the CPU.
pub struct Cpu {
    model: Arc<Model>,
    kernels: Kernels,
    pool: Arc<Pool>,
    layers: Range<usize>,
    n_batch: usize,
    cache: Cache,
    ropes: RopeTables,
    scratch: Scratch,
    /// Token ids of the rows of this step, in order.
    ids: Vec<u32>,
    observer: Box<dyn Observer>,
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

    fn truncate(&mut self, seq: SeqId, n: usize) -> Result<(), Error> {
        self.cache.truncate(seq, n)
    }

    fn drop_seq(&mut self, seq: SeqId) -> Result<(), Error> {
        self.cache.drop_seq(seq)
    }

    fn export(&self, seq: SeqId) -> Result<Vec<u8>, Error> {
        self.cache.export(seq)
    }

    fn import(&mut self, state: &[u8]) -> Result<SeqId, Error> {
        self.cache.import(state)
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
        let CpuOptions { n_ctx, n_seqs, n_batch, kv, layers } = options;
        let layers = layers.unwrap_or(0..spec.layers.len());
        check_options(spec, &layers, [n_ctx, n_seqs, n_batch])?;
        let kv_bytes = Cache::bytes(spec, layers.clone(), kv, n_ctx, n_seqs);
        let memory = [
            budget.reserve("kv cache", kv_bytes)?,
            budget.reserve("activations", Scratch::bytes(&model, &pool, n_batch, n_ctx))?,
        ];
        let factors = model.globals().vector_opt(Role::RopeFreqs);
        Ok(Self {
            cache: Cache::new(spec, layers.clone(), kv, n_ctx, n_seqs),
            ropes: RopeTables::new(&spec.layers, factors, n_batch),
            scratch: Scratch::new(&model, &pool, n_batch, n_ctx),
            ids: Vec::with_capacity(n_batch),
            observer: Box::new(Silent),
            _memory: memory,
            model,
            kernels,
            pool,
            layers,
            n_batch,
        })
    }

    /// Lets `observer` hear what each step turns to.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observer = observer;
    }

    fn run(&mut self, batch: &Batch, out: &mut Output) -> Result<(), Error> {
        self.observer.enter(Phase::Other);
        self.ropes.prepare(batch.rows.iter().map(|r| r.pos));
        if self.layers.start == 0 {
            self.embed(batch)?;
        } else {
            self.take_hidden(batch);
        }
        let mut pass = Pass {
            model: &self.model,
            kernels: self.kernels,
            pool: &self.pool,
            rows: &batch.rows,
            cache: &mut self.cache,
            ropes: &self.ropes,
            s: &mut self.scratch,
            observer: self.observer.as_mut(),
        };
        for l in self.layers.clone() {
            attention(&mut pass, l)?;
            mlp(&mut pass, l)?;
        }
        self.emit(&batch.rows, out)
    }

    /// `x = embed[token] * embed_scale`.
    fn embed(&mut self, batch: &Batch) -> Result<(), Error> {
        let (model, scale) = (&self.model, self.model.spec().embed_scale);
        self.ids.clear();
        self.ids.extend(batch.rows.iter().filter_map(Row::token));
        self.observer.enter(Phase::Weights);
        let table = model.weights().unit(Unit::EmbedRows(&self.ids))?;
        self.observer.enter(Phase::Other);
        for (i, x) in self.scratch.x.chunks_exact_mut(model.spec().d_model).take(batch.rows.len()).enumerate() {
            self.kernels.decode_row(model.embedding(&table, i), 0, x);
            if scale != 1.0 {
                x.iter_mut().for_each(|x| *x *= scale);
            }
        }
        Ok(())
    }

    /// `x =` the residual that each row brings.
    fn take_hidden(&mut self, batch: &Batch) {
        let d = self.model.spec().d_model;
        for (x, row) in self.scratch.x.chunks_exact_mut(d).zip(&batch.rows) {
            if let Input::Hidden(i) = row.input {
                x.copy_from_slice(&batch.hidden[i * d..(i + 1) * d]);
            }
        }
    }

    /// Gives every row what it wants: `logits = softcap(logit_scale * (W norm(x)))`, or the residual.
    fn emit(&mut self, rows: &[Row], out: &mut Output) -> Result<(), Error> {
        let (model, kernels, s) = (&self.model, self.kernels, &mut self.scratch);
        let (spec, d) = (model.spec(), model.spec().d_model);
        out.prepare(rows, spec.n_vocab, d);
        for (t, _) in rows.iter().enumerate().filter(|(_, r)| r.want == Want::Hidden) {
            out.hidden_mut(t).copy_from_slice(&s.x[t * d..(t + 1) * d]);
        }
        // The ids are done with; their memory now holds the rows that want logits.
        self.ids.clear();
        self.ids.extend((0..rows.len() as u32).filter(|&t| rows[t as usize].want == Want::Logits));
        if self.ids.is_empty() {
            return Ok(());
        }
        self.observer.enter(Phase::Weights);
        let unit = model.weights().unit(Unit::HeadRows(0..spec.n_vocab))?;
        let (w, norm, weight) = (model.head(&unit), spec.head.norm, model.globals().vector(Role::OutputNorm));
        self.observer.enter(Phase::Other);
        let (wanted, x) = (&self.ids, &s.x);
        s.act.fill(kernels, &self.pool, (wanted.len(), d), w.layout(), |i, h| {
            let t = wanted[i] as usize;
            norm.apply(kernels, &x[t * d..(t + 1) * d], weight, h);
        });
        self.observer.enter(Phase::Matmul);
        kernels.matmul(&self.pool, &s.act, &mut [Job { w, bias: None, out: out.all_logits_mut(), mode: Store::Set }]);
        self.observer.enter(Phase::Other);
        if spec.head.logit_scale != 1.0 {
            out.all_logits_mut().iter_mut().for_each(|z| *z *= spec.head.logit_scale);
        }
        if let Some(cap) = spec.head.softcap {
            out.all_logits_mut().iter_mut().for_each(|z| *z = cap * tanh(*z / cap));
        }
        Ok(())
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
fn check_options(spec: &ModelSpec, layers: &Range<usize>, sizes: [usize; 3]) -> Result<(), Error> {
    let n_layers = spec.layers.len();
    if layers.is_empty() || layers.end > n_layers {
        return Err(Error::Options(format!("layers {layers:?} of a model of {n_layers}")));
    }
    // Positions are counted in u32 in states, blocks in u32 in tables.
    match sizes.iter().find(|&&size| size == 0 || size > u32::MAX as usize / 2) {
        Some(size) => Err(Error::Options(format!("{size} positions, sequences or rows"))),
        None => Ok(()),
    }
}

impl Row {
    fn token(&self) -> Option<u32> {
        match self.input {
            Input::Token(id) => Some(id),
            Input::Hidden(_) => None,
        }
    }
}

impl Scratch {
    fn new(model: &Model, pool: &Pool, n_rows: usize, n_ctx: usize) -> Self {
        let (d_q, d_kv, d_ff) = model.spec().max_widths();
        let d_model = model.spec().d_model;
        let n_heads = model.spec().layers.iter().map(|l| l.attention().n_heads).max().unwrap_or(0);
        let d_head = model.spec().layers.iter().map(|l| l.attention().d_head).max().unwrap_or(0);
        let zeros = |d: usize| vec![0.0; n_rows * d];
        Self {
            x: zeros(d_model),
            q: zeros(d_q),
            k: zeros(d_kv),
            v: zeros(d_kv),
            heads: zeros(d_q),
            ff: zeros(d_ff),
            act: Activations::new(n_rows, d_model.max(d_q).max(d_ff)),
            attn: AttnScratch::new(n_rows, n_heads, d_head, n_ctx, pool.n_threads()),
        }
    }

    /// Bytes that [`new`](Self::new) takes.
    fn bytes(model: &Model, pool: &Pool, n_rows: usize, n_ctx: usize) -> u64 {
        // Everything grows linearly in rows but the constant part, so two small instances tell the slope exactly.
        let bytes = |n| Self::new(model, pool, n, n_ctx).heap_bytes() as u64;
        let (one, two) = (bytes(1), bytes(2));
        one + (two - one) * (n_rows as u64).saturating_sub(1)
    }

    fn heap_bytes(&self) -> usize {
        let floats = [&self.x, &self.q, &self.k, &self.v, &self.heads, &self.ff];
        4 * floats.iter().map(|b| b.len()).sum::<usize>() + self.act.heap_bytes() + self.attn.heap_bytes()
    }
}
