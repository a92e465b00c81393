//! One stage: what it accepts, in which order it computes, and what it passes on.
//!
//! ```text
//! no state --fence(e)--> fenced(e) --catch-up--> serving(e) --fence(e')--> fenced(e') ...
//! ```
//! Work of an epoch may come before its catch-up, since they take different links; it waits. A
//! fence during a computation is answered when that ends. Without word of the coordinator for
//! [`Timing::orphan`] the state is dropped.

use std::collections::{BTreeMap, VecDeque};

use super::{CATCH_UP, CREDITS, FenceAnswer, Outcome, Time, Timing};
use crate::{
    journal::Joining,
    wire::{Dtype, Frame, FrameKind, Limits, Op, StageTime, Status},
};

/// Bytes of states that wait for the operations that load them, at most.
const MAX_KEPT: usize = 64 << 20;

/// The other side of a link of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The owner of the ring.
    Coordinator,
    /// Another stage.
    Stage(u16),
}

/// What happens to a stage.
#[derive(Clone, Debug)]
pub enum NodeEvent {
    /// A frame of this ring.
    Frame(Frame),
    /// Bytes that are no frame of this ring.
    Garbage,
    /// A fence: nothing of earlier epochs may be sent any more.
    Fence {
        /// The new epoch.
        epoch: u32,
    },
    /// The end of the computation that [`NodeAction::Compute`] asked for.
    Computed(Outcome),
    /// Time has passed.
    Tick,
}

/// What a stage does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeAction {
    /// Sends a frame.
    Send {
        /// The receiver.
        to: Peer,
        /// What.
        frame: Frame,
    },
    /// Keeps a state that an operation of the next frame to compute loads.
    Keep {
        /// Its name.
        id: u64,
        /// States of layers.
        bytes: Vec<u8>,
    },
    /// Applies the operations of a frame and computes its rows; a catch-up with the reset flag
    /// drops all sequences first.
    Compute(Frame),
    /// Answers a fence.
    Fenced(FenceAnswer),
    /// Drops all sequences.
    DropState,
    /// Ends.
    Halt,
}

/// Numbers of a stage, for its page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Frames of older epochs, which were dropped.
    pub n_stale: u64,
    /// Frames that were refused.
    pub n_refused: u64,
    /// Batches that were computed.
    pub n_computed: u64,
}

/// A batch that waits, and since when.
#[derive(Debug)]
struct Waiting {
    frame: Frame,
    since: Time,
}

/// The batch under computation.
#[derive(Debug)]
struct Current {
    frame: Frame,
    waited: Time,
    began: Time,
}

/// The state machine of one stage.
#[derive(Debug)]
pub struct Node {
    limits: Limits,
    timing: Timing,
    stage: u16,
    /// Epoch of the last fence; 0 before the first.
    epoch: u32,
    /// Epoch and number of the last batch that was applied; `None` without state.
    served: Option<(u32, u32)>,
    /// Last batch that came in this epoch.
    last: u32,
    /// The catch-up of this epoch, until it is computed.
    catch_up: Option<Frame>,
    /// Whether it came.
    has_catch_up: bool,
    inbox: VecDeque<Waiting>,
    /// States of this epoch that come in pieces, and whole ones that wait.
    joining: Joining,
    kept: BTreeMap<u64, Vec<u8>>,
    current: Option<Current>,
    /// A computed batch for which the next stage has no credit yet.
    outbox: Option<Frame>,
    /// Last batch that the next stage got and computed.
    sent: u32,
    acked: u32,
    /// Whether a frame was refused in this epoch; all others are dropped until the next.
    is_broken: bool,
    /// A fence that came during a computation.
    fence: Option<u32>,
    /// When the coordinator was last heard.
    heard: Time,
    counts: NodeCounts,
}

impl Node {
    /// The stage of this number, from 1, without state.
    pub fn new(limits: Limits, timing: Timing, stage: u16) -> Self {
        Self {
            limits,
            timing,
            stage,
            epoch: 0,
            served: None,
            last: CATCH_UP,
            catch_up: None,
            has_catch_up: false,
            inbox: VecDeque::new(),
            joining: Joining::default(),
            kept: BTreeMap::new(),
            current: None,
            outbox: None,
            sent: CATCH_UP,
            acked: CATCH_UP,
            is_broken: false,
            fence: None,
            heard: Time::ZERO,
            counts: NodeCounts::default(),
        }
    }

