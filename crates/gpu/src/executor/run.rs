//! The executor's batches: admitted, recorded, submitted, and read back.
//!
//! It knows the order of these things, and no kernel.

use super::GpuExecutor;
use super::embeds::{behind_residual, inputs_of, residuals_of};
use super::kv::GpuArena;
use super::pass::{KvOfLayer, Recorded, StepParts};
use crate::{Dispatch, Error};
use atta_kernels::Kernels;
use atta_model::spec::ModelSpec;
use atta_model::{
    Batch, Error as ModelError, Executor, ExecutorInfo, Observer, Output, Row, SeqId, SeqTable,
    Ticket, Want, admission,
};
use std::collections::HashSet;
use std::io::Write;
use std::ops::Range;

impl GpuExecutor {
    /// Fails if a sequence has rows in flight.
    fn check_idle(&self, seq: SeqId) -> Result<(), ModelError> {
        match self.is_busy && self.submitted.rows.iter().any(|row| row.seq == seq) {
            true => Err(ModelError::Busy),
            false => Ok(()),
        }
    }

    /// Checks every row and appends it to its sequence; changes nothing if one is refused.
    fn admit(&mut self, batch: &Batch) -> Result<(), ModelError> {
        let n_rows = batch.rows.len();
        let max = self.info.n_batch;
        if self.is_busy {
            return Err(ModelError::Busy);
        }
        if n_rows > max {
            return Err(ModelError::BatchTooLarge { n_rows, max });
        }
        if !batch.taps.is_empty() {
            let what = format!("layers on a GPU with {:?}", batch.taps);
            return Err(ModelError::Options(what));
        }
        let n = self.weights.adapters().len();
        let is_unknown = |row: &Row| row.adapters.iter().any(|at| at.adapter >= n);
        if let Some(row) = batch.rows.iter().position(is_unknown) {
            let what = "an adapter that is not loaded";
            return Err(ModelError::Row { row, what });
        }
        let spec = self.weights.model().spec();
        let part = &self.info.part;
        self.cache.admit(&batch.rows, |i, row| {
            admission::check_row(spec, part, batch, i, row)
        })
    }

    /// Submits the layers, and the head of the first rows that want logits.
    fn start(&mut self, batch: &Batch) -> Result<(), Error> {
        let rows = &batch.rows;
        self.wanted.clear();
        let wants = |t: &usize| rows[*t].want == Want::Logits;
        self.wanted.extend((0..rows.len()).filter(wants));
        if rows.is_empty() {
            return Ok(());
        }
        self.cache
            .arenas()
            .iter()
            .try_for_each(|arena| arena.flush())?;
        let spec = self.weights.model().spec();
        self.tables.find_states(self.cache.seqs_mut(), rows);
        self.tables
            .fill(spec, rows, &self.wanted, self.cache.seqs(), &mut self.ropes)?;
        let n = self.layout.n_logit_rows.min(self.wanted.len());
        let dispatches = self.record(|recorded, wanted| {
            recorded.layers();
            recorded.head_of(wanted, 0..n);
        });
        let layers = self.info.part.layers.clone();
        let residuals = residuals_of(batch, spec);
        let inputs = inputs_of(batch, spec, layers);
        let mut host = self.weights.host().lock();
        host.write(self.buffers.tables.id(), 0, &self.tables.bytes())?;
        for (word, bytes) in [(self.layout.x, residuals), (self.layout.inputs, inputs)] {
            host.write(self.buffers.values.id(), 4 * u64::from(word), &bytes)?;
        }
        host.submit(&dispatches)?;
        // The next step of the same sequences differs in its tables only, unless a block begins.
        if is_decode(rows) {
            host.record_ahead(&dispatches);
        }
        Ok(())
    }

