//! A ring as an executor.
//!
//! Block tables are local ([`SeqTable`]): every query and refusal is answered without the stages,
//! and operations travel with the rows that follow them. The one idea: the tables are the truth,
//! and stages do the same in the same order. `submit` computes the local layers and sends;
//! `collect` waits, repairs and computes the head. What a caller sees of a repair is a late answer,
//! or [`Error::Lost`].

mod audit;
mod form;
mod head;
mod journaled;
mod local;
mod repair;
mod states;

use std::{
    collections::{BTreeSet, VecDeque},
    io::Write,
    ops::Range,
    sync::Arc,
};

use atta_model::{
    Batch, Error, Executor, ExecutorInfo, Input, Observer, Output, Row, SeqId, SeqTable, Ticket,
    Want,
};

use crate::{
    History, RingRecord,
    core::{Action, Coordinator, Counts, Event, Timing, Work},
    journal::Journal,
    lane::Lane,
    stage::RowRuns,
    wire::{Frame, Limits, MAX_OPS, Op, Run, StageTime, digest_of, rows_of},
};
use audit::Audit;
pub(crate) use audit::push_items;
pub use audit::{AuditCounts, AuditLayers, AuditOptions};
use form::Forming;
pub use form::{FormCause, FormedStages, Former, Resumed};
use head::Head;
use local::LocalLayers;
pub(crate) use repair::chunks;
use states::StateKeeper;

/// Rebuilds without a result in between after which batches fail.
const MAX_EMPTIED: u32 = 10;

/// What a ring is made of.
pub struct RingParts {
    /// Properties of the ring.
    pub info: ExecutorInfo,
    /// Empty block tables of all layers, for `depth` batches in flight.
    pub seqs: SeqTable,
    /// The first embeds tokens; they run the first layers in turn, if any. Of as many sequences as
    /// the ring.
    pub local: Vec<Box<dyn Executor>>,
    /// Computes logits of residuals; of one sequence, with as many positions as a batch has rows.
    pub head: Box<dyn Executor>,
    /// What frames may hold.
    pub limits: Limits,
    /// Times of the protocol.
    pub timing: Timing,
    /// Batches in flight at most.
    pub depth: usize,
    /// Width of an embedding.
    pub d_model: usize,
    /// Tokens of the vocabulary.
    pub n_vocab: usize,
    /// Groups of keys and values of the block tables.
    pub n_kv_groups: usize,
    /// What saved states depend on beside model and tokens: element types, context, who has which
    /// layers.
    pub state_id: [u8; 32],
}

impl std::fmt::Debug for RingParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingParts")
            .field("info", &self.info)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// What a position was computed from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Item {
    input: ItemInput,
    segment: u8,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ItemInput {
    Token(u32),
    /// `[d_model]`.
    Embedding(Arc<[f32]>),
}

/// A batch in flight.
struct Flight {
    ticket: u64,
    /// Its submission to the coordinator; 0 before there is one.
    serial: u64,
    batch: Batch,
    /// Of the audited rows that were sent.
    sent_digest: u64,
    result: Option<Frame>,
}

/// Whether local layers and stages have what the block tables say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StageStates {
    /// They have.
    Kept,
    /// The stages are empty and wait for all sequences.
    Emptied,
    /// The stages will be emptied at the next submission.
    Unknown,
}