    /// Its numbers.
    pub fn counts(&self) -> NodeCounts {
        self.counts
    }

    /// Frames that it holds, the one under computation included.
    pub fn n_held(&self) -> usize {
        let others = [
            self.catch_up.is_some(),
            self.current.is_some(),
            self.outbox.is_some(),
        ];
        self.inbox.len() + others.into_iter().filter(|is_there| *is_there).count()
    }

    /// When it wants a [`NodeEvent::Tick`] at the latest; `None`: at no time.
    pub fn next_wake(&self) -> Option<Time> {
        self.served.map(|_| self.heard + self.timing.orphan)
    }

    /// Handles an event.
    pub fn on(&mut self, now: Time, event: NodeEvent) -> Vec<NodeAction> {
        let mut actions = Vec::new();
        match event {
            NodeEvent::Frame(frame) => self.take(now, frame, &mut actions),
            NodeEvent::Garbage => self.refuse(Status::Ok, self.last, &mut actions),
            NodeEvent::Fence { epoch } => self.fence(now, epoch, &mut actions),
            NodeEvent::Computed(outcome) => self.computed(now, outcome, &mut actions),
            NodeEvent::Tick => self.drop_if_orphaned(now, &mut actions),
        }
        self.start_next(now, &mut actions);
        actions
    }

    fn take(&mut self, now: Time, frame: Frame, actions: &mut Vec<NodeAction>) {
        let h = &frame.header;
        match h.kind {
            FrameKind::Ping => {
                self.heard = now;
                let pong = self
                    .limits
                    .bare(FrameKind::Pong, h.epoch, h.batch, self.stage);
                actions.push(to_coordinator(pong));
            }
            FrameKind::Bye => {
                self.forget();
                actions.extend([NodeAction::DropState, NodeAction::Halt]);
            }
            _ if h.epoch < self.epoch || self.fence.is_some() => self.counts.n_stale += 1,
            // A stage that began anew; the coordinator finds out by the fence that follows.
            _ if h.epoch > self.epoch => self.refuse_in(h.epoch, Status::Ok, h.batch, actions),
            _ if self.is_broken => self.counts.n_stale += 1,
            FrameKind::Ack => self.take_ack(h.batch, actions),
            FrameKind::CatchUp => {
                self.heard = now;
                self.take_catch_up(frame, actions);
            }
            FrameKind::Work => self.take_work(now, frame, actions),
            FrameKind::Journal => self.take_piece(&frame, actions),
            _ => self.refuse(Status::Refused, h.batch, actions),
        }
    }

    fn take_catch_up(&mut self, frame: Frame, actions: &mut Vec<NodeAction>) {
        match !self.has_catch_up && frame.header.stage == self.stage {
            true => {
                self.has_catch_up = true;
                self.catch_up = Some(frame);
            }
            false => self.refuse(Status::Ok, CATCH_UP, actions),
        }
    }

    fn take_work(&mut self, now: Time, frame: Frame, actions: &mut Vec<NodeAction>) {
        let h = &frame.header;
        if h.stage != self.stage || self.inbox.len() as u32 >= CREDITS {
            self.refuse(Status::Refused, h.batch, actions);
        } else if h.batch != self.last + 1 {
            // One before it is lost.
            self.refuse(Status::Ok, h.batch, actions);
        } else {
            self.last += 1;
            self.inbox.push_back(Waiting { frame, since: now });
        }
    }

    /// Takes a piece of a state, which may come before or behind the work that loads it.
    fn take_piece(&mut self, frame: &Frame, actions: &mut Vec<NodeAction>) {
        let Some(piece) = &frame.piece else { return };
        let n_kept: usize = self.kept.values().map(Vec::len).sum();
        let joined = self.joining.take(0, piece, &frame.data);
        match joined {
            Ok(Some(bytes)) if n_kept + bytes.len() <= MAX_KEPT => {
                self.kept.insert(piece.id, bytes);
            }
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => self.refuse(Status::Ok, frame.header.batch, actions),
        }
    }

