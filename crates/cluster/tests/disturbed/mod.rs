//! An executor that flips a bit.

use std::{
    io::Write,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use atta_model::{
    Batch, Error, Executor, ExecutorInfo, Observer, Output, SeqId, SeqTable, Ticket, Want,
};

/// Batches in which a bit is flipped.
#[derive(Debug)]
pub(crate) struct FlipAt {
    n_collected: AtomicUsize,
    batches: Range<usize>,
}

impl FlipAt {
    pub(crate) fn once(batch: usize) -> Arc<Self> {
        Self::within(batch..batch + 1)
    }

    pub(crate) fn always_from(batch: usize) -> Arc<Self> {
        Self::within(batch..usize::MAX)
    }

    fn within(batches: Range<usize>) -> Arc<Self> {
        Arc::new(Self {
            n_collected: AtomicUsize::new(0),
            batches,
        })
    }

    fn is_due(&self) -> bool {
        let n = self.n_collected.fetch_add(1, Ordering::Relaxed);
        self.batches.contains(&n)
    }
}

/// Flips the last bit of the first number of a batch.
pub(crate) struct Flip {
    pub(crate) inner: Box<dyn Executor>,
    pub(crate) flip: Arc<FlipAt>,
}

impl Executor for Flip {
    fn info(&self) -> &ExecutorInfo {
        self.inner.info()
    }

    fn seqs(&self) -> &SeqTable {
        self.inner.seqs()
    }

    fn submit(&mut self, batch: &Batch) -> Result<Ticket, Error> {
        self.inner.submit(batch)
    }

    fn collect(&mut self, ticket: Ticket, out: &mut Output) -> Result<(), Error> {
        self.inner.collect(ticket, out)
    }

    fn step(&mut self, batch: &Batch, out: &mut Output) -> Result<(), Error> {
        self.inner.step(batch, out)?;
        let wanted = batch.rows.iter().position(|row| row.want == Want::Hidden);
        if let Some(row) = wanted.filter(|_| self.flip.is_due()) {
            let x = &mut out.hidden_mut(row)[0];
            *x = f32::from_bits(x.to_bits() ^ 1);
        }
        Ok(())
    }

    fn observe(&mut self, observer: Box<dyn Observer>) {
        self.inner.observe(observer);
    }

    fn new_seq(&mut self) -> Result<SeqId, Error> {
        self.inner.new_seq()
    }

    fn fork(&mut self, seq: SeqId) -> Result<SeqId, Error> {
        self.inner.fork(seq)
    }

    fn truncate(&mut self, seq: SeqId, n: usize) -> Result<usize, Error> {
        self.inner.truncate(seq, n)
    }

    fn shift(&mut self, seq: SeqId, evicted: Range<usize>) -> Result<(), Error> {
        self.inner.shift(seq, evicted)
    }

    fn drop_seq(&mut self, seq: SeqId) -> Result<(), Error> {
        self.inner.drop_seq(seq)
    }

    fn export(&self, seq: SeqId, at: Range<usize>, out: &mut dyn Write) -> Result<(), Error> {
        self.inner.export(seq, at, out)
    }

    fn append_state(&mut self, seq: SeqId, state: &[u8], n: usize) -> Result<(), Error> {
        self.inner.append_state(seq, state, n)
    }
}
