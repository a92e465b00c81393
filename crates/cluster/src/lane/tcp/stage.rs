//! A stage that frames from other machines drive.
//!
//! ```text
//! connections ──▶ events ──▶ thread of the protocol ──▶ senders to the neighbours
//!                    ▲               │ frames to compute
//!                    └── outcomes ── thread that computes
//! ```
//! The protocol has a thread of its own, so that pings and fences are heard during a computation.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::{
    doors::{FrameSink, Inner, Registration, SinkOf},
    sender::{FrameSender, Route},
};
use crate::{
    Stage,
    core::{FenceAnswer, Node, NodeAction, NodeEvent, Peer},
    links::{RunningStage, StageLinks},
    wire::{
        Frame, FrameKind, Header, Limits,
        message::{LaneName, NodeAddress},
    },
};

/// Events that wait; behind them, connections are read no further.
const MAX_EVENTS: usize = 1024;
/// Longest wait without a deadline.
const FOREVER: Duration = Duration::from_secs(3600);

/// A running stage. Dropping it ends it, behind a running computation.
pub(super) struct StageHost {
    told: Arc<Told>,
    events: SyncSender<HostEvent>,
    protocol: Option<JoinHandle<()>>,
    compute: Option<JoinHandle<()>>,
    /// Connections end before the threads are waited for.
    registration: Option<Registration>,
}

/// What other threads may know of the stage.
struct Told {
    start: Instant,
    is_over: AtomicBool,
    n_computed: AtomicU64,
    /// When the coordinator was last heard, in ms since the start.
    heard_ms: AtomicU64,
    /// Its connections, and when the last of them ended, in ms since the start.
    n_connections: AtomicU64,
    left_ms: AtomicU64,
}

impl Told {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// What happens to the stage.
enum HostEvent {
    Node(NodeEvent),
    /// Pieces of states that were saved.
    Saved(Vec<Frame>),
    Stop,
}

/// What the computing thread does.
enum Order {
    Compute(Frame),
    Keep { id: u64, bytes: Vec<u8> },
    Reset,
}

impl StageHost {
    pub(super) fn start(inner: &Arc<Inner>, links: StageLinks, stage: Stage) -> io::Result<Self> {
        let told = Arc::new(Told {
            start: Instant::now(),
            is_over: AtomicBool::new(false),
            n_computed: AtomicU64::new(0),
            heard_ms: AtomicU64::new(0),
            n_connections: AtomicU64::new(0),
            left_ms: AtomicU64::new(u64::MAX),
        });
        let (events, inbox) = mpsc::sync_channel(MAX_EVENTS);
        let (orders, waiting) = mpsc::channel();
        let sink_of = sinks(links.stage, &told, &events);
        let secret = links.secret.clone();
        let registration = inner.register(links.stage, links.limits, secret, sink_of)?;
        let senders = Senders::start(inner, &links)?;
        let number = links.stage;
        let outcomes = events.clone();
        let compute = std::thread::Builder::new().name(format!("stage {number}"));
        let compute = compute.spawn({
            let limits = links.limits;
            move || run_orders(stage, &limits, &waiting, &outcomes)
        })?;
        let protocol = Protocol {
            node: Node::new(links.limits, links.timing, number),
            number,
            limits: links.limits,
            told: Arc::clone(&told),
            orders,
            senders,
            is_met: links.lane == LaneName::Tcp,
        };
        let thread = std::thread::Builder::new().name(format!("links of stage {number}"));
        let thread = thread.spawn(move || protocol.run(&inbox))?;
        Ok(Self {
            told,
            events,
            protocol: Some(thread),
            compute: Some(compute),
            registration: Some(registration),
        })
    }
}

impl RunningStage for StageHost {
    fn is_over(&self) -> bool {
        self.told.is_over.load(Ordering::Acquire)
    }

    fn n_computed(&self) -> u64 {
        self.told.n_computed.load(Ordering::Acquire)
    }

    fn silence(&self) -> Duration {
        let heard = Duration::from_millis(self.told.heard_ms.load(Ordering::Acquire));
        self.told.start.elapsed().saturating_sub(heard)
    }