    /// Drops all states that are not loaded yet.
    fn drop_pieces(&mut self) {
        self.joining = Joining::default();
        self.kept.clear();
    }

    fn take_ack(&mut self, batch: u32, actions: &mut Vec<NodeAction>) {
        if batch > self.sent {
            self.refuse(Status::Refused, batch, actions);
            return;
        }
        self.acked = self.acked.max(batch);
        self.pass_on(actions);
    }

    /// Whether the catch-up of this epoch is applied.
    fn is_caught_up(&self) -> bool {
        self.served.is_some_and(|(epoch, _)| epoch == self.epoch)
    }

    /// Starts the next computation, if there is one and room for its result.
    fn start_next(&mut self, now: Time, actions: &mut Vec<NodeAction>) {
        if self.current.is_some() || self.outbox.is_some() || self.is_broken {
            return;
        }
        let next = match self.catch_up.take() {
            Some(frame) => Some(Waiting { frame, since: now }),
            None if self.is_caught_up() => {
                let kept = &self.kept;
                let lacks = |id| !kept.contains_key(&id);
                let is_ready = |next: &mut Waiting| !loaded(&next.frame).any(lacks);
                self.inbox.pop_front_if(is_ready)
            }
            None => None,
        };
        if let Some(Waiting { frame, since }) = next {
            for id in loaded(&frame) {
                let bytes = self.kept.remove(&id);
                actions.extend(bytes.map(|bytes| NodeAction::Keep { id, bytes }));
            }
            actions.push(NodeAction::Compute(frame.clone()));
            self.current = Some(Current {
                frame,
                waited: now.saturating_sub(since),
                began: now,
            });
        }
    }

    fn computed(&mut self, now: Time, outcome: Outcome, actions: &mut Vec<NodeAction>) {
        let Some(current) = self.current.take() else {
            return;
        };
        let h = &current.frame.header;
        let batch = h.batch;
        self.served = Some((h.epoch, batch));
        self.counts.n_computed += 1;
        let refused = match &outcome {
            Outcome::Computed { .. } => None,
            Outcome::Failed(status) => Some(*status),
        };
        if refused.is_some_and(|status| status != Status::Io) {
            // How far it came is unknown.
            self.served = None;
            actions.push(NodeAction::DropState);
        }
        if let Some(epoch) = self.fence.take() {
            self.answer(epoch, actions);
            return;
        }
        let Outcome::Computed { runs, data, status } = outcome else {
            self.refuse(refused.unwrap_or(Status::Refused), batch, actions);
            return;
        };
        if h.kind == FrameKind::Work {
            self.ack(batch, actions);
            let time = StageTime {
                compute_us: micros(now.saturating_sub(current.began)),
                queued_us: micros(current.waited),
                bytes_out: self.row_bytes(&data),
                digest: current.frame.audit_digest(),
            };
            let rows = Frame {
                runs,
                data,
                ..current.frame
            };
            self.outbox = Some(self.next_frame(rows, time, status));
            self.pass_on(actions);
        }
    }

    /// Bytes of rows between machines.
    fn row_bytes(&self, data: &[u8]) -> u32 {
        let Limits { dtype, d_row, .. } = self.limits;
        let [on_wire, here] = [dtype, Dtype::F32].map(|dtype| dtype.row_bytes(d_row).unwrap_or(0));
        let n = data.len() / here.max(1) * on_wire;
        u32::try_from(n).unwrap_or(u32::MAX)
    }

    /// The frame for the next stage, or the result.
    fn next_frame(&self, mut frame: Frame, time: StageTime, status: Status) -> Frame {
        let h = &mut frame.header;
        frame.times.push(time);
        h.compute_us = h.compute_us.saturating_add(time.compute_us);
        h.queued_us = h.queued_us.saturating_add(time.queued_us);
        if status != Status::Ok {
            h.status = status;
        }
        if self.stage == h.until {
            h.kind = FrameKind::Result;
            frame.ops.clear();
            let n_stages = usize::from(self.limits.n_stages);
            frame.times.resize(n_stages, StageTime::default());
        } else {
            h.stage += 1;
        }
        frame
    }

