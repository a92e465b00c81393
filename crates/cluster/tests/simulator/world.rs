//! Stages and links in virtual time, and their faults.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use atta_cluster::{
    Lane, Stage,
    core::{CREDITS, Event, FenceAnswer, Node, NodeAction, NodeEvent, Peer, Time, Timing},
    wire::{Frame, Limits},
};

use super::random::Random;

/// Times of the ring; true laps take a tenth of them.
pub(crate) const TIMING: Timing = Timing {
    lap: Duration::from_millis(40),
    row: Duration::from_millis(2),
    slack: Duration::from_millis(100),
    fence: Duration::from_millis(400),
    ping: Some(Duration::from_millis(100)),
    orphan: Duration::from_secs(60),
};

/// Events of a seed; more are a livelock.
const MAX_EVENTS: u64 = 200_000;

/// Something on its way.
enum Delivery {
    ToNode(usize, Message),
    ToCoordinator(u16, Message),
    /// The end of a computation, if the process has not ended before.
    Computed(usize, u64, NodeEvent),
    /// A process begins.
    Start(usize),
}

#[derive(Clone)]
enum Message {
    Bytes(Vec<u8>),
    Fence(u32),
    Answer(FenceAnswer),
    Reset,
}

struct Process {
    node: Node,
    stage: Stage,
    /// Raised by every kill.
    generation: u64,
    is_alive: bool,
    frozen_until: Time,
    /// The last epoch that it was fenced into.
    epoch: u32,
}

/// Faults that occurred.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) n_lost: u64,
    pub(crate) n_damaged: u64,
    pub(crate) n_doubled: u64,
    pub(crate) n_killed: u64,
    pub(crate) n_frozen: u64,
}

pub(crate) struct World {
    limits: Limits,
    now: Time,
    queue: BTreeMap<(Time, u64), Delivery>,
    n_queued: u64,
    n_events: u64,
    processes: Vec<Process>,
    /// When the last message of a link arrives: links keep the order, unlike each other.
    links: BTreeMap<(u16, u16), Time>,
    random: Random,
    /// Faults to come.
    n_faults: usize,
    pub(crate) faults: Faults,
}