    fn left(&self) -> Option<Duration> {
        let left = self.told.left_ms.load(Ordering::Acquire);
        let is_gone = self.told.n_connections.load(Ordering::Acquire) == 0;
        let since = (is_gone && left < u64::MAX).then(|| Duration::from_millis(left))?;
        Some(self.told.start.elapsed().saturating_sub(since))
    }
}

impl Drop for StageHost {
    fn drop(&mut self) {
        self.registration = None;
        // A thread that has ended needs no word.
        let _ = self.events.send(HostEvent::Stop);
        for thread in [self.protocol.take(), self.compute.take()] {
            // A panic of a thread was printed.
            let _ = thread.map(JoinHandle::join);
        }
    }
}

/// Connections to the neighbours.
struct Senders {
    coordinator: FrameSender,
    previous: Option<FrameSender>,
    next: Option<FrameSender>,
}

impl Senders {
    fn start(inner: &Arc<Inner>, links: &StageLinks) -> io::Result<Self> {
        let number = links.stage;
        let sender = |to: u16, node: &NodeAddress| {
            let route = Route {
                protection: inner.protection.clone(),
                lane: links.lane,
                node: node.clone(),
                ring: links.limits.ring,
                from: number,
                to,
                secret: links.secret.clone(),
            };
            // The protocol misses lost frames.
            FrameSender::start(&route, || {})
        };
        let neighbour = |to: u16, node: &Option<NodeAddress>| {
            node.as_ref().map(|node| sender(to, node)).transpose()
        };
        Ok(Self {
            coordinator: sender(0, &links.coordinator)?,
            previous: neighbour(number - 1, &links.previous)?,
            next: neighbour(number + 1, &links.next)?,
        })
    }
}

/// The sinks of the connections to a stage.
fn sinks(number: u16, told: &Arc<Told>, events: &SyncSender<HostEvent>) -> SinkOf {
    let told = Arc::clone(told);
    let events = events.clone();
    Box::new(move |from| {
        if from == 0 {
            told.n_connections.fetch_add(1, Ordering::AcqRel);
        }
        let sink = FromNeighbour {
            from,
            number,
            told: Arc::clone(&told),
            events: events.clone(),
        };
        let is_neighbour = from == 0 || from + 1 == number || from == number + 1;
        is_neighbour.then(|| Box::new(sink) as Box<dyn FrameSink>)
    })
}

/// Takes the frames of the coordinator or of a neighbour.
struct FromNeighbour {
    from: u16,
    number: u16,
    told: Arc<Told>,
    events: SyncSender<HostEvent>,
}

impl FromNeighbour {
    /// What a frame means, by who sent it.
    fn event(&self, frame: Frame) -> NodeEvent {
        use FrameKind::{Ack, Bye, CatchUp, Fence, Journal, Ping, Work};
        let is_coordinator = self.from == 0;
        match frame.header.kind {
            Fence if is_coordinator => NodeEvent::Fence {
                epoch: frame.header.epoch,
            },
            Ping | Bye | CatchUp | Journal if is_coordinator => NodeEvent::Frame(frame),
            Work if self.from + 1 == self.number => NodeEvent::Frame(frame),
            Ack if self.from == self.number + 1 => NodeEvent::Frame(frame),
            _ => NodeEvent::Garbage,
        }
    }
}

impl Drop for FromNeighbour {
    fn drop(&mut self) {
        if self.from == 0 {
            self.told
                .left_ms
                .store(self.told.now_ms(), Ordering::Release);
            self.told.n_connections.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl FrameSink for FromNeighbour {
    fn frame(&mut self, frame: Frame) -> bool {
        if self.from == 0 {
            let ms = self.told.now_ms();
            self.told.heard_ms.store(ms, Ordering::Release);
        }
        let event = HostEvent::Node(self.event(frame));
        self.events.send(event).is_ok()
    }

    fn ended(&mut self, why: &io::Error) {
        if why.kind() == io::ErrorKind::InvalidData {
            // A stage that has ended does not listen any more.
            let _ = self.events.send(HostEvent::Node(NodeEvent::Garbage));
        }
    }
}

/// Computes until the protocol has ended.
fn run_orders(
    mut stage: Stage,
    limits: &Limits,
    orders: &Receiver<Order>,
    outcomes: &SyncSender<HostEvent>,
) {
    while let Ok(order) = orders.recv() {
        match order {
            Order::Reset => stage.reset(),
            Order::Keep { id, bytes } => stage.keep(id, bytes),
            Order::Compute(frame) => {
                let outcome = stage.compute(&frame);
                // A stage that is being dropped does not listen any more.
                let _ = outcomes.send(HostEvent::Node(NodeEvent::Computed(outcome)));
                let saved = stage.saved_frames(limits, &frame.header);
                if !saved.is_empty() {
                    let _ = outcomes.send(HostEvent::Saved(saved));
                }
            }
        }
    }
}

/// The thread of the protocol.
struct Protocol {
    node: Node,
    number: u16,
    limits: Limits,
    told: Arc<Told>,
    orders: Sender<Order>,
    senders: Senders,
    /// Whether connections were opened, or are opened with their first frames.
    is_met: bool,
}

impl Protocol {
    fn run(mut self, inbox: &Receiver<HostEvent>) {
        while self.turn(inbox).is_some() {}
        self.told.is_over.store(true, Ordering::Release);
    }

    /// Handles one event; `None`: the stage has ended.
    fn turn(&mut self, inbox: &Receiver<HostEvent>) -> Option<()> {
        let now = self.told.start.elapsed();
        let wake = self.node.next_wake();
        let wait = wake.map_or(FOREVER, |wake| wake.saturating_sub(now));
        let event = match inbox.recv_timeout(wait) {
            Ok(HostEvent::Node(event)) => {
                self.meet();
                event
            }
            Ok(HostEvent::Saved(frames)) => {
                let coordinator = &self.senders.coordinator;
                frames.into_iter().for_each(|frame| coordinator.send(frame));
                return Some(());
            }
            Err(RecvTimeoutError::Timeout) => NodeEvent::Tick,
            Ok(HostEvent::Stop) | Err(RecvTimeoutError::Disconnected) => return None,
        };
        let actions = self.node.on(self.told.start.elapsed(), event);
        let n_computed = self.node.counts().n_computed;
        self.told.n_computed.store(n_computed, Ordering::Release);
        actions.into_iter().try_for_each(|action| self.act(action))
    }

    /// Opens all connections when the ring begins. Ways by UDP may have to be found to be closed,
    /// which takes a while, and all at once no longer than one.
    fn meet(&mut self) {
        if !std::mem::replace(&mut self.is_met, true) {
            let Senders {
                coordinator,
                previous,
                next,
            } = &self.senders;
            let neighbours = [previous, next].into_iter().flatten();
            neighbours.chain([coordinator]).for_each(FrameSender::open);
        }
    }

    fn act(&mut self, action: NodeAction) -> Option<()> {
        match action {
            NodeAction::Send { to, frame } => self.send(to, frame),
            NodeAction::Fenced(answer) => {
                let frame = self.answer(answer);
                self.send(Peer::Coordinator, frame);
            }
            // Without its thread a stage can only end.
            NodeAction::Compute(frame) => self.orders.send(Order::Compute(frame)).ok()?,
            NodeAction::Keep { id, bytes } => self.orders.send(Order::Keep { id, bytes }).ok()?,
            NodeAction::DropState => self.orders.send(Order::Reset).ok()?,
            NodeAction::Halt => return None,
        }
        Some(())
    }

    fn send(&self, to: Peer, frame: Frame) {
        let Senders {
            coordinator,
            previous,
            next,
        } = &self.senders;
        let sender = match to {
            Peer::Coordinator => Some(coordinator),
            Peer::Stage(stage) if stage < self.number => previous.as_ref(),
            Peer::Stage(_) => next.as_ref(),
        };
        if let Some(sender) = sender {
            sender.send(frame);
        }
    }

    fn answer(&self, answer: FenceAnswer) -> Frame {
        let FenceAnswer { epoch, served } = answer;
        let (acked, batch) = served.unwrap_or_default();
        Frame::bare(Header {
            ring: self.limits.ring,
            dtype: self.limits.dtype,
            epoch,
            batch,
            acked,
            stage: self.number,
            ..Header::new(FrameKind::Fenced)
        })
    }
}
