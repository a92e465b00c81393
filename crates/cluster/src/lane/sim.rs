//! Stages in threads of this process. Frames travel as bytes, as they would over a network.

use std::{
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::Lane;
use crate::{
    Stage,
    core::{Event, FenceAnswer, Node, NodeAction, NodeEvent, Peer, Time, Timing},
    wire::{Frame, Limits},
};

/// Longest wait without a deadline.
const FOREVER: Duration = Duration::from_secs(3600);

/// What a stage gets.
enum ToStage {
    Bytes(Vec<u8>),
    Fence(u32),
    /// Loses its state, as a process that begins anew.
    Restart,
    Stop,
}

/// What the coordinator gets.
enum ToCoordinator {
    Bytes(Vec<u8>),
    Fenced(FenceAnswer),
}

/// One thread per stage.
#[derive(Debug)]
pub struct ThreadLane {
    limits: Limits,
    start: Instant,
    stages: Vec<Sender<ToStage>>,
    inbox: Receiver<(u16, ToCoordinator)>,
    threads: Vec<JoinHandle<()>>,
    /// Stages whose thread has ended, to be reported.
    down: Vec<u16>,
}

impl ThreadLane {
    /// Starts a thread for each stage.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn start(limits: Limits, timing: Timing, stages: Vec<Stage>) -> std::io::Result<Self> {
        let start = Instant::now();
        let (to_coordinator, inbox) = mpsc::channel();
        let (senders, receivers): (Vec<_>, Vec<_>) = stages.iter().map(|_| mpsc::channel()).unzip();
        let mut lane = Self {
            limits,
            start,
            stages: senders.clone(),
            inbox,
            threads: Vec::with_capacity(stages.len()),
            down: Vec::new(),
        };
        for ((stage, inbox), number) in stages.into_iter().zip(receivers).zip(1..) {
            let worker = Worker {
                node: Node::new(limits, timing, number),
                number,
                limits,
                timing,
                start,
                stage,
                stages: senders.clone(),
                coordinator: to_coordinator.clone(),
            };
            let thread = thread::Builder::new().name(format!("atta stage {number}"));
            let thread = thread.spawn(move || worker.run(&inbox))?;
            lane.threads.push(thread);
        }
        Ok(lane)
    }

    /// Makes a stage lose its state, as a process that ends and is started again.
    pub fn restart(&mut self, stage: u16) {
        self.give(stage, ToStage::Restart);
        // Its connections end with it.
        self.down.push(stage);
    }

    fn give(&mut self, stage: u16, message: ToStage) {
        if self.stages[usize::from(stage) - 1].send(message).is_err() {
            self.down.push(stage);
        }
    }
}

impl Lane for ThreadLane {
    fn now(&self) -> Time {
        self.start.elapsed()
    }

    fn send(&mut self, stage: u16, mut frame: Frame) {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        self.give(stage, ToStage::Bytes(bytes));
    }

    fn fence(&mut self, stage: u16, epoch: u32) {
        self.give(stage, ToStage::Fence(epoch));
    }

    fn recv(&mut self, until: Option<Time>) -> Option<Event> {
        if let Some(stage) = self.down.pop() {
            return Some(Event::Down { stage });
        }
        let wait = until.map_or(FOREVER, |until| until.saturating_sub(self.now()));
        let (stage, message) = self.inbox.recv_timeout(wait).ok()?;
        Some(match message {
            ToCoordinator::Fenced(answer) => Event::Fenced { stage, answer },
            ToCoordinator::Bytes(bytes) => match Frame::parse(&bytes, &self.limits) {
                Ok(frame) => Event::Frame(frame),
                Err(_) => Event::Garbage { stage },
            },
        })
    }
}

impl Drop for ThreadLane {
    fn drop(&mut self) {
        for stage in &self.stages {
            // A thread that has ended needs no word.
            let _ = stage.send(ToStage::Stop);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The thread of a stage.
struct Worker {
    node: Node,
    stage: Stage,
    number: u16,
    limits: Limits,
    timing: Timing,
    start: Instant,
    stages: Vec<Sender<ToStage>>,
    coordinator: Sender<(u16, ToCoordinator)>,
}

impl Worker {
    fn run(mut self, inbox: &Receiver<ToStage>) {
        loop {
            let now = self.start.elapsed();
            let wake = self.node.next_wake();
            let wait = wake.map_or(FOREVER, |wake| wake.saturating_sub(now));
            let event = match inbox.recv_timeout(wait) {
                Ok(ToStage::Bytes(bytes)) => match Frame::parse(&bytes, &self.limits) {
                    Ok(frame) => NodeEvent::Frame(frame),
                    Err(_) => NodeEvent::Garbage,
                },
                Ok(ToStage::Fence(epoch)) => NodeEvent::Fence { epoch },
                Ok(ToStage::Restart) => {
                    self.node = Node::new(self.limits, self.timing, self.number);
                    self.stage.reset();
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => NodeEvent::Tick,
                Ok(ToStage::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut next = Some(event);
            while let Some(event) = next.take() {
                let actions = self.node.on(self.start.elapsed(), event);
                for action in actions {
                    match self.act(action) {
                        Ok(computed) => next = next.or(computed),
                        Err(Ended) => return,
                    }
                }
            }
        }
    }

    /// Does an action; the event that follows from a computation.
    fn act(&mut self, action: NodeAction) -> Result<Option<NodeEvent>, Ended> {
        match action {
            NodeAction::Send { to, mut frame } => {
                let mut bytes = Vec::new();
                frame.write(&mut bytes);
                // A side that has ended is missed by the protocol.
                let _ = match to {
                    Peer::Coordinator => {
                        let message = ToCoordinator::Bytes(bytes);
                        self.coordinator.send((self.number, message)).is_ok()
                    }
                    Peer::Stage(stage) => self.stages[usize::from(stage) - 1]
                        .send(ToStage::Bytes(bytes))
                        .is_ok(),
                };
            }
            NodeAction::Fenced(answer) => {
                let message = ToCoordinator::Fenced(answer);
                self.coordinator
                    .send((self.number, message))
                    .map_err(|_| Ended)?;
            }
            NodeAction::Keep { id, bytes } => self.stage.keep(id, bytes),
            NodeAction::Compute(frame) => {
                let outcome = self.stage.compute(&frame);
                for mut frame in self.stage.saved_frames(&self.limits, &frame.header) {
                    let mut bytes = Vec::new();
                    frame.write(&mut bytes);
                    let message = ToCoordinator::Bytes(bytes);
                    // A coordinator that has ended needs no state.
                    let _ = self.coordinator.send((self.number, message));
                }
                return Ok(Some(NodeEvent::Computed(outcome)));
            }
            NodeAction::DropState => self.stage.reset(),
            NodeAction::Halt => return Err(Ended),
        }
        Ok(None)
    }
}

/// The ring has ended.
struct Ended;
