//! A fake executor: the next token is a hash of the text so far, so that a scheduler that mixes up
//! texts is noticed. Supports several batches in flight and a batch that fails.

use std::{
    collections::{HashMap, VecDeque},
    io::Write,
};

use atta_model::{
    Batch, Error, Executor, ExecutorInfo, Input, Observer, Output, Row, SeqId, SeqTable, Share,
    Ticket, Want,
    seqs::SeqSize,
    spec::{Retention, StateKind},
};

/// Positions per sequence.
pub(super) const N_CTX: usize = 128;
/// Rows per batch.
pub(super) const N_BATCH: usize = 8;

pub(super) struct Scripted {
    info: ExecutorInfo,
    size: SeqSize,
    seqs: SeqTable,
    /// Tokens of each sequence.
    texts: HashMap<SeqId, Vec<u32>>,
    depth: usize,
    flights: VecDeque<Batch>,
    n_collected: u64,
    fails_at: Option<u64>,
    n_vocab: usize,
}

/// The token that follows a text.
pub(super) fn next(text: &[u32], n_vocab: usize) -> u32 {
    let hash = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &id| {
        (hash ^ u64::from(id)).wrapping_mul(0x100_0000_01b3)
    });
    // Above the tokens that end a text.
    10 + (hash >> 20) as u32 % (n_vocab as u32 - 10)
}

impl Scripted {
    /// Creates an executor of this depth; batch number `fails_at` fails.
    pub(super) fn new(
        n_vocab: usize,
        n_seqs: usize,
        depth: usize,
        fails_at: Option<u64>,
        n_shared: Option<usize>,
    ) -> Self {
        let size = SeqSize {
            n_ctx: N_CTX,
            n_seqs,
            n_batch: N_BATCH * depth,
            n_flights: depth,
            n_recent: None,
            n_shared,
            n_checkpoints: 4,
            n_draft: 0,
        };
        let info = ExecutorInfo {
            part: Share {
                layers: 0..1,
                embed: true,
                head: true,
            },
            n_ctx: N_CTX,
            n_seqs,
            n_batch: N_BATCH,
            numerics: "scripted".to_owned(),
        };
        Self {
            info,
            size,
            seqs: SeqTable::new(&[StateKind::Kv(Retention::All)], &size),
            texts: HashMap::new(),
            depth,
            flights: VecDeque::new(),
            n_collected: 0,
            fails_at,
            n_vocab,
        }
    }

    /// Keeps keys and values as `retention` says, instead of all of them.
    pub(super) fn with_retention(self, retention: Retention) -> Self {
        Self {
            seqs: SeqTable::new(&[StateKind::Kv(retention)], &self.size),
            ..self
        }
    }

    fn check_idle(&self, seq: SeqId) -> Result<(), Error> {
        let is_away = self
            .flights
            .iter()
            .flat_map(|batch| &batch.rows)
            .any(|row| row.seq == seq);
        if is_away { Err(Error::Busy) } else { Ok(()) }
    }
}

impl Executor for Scripted {
    fn info(&self) -> &ExecutorInfo {
        &self.info
    }

    fn seqs(&self) -> &SeqTable {
        &self.seqs
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn submit(&mut self, batch: &Batch) -> Result<Ticket, Error> {
        assert!(self.flights.len() < self.depth && (1..=N_BATCH).contains(&batch.rows.len()));
        self.seqs.admit(&batch.rows, |_, _| Ok(()))?;
        for row in &batch.rows {
            let Input::Token(id) = row.input else {
                panic!("a hidden state")
            };
            self.texts.get_mut(&row.seq).unwrap().push(id);
        }
        self.flights.push_back(batch.clone());
        Ok(Ticket(self.n_collected + self.flights.len() as u64))
    }

    fn collect(&mut self, Ticket(n): Ticket, out: &mut Output) -> Result<(), Error> {
        self.n_collected += 1;
        assert_eq!(n, self.n_collected, "batches are collected in their order");
        if self.fails_at == Some(n) {
            for row in std::mem::take(&mut self.flights)
                .iter()
                .rev()
                .flat_map(|batch| batch.rows.iter().rev())
            {
                self.seqs.truncate(row.seq, row.pos)?;
                self.texts.get_mut(&row.seq).unwrap().truncate(row.pos);
            }
            return Err(Error::State("a machine is gone"));
        }
        let batch = self.flights.pop_front().expect("a batch in flight");
        out.prepare(&batch.rows, self.n_vocab, 1);
        let wanting = batch.rows.iter().filter(|row| row.want == Want::Logits);
        for (row, logits) in wanting.zip(out.all_logits_mut().chunks_exact_mut(self.n_vocab)) {
            logits.fill(0.0);
            logits[next(&self.texts[&row.seq][..=row.pos], self.n_vocab) as usize] = 9.0;
        }
        Ok(())
    }

    fn observe(&mut self, _: Box<dyn Observer>) {}

    fn new_seq(&mut self) -> Result<SeqId, Error> {
        let seq = self.seqs.new_seq()?;
        self.texts.insert(seq, Vec::new());
        Ok(seq)
    }

    fn fork(&mut self, seq: SeqId) -> Result<SeqId, Error> {
        let fork = self.seqs.fork(seq)?;
        self.texts.insert(fork, self.texts[&seq].clone());
        Ok(fork)
    }

    fn truncate(&mut self, seq: SeqId, n: usize) -> Result<usize, Error> {
        let is_behind = |row: &Row| row.seq == seq && row.pos >= n;
        let flights = self.flights.iter_mut();
        flights
            .filter(|batch| batch.rows.iter().all(is_behind))
            .for_each(Batch::clear);
        self.check_idle(seq)?;
        let left = self.seqs.truncate(seq, n)?;
        self.texts.get_mut(&seq).unwrap().truncate(left);
        Ok(left)
    }

    fn shift(&mut self, _: SeqId, _: std::ops::Range<usize>) -> Result<(), Error> {
        unreachable!("a batcher shifts nothing")
    }

    fn drop_seq(&mut self, seq: SeqId) -> Result<(), Error> {
        self.check_idle(seq)?;
        self.texts.remove(&seq);
        self.seqs.drop_seq(seq)
    }

    fn export(&self, _: SeqId, _: std::ops::Range<usize>, _: &mut dyn Write) -> Result<(), Error> {
        unreachable!("there is no prompt cache")
    }

    fn append_state(&mut self, _: SeqId, _: &[u8], _: usize) -> Result<(), Error> {
        unreachable!("there is no prompt cache")
    }
}