    /// The kernels that `record` records.
    fn record(&self, record: impl FnOnce(&mut Recorded<'_>, &[usize])) -> Vec<Dispatch> {
        let bindings = self
            .buffers
            .bindings(self.constants.id(), self.buffers.nothing.id());
        let kv = |l| {
            let place = self.cache.layer_place(l);
            let arena: &GpuArena = &self.cache.arenas()[place.group];
            KvOfLayer {
                place,
                bindings: crate::Bindings {
                    kv: arena.buffer(),
                    ..bindings
                },
                block_words: arena.block_words(),
            }
        };
        let state_bindings = crate::Bindings {
            kv: self.cache.states().buffer(),
            ..bindings
        };
        let parts = StepParts {
            state_bindings,
            state_at: &|l| self.cache.state_at(l),
            weights: &self.weights,
            kernels: &self.kernels,
            layout: &self.layout,
            vectors: &self.vectors,
            tables: &self.tables,
            ropes: &self.ropes,
            kv: &kv,
            bindings,
        };
        let mut recorded = Recorded::new(&parts, self.n_rows_now());
        record(&mut recorded, &self.wanted);
        recorded.dispatches
    }

    /// Rows of the batch that is recorded.
    fn n_rows_now(&self) -> usize {
        self.submitted.rows.len()
    }

    /// Reads the residuals, and the logits as many rows at a time as are computed at once.
    fn finish(&mut self, out: &mut Output) -> Result<(), Error> {
        let spec = self.weights.model().spec();
        let d_hidden = match self.info.part.head {
            true => spec.d_model,
            false => spec.d_residual(),
        };
        out.prepare(&self.submitted.rows, spec.n_logits(), d_hidden);
        if self.submitted.rows.is_empty() {
            return Ok(());
        }
        let most = self.layout.n_logit_rows;
        let mut first = 0;
        loop {
            let n = most.min(self.wanted.len() - first);
            self.read_results(out, first..first + n)?;
            first += n;
            if first == self.wanted.len() {
                break;
            }
            let next = first..(first + most).min(self.wanted.len());
            let dispatches = self.record(|recorded, wanted| recorded.head_of(wanted, next));
            self.weights.host().lock().submit(&dispatches)?;
        }
        out.check_logits();
        let spec = self.weights.model().spec();
        spec.head.finish(out.all_logits_mut());
        Ok(())
    }

    /// Reads the logits of some of the rows that want them; with the first ones all residuals.
    fn read_results(&mut self, out: &mut Output, wanted: Range<usize>) -> Result<(), Error> {
        let spec = self.weights.model().spec();
        let n_logits = spec.n_logits();
        let is_first = wanted.start == 0;
        let n_rows = if is_first {
            self.submitted.rows.len()
        } else {
            0
        };
        let bytes = |word: u32, n: usize| {
            let first = 4 * u64::from(word);
            first..first + 4 * n as u64
        };
        let ranges = [
            bytes(self.layout.x, n_rows * spec.d_model),
            bytes(self.layout.logits, wanted.len() * n_logits),
        ];
        let n_bytes = ranges
            .iter()
            .map(|range| range.end - range.start)
            .sum::<u64>();
        self.read.resize(n_bytes as usize, 0);
        let mut host = self.weights.host().lock();
        host.read_ranges(self.buffers.values.id(), &ranges, &mut self.read)?;
        drop(host);
        let (residuals, logits) = self.read.split_at(4 * n_rows * spec.d_model);
        if is_first {
            take_residuals(residuals, &self.submitted, spec, out);
            self.means = self.means_of(residuals)?;
        }
        let to = &mut out.all_logits_mut()[wanted.start * n_logits..wanted.end * n_logits];
        to.iter_mut()
            .zip(floats(logits))
            .for_each(|(to, z)| *to = z);
        let rows = to.chunks_exact_mut(n_logits);
        for (row, mean) in rows.zip(self.means.iter().skip(wanted.start)) {
            row.iter_mut().for_each(|z| *z += mean);
        }
        Ok(())
    }

    /// What the mean row of the head adds to the logits of each row that wants them, of the bytes
    /// of all residuals; empty if the head has no such row.
    fn means_of(&self, residuals: &[u8]) -> Result<Vec<f32>, Error> {
        let model = self.weights.model();
        let Some(mean) = model.head_mean().filter(|_| self.info.part.head) else {
            return Ok(Vec::new());
        };
        let plain = Kernels::named("scalar").map_err(ModelError::from)?;
        let d = model.spec().d_model;
        let mut normed = vec![0.0; d];
        let sum = |&t: &usize| {
            let x: Vec<f32> = floats(&residuals[4 * t * d..4 * (t + 1) * d]).collect();
            model.output_norm(plain, &x, &mut normed);
            plain.dot_product(mean, &normed)
        };
        Ok(self.wanted.iter().map(sum).collect())
    }
}

/// Whether every sequence has one row, which wants logits.
fn is_decode(rows: &[Row]) -> bool {
    let mut seqs = HashSet::new();
    rows.iter()
        .all(|row| row.want == Want::Logits && seqs.insert(row.seq))
}

/// The floats of little-endian words.
fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    let words = bytes.as_chunks().0.iter();
    words.map(|word| f32::from_le_bytes(*word))
}

