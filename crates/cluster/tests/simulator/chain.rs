//! Executors whose rows are a hash chain per sequence: a row that is missing, doubled or swapped
//! changes all later ones.

use std::{
    collections::HashMap,
    io::Write,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use atta_model::{
    Batch, Error, Executor, ExecutorInfo, Input, Observer, Output, SeqId, SeqTable, Share, Ticket,
    Want, seqs::SeqSize, spec::StateKind,
};

pub(crate) const N_VOCAB: usize = 64;

/// Numbers of a row: a hash of 46 bits in two of 23, which are exact in f32.
pub(crate) const D_ROW: usize = 2;

const HALF: u64 = (1 << 23) - 1;

/// The hash behind a position of layer `layer`, whose input is a hash, too.
pub(crate) fn link(before: u64, input: u64, layer: usize) -> u64 {
    let mixed = (before ^ input.rotate_left(17) ^ layer as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 18) & ((1 << 46) - 1)
}

/// A hash as a row.
pub(crate) fn row(hash: u64) -> [f32; D_ROW] {
    [(hash >> 23) as f32, (hash & HALF) as f32]
}

fn hash(row: &[f32]) -> u64 {
    ((row[0] as u64) << 23) | row[1] as u64
}

/// What an executor does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Does {
    /// Chains tokens or rows, as this layer.
    Layer(usize),
    /// Gives rows as logits.
    Head,
}

/// Rows that are computed until one of them is wrong; behind it none is.
pub(crate) type Countdown = Arc<AtomicUsize>;

pub(crate) struct Chain {
    info: ExecutorInfo,
    seqs: SeqTable,
    chains: HashMap<SeqId, Vec<u64>>,
    does: Does,
    n: u64,
    /// Where a row that is handed on has a wrong bit.
    wrong: Option<Countdown>,
}

impl Chain {
    pub(crate) fn new(does: Does, kinds: &[StateKind], size: &SeqSize, n_batch: usize) -> Self {
        let layer = match does {
            Does::Layer(l) => l,
            Does::Head => 0,
        };
        Self {
            info: ExecutorInfo {
                part: Share {
                    layers: layer..layer + 1,
                    embed: does == Does::Layer(0),
                    head: does == Does::Head,
                },
                n_ctx: size.n_ctx,
                n_seqs: size.n_seqs,
                n_batch,
                numerics: "hash".to_owned(),
            },
            seqs: SeqTable::new(kinds, size),
            chains: HashMap::new(),
            does,
            n: 0,
            wrong: None,
        }
    }

    /// Hands a wrong row on at the end of a countdown.
    pub(crate) fn go_wrong(self, wrong: Option<Countdown>) -> Self {
        Self { wrong, ..self }
    }

    /// Whether the next row is wrong.
    fn is_wrong(&self) -> bool {
        let count = |n: usize| n.checked_sub(1);
        let wrong = self.wrong.as_ref();
        let n = wrong.map(|wrong| wrong.fetch_update(Ordering::AcqRel, Ordering::Acquire, count));
        n == Some(Ok(1))
    }

    fn compute(&mut self, batch: &Batch, out: &mut Output) {
        out.prepare(&batch.rows, N_VOCAB, D_ROW);
        let mut n_logits = 0;
        for (i, r) in batch.rows.iter().enumerate() {
            let input = match r.input {
                Input::Token(id) => u64::from(id) + 1,
                Input::Hidden(i) => hash(&batch.hidden[i * D_ROW..][..D_ROW]),
                Input::Embedding(_) | Input::Tapped { .. } | Input::Carried { .. } => {
                    unreachable!("texts are tokens")
                }
            };
            let chain = self.chains.get_mut(&r.seq).expect("admitted");
            assert_eq!(chain.len(), r.pos, "a chain has no gap");
            let link = match self.does {
                Does::Layer(l) => link(chain.last().copied().unwrap_or(0), input, l),
                Does::Head => input,
            };
            chain.push(link);
            match r.want {
                Want::Hidden => {
                    let link = link ^ u64::from(self.is_wrong());
                    out.hidden_mut(i).copy_from_slice(&row(link));
                }
                Want::Logits => {
                    let logits = &mut out.all_logits_mut()[n_logits * N_VOCAB..][..N_VOCAB];
                    logits.fill(0.0);
                    logits[..D_ROW].copy_from_slice(&row(link));
                    n_logits += 1;
                }
                Want::Nothing => {}
            }
        }
    }
}

impl Executor for Chain {
    fn info(&self) -> &ExecutorInfo {
        &self.info
    }

    fn seqs(&self) -> &SeqTable {
        &self.seqs
    }

    fn submit(&mut self, _: &Batch) -> Result<Ticket, Error> {
        unreachable!("stages make steps")
    }

    fn collect(&mut self, _: Ticket, _: &mut Output) -> Result<(), Error> {
        unreachable!("stages make steps")
    }

    fn step(&mut self, batch: &Batch, out: &mut Output) -> Result<(), Error> {
        self.n += 1;
        self.seqs.admit(&batch.rows, |_, _| Ok(()))?;
        self.seqs.take_copies().for_each(drop);
        self.compute(batch, out);
        Ok(())
    }

    fn observe(&mut self, _: Box<dyn Observer>) {}

    fn new_seq(&mut self) -> Result<SeqId, Error> {
        let seq = self.seqs.new_seq()?;
        self.chains.insert(seq, Vec::new());
        Ok(seq)
    }

    fn fork(&mut self, seq: SeqId) -> Result<SeqId, Error> {
        let fork = self.seqs.fork(seq)?;
        self.chains.insert(fork, self.chains[&seq].clone());
        Ok(fork)
    }

    fn truncate(&mut self, seq: SeqId, n: usize) -> Result<usize, Error> {
        let left = self.seqs.truncate(seq, n)?;
        let chain = self.chains.get_mut(&seq);
        chain.expect("it is in the table").truncate(left);
        Ok(left)
    }

    fn shift(&mut self, _: SeqId, _: Range<usize>) -> Result<(), Error> {
        unreachable!("no text is shifted")
    }

    fn drop_seq(&mut self, seq: SeqId) -> Result<(), Error> {
        self.chains.remove(&seq);
        self.seqs.drop_seq(seq)
    }

    fn export(&self, seq: SeqId, at: Range<usize>, out: &mut dyn Write) -> Result<(), Error> {
        let chain = &self.chains[&seq];
        let links = chain.get(at).ok_or(Error::State("no such positions"))?;
        let bytes: Vec<u8> = links.iter().flat_map(|link| link.to_le_bytes()).collect();
        out.write_all(&bytes).map_err(Error::Export)
    }

    fn append_state(&mut self, seq: SeqId, state: &[u8], n: usize) -> Result<(), Error> {
        let links = state
            .as_chunks()
            .0
            .iter()
            .map(|link| u64::from_le_bytes(*link));
        self.seqs.add_positions(seq, n)?;
        self.seqs.take_copies().for_each(drop);
        let chain = self.chains.get_mut(&seq);
        chain.expect("it is in the table").extend(links.take(n));
        Ok(())
    }
}
