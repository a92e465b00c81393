//! Saved states of a ring: each machine keeps those of its layers on its own disk, and a caller
//! gets a receipt, by which they are loaded again.
//!
//! ```text
//! magic | id of the states | u32 LE: first position, n positions, n groups, n checkpoints
//! key of 32 bytes | u32 LE: tokens, missing positions of each group, checkpoints
//! ```
//! The bytes may come from anywhere: every length is compared with the bytes that are there. The
//! one idea: a receipt has the tokens, so that what a stage does not have any more can be computed
//! again, and a wrong promise of a file is never worse than no file.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError},
};

use atta_model::{Error, SeqId, SeqTable};

use super::{Item, ItemInput, Ring, StageStates, position};
use crate::{
    StatesFolder,
    stage::SavedPositions,
    states::StateStore,
    wire::{Op, StateKey, Status},
};

const MAGIC: &[u8; 8] = b"ATTARNG2";
/// Counts before the key.
const N_COUNTS: usize = 4;
/// Bytes before the tokens.
const HEAD_BYTES: usize = 8 + 32 + 4 * N_COUNTS + 32;
/// Keys of states that are remembered as saved.
const MAX_KEYS: usize = 4096;

/// What a ring has its stages save and load.
#[derive(Default)]
pub(super) struct StateKeeper {
    saves: Mutex<Saves>,
    /// Where this machine keeps states of its layers, if it does.
    store: Option<StateStore>,
    /// The submission that loads a state, and what its result says.
    load: Option<LoadAnswer>,
}

#[derive(Debug, Default)]
struct Saves {
    /// For the next frame.
    pending: Vec<Op>,
    /// States that these stages have saved.
    saved: BTreeSet<StateKey>,
}

#[derive(Clone, Copy, Debug)]
struct LoadAnswer {
    serial: u64,
    status: Option<Status>,
}

impl StateKeeper {
    fn saves(&self) -> MutexGuard<'_, Saves> {
        self.saves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a state is to be saved, because these stages have not done it yet.
    fn is_new(&self, key: StateKey) -> bool {
        let mut saves = self.saves();
        if saves.saved.len() >= MAX_KEYS {
            saves.saved.clear();
        }
        saves.saved.insert(key)
    }

    /// The stages are others. Where this machine keeps its states.
    pub(super) fn forget(&mut self) -> Option<&StateStore> {
        *self.saves() = Saves::default();
        self.load = None;
        self.store.as_ref()
    }

    /// Takes the result of a submission, if it is that of a load.
    pub(super) fn take_result(&mut self, serial: u64, status: Status) {
        if let Some(load) = self.load.as_mut().filter(|load| load.serial == serial) {
            load.status = Some(status);
        }
    }
}

/// A saved state, as a caller keeps it.
#[derive(Debug, PartialEq)]
struct Receipt {
    id: [u8; 32],
    first: usize,
    key: StateKey,
    tokens: Vec<u32>,
    /// Positions at the beginning that each group of layers lacks.
    missing: Vec<u32>,
    /// Positions behind which there is a recurrent state.
    checkpoints: Vec<u32>,
}