/// Checks the residual of each row, and hands it out where it is wanted, with what lies behind it.
fn take_residuals(bytes: &[u8], batch: &Batch, spec: &ModelSpec, out: &mut Output) {
    let d = spec.d_model;
    let mut residual = vec![0.0; d];
    let rows = batch.rows.iter().zip(bytes.chunks_exact(4 * d));
    for (t, (row, bytes)) in rows.enumerate() {
        residual
            .iter_mut()
            .zip(floats(bytes))
            .for_each(|(to, x)| *to = x);
        out.check_residual(t, &residual);
        if row.want == Want::Hidden {
            let (x, behind) = out.hidden_mut(t).split_at_mut(d);
            x.copy_from_slice(&residual);
            if !behind.is_empty() {
                behind.copy_from_slice(behind_residual(batch, spec, t));
            }
        }
    }
}

impl Executor for GpuExecutor {
    fn info(&self) -> &ExecutorInfo {
        &self.info
    }

    fn seqs(&self) -> &SeqTable {
        self.cache.seqs()
    }

    fn submit(&mut self, batch: &Batch) -> Result<Ticket, ModelError> {
        self.admit(batch)?;
        self.submitted.copy_from(batch);
        if let Err(error) = self.start(batch) {
            self.cache.seqs_mut().remove(&batch.rows);
            return Err(error.into());
        }
        self.is_busy = true;
        self.n_submitted += 1;
        Ok(Ticket(self.n_submitted))
    }

    fn collect(&mut self, Ticket(n): Ticket, out: &mut Output) -> Result<(), ModelError> {
        if !self.is_busy || n != self.n_submitted {
            return Err(ModelError::Ticket(n));
        }
        self.is_busy = false;
        let done = self.finish(out);
        if done.is_err() {
            self.cache.seqs_mut().remove(&self.submitted.rows);
        }
        Ok(done?)
    }

    /// Nothing: a step is one submission, whose phases nothing here sees.
    fn observe(&mut self, _: Box<dyn Observer>) {}

    fn new_seq(&mut self) -> Result<SeqId, ModelError> {
        self.cache.seqs_mut().new_seq()
    }

    fn fork(&mut self, seq: SeqId) -> Result<SeqId, ModelError> {
        self.cache.seqs_mut().fork(seq)
    }

    fn truncate(&mut self, seq: SeqId, n: usize) -> Result<usize, ModelError> {
        self.check_idle(seq)?;
        self.cache.seqs_mut().truncate(seq, n)
    }

    fn shift(&mut self, seq: SeqId, evicted: Range<usize>) -> Result<(), ModelError> {
        self.check_idle(seq)?;
        admission::check_shifting(self.weights.model().spec())?;
        if self.has_shared_pool {
            let what = "a shift of sequences that share a KV pool";
            return Err(ModelError::Options(what.to_owned()));
        }
        let turns = self.ropes.shift(evicted.end, evicted.start);
        self.cache.shift(seq, evicted, &turns)
    }

    fn check_moving(&self) -> Result<(), ModelError> {
        admission::check_moving(self.weights.model().spec())
    }

    fn append_moved(
        &mut self,
        from: SeqId,
        positions: Range<usize>,
        to: SeqId,
    ) -> Result<(), ModelError> {
        self.check_moving()?;
        self.check_idle(from)?;
        self.check_idle(to)?;
        let len = self.cache.seqs().len(to)?;
        let turns = self.ropes.shift(positions.start, len);
        self.cache.append_moved(from, positions, to, &turns)
    }

    fn fill(&mut self, seq: SeqId, n: usize) -> Result<(), ModelError> {
        self.check_idle(seq)?;
        let plain = Kernels::named("scalar").map_err(ModelError::from)?;
        self.cache.fill(seq, n, plain)
    }

    fn drop_seq(&mut self, seq: SeqId) -> Result<(), ModelError> {
        self.check_idle(seq)?;
        self.cache.seqs_mut().drop_seq(seq)
    }

    fn export(
        &self,
        seq: SeqId,
        positions: Range<usize>,
        out: &mut dyn Write,
    ) -> Result<(), ModelError> {
        let layers = self.info.part.layers.clone();
        self.export_layers(seq, layers, positions, out)
    }

    fn export_layers(
        &self,
        seq: SeqId,
        layers: Range<usize>,
        positions: Range<usize>,
        out: &mut dyn Write,
    ) -> Result<(), ModelError> {
        self.check_idle(seq)?;
        self.cache.export(seq, layers, positions, out)
    }

    fn append_state(&mut self, seq: SeqId, state: &[u8], n: usize) -> Result<(), ModelError> {
        self.append_layers(seq, &[state], n)
    }

    fn append_layers(&mut self, seq: SeqId, states: &[&[u8]], n: usize) -> Result<(), ModelError> {
        self.check_idle(seq)?;
        self.cache.append_states(seq, states, n)
    }
}
