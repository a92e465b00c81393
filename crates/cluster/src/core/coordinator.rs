//! The owner of a ring: batches, epochs, deadlines and repairs.
//!
//! ```text
//! down --submit--> fencing(e) --all answers--> serving(e) --anything wrong--> fencing(e + 1) ...
//!                      '--no answers, three times--> down: requests end with an error
//! ```
//! The log holds every submission without a result. A fence asks each stage how far it came, and
//! its catch-up brings the operations of the log that it lacks, then truncates every sequence with
//! rows in the log to what it was before them. Then the rows are sent again, without operations.
//! Rows that the caller has taken back are not.

use std::collections::{BTreeMap, VecDeque};

use super::{CATCH_UP, CREDITS, FenceAnswer, Link, Time, Timing, Work};
use crate::wire::{Frame, FrameKind, Header, Limits, MAX_CATCH_UP_OPS, Op, Run, Status};

/// What happens to the coordinator.
#[derive(Clone, Debug)]
pub enum Event {
    /// Operations and rows to compute.
    Submit(Work),
    /// A frame of this ring.
    Frame(Frame),
    /// Bytes of a stage that are no frame of this ring.
    Garbage {
        /// The stage.
        stage: u16,
    },
    /// A stage answers a fence.
    Fenced {
        /// The stage.
        stage: u16,
        /// Its answer.
        answer: FenceAnswer,
    },
    /// The link to a stage has ended.
    Down {
        /// The stage.
        stage: u16,
    },
    /// Time has passed.
    Tick,
}

/// What the coordinator does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sends a frame to a stage.
    Send {
        /// The stage.
        stage: u16,
        /// What.
        frame: Frame,
    },
    /// Asks a stage to enter an epoch. Fences may overtake frames.
    Fence {
        /// The stage.
        stage: u16,
        /// The epoch.
        epoch: u32,
    },
    /// The result of the oldest submission.
    Result {
        /// Its number.
        serial: u64,
        /// Its rows, those that were wanted at least.
        frame: Frame,
    },
    /// A piece of a state that a stage has saved, of any epoch.
    Journal(Frame),
    /// All stages are empty and nothing is submitted any more: every sequence must be submitted
    /// again, then what had no result.
    Rebuild,
    /// Nothing is computed any more; submissions so far have no result. The next submission begins
    /// with a [`Rebuild`](Self::Rebuild).
    GiveUp(String),
}

/// Numbers of a ring, for its page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Fences so far.
    pub n_fences: u64,
    /// Rebuilds of all sequences.
    pub n_rebuilds: u64,
    /// Frames of older epochs, which were dropped.
    pub n_stale: u64,
    /// Batches with a result.
    pub n_results: u64,
}

/// A submission without a result.
#[derive(Debug)]
struct Entry {
    work: Work,
    /// Epoch and number under which it was last sent.
    sent: Option<(u32, u32)>,
    deadline: Time,
    /// Whether its rows are taken back: they count as long as they are on their way, and no longer.
    is_void: bool,
}

impl Entry {
    /// Drops rows that are taken back.
    fn drop_void_rows(&mut self) {
        if self.is_void {
            self.work.runs.clear();
            self.work.data.clear();
        }
    }
}

#[derive(Debug)]
enum Phase {
    Down,
    Fencing { until: Time },
    Serving,
}

/// The coordinator's view of a stage.
#[derive(Clone, Debug, Default)]
struct StageState {
    /// Operations of submissions up to this one are applied.
    ops_done: u64,
    /// Its answer to the fence.
    answer: Option<FenceAnswer>,
    link: Link,
}

/// The state machine of the owner.
#[derive(Debug)]
pub struct Coordinator {
    limits: Limits,
    timing: Timing,
    phase: Phase,
    epoch: u32,
    /// Last epoch whose catch-ups were sent, and the last submission whose operations they brought.
    served_epoch: u32,
    catch_up_serial: u64,
    /// Stages whose state is of an epoch before this one must drop it.
    reset_epoch: u32,
    must_rebuild: bool,
    log: VecDeque<Entry>,
    /// Last submission.
    serial: u64,
    next_batch: u32,
    /// Last batch that the first stage has computed, and last batch with a result.
    acked: u32,
    collected: u32,
    /// Fences since the last result, and why the last one.
    n_fences: u32,
    reason: String,
    stages: Vec<StageState>,
    counts: Counts,
}