impl Receipt {
    /// Reads a receipt; `None` for other bytes.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
        let (magic, head) = head.split_first_chunk()?;
        let (id, head) = head.split_first_chunk()?;
        let (counts, key) = head.split_at(4 * N_COUNTS);
        let counts: Vec<usize> = numbers(counts).map(|n| n as usize).collect();
        let [first, n, n_groups, n_checkpoints] = counts[..] else {
            return None;
        };
        let n_words = n.checked_add(n_groups)?.checked_add(n_checkpoints)?;
        let is_whole = rest.len() == n_words.checked_mul(4)? && magic == MAGIC;
        let mut words = numbers(rest);
        let mut take = |n: usize| words.by_ref().take(n).collect::<Vec<u32>>();
        let tokens = take(n);
        let missing = take(n_groups);
        let checkpoints = take(n_checkpoints);
        is_whole.then_some(Self {
            id: *id,
            first,
            key: key.try_into().ok()?,
            tokens,
            missing,
            checkpoints,
        })
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self {
            tokens,
            missing,
            checkpoints,
            ..
        } = self;
        let counts = [self.first, tokens.len(), missing.len(), checkpoints.len()];
        out.write_all(MAGIC)?;
        out.write_all(&self.id)?;
        out.write_all(&counts.map(|n| position(n).to_le_bytes()).concat())?;
        out.write_all(&self.key)?;
        let mut words = tokens.iter().chain(missing).chain(checkpoints);
        words.try_for_each(|word| out.write_all(&word.to_le_bytes()))
    }

    /// Its first `n` positions in a sequence.
    fn positions(&self, seq: SeqId, n: usize) -> SavedPositions {
        SavedPositions {
            seq: seq.index,
            first: position(self.first),
            n: position(n),
        }
    }

    /// Whether it can be appended to a sequence of these tables with `first` positions.
    fn fits(&self, first: usize, n: usize, n_groups: usize, n_vocab: usize) -> bool {
        let n_all = self.tokens.len();
        let end = self.first.saturating_add(n_all);
        let positions = self.checkpoints.iter().map(|pos| *pos as usize);
        self.first == first
            && n <= n_all
            && self.missing.len() == n_groups
            && self.missing.iter().all(|n| *n as usize <= n_all)
            && positions.clone().is_sorted_by(|a, b| a < b)
            && positions.clone().all(|pos| first < pos && pos <= end)
            && self.tokens.iter().all(|token| (*token as usize) < n_vocab)
    }
}

/// Little-endian numbers.
fn numbers(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let words = bytes.as_chunks::<4>().0.iter();
    words.map(|word| u32::from_le_bytes(*word))
}

impl Ring {
    /// Keeps states of local layers in a folder when a caller exports them. `model` tells the model
    /// from others.
    pub fn keep_states_in(&mut self, folder: StatesFolder, model: [u8; 32]) {
        self.keep_states(StateStore {
            folder,
            model,
            peers: None,
        });
    }

    pub(crate) fn keep_states(&mut self, store: StateStore) {
        self.local.keep_states(&store);
        self.keeper.store = Some(store);
    }

    /// Writes the receipt of some positions, saves the state of local layers, and has the stages
    /// save theirs with the next frame.
    pub(super) fn export_receipt(
        &self,
        seq: SeqId,
        positions: Range<usize>,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        self.check_idle(seq)?;
        self.check_kept(seq)?;
        if positions.start > positions.end || positions.end > self.seqs.len(seq)? {
            return Err(Error::State("it does not have these positions"));
        }
        let receipt = self.receipt(seq, &positions)?;
        receipt.write(out).map_err(Error::Export)?;
        if !positions.is_empty() && self.keeper.is_new(receipt.key) {
            let at = receipt.positions(seq, positions.len());
            self.local.save(&at, &receipt.key);
            if self.n_stages > 0 {
                let SavedPositions { seq, first, n } = at;
                let key = receipt.key;
                let save = Op::Save { seq, first, n, key };
                self.keeper.saves().pending.push(save);
            }
        }
        Ok(())
    }

    fn receipt(&self, seq: SeqId, positions: &Range<usize>) -> Result<Receipt, Error> {
        let items = self.history.items(seq.index);
        let items = items.get(..positions.end);
        let items = items.ok_or(Error::State("its history is not known"))?;
        let is_plain = self.history.is_replayable(seq.index);
        let tokens: Option<Vec<u32>> = items.iter().map(token_of).collect();
        let tokens = tokens.filter(|_| is_plain);
        let tokens = tokens.ok_or(Error::State("tokens alone do not determine it"))?;
        let mut missing = Vec::new();
        for group in 0..self.n_kv_groups {
            let from = self.seqs.first_held(seq, group)?;
            let from = from.clamp(positions.start, positions.end);
            missing.push(position(from - positions.start));
        }
        let checkpoints = self.seqs.checkpoints(seq, positions)?;
        let checkpoints: Vec<u32> = checkpoints.map(|(pos, _)| position(pos)).collect();
        let marks = [&missing[..], &checkpoints].concat();
        Ok(Receipt {
            id: self.state_id,
            first: positions.start,
            key: key_of(&self.state_id, positions, &tokens, &marks),
            tokens: tokens[positions.start..].to_vec(),
            missing,
            checkpoints,
        })
    }

