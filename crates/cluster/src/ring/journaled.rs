//! When a ring writes its KV journal, and how a rebuild reads it.
//!
//! Knows no file. The one idea: saving and loading are operations that travel in order with the
//! rows, so that all layers save the same positions of the same text; whatever fails is computed.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use atta_model::{Error, SeqId};

use super::{Ring, StageStates, position};
use crate::{
    core::{Coordinator, Event, Time},
    journal::{Journal, JournalOptions, LayerStates, SavedState, split},
    wire::{Frame, Op},
};

/// Rebuilds without a result in between that still load from the journal.
const MAX_LOADING: u32 = 2;

/// How long a change that is asked for waits for states.
const SAVING: Duration = Duration::from_secs(30);

/// Times that nothing was saved before a change does not wait longer.
const MAX_UNSAVED: usize = 3;

impl Ring {
    /// Keeps states of sequences in a journal; `stages` are the layers of each stage. `false`: the
    /// states of this model allow no journal, and everything that is lost is computed again.
    pub fn journal_in(&mut self, options: &JournalOptions, stages: Vec<Range<usize>>) -> bool {
        let is_possible = !self.seqs.has_states();
        self.stage_layers = stages;
        self.journal = is_possible.then(|| Journal::new(options, self.info.part.layers.len()));
        is_possible
    }

    /// Saves whole segments that texts have behind their journals.
    pub(super) fn save_due(&mut self) -> Result<(), Error> {
        let failure = self.journal.as_ref().and_then(Journal::take_failure);
        if let Some((why, record)) = failure.zip(self.record.as_ref()) {
            record.warn(&format!("no more KV rows are kept: {why}"));
        }
        let journal = self.journal.as_ref().filter(|j| j.is_continuous());
        match journal {
            Some(journal) if self.n_stages > 0 => self.save(journal.segment_len()),
            _ => Ok(()),
        }
    }