impl World {
    pub(crate) fn new(limits: Limits, stages: Vec<Stage>, seed: u64, n_faults: usize) -> Self {
        let processes = stages.into_iter().zip(1..).map(|(stage, i)| Process {
            node: Node::new(limits, TIMING, i),
            stage,
            generation: 0,
            is_alive: true,
            frozen_until: Time::ZERO,
            epoch: 0,
        });
        Self {
            limits,
            now: Time::ZERO,
            queue: BTreeMap::new(),
            n_queued: 0,
            n_events: 0,
            processes: processes.collect(),
            links: BTreeMap::new(),
            random: Random::new(seed),
            n_faults,
            faults: Faults::default(),
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// Other stages in place of these, of another ring, whose number goes into the limits; messages
    /// on their way are lost.
    pub(crate) fn replace(&mut self, mut limits: Limits, stages: Vec<Stage>) -> Limits {
        limits.ring = self.limits.ring + (1 << 32);
        let old = self.processes.iter().map(|process| process.generation);
        let generation = old.max().unwrap_or(0) + 1;
        self.limits = limits;
        self.queue.clear();
        self.links.clear();
        let processes = stages.into_iter().zip(1..).map(|(stage, i)| Process {
            node: Node::new(limits, TIMING, i),
            stage,
            generation,
            is_alive: true,
            frozen_until: Time::ZERO,
            epoch: 0,
        });
        self.processes = processes.collect();
        limits
    }

    /// Nothing goes wrong any more.
    pub(crate) fn calm_down(&mut self) {
        self.n_faults = 0;
    }

    fn at(&mut self, time: Time, delivery: Delivery) {
        self.n_queued += 1;
        self.queue.insert((time, self.n_queued), delivery);
        assert!(self.queue.len() < 1000, "messages pile up");
    }

    /// Sends on the link between two sides, 0 being the coordinator. Fences have their own.
    fn transmit(&mut self, from: u16, to: u16, mut message: Message) {
        let mut n_copies = 1;
        if self.n_faults > 0 && self.random.once_in(30) {
            self.n_faults -= 1;
            match self.random.below(8) {
                0..=2 => {
                    self.faults.n_lost += 1;
                    return;
                }
                3 => {
                    self.faults.n_damaged += 1;
                    if let Message::Bytes(bytes) = &mut message {
                        let i = self.random.below(bytes.len());
                        bytes[i] ^= 1 << self.random.below(8);
                    }
                }
                4 => {
                    self.faults.n_doubled += 1;
                    n_copies = 2;
                }
                5 | 6 if !self.processes.is_empty() => self.kill(),
                _ if self.processes.is_empty() => {}
                _ => {
                    self.faults.n_frozen += 1;
                    let i = self.random.below(self.processes.len());
                    let wait = Duration::from_millis(self.random.below(3000) as u64);
                    self.processes[i].frozen_until = self.now + wait;
                }
            }
        }
        let lane = match message {
            Message::Bytes(_) => from,
            _ => from + 1000,
        };
        for _ in 0..n_copies {
            let delay = Duration::from_micros(100 + self.random.below(3000) as u64);
            let last = self.links.entry((lane, to)).or_insert(Time::ZERO);
            let time = (self.now + delay).max(*last);
            *last = time;
            let delivery = match to {
                0 => Delivery::ToCoordinator(from, message.clone()),
                _ => Delivery::ToNode(usize::from(to) - 1, message.clone()),
            };
            self.at(time, delivery);
        }
    }

    /// Ends a process, which begins anew without its state. Its connections may or may not tell.
    fn kill(&mut self) {
        self.faults.n_killed += 1;
        let i = self.random.below(self.processes.len());
        let process = &mut self.processes[i];
        process.is_alive = false;
        process.generation += 1;
        let rest = Duration::from_millis(self.random.below(1500) as u64);
        self.at(self.now + rest, Delivery::Start(i));
        if self.random.once_in(2) {
            let reset = Delivery::ToCoordinator(i as u16 + 1, Message::Reset);
            self.at(self.now + Duration::from_millis(3), reset);
        }
    }

    /// Processes events up to `until`, or to one for the coordinator.
    fn run(&mut self, until: Option<Time>) -> Option<Event> {
        loop {
            let next = self.queue.first_key_value().map(|(&(time, _), _)| time);
            let is_due =
                next.is_some_and(|time| until.is_none_or(|until| time <= until.max(self.now)));
            if !is_due {
                let until = until.expect("the coordinator waits for nothing, without a deadline");
                self.now = self.now.max(until);
                return None;
            }
            let ((time, _), delivery) = self.queue.pop_first()?;
            self.now = self.now.max(time);
            self.n_events += 1;
            assert!(self.n_events < MAX_EVENTS, "the ring is busy with itself");
            if let Some(event) = self.deliver(delivery) {
                return Some(event);
            }
        }
    }

    fn deliver(&mut self, delivery: Delivery) -> Option<Event> {
        match delivery {
            Delivery::ToCoordinator(stage, message) => Some(match message {
                Message::Answer(answer) => Event::Fenced { stage, answer },
                Message::Reset => Event::Down { stage },
                Message::Fence(_) => unreachable!("the coordinator is not fenced"),
                Message::Bytes(bytes) => match Frame::parse(&bytes, &self.limits) {
                    Ok(frame) => Event::Frame(frame),
                    Err(_) => Event::Garbage { stage },
                },
            }),
            Delivery::Start(i) => {
                let process = &mut self.processes[i];
                process.node = Node::new(self.limits, TIMING, i as u16 + 1);
                process.stage.reset();
                process.is_alive = true;
                process.epoch = 0;
                None
            }
            Delivery::ToNode(i, _) | Delivery::Computed(i, ..)
                if self.processes[i].is_alive && self.processes[i].frozen_until > self.now =>
            {
                self.at(self.processes[i].frozen_until, delivery);
                None
            }
            Delivery::ToNode(i, message) => {
                let event = match message {
                    Message::Bytes(bytes) => match Frame::parse(&bytes, &self.limits) {
                        Ok(frame) => NodeEvent::Frame(frame),
                        Err(_) => NodeEvent::Garbage,
                    },
                    Message::Fence(epoch) => NodeEvent::Fence { epoch },
                    Message::Answer(_) | Message::Reset => unreachable!("of the coordinator"),
                };
                if self.processes[i].is_alive {
                    self.happen(i, event);
                }
                None
            }
            Delivery::Computed(i, generation, event) => {
                if self.processes[i].generation == generation {
                    self.happen(i, event);
                }
                None
            }
        }
    }

    fn happen(&mut self, i: usize, event: NodeEvent) {
        let now = self.now;
        if self.processes[i]
            .node
            .next_wake()
            .is_some_and(|wake| wake <= now)
        {
            let actions = self.processes[i].node.on(now, NodeEvent::Tick);
            self.act(i, actions);
        }
        let actions = self.processes[i].node.on(now, event);
        self.act(i, actions);
        let n_held = self.processes[i].node.n_held() as u32;
        assert!(n_held <= CREDITS + 3, "a stage holds {n_held} frames");
    }

    fn act(&mut self, i: usize, actions: Vec<NodeAction>) {
        let from = i as u16 + 1;
        for action in actions {
            match action {
                NodeAction::Send { to, mut frame } => {
                    let mut bytes = Vec::new();
                    frame.write(&mut bytes);
                    let to = match to {
                        Peer::Coordinator => 0,
                        Peer::Stage(stage) => stage,
                    };
                    self.transmit(from, to, Message::Bytes(bytes));
                }
                NodeAction::Fenced(answer) => {
                    self.processes[i].epoch = answer.epoch;
                    self.transmit(from, 0, Message::Answer(answer));
                }
                NodeAction::Keep { id, bytes } => self.processes[i].stage.keep(id, bytes),
                NodeAction::Compute(frame) => {
                    let process = &mut self.processes[i];
                    let epoch = frame.header.epoch;
                    assert_eq!(epoch, process.epoch, "a stage computes for another epoch");
                    let outcome = process.stage.compute(&frame);
                    let generation = process.generation;
                    let saved = process.stage.saved_frames(&self.limits, &frame.header);
                    for mut frame in saved {
                        let mut bytes = Vec::new();
                        frame.write(&mut bytes);
                        self.transmit(from, 0, Message::Bytes(bytes));
                    }
                    let time = Duration::from_micros(200 + self.random.below(2000) as u64);
                    let done = NodeEvent::Computed(outcome);
                    self.at(self.now + time, Delivery::Computed(i, generation, done));
                }
                NodeAction::DropState => self.processes[i].stage.reset(),
                NodeAction::Halt => {}
            }
        }
    }
}

/// The world as the lane of a ring.
pub(crate) struct VirtualLane(pub(crate) Arc<Mutex<World>>);

impl Lane for VirtualLane {
    fn now(&self) -> Time {
        self.0.lock().unwrap().now
    }

    fn send(&mut self, stage: u16, mut frame: Frame) {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        self.0
            .lock()
            .unwrap()
            .transmit(0, stage, Message::Bytes(bytes));
    }

    fn fence(&mut self, stage: u16, epoch: u32) {
        self.0
            .lock()
            .unwrap()
            .transmit(0, stage, Message::Fence(epoch));
    }

    fn recv(&mut self, until: Option<Time>) -> Option<Event> {
        self.0.lock().unwrap().run(until)
    }
}