    /// Appends the first `n` positions of a receipt.
    pub(super) fn append_receipt(
        &mut self,
        seq: SeqId,
        state: &[u8],
        n: usize,
    ) -> Result<(), Error> {
        self.check_idle(seq)?;
        self.check_kept(seq)?;
        let first = self.seqs.len(seq)?;
        let receipt = Receipt::parse(state).ok_or(Error::State("it is not of a ring"))?;
        let fits = receipt.fits(first, n, self.n_kv_groups, self.n_vocab);
        if receipt.id != self.state_id || !fits {
            return Err(Error::State("it is of another ring or other positions"));
        }
        self.seqs.add_positions(seq, n)?;
        add_marks(&mut self.seqs, seq, &receipt, n)?;
        for token in &receipt.tokens[..n] {
            let item = Item {
                input: ItemInput::Token(*token),
                segment: 0,
            };
            self.history.push(seq.index, item);
        }
        // Else a rebuild computes all of it.
        if self.states == StageStates::Kept && !self.load_everywhere(seq, &receipt, n)? {
            self.remove_positions(seq, first)?;
            return Err(Error::State("a machine of the ring does not have it"));
        }
        Ok(())
    }

    /// Loads positions of local layers and stages; whether all have them.
    fn load_everywhere(&mut self, seq: SeqId, receipt: &Receipt, n: usize) -> Result<bool, Error> {
        self.flush_saves();
        let at = receipt.positions(seq, n);
        if !self.local.load(&at, &receipt.key) {
            return Ok(false);
        }
        if self.n_stages == 0 {
            return Ok(true);
        }
        if !self.coordinator.is_serving() {
            // A catch-up tells nothing of what became of its operations.
            self.send_and_wait();
        }
        if self.states == StageStates::Kept {
            let SavedPositions { seq, first, n } = at;
            let key = receipt.key;
            self.push_op(Op::Load { seq, first, n, key });
        }
        let is_loaded = self.send_and_wait();
        if is_loaded && n == receipt.tokens.len() {
            self.keeper.saves().saved.insert(receipt.key);
        }
        Ok(is_loaded)
    }

    /// Sends the operations so far and waits until all stages have done them, or one lacks a state.
    /// If the ring is repaired meanwhile, all positions are computed again.
    fn send_and_wait(&mut self) -> bool {
        if self.states != StageStates::Kept {
            return true;
        }
        self.keeper.load = Some(LoadAnswer {
            serial: self.serial + 1,
            status: None,
        });
        self.send(Vec::new(), Vec::new());
        while self.states == StageStates::Kept && self.failure.is_none() {
            if let Some(status) = self.keeper.load.and_then(|load| load.status) {
                self.keeper.load = None;
                return status == Status::Ok;
            }
            self.wait();
        }
        self.keeper.load = None;
        true
    }

    /// Removes positions everywhere; stages may have none of them.
    fn remove_positions(&mut self, seq: SeqId, first: usize) -> Result<(), Error> {
        let left = self.seqs.truncate(seq, first)?;
        self.cut_history(seq.index, left);
        let len = position(left);
        let seq = seq.index;
        if self.operate(Op::Truncate { seq, len }).is_err() {
            // Windows have moved on: everything is computed again.
            self.abandon();
        }
        Ok(())
    }

    /// Lets saves that callers asked for travel with the next rows, in front of what changes the
    /// sequences.
    pub(super) fn flush_saves(&mut self) {
        let pending = std::mem::take(&mut self.keeper.saves().pending);
        if self.states == StageStates::Kept {
            pending.into_iter().for_each(|op| self.push_op(op));
        }
    }