    /// Sends the computed batch, if the next stage takes it.
    fn pass_on(&mut self, actions: &mut Vec<NodeAction>) {
        let is_result = |frame: &Frame| frame.header.kind == FrameKind::Result;
        let has_credit = self.sent - self.acked < CREDITS;
        let frame = self.outbox.take_if(|frame| is_result(frame) || has_credit);
        let Some(frame) = frame else { return };
        self.sent = frame.header.batch;
        let to = match is_result(&frame) {
            true => {
                self.acked = self.sent;
                Peer::Coordinator
            }
            false => Peer::Stage(self.stage + 1),
        };
        actions.push(NodeAction::Send { to, frame });
    }

    fn ack(&self, batch: u32, actions: &mut Vec<NodeAction>) {
        let mut frame = self
            .limits
            .bare(FrameKind::Ack, self.epoch, batch, self.stage);
        frame.header.acked = batch;
        let to = match self.stage {
            1 => Peer::Coordinator,
            stage => Peer::Stage(stage - 1),
        };
        actions.push(NodeAction::Send { to, frame });
    }

    fn refuse(&mut self, status: Status, batch: u32, actions: &mut Vec<NodeAction>) {
        self.refuse_in(self.epoch, status, batch, actions);
    }

    /// Sends a nack and drops all frames until the next fence.
    fn refuse_in(&mut self, epoch: u32, status: Status, batch: u32, actions: &mut Vec<NodeAction>) {
        self.counts.n_refused += 1;
        self.is_broken = true;
        self.inbox.clear();
        self.catch_up = None;
        let mut nack = self.limits.bare(FrameKind::Nack, epoch, batch, self.stage);
        nack.header.status = status;
        actions.push(to_coordinator(nack));
    }

    /// Begins an epoch: drops batches that wait, and answers, behind a running computation.
    fn fence(&mut self, now: Time, epoch: u32, actions: &mut Vec<NodeAction>) {
        self.heard = now;
        if epoch < self.epoch.max(self.fence.unwrap_or(0)) {
            self.counts.n_stale += 1;
            return;
        }
        if epoch > self.epoch {
            self.catch_up = None;
            self.inbox.clear();
            self.drop_pieces();
            self.outbox = None;
        }
        match self.current {
            // A fence that comes twice is answered at once.
            Some(_) if epoch > self.epoch => self.fence = Some(epoch),
            _ => self.answer(epoch, actions),
        }
    }

    /// Is in this epoch, and says how far it came.
    fn answer(&mut self, epoch: u32, actions: &mut Vec<NodeAction>) {
        if epoch > self.epoch {
            self.epoch = epoch;
            self.last = CATCH_UP;
            self.sent = CATCH_UP;
            self.acked = CATCH_UP;
            self.is_broken = false;
            self.has_catch_up = false;
        }
        let served = self.served;
        actions.push(NodeAction::Fenced(FenceAnswer { epoch, served }));
    }

    fn drop_if_orphaned(&mut self, now: Time, actions: &mut Vec<NodeAction>) {
        if self.current.is_none() && self.next_wake().is_some_and(|wake| now >= wake) {
            self.forget();
            actions.push(NodeAction::DropState);
        }
    }

    /// Has no state any more, and takes no frame before the next fence.
    fn forget(&mut self) {
        self.served = None;
        self.is_broken = true;
        self.inbox.clear();
        self.drop_pieces();
        self.catch_up = None;
        self.outbox = None;
    }
}

/// Names of the states that a frame loads.
fn loaded(frame: &Frame) -> impl Iterator<Item = u64> + '_ {
    frame.ops.iter().filter_map(|op| match op {
        Op::Append { id, .. } => Some(*id),
        _ => None,
    })
}

fn to_coordinator(frame: Frame) -> NodeAction {
    let to = Peer::Coordinator;
    NodeAction::Send { to, frame }
}

fn micros(time: Time) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}