impl Coordinator {
    /// The owner of a ring whose stages are empty or unknown.
    pub fn new(limits: Limits, timing: Timing) -> Self {
        Self {
            stages: vec![StageState::default(); usize::from(limits.n_stages)],
            limits,
            timing,
            phase: Phase::Down,
            epoch: 0,
            served_epoch: 0,
            catch_up_serial: 0,
            reset_epoch: 1,
            must_rebuild: false,
            log: VecDeque::new(),
            serial: 0,
            next_batch: CATCH_UP + 1,
            acked: CATCH_UP,
            collected: CATCH_UP,
            n_fences: 0,
            reason: String::new(),
            counts: Counts::default(),
        }
    }

    /// Its numbers.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What frames may hold.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The current epoch.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Why the ring was fenced last.
    pub fn last_fault(&self) -> &str {
        &self.reason
    }

    /// Whether stages take work, with nothing to repair first.
    pub fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Serving)
    }

    /// Submissions without a result.
    pub fn n_pending(&self) -> usize {
        self.log.len()
    }

    /// Frames that the first stage has not acknowledged.
    pub fn n_unacknowledged(&self) -> u32 {
        self.next_batch - 1 - self.acked
    }

    /// Forgets all submissions, as after [`Action::GiveUp`].
    pub fn abandon(&mut self) {
        self.phase = Phase::Down;
        self.log.clear();
        self.must_rebuild = true;
    }

    /// Takes the rows of a submission back, whose sequence a later submission truncates to before
    /// them. They have no result, unless they are on their way already.
    pub fn take_back(&mut self, serial: u64) {
        let mut log = self.log.iter_mut();
        if let Some(entry) = log.find(|entry| entry.work.serial == serial) {
            entry.is_void = true;
            if entry.sent.is_none() {
                entry.drop_void_rows();
            }
        }
    }

    /// The frame of [`FrameKind::Bye`] for a stage.
    pub fn bye(&self, stage: u16) -> Frame {
        self.limits.bare(FrameKind::Bye, self.epoch, 0, stage)
    }

    /// When it wants an [`Event::Tick`] at the latest; `None`: at no time.
    pub fn next_wake(&self) -> Option<Time> {
        let phase = match self.phase {
            Phase::Down => None,
            Phase::Fencing { until } => Some(until),
            Phase::Serving => self.deadline(),
        };
        let pings = self.stages.iter().map(|stage| stage.link.next());
        let ping = self.timing.ping.and_then(|_| pings.min());
        phase.into_iter().chain(ping).min()
    }

    /// The deadline of the oldest batch on its way.
    fn deadline(&self) -> Option<Time> {
        let oldest = self.log.front()?;
        oldest
            .sent
            .filter(|(epoch, _)| *epoch == self.epoch)
            .map(|_| oldest.deadline)
    }

    /// Handles an event.
    pub fn on(&mut self, now: Time, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Submit(work) => self.submit(now, work, &mut actions),
            Event::Frame(frame) => self.take(now, frame, &mut actions),
            Event::Garbage { stage } => {
                self.trouble(now, format!("stage {stage} sent no frame"), &mut actions);
            }
            Event::Fenced { stage, answer } => self.fenced(now, stage, answer, &mut actions),
            Event::Down { stage } => self.down(now, stage, &mut actions),
            Event::Tick => self.tick(now, &mut actions),
        }
        actions
    }

    fn submit(&mut self, now: Time, work: Work, actions: &mut Vec<Action>) {
        self.serial = work.serial;
        self.log.push_back(Entry {
            work,
            sent: None,
            deadline: Time::ZERO,
            is_void: false,
        });
        match self.phase {
            Phase::Down => {
                self.n_fences = 0;
                // Each is waited for anew.
                self.stages.iter_mut().for_each(|stage| stage.link.heard());
                self.fence(now, actions);
            }
            Phase::Fencing { .. } => {}
            Phase::Serving => self.send(now, actions),
        }
    }

    /// Sends what the first stage has credit for.
    fn send(&mut self, now: Time, actions: &mut Vec<Action>) {
        let epoch = self.epoch;
        let is_sent = |entry: &Entry| entry.sent.is_some_and(|(sent, _)| sent == epoch);
        while self.n_unacknowledged() < CREDITS {
            let Some(i) = self.log.iter().position(|entry| !is_sent(entry)) else {
                return;
            };
            let ahead = self.log.iter().take(i + 1);
            let n_rows = ahead.map(|entry| n_positions(&entry.work)).sum();
            let ops = self
                .log
                .iter()
                .take(i + 1)
                .flat_map(|entry| &entry.work.ops);
            let on_disk = |op: &&Op| matches!(op, Op::Save { .. } | Op::Load { .. });
            let n_states = u32::try_from(ops.filter(on_disk).count()).unwrap_or(u32::MAX);
            let disks = Timing::STATE.saturating_mul(n_states);
            let deadline = now + self.timing.deadline(i + 1, n_rows) + disks;
            let batch = self.next_batch;
            self.next_batch += 1;
            let frame = self.work_frame(&self.log[i].work, batch, deadline - now);
            let entry = &mut self.log[i];
            entry.sent = Some((epoch, batch));
            entry.deadline = deadline;
            actions.push(Action::Send { stage: 1, frame });
        }
    }

    fn work_frame(&self, work: &Work, batch: u32, deadline: Time) -> Frame {
        let deadline_10ms = u16::try_from(deadline.as_millis() / 10).unwrap_or(u16::MAX);
        let header = Header {
            until: self.limits.n_stages,
            d_row: self.limits.d_row,
            acked: self.collected,
            credit: CREDITS as u16,
            deadline_10ms,
            ..self.limits.header(FrameKind::Work, self.epoch, batch, 1)
        };
        let is_new = work.serial > self.catch_up_serial;
        Frame {
            ops: if is_new { work.ops.clone() } else { Vec::new() },
            runs: work.runs.clone(),
            data: work.data.clone(),
            ..Frame::bare(header)
        }
    }

    fn take(&mut self, now: Time, frame: Frame, actions: &mut Vec<Action>) {
        let h = &frame.header;
        self.stages[usize::from(h.stage) - 1].link.heard();
        match h.kind {
            FrameKind::Pong => return,
            FrameKind::Journal => {
                actions.push(Action::Journal(frame));
                return;
            }
            _ => {}
        }
        if h.epoch != self.epoch || !matches!(self.phase, Phase::Serving) {
            self.counts.n_stale += 1;
            return;
        }
        match h.kind {
            FrameKind::Ack if h.stage == 1 && h.batch < self.next_batch => {
                self.acked = self.acked.max(h.batch);
                self.send(now, actions);
            }
            FrameKind::Result => self.take_result(now, frame, actions),
            FrameKind::Nack => {
                let kept = matches!(h.status, Status::Ok | Status::Io);
                self.must_rebuild |= !kept;
                let why = match h.status {
                    Status::Io => "cannot read its weights",
                    Status::OutOfBlocks => "is out of KV blocks",
                    Status::Refused | Status::NonFinite | Status::NoState => "refuses a batch",
                    Status::Ok => "misses a frame",
                };
                let why = format!("stage {} {why}", h.stage);
                self.trouble(now, why, actions);
            }
            _ => {
                let why = format!("stage {} sent a frame out of place", h.stage);
                self.trouble(now, why, actions);
            }
        }
    }

    fn take_result(&mut self, now: Time, frame: Frame, actions: &mut Vec<Action>) {
        let batch = frame.header.batch;
        let oldest = self.log.front().and_then(|entry| entry.sent);
        if oldest != Some((self.epoch, batch)) {
            self.trouble(now, "a result is lost".to_owned(), actions);
            return;
        }
        let Some(entry) = self.log.pop_front_if(|entry| answers(&frame, &entry.work)) else {
            self.trouble(now, "a result of other rows".to_owned(), actions);
            return;
        };
        let serial = entry.work.serial;
        self.collected = batch;
        self.n_fences = 0;
        self.counts.n_results += 1;
        // A result has been at every stage.
        self.acked = self.acked.max(batch);
        for stage in &mut self.stages {
            stage.ops_done = stage.ops_done.max(serial);
        }
        actions.push(Action::Result { serial, frame });
        self.send(now, actions);
    }

    fn tick(&mut self, now: Time, actions: &mut Vec<Action>) {
        for (stage, i) in self.stages.iter_mut().zip(1..) {
            if let Some(number) = stage.link.due(now, &self.timing) {
                let frame = self.limits.bare(FrameKind::Ping, self.epoch, number, i);
                actions.push(Action::Send { stage: i, frame });
            }
        }
        match self.phase {
            Phase::Serving => {
                let mut links = self.stages.iter().zip(1..);
                let suspect = links.find(|(stage, _)| stage.link.is_suspect());
                if let Some((_, i)) = suspect {
                    self.trouble(now, format!("stage {i} does not answer"), actions);
                } else if self.deadline().is_some_and(|deadline| now >= deadline) {
                    self.trouble(now, "a batch is too late".to_owned(), actions);
                }
            }
            Phase::Fencing { .. } if self.is_silent() => self.give_up(actions),
            Phase::Fencing { until } if now >= until => self.fence(now, actions),
            Phase::Fencing { .. } | Phase::Down => {}
        }
    }

    /// Whether a stage that was there and has not answered the fence has been silent for so long
    /// that no other fence would reach it.
    fn is_silent(&self) -> bool {
        let mut stages = self.stages.iter();
        self.served_epoch > 0
            && stages.any(|stage| stage.answer.is_none() && stage.link.is_silent())
    }

    /// A link has ended: what waits for the stage need not wait longer.
    fn down(&mut self, now: Time, stage: u16, actions: &mut Vec<Action>) {
        let why = format!("stage {stage} is gone");
        match self.phase {
            Phase::Fencing { .. } => {
                self.reason = why;
                self.fence(now, actions);
            }
            Phase::Serving | Phase::Down => self.trouble(now, why, actions),
        }
    }

    /// Begins a repair, if there is anything to repair.
    fn trouble(&mut self, now: Time, why: String, actions: &mut Vec<Action>) {
        if !matches!(self.phase, Phase::Serving) {
            return;
        }
        self.reason = why;
        if self.log.is_empty() {
            // Nothing waits: the next submission finds out.
            self.phase = Phase::Down;
        } else {
            self.fence(now, actions);
        }
    }

    /// Begins a new epoch, or gives up.
    fn fence(&mut self, now: Time, actions: &mut Vec<Action>) {
        if self.n_fences == Timing::MAX_FENCES {
            self.give_up(actions);
            return;
        }
        self.n_fences += 1;
        self.counts.n_fences += 1;
        self.epoch += 1;
        self.phase = Phase::Fencing {
            until: now + self.timing.fence,
        };
        for (state, stage) in self.stages.iter_mut().zip(1..) {
            state.answer = None;
            let epoch = self.epoch;
            actions.push(Action::Fence { stage, epoch });
        }
    }

    fn give_up(&mut self, actions: &mut Vec<Action>) {
        // Where a stage stands is unknown: the next submission begins with empty ones.
        self.abandon();
        let missing = self.stages.iter().zip(1..);
        let missing = missing.filter(|(state, _)| state.answer.is_none());
        let missing: Vec<String> = missing.map(|(_, i): (_, u16)| i.to_string()).collect();
        let silent = match missing.is_empty() {
            true => String::new(),
            false => format!("; no answer of stages {}", missing.join(", ")),
        };
        let reason = &self.reason;
        let why = match self.n_fences {
            n @ Timing::MAX_FENCES => {
                format!("the ring was repaired {n} times without a result: {reason}{silent}")
            }
            _ => format!("{reason}{silent}"),
        };
        actions.push(Action::GiveUp(why));
    }

    fn fenced(&mut self, now: Time, stage: u16, answer: FenceAnswer, actions: &mut Vec<Action>) {
        let Some(state) = self.stages.get_mut(usize::from(stage).wrapping_sub(1)) else {
            return;
        };
        state.link.heard();
        if !matches!(self.phase, Phase::Fencing { .. }) || answer.epoch != self.epoch {
            self.counts.n_stale += 1;
            return;
        }
        state.answer = Some(answer);
        if self.stages.iter().all(|stage| stage.answer.is_some()) {
            self.serve(now, actions);
        }
    }

    /// Brings all stages to the same state and goes on.
    fn serve(&mut self, now: Time, actions: &mut Vec<Action>) {
        (0..self.stages.len()).for_each(|i| self.note_answer(i));
        self.log.iter_mut().for_each(Entry::drop_void_rows);
        // What they append has come in pieces of an older epoch, which are dropped.
        let appends = |entry: &Entry| entry.work.ops.iter().any(Op::is_append);
        self.must_rebuild |= self.log.iter().any(appends);
        let is_too_much =
            |i: usize| self.ops_lacked(i).count() + self.n_truncates() > MAX_CATCH_UP_OPS;
        let rebuilds = self.must_rebuild || (0..self.stages.len()).any(is_too_much);
        if rebuilds {
            self.must_rebuild = false;
            self.reset_epoch = self.epoch;
            self.log.clear();
            let serial = self.serial;
            self.stages
                .iter_mut()
                .for_each(|stage| stage.ops_done = serial);
            self.counts.n_rebuilds += 1;
        }
        for (i, stage) in (0..self.stages.len()).zip(1..) {
            let frame = self.catch_up(i);
            actions.push(Action::Send { stage, frame });
        }
        self.phase = Phase::Serving;
        self.served_epoch = self.epoch;
        self.catch_up_serial = self.serial;
        self.next_batch = CATCH_UP + 1;
        self.acked = CATCH_UP;
        self.collected = CATCH_UP;
        if rebuilds {
            actions.push(Action::Rebuild);
        }
        self.send(now, actions);
    }

    /// Derives what a stage has applied from its answer.
    fn note_answer(&mut self, i: usize) {
        let state = &mut self.stages[i];
        let Some(served) = state.answer.and_then(|answer| answer.served) else {
            // An empty stage is as good as any other before the first rows, and after a reset.
            self.must_rebuild |= self.served_epoch > 0;
            return;
        };
        let (epoch, batch) = served;
        if epoch > self.served_epoch {
            // It is of another owner, or lies.
            self.must_rebuild = true;
        } else if epoch == self.served_epoch {
            let at_batch = self.log.iter().find(|entry| entry.sent == Some(served));
            let serial = match (batch, at_batch) {
                (CATCH_UP, _) => self.catch_up_serial,
                (_, Some(entry)) => entry.work.serial.max(self.catch_up_serial),
                (_, None) => 0,
            };
            state.ops_done = state.ops_done.max(serial);
        }
    }

    /// The operations of the log that a stage has not applied.
    fn ops_lacked(&self, i: usize) -> impl Iterator<Item = Op> + '_ {
        let done = self.stages[i].ops_done;
        let lacked = self
            .log
            .iter()
            .filter(move |entry| entry.work.serial > done);
        lacked.flat_map(|entry| entry.work.ops.iter().copied())
    }

    /// The length of every sequence with rows in the log before the first of them.
    fn lengths_before(&self) -> BTreeMap<u32, u32> {
        let mut lengths = BTreeMap::new();
        for run in self.log.iter().flat_map(|entry| &entry.work.runs) {
            let len = lengths.entry(run.seq).or_insert(run.pos);
            *len = run.pos.min(*len);
        }
        lengths
    }

    fn n_truncates(&self) -> usize {
        self.lengths_before().len()
    }

    fn catch_up(&self, i: usize) -> Frame {
        let stage = u16::try_from(i + 1).unwrap_or(u16::MAX);
        let served = self.stages[i].answer.and_then(|answer| answer.served);
        let is_old = served.is_none_or(|(epoch, _)| epoch < self.reset_epoch);
        let header = Header {
            flags: if is_old { Header::RESET } else { 0 },
            ..self
                .limits
                .header(FrameKind::CatchUp, self.epoch, CATCH_UP, stage)
        };
        let truncates = self.lengths_before().into_iter();
        let truncates = truncates.map(|(seq, len)| Op::Truncate { seq, len });
        Frame {
            ops: self.ops_lacked(i).chain(truncates).collect(),
            ..Frame::bare(header)
        }
    }
}

/// Positions that a lap computes or appends.
fn n_positions(work: &Work) -> usize {
    let rows = work.runs.iter().map(|run| usize::from(run.n));
    let appended = work.ops.iter().map(|op| match op {
        Op::Append { n, .. } => *n as usize,
        _ => 0,
    });
    rows.chain(appended).sum()
}

/// Whether a result has rows of the work only, and all that were wanted.
fn answers(result: &Frame, work: &Work) -> bool {
    let rows = |runs: &[Run], all: bool| -> Vec<(u32, u32)> {
        let runs = runs.iter().filter(|run| all || run.is_wanted);
        runs.flat_map(|run| (0..u32::from(run.n)).map(|i| (run.seq, run.pos + i)))
            .collect()
    };
    let got = rows(&result.runs, true);
    let mut all = rows(&work.runs, true).into_iter();
    // In the order of the work, each once.
    let is_part = got.iter().all(|row| all.any(|other| other == *row));
    let mut got = got.iter();
    is_part
        && rows(&work.runs, false)
            .iter()
            .all(|row| got.any(|other| other == row))
}