/// An executor whose layers run at several places.
pub struct Ring {
    info: ExecutorInfo,
    seqs: SeqTable,
    history: History<Item>,
    local: LocalLayers,
    head: Head,
    coordinator: Coordinator,
    lane: Box<dyn Lane>,
    /// Operations for the next frame.
    ops: Vec<Op>,
    flights: VecDeque<Flight>,
    states: StageStates,
    /// Times that stages lost their state since the last result.
    n_emptied: u32,
    /// Why the coordinator gave up, until a collection reports it.
    failure: Option<String>,
    /// Sequences whose state is gone and cannot be computed again.
    lost: BTreeSet<SeqId>,
    serial: u64,
    n_submitted: u64,
    depth: usize,
    n_chunk: usize,
    n_stages: u16,
    d_row: usize,
    d_model: usize,
    n_vocab: usize,
    forming: Forming,
    /// States that stages save and load.
    keeper: StateKeeper,
    n_kv_groups: usize,
    state_id: [u8; 32],
    /// Computes some texts a second time.
    audit: Option<Audit>,
    /// Names of the stages, for errors; empty if they have none.
    names: Vec<String>,
    /// Hears the times of the stages.
    on_times: Option<OnTimes>,
    /// Takes the numbers of the protocol.
    record: Option<Arc<RingRecord>>,
    /// States on disk, and the layers of each stage.
    journal: Option<Journal>,
    stage_layers: Vec<Range<usize>>,
}

/// Hears the rows of a batch and the times of all stages, when its result has come.
pub type OnTimes = Box<dyn FnMut(usize, &[StageTime]) + Send>;

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("info", &self.info)
            .field("coordinator", &self.coordinator)
            .field("n_flights", &self.flights.len())
            .field("states", &self.states)
            .finish_non_exhaustive()
    }
}

impl Ring {
    /// A ring of stages that are empty.
    ///
    /// # Errors
    /// A head without room for a sequence.
    pub fn new(parts: RingParts, lane: Box<dyn Lane>) -> Result<Self, Error> {
        let d_row = usize::from(parts.limits.d_row);
        Ok(Self {
            history: History::default(),
            local: LocalLayers::new(parts.local, d_row),
            head: Head::new(parts.head, d_row)?,
            coordinator: Coordinator::new(parts.limits, parts.timing),
            lane,
            ops: Vec::new(),
            flights: VecDeque::new(),
            states: StageStates::Kept,
            n_emptied: 0,
            failure: None,
            lost: BTreeSet::new(),
            serial: 0,
            n_submitted: 0,
            depth: parts.depth.max(1),
            n_chunk: parts.info.n_batch,
            n_stages: parts.limits.n_stages,
            d_row,
            d_model: parts.d_model,
            n_vocab: parts.n_vocab,
            forming: Forming::default(),
            keeper: StateKeeper::default(),
            n_kv_groups: parts.n_kv_groups,
            state_id: parts.state_id,
            audit: None,
            names: Vec::new(),
            on_times: None,
            record: None,
            journal: None,
            stage_layers: Vec::new(),
            info: parts.info,
            seqs: parts.seqs,
        })
    }

    /// Gives the stages names, in order, which errors then tell.
    pub fn name_stages(&mut self, names: Vec<String>) {
        self.names = names;
    }

    /// Has prompts cut into chunks of so many rows, so that all stages have some.
    pub fn cut_prompts(&mut self, n_rows: usize) {
        self.n_chunk = n_rows.clamp(1, self.info.n_batch.max(1));
    }

    /// Calls a function with the times of every result from now on.
    pub fn on_times(&mut self, on: OnTimes) {
        self.on_times = Some(on);
    }

    /// Tells a record the numbers of the protocol from now on.
    pub fn record_in(&mut self, record: Arc<RingRecord>) {
        self.record = Some(record);
    }

    /// A reason with the names of the stages.
    fn with_names(&self, why: String) -> String {
        let names = self.names.iter().zip(1..);
        let names: Vec<String> = names.map(|(name, i)| format!("{i} is {name}")).collect();
        match names.is_empty() {
            true => why,
            false => format!("{why} ({})", names.join(", ")),
        }
    }

    /// Numbers of the protocol.
    pub fn counts(&self) -> Counts {
        self.coordinator.counts()
    }

    /// Whether rows of a sequence are in flight.
    fn is_busy(&self, seq: SeqId) -> bool {
        let mut rows = self.flights.iter().flat_map(|flight| &flight.batch.rows);
        rows.any(|row| row.seq == seq)
    }