    /// Saves what sequences have behind their journals, where that is `least` positions or more.
    fn save(&mut self, least: usize) -> Result<(), Error> {
        if self.states != StageStates::Kept {
            return Ok(());
        }
        let shifted = self.history.lost();
        for (seq, id) in self.live_seqs() {
            if shifted.contains(&seq) {
                continue;
            }
            let rows = self.flights.iter().flat_map(|flight| &flight.batch.rows);
            let n_away = rows.filter(|row| row.seq == id).count();
            let len = self.seqs.len(id)?.saturating_sub(n_away);
            while let Some(journal) = &mut self.journal {
                let end = journal.end(seq);
                if len < end + least || !journal.has_room() || !self.seqs.holds_from(id, end)? {
                    break;
                }
                let op = journal.save(seq, len);
                self.operate(op)?;
                self.take_saved();
                if self.saved_or_saving(seq) <= end {
                    // It did not fit, or stages are lost.
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Takes what local layers have saved.
    fn take_saved(&mut self) {
        for state in self.local.take_saved() {
            if let Some(journal) = &mut self.journal {
                journal.take(state.id, &state.bytes);
            }
        }
    }

    /// Takes a piece of what a stage has saved.
    pub(super) fn take_piece(&mut self, frame: &Frame) {
        if let (Some(journal), Some(piece)) = (&mut self.journal, &frame.piece) {
            journal.take_piece(frame.header.stage, piece, &frame.data);
        }
    }

    /// Saves all texts while their stages are there. Positions that come too late are computed
    /// again.
    pub(super) fn save_all(&mut self) {
        let until = self.lane.now() + SAVING;
        let mut n_unsaved = 0;
        while n_unsaved < MAX_UNSAVED && self.lane.now() < until && self.failure.is_none() {
            let before = self.n_saved();
            if self.save(1).is_err() || self.states != StageStates::Kept {
                return;
            }
            if self.ops.is_empty() && self.n_saving() == 0 {
                return;
            }
            self.send(Vec::new(), Vec::new());
            self.await_saved(until);
            n_unsaved += usize::from(self.n_saved() == before);
        }
    }

    fn await_saved(&mut self, until: Time) {
        let is_waiting = |ring: &Self| {
            let is_busy = ring.n_saving() > 0 || Coordinator::n_pending(&ring.coordinator) > 0;
            is_busy && ring.states == StageStates::Kept && ring.failure.is_none()
        };
        while is_waiting(self) && self.lane.now() < until {
            let wake = self.coordinator.next_wake();
            let wake = wake.map_or(until, |wake| wake.min(until));
            let event = self.lane.recv(Some(wake)).unwrap_or(Event::Tick);
            self.handle(event);
        }
    }

    /// Positions of a sequence that are saved or on their way.
    fn saved_or_saving(&self, seq: u32) -> usize {
        self.journal.as_ref().map_or(0, |journal| journal.end(seq))
    }

    /// Segments on their way.
    fn n_saving(&self) -> usize {
        self.journal.as_ref().map_or(0, Journal::n_pending)
    }

    /// Positions that are saved.
    fn n_saved(&self) -> usize {
        let seqs = self.history.seqs();
        let journal = self.journal.as_ref();
        let saved = seqs.filter_map(|seq| Some(journal?.kept_end(seq)));
        saved.sum()
    }

    /// Empties a journal that is not written all the time.
    pub(super) fn forget_saved(&mut self) {
        if let Some(journal) = self.journal.as_mut().filter(|j| !j.is_continuous()) {
            journal.clear();
        }
    }

    /// Brings positions of a sequence back: from the journal, and those that it lacks by computing
    /// them.
    pub(super) fn restore(
        &mut self,
        ids: &BTreeMap<u32, SeqId>,
        seq: u32,
        positions: Range<usize>,
    ) -> Result<(), Error> {
        let mut at = positions.start;
        while at < positions.end && self.states == StageStates::Kept {
            match self.load(seq, at..positions.end)? {
                0 => {
                    let end = self.next_saved(seq, at + 1).min(positions.end);
                    self.replay(ids, seq, at..end)?;
                    at = end;
                }
                n => at += n,
            }
        }
        Ok(())
    }

    /// Where the journal of a sequence goes on.
    fn next_saved(&self, seq: u32, at: usize) -> usize {
        let journal = self.journal.as_ref().filter(|_| self.may_load());
        let next = journal.and_then(|journal| journal.next_start(seq, at));
        next.unwrap_or(usize::MAX)
    }

    fn may_load(&self) -> bool {
        self.n_emptied <= MAX_LOADING
    }

    /// Loads the segment that begins where these positions do; returns how many it has, 0 if there
    /// is none.
    fn load(&mut self, seq: u32, positions: Range<usize>) -> Result<usize, Error> {
        let at = positions.start;
        let journal = self
            .journal
            .as_mut()
            .filter(|_| self.n_emptied <= MAX_LOADING);
        let read = journal.and_then(|journal| Some((journal.next_id(), journal.read(seq, at)?)));
        let Some((id, states)) = read else {
            return Ok(0);
        };
        let n = states.n.min(positions.len());
        let state = SavedState {
            id,
            seq,
            first: position(at),
            n: position(n),
            bytes: Vec::new(),
        };
        let kept = self.local.keep(id, &states);
        if kept
            .and_then(|()| self.send_state(&state, &states))
            .is_none()
        {
            return Ok(0);
        }
        let op = Op::Append {
            seq,
            first: state.first,
            n: state.n,
            id,
        };
        if self.operate(op).is_err() {
            // The next rebuild computes everything.
            self.drop_journal();
            self.begin_rebuild();
            return Ok(n);
        }
        self.send(Vec::new(), Vec::new());
        self.forming.moved.n_loaded += n;
        while self.states == StageStates::Kept && self.is_full() {
            self.wait();
        }
        Ok(n)
    }

    /// Forgets all that is saved, which is computed again.
    pub(super) fn drop_journal(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.clear();
        }
    }

    /// Sends its layers to each stage; `None`: the journal lacks some.
    fn send_state(&mut self, state: &SavedState, states: &LayerStates) -> Option<()> {
        let limits = *self.coordinator.limits();
        let epoch = self.coordinator.epoch();
        for (layers, stage) in self.stage_layers.iter().zip(1..=self.n_stages) {
            let state = SavedState {
                bytes: states.of(layers.clone())?,
                ..state.clone()
            };
            for frame in split(&state, &limits, epoch, stage) {
                self.lane.send(stage, frame);
            }
        }
        Some(())
    }
}
