//! From the rows that come back to the results that a caller asked for.

use atta_model::{Batch, Error, Executor, Observer, Output, SeqId, Want};

use crate::{stage::read_row, wire::Frame};

/// Computes logits, or the last hidden states, of residuals.
pub(super) struct Head {
    executor: Box<dyn Executor>,
    /// Of one batch at a time.
    seq: SeqId,
    batch: Batch,
    out: Output,
    /// Row of the caller's batch of each row of `batch`.
    places: Vec<usize>,
    /// `[d_row]`.
    row: Vec<f32>,
}

impl Head {
    pub(super) fn new(mut executor: Box<dyn Executor>, d_row: usize) -> Result<Self, Error> {
        Ok(Self {
            seq: executor.new_seq()?,
            executor,
            batch: Batch::default(),
            out: Output::default(),
            places: Vec::new(),
            row: vec![0.0; d_row],
        })
    }

    pub(super) fn observe(&mut self, observer: Box<dyn Observer>) {
        self.executor.observe(observer);
    }

    /// Writes what the rows of a batch want, of a result that has them in their order. `out` is
    /// prepared.
    pub(super) fn finish(
        &mut self,
        batch: &Batch,
        result: &Frame,
        out: &mut Output,
    ) -> Result<(), Error> {
        self.fill(batch, result, out);
        if self.batch.rows.is_empty() {
            return Ok(());
        }
        self.executor.truncate(self.seq, 0)?;
        self.executor.step(&self.batch, &mut self.out)?;
        let mut n_logits = 0;
        for (i, &place) in self.places.iter().enumerate() {
            if batch.rows[place].want == Want::Logits {
                let logits = self.out.logits(i);
                let at = n_logits * logits.len();
                out.all_logits_mut()[at..at + logits.len()].copy_from_slice(logits);
                n_logits += 1;
            } else {
                out.hidden_mut(place).copy_from_slice(self.out.hidden(i));
            }
            if self.out.first_not_finite(i..i + 1).is_some() {
                out.check_residual(place, &[f32::NAN]);
            }
        }
        Ok(())
    }

    /// Collects the rows that want something, and marks those that are not finite.
    fn fill(&mut self, batch: &Batch, result: &Frame, out: &mut Output) {
        self.batch.clear();
        self.places.clear();
        let mut rows = batch.rows.iter().enumerate();
        let mut data = result.data.chunks_exact(4 * self.row.len());
        for run in &result.runs {
            for pos in run.pos..run.pos + u32::from(run.n) {
                // The coordinator has compared both.
                let place = rows
                    .find(|(_, row)| row.seq.index == run.seq && row.pos == pos as usize)
                    .zip(data.next());
                let Some(((i, row), bytes)) = place else {
                    return;
                };
                read_row(bytes, &mut self.row);
                out.check_residual(i, &self.row);
                if row.want != Want::Nothing {
                    let pos = self.places.len();
                    self.batch.push_hidden(self.seq, pos, &self.row, row.want);
                    self.places.push(i);
                }
            }
        }
    }
}