    fn check_idle(&self, seq: SeqId) -> Result<(), Error> {
        match self.is_busy(seq) {
            true => Err(Error::Busy),
            false => Ok(()),
        }
    }

    /// Takes back the batches in flight that compute positions of a sequence from `n` on, and
    /// nothing else: they are empty from now on.
    fn take_back(&mut self, seq: SeqId, n: usize) -> Result<(), Error> {
        let is_behind = |row: &Row| row.seq == seq && row.pos >= n;
        let mut flights = self.flights.iter().map(|flight| &flight.batch.rows);
        if flights.any(|rows| rows.iter().any(is_behind) && !rows.iter().all(is_behind)) {
            return Err(Error::Busy);
        }
        let empty = self.empty_result();
        for flight in &mut self.flights {
            if flight.batch.rows.first().is_some_and(is_behind) {
                self.coordinator.take_back(flight.serial);
                flight.batch.clear();
                flight.serial = 0;
                flight.result = Some(empty.clone());
            }
        }
        Ok(())
    }

    fn check_kept(&self, seq: SeqId) -> Result<(), Error> {
        match self.lost.contains(&seq) {
            true => Err(Error::Lost(format!(
                "the state of sequence {seq} was lost with a stage, and it was shifted, so that it cannot be computed again"
            ))),
            false => Ok(()),
        }
    }

    /// Does an operation locally, and lets it travel with the next rows.
    fn operate(&mut self, op: Op) -> Result<(), Error> {
        if self.states != StageStates::Kept {
            // A rebuild begins with the tables as they are then.
            return Ok(());
        }
        self.flush_saves();
        self.local.apply(&[op])?;
        self.push_op(op);
        Ok(())
    }

    /// Lets an operation travel with the next rows.
    fn push_op(&mut self, op: Op) {
        self.ops.push(op);
        if self.ops.len() >= MAX_OPS {
            self.send(Vec::new(), Vec::new());
            self.pump();
        }
    }

    /// Checks a batch before anything changes.
    fn check(&self, batch: &Batch) -> Result<(), Error> {
        if self.flights.len() >= self.depth {
            return Err(Error::Busy);
        }
        let n_rows = batch.rows.len();
        let max = self.info.n_batch;
        if n_rows > max {
            return Err(Error::BatchTooLarge { n_rows, max });
        }
        batch
            .rows
            .iter()
            .try_for_each(|row| self.check_kept(row.seq))
    }

    /// Computes the local layers of admitted rows and submits the result.
    fn compute_and_send(&mut self, batch: &Batch) -> Result<(), Error> {
        let runs = runs_of(&batch.rows, |_| false);
        let data = self.local.compute(batch, &runs)?;
        self.send(runs, data);
        Ok(())
    }

    /// The same for a batch in flight, which may be audited.
    fn compute_flight(&mut self, i: usize) -> Result<(), Error> {
        let batch = self.flights[i].batch.clone();
        let runs = runs_of(&batch.rows, |seq| self.is_audited(seq));
        let data = self.local.compute(&batch, &runs)?;
        let is_audited = runs.iter().any(|run| run.is_audited);
        self.flights[i].sent_digest = match is_audited {
            true => digest_of(rows_of(&runs, &data, |run| run.is_audited)),
            false => 0,
        };
        self.send(runs, data);
        Ok(())
    }

    /// Submits operations and rows to the coordinator. Without stages the rows are the result.
    fn send(&mut self, runs: Vec<Run>, data: Vec<u8>) {
        self.flush_saves();
        self.serial += 1;
        let serial = self.serial;
        let ops = std::mem::take(&mut self.ops);
        if self.n_stages == 0 {
            let frame = Frame {
                runs,
                data,
                ..self.empty_result()
            };
            self.take_result(serial, frame);
            return;
        }
        self.handle(Event::Submit(Work {
            serial,
            ops,
            runs,
            data,
        }));
    }