    /// Has the stages save all that callers asked for before they end.
    pub(super) fn finish_saves(&mut self) {
        self.flush_saves();
        let is_save = |op: &Op| matches!(op, Op::Save { .. });
        if self.n_stages == 0 || self.states != StageStates::Kept || !self.ops.iter().any(is_save) {
            return;
        }
        self.send_and_wait();
    }
}

/// The token of an item, of plain text.
fn token_of(item: &Item) -> Option<u32> {
    match item.input {
        ItemInput::Token(token) if item.segment == 0 => Some(token),
        _ => None,
    }
}

/// The name of the state of some positions behind tokens. `marks` are the positions that it lacks
/// and those with a recurrent state: all layers of a state have the same ones.
fn key_of(id: &[u8; 32], positions: &Range<usize>, tokens: &[u32], marks: &[u32]) -> StateKey {
    let mut hasher = blake3::Hasher::new();
    hasher.update(id);
    for n in [positions.start, positions.len()] {
        hasher.update(&(n as u64).to_le_bytes());
    }
    for word in tokens.iter().chain(marks) {
        hasher.update(&word.to_le_bytes());
    }
    hasher.finalize().into()
}

/// Marks what a state lacks in block tables, and its recurrent states.
fn add_marks(seqs: &mut SeqTable, seq: SeqId, receipt: &Receipt, n: usize) -> Result<(), Error> {
    for (group, missing) in receipt.missing.iter().enumerate() {
        if *missing > 0 {
            let from = receipt.first + n.min(*missing as usize);
            seqs.lacks_before(seq, group, from)?;
        }
    }
    let end = receipt.first + n;
    let checkpoints = receipt.checkpoints.iter().map(|pos| *pos as usize);
    for pos in checkpoints.take_while(|pos| *pos <= end) {
        if seqs.add_checkpoint(seq, pos)?.is_none() {
            break;
        }
    }
    seqs.take_copies().for_each(drop);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt() -> Receipt {
        Receipt {
            id: [1; 32],
            first: 2,
            key: [3; 32],
            tokens: vec![5, 6, 7],
            missing: vec![0, 2],
            checkpoints: vec![4, 5],
        }
    }

    fn bytes() -> Vec<u8> {
        let mut bytes = Vec::new();
        receipt().write(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_receipt_is_read_as_it_was_written_and_no_beginning_of_it_is_one() {
        let bytes = bytes();
        assert_eq!(Receipt::parse(&bytes), Some(receipt()));
        for n in 0..bytes.len() {
            assert!(Receipt::parse(&bytes[..n]).is_none(), "{n} bytes");
        }
        let longer = [&bytes[..], b"x"].concat();
        assert!(Receipt::parse(&longer).is_none());
        // Counts that would be more than all memory.
        let mut hostile = bytes.clone();
        hostile[40..56].fill(0xff);
        assert!(Receipt::parse(&hostile).is_none());
    }

    #[test]
    fn a_receipt_of_other_positions_or_tables_does_not_fit() {
        assert!(receipt().fits(2, 3, 2, 8) && receipt().fits(2, 0, 2, 8));
        assert!(!receipt().fits(1, 3, 2, 8), "another beginning");
        assert!(!receipt().fits(2, 4, 2, 8), "more positions than it has");
        assert!(!receipt().fits(2, 3, 1, 8), "other groups");
        assert!(!receipt().fits(2, 3, 2, 7), "a token out of range");
        let wrong = [
            Receipt {
                checkpoints: vec![5, 4],
                ..receipt()
            },
            Receipt {
                checkpoints: vec![6],
                ..receipt()
            },
            Receipt {
                missing: vec![0, 4],
                ..receipt()
            },
        ];
        assert!(wrong.iter().all(|receipt| !receipt.fits(2, 3, 2, 8)));
    }
}