    /// A result without rows.
    fn empty_result(&self) -> Frame {
        self.coordinator.bye(1)
    }

    /// Handles the events that are there.
    fn pump(&mut self) {
        while let Some(event) = self.lane.recv(Some(crate::core::Time::ZERO)) {
            self.handle(event);
        }
    }

    /// Waits for an event and handles it.
    fn wait(&mut self) {
        let wake = self.coordinator.next_wake();
        let event = self.lane.recv(wake).unwrap_or(Event::Tick);
        self.handle(event);
    }

    fn handle(&mut self, event: Event) {
        let now = self.lane.now();
        for action in self.coordinator.on(now, event) {
            match action {
                Action::Send { stage, frame } => self.lane.send(stage, frame),
                Action::Fence { stage, epoch } => {
                    self.forming.note_trouble();
                    // Their pieces may be lost.
                    self.journal.iter_mut().for_each(Journal::cancel_all);
                    self.lane.fence(stage, epoch);
                }
                Action::Result { serial, frame } => self.take_result(serial, frame),
                Action::Journal(frame) => self.take_piece(&frame),
                Action::Rebuild => {
                    self.states = StageStates::Emptied;
                    self.n_emptied += 1;
                }
                Action::GiveUp(why) => {
                    self.states = StageStates::Unknown;
                    self.failure = Some(self.with_names(why));
                }
            }
        }
        if let Some(record) = &self.record {
            let coordinator = &self.coordinator;
            let fault = || self.with_names(coordinator.last_fault().to_owned());
            record.protocol(coordinator.epoch(), coordinator.counts(), fault);
        }
    }

    /// Hands a result to the batch of this submission. Other submissions are parts of a rebuild.
    fn take_result(&mut self, serial: u64, frame: Frame) {
        self.keeper.take_result(serial, frame.header.status);
        let mut flights = self.flights.iter_mut();
        if let Some(flight) = flights.find(|flight| flight.serial == serial) {
            if let Some(on) = &mut self.on_times {
                on(flight.batch.rows.len(), &frame.times);
            }
            flight.result = Some(frame);
            self.n_emptied = 0;
            self.forming.note_result();
        }
    }

    /// Waits until the oldest batch has a result.
    fn await_result(&mut self) -> Result<Frame, Error> {
        loop {
            if let Some(result) = self.flights.front_mut().and_then(|f| f.result.take()) {
                return Ok(result);
            }
            self.advance()?;
        }
    }

    /// Takes one step towards a result: handles an event, or repairs.
    fn advance(&mut self) -> Result<(), Error> {
        if let Some(why) = self.failure.take() {
            return self.recover(why);
        }
        match self.states {
            StageStates::Emptied if self.n_emptied > MAX_EMPTIED => {
                self.n_emptied = 0;
                self.abandon();
                Err(Error::Lost(format!(
                    "stages lost their state {MAX_EMPTIED} times without a result in between"
                )))
            }
            StageStates::Emptied => self.rebuild(),
            StageStates::Kept | StageStates::Unknown => {
                self.wait();
                Ok(())
            }
        }
    }

    /// Forgets positions of a sequence from `len` on: they will be others.
    fn cut_history(&mut self, seq: u32, len: usize) {
        self.history.truncate(seq, len);
        if let Some(journal) = &mut self.journal {
            journal.truncate(seq, len);
        }
    }

    fn push_history(&mut self, batch: &Batch) {
        for row in &batch.rows {
            if let Some(item) = self.item(batch, row) {
                self.history.push(row.seq.index, item);
            }
        }
    }

    fn item(&self, batch: &Batch, row: &Row) -> Option<Item> {
        item_of(batch, row, self.d_model)
    }

    /// Fails for an input that no ring takes; the local layers are not asked.
    fn check_row(&self, batch: &Batch, i: usize, row: &Row) -> Result<(), Error> {
        let what = match row.input {
            _ if !row.adapters.is_empty() => "an adapter, but a ring has none",
            Input::Token(id) if id as usize >= self.n_vocab => {
                let n_vocab = self.n_vocab;
                return Err(Error::Token { id, n_vocab });
            }
            Input::Hidden(_) | Input::Tapped { .. } | Input::Carried { .. } => {
                "a hidden state, but a ring embeds tokens"
            }
            _ if !batch.taps.is_empty() => "hidden states of layers that are elsewhere",
            Input::Embedding(_) if self.item(batch, row).is_none() => {
                "an embedding that the batch does not hold"
            }
            Input::Token(_) | Input::Embedding(_) => return Ok(()),
        };
        Err(Error::Row { row: i, what })
    }
}

impl Executor for Ring {
    fn info(&self) -> &ExecutorInfo {
        &self.info
    }

    fn seqs(&self) -> &SeqTable {
        &self.seqs
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn n_chunk(&self) -> usize {
        self.n_chunk
    }

    fn submit(&mut self, batch: &Batch) -> Result<Ticket, Error> {
        self.check(batch)?;
        for (i, row) in batch.rows.iter().enumerate() {
            self.check_row(batch, i, row)?;
        }
        self.pump();
        self.form_missing()?;
        self.seqs.admit(&batch.rows, |_, _| Ok(()))?;
        // There are no bytes to copy here.
        self.seqs.take_copies().for_each(drop);
        self.draw_audits(&batch.rows);
        self.n_submitted += 1;
        let is_empty = batch.rows.is_empty();
        let is_sent = !is_empty && self.states == StageStates::Kept;
        self.flights.push_back(Flight {
            ticket: self.n_submitted,
            // A submission may be answered before it returns.
            serial: if is_sent { self.serial + 1 } else { 0 },
            batch: batch.clone(),
            sent_digest: 0,
            result: is_empty.then(|| self.empty_result()),
        });
        match self.states {
            StageStates::Kept if is_empty => {}
            StageStates::Kept => {
                if let Err(error) = self.compute_flight(self.flights.len() - 1) {
                    self.flights.pop_back();
                    self.seqs.remove(&batch.rows);
                    return Err(error);
                }
            }
            // The rows go with the rebuild, which an empty submission brings about.
            StageStates::Unknown if self.n_stages > 0 => {
                self.failure = None;
                self.ops.clear();
                self.send(Vec::new(), Vec::new());
            }
            StageStates::Unknown => self.begin_rebuild(),
            StageStates::Emptied => {}
        }
        self.push_history(batch);
        Ok(Ticket(self.n_submitted))
    }

    fn collect(&mut self, Ticket(n): Ticket, out: &mut Output) -> Result<(), Error> {
        if self.flights.front().is_none_or(|flight| flight.ticket != n) {
            return Err(Error::Ticket(n));
        }
        let done = self.await_audited().and_then(|result| {
            let batch = &self.flights[0].batch;
            out.prepare(&batch.rows, self.n_vocab, self.d_model);
            self.head.finish(batch, &result, out)
        });
        match done {
            Ok(()) => {
                self.flights.pop_front();
                self.save_due()
            }
            Err(error) => {
                self.remove_flights();
                Err(error)
            }
        }
    }

    fn refresh(&mut self) -> Result<(), Error> {
        self.change_if_asked()
    }

    /// A ring has phases at every stage; the coordinator alone sees none of them.
    fn observe(&mut self, observer: Box<dyn Observer>) {
        self.head.observe(observer);
    }

    fn new_seq(&mut self) -> Result<SeqId, Error> {
        let seq = self.seqs.new_seq()?;
        self.history.new_seq(seq.index);
        self.operate(Op::New { seq: seq.index })?;
        Ok(seq)
    }

    fn fork(&mut self, seq: SeqId) -> Result<SeqId, Error> {
        self.seqs.len(seq)?;
        self.check_kept(seq)?;
        let fork = self.seqs.fork(seq)?;
        let from = seq.index;
        let to = fork.index;
        self.history.fork(from, to);
        if let Some(journal) = &mut self.journal {
            journal.fork(from, to);
        }
        self.operate(Op::Fork { from, to })?;
        Ok(fork)
    }

    fn truncate(&mut self, seq: SeqId, n: usize) -> Result<usize, Error> {
        let kept = self.seqs.keeps(seq, n)?;
        self.take_back(seq, kept)?;
        let had = self.seqs.len(seq)?;
        let left = self.seqs.truncate(seq, n)?;
        self.cut_history(seq.index, left);
        if left == 0 {
            self.lost.remove(&seq);
            self.end_audit(seq);
        }
        if left < had {
            let len = position(left);
            let seq = seq.index;
            self.operate(Op::Truncate { seq, len })?;
        }
        Ok(left)
    }

    fn shift(&mut self, seq: SeqId, evicted: Range<usize>) -> Result<(), Error> {
        self.check_idle(seq)?;
        self.check_kept(seq)?;
        if self.states != StageStates::Kept {
            // Its keys are to be rotated, and are not there.
            return Err(Error::Lost(format!(
                "sequence {seq} cannot be shifted before the ring is repaired"
            )));
        }
        let from = position(evicted.start);
        let len = position(evicted.len());
        let index = seq.index;
        self.operate(Op::Shift {
            seq: index,
            from,
            len,
        })?;
        self.seqs.evict(seq, &evicted)?;
        self.seqs.take_copies().for_each(drop);
        self.history.evict(index, evicted);
        if let Some(audit) = &mut self.audit {
            audit.release(seq);
        }
        if let Some(journal) = &mut self.journal {
            journal.truncate(index, 0);
        }
        Ok(())
    }

    fn drop_seq(&mut self, seq: SeqId) -> Result<(), Error> {
        self.check_idle(seq)?;
        self.seqs.drop_seq(seq)?;
        self.cut_history(seq.index, 0);
        self.history.drop_seq(seq.index);
        self.lost.remove(&seq);
        self.end_audit(seq);
        self.operate(Op::Drop { seq: seq.index })
    }

    /// Writes a receipt: the stages keep the state itself.
    fn export(&self, seq: SeqId, at: Range<usize>, out: &mut dyn Write) -> Result<(), Error> {
        self.export_receipt(seq, at, out)
    }

    fn append_state(&mut self, seq: SeqId, state: &[u8], n: usize) -> Result<(), Error> {
        self.append_receipt(seq, state, n)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.finish_saves();
        for stage in 1..=self.n_stages {
            let bye = self.coordinator.bye(stage);
            self.lane.send(stage, bye);
        }
    }
}

/// What a position is computed from; `None` for a hidden state, or an embedding that the batch does
/// not hold.
pub(crate) fn item_of(batch: &Batch, row: &Row, d_model: usize) -> Option<Item> {
    let input = match row.input {
        Input::Token(id) => ItemInput::Token(id),
        Input::Embedding(i) => {
            let x = batch.hidden.get(i * d_model..(i + 1) * d_model)?;
            ItemInput::Embedding(x.into())
        }
        Input::Hidden(_) | Input::Tapped { .. } | Input::Carried { .. } => return None,
    };
    let segment = row.segment;
    Some(Item { input, segment })
}

/// A position as a field of a frame; executors have at most `u32::MAX / 2`.
fn position(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The runs of rows. All rows of audited sequences are wanted.
fn runs_of(rows: &[Row], is_audited: impl Fn(SeqId) -> bool) -> Vec<Run> {
    let mut runs = RowRuns::default();
    for row in rows {
        let is_audited = is_audited(row.seq);
        runs.push(Run {
            seq: row.seq.index,
            branch: 0,
            n: 1,
            pos: position(row.pos),
            is_wanted: row.want != Want::Nothing || is_audited,
            is_checkpoint: row.is_checkpoint,
            is_audited,
        });
    }
    runs.0
}
