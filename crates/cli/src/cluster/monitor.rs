//! Watches the ring of a server: what its record, its plan and the cards of its nodes say, put
//! together for [`ClusterMonitor`].
//!
//! Knows no page. The one idea: a thread asks the nodes every few seconds, and a status is made of
//! what it has heard, so that nothing waits for another machine.

use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use atta_cluster::{
    AuditCounts, Coordinator, MeanLap, RemotePlan, RemoteRing, RingFigures, RingHealth, StageNode,
    StageTotals, Survey,
    control::NodeName,
    measure::{celsius, is_throttled},
    plan::{LinkMeasure, RingPlan},
    wire::message::Card,
};
use atta_server::{
    AuditStatus, ClusterEvent, ClusterMonitor, LinkStatus, NodeState, NodeStatus, NodeTotals,
    RingSpeed, RingState, RingStatus,
};

use crate::failure::one_line;

/// Time between two questions to a node.
const EVERY: Duration = Duration::from_secs(3);
/// Most events of a status.
const MAX_EVENTS: usize = 50;

/// A ring, and all that a status of it is made of.
pub(crate) struct WatchedRing {
    /// The ring.
    pub(crate) ring: Arc<RemoteRing>,
    /// Its plan.
    pub(crate) plan: RingPlan,
    /// The machines when the plan was made.
    pub(crate) survey: Survey,
    /// Asks the nodes.
    pub(crate) coordinator: Coordinator,
}

/// A watched ring. Its thread ends with it.
pub(crate) struct RingMonitor {
    watch: Arc<Watch>,
    _stop: Sender<()>,
}

impl fmt::Debug for RingMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingMonitor")
            .field("ring", &self.watch.watched.ring)
            .finish_non_exhaustive()
    }
}

struct Watch {
    watched: WatchedRing,
    heard: Mutex<Heard>,
}

/// The last words of all nodes.
#[derive(Default)]
struct Heard {
    nodes: BTreeMap<NodeName, HeardNode>,
    /// Temperature of this machine, °C.
    celsius: Option<f32>,
    is_throttled: bool,
}

/// The last words of a node.
#[derive(Default)]
struct HeardNode {
    /// Its last card.
    card: Option<HeardCard>,
    /// Why it did not answer since.
    silence: Option<String>,
}

struct HeardCard {
    card: Card,
    at: Instant,
}

impl RingMonitor {
    /// Starts to watch.
    ///
    /// # Errors
    /// The system starts no thread.
    pub(crate) fn start(watched: WatchedRing) -> io::Result<Self> {
        let nodes = watched.survey.nodes.iter().map(|node| {
            let card = node.card.clone();
            let at = Instant::now();
            let heard = HeardNode {
                card: Some(HeardCard { card, at }),
                silence: None,
            };
            (node.address.name.clone(), heard)
        });
        let heard = Heard {
            nodes: nodes.collect(),
            ..Heard::default()
        };
        let watch = Arc::new(Watch {
            watched,
            heard: Mutex::new(heard),
        });
        let (stop, stopped) = mpsc::channel();
        let watching = Arc::clone(&watch);
        let thread = thread::Builder::new().name("cluster monitor".to_owned());
        thread.spawn(move || watching.run(&stopped))?;
        Ok(Self { watch, _stop: stop })
    }
}

impl ClusterMonitor for RingMonitor {
    fn status(&self) -> RingStatus {
        self.watch.status()
    }
}

impl Watch {
    fn run(&self, stopped: &Receiver<()>) {
        loop {
            self.look();
            if stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// Asks all nodes of the ring, and this machine's sensors.
    fn look(&self) {
        let plan = self.watched.ring.plan();
        let names: Vec<NodeName> = plan.stages.iter().map(|s| s.node.name.clone()).collect();
        let cards = self.watched.coordinator.cards(&names);
        let celsius = celsius();
        let is_throttled = is_throttled();
        let mut heard = self.heard();
        heard.celsius = celsius;
        heard.is_throttled = is_throttled;
        for (name, card) in names.into_iter().zip(cards) {
            let node = heard.nodes.entry(name).or_default();
            match card {
                Ok(found) => {
                    let card = found.card;
                    let at = Instant::now();
                    node.card = Some(HeardCard { card, at });
                    node.silence = None;
                }
                Err(why) => node.silence = Some(why),
            }
        }
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self) -> RingStatus {
        let ring = &self.watched.ring;
        let expected = ring.planned().expected;
        let record = ring.record();
        let figures = record.figures();
        let lap = figures.lap.as_ref();
        let view = View {
            watched: &self.watched,
            heard: &self.heard(),
            // As it is now: a ring may be planned again.
            plan: ring.plan().clone(),
            figures: &figures,
        };
        RingStatus {
            state: state(figures.health),
            coordinator: self.watched.coordinator.name.to_string(),
            model: one_line(ring.model_name()),
            n_layers: view.n_layers(),
            epoch: figures.epoch,
            n_fences: figures.counts.n_fences,
            n_rebuilds: figures.counts.n_rebuilds,
            audit: audit(figures.audit),
            n_batches: figures.n_batches,
            n_rows: figures.n_rows,
            expected: RingSpeed {
                decode_tok_s: expected.map(|speed| speed.decode_tok_s),
                users_tok_s: expected.map(|speed| speed.users_tok_s),
            },
            measured: RingSpeed {
                decode_tok_s: lap.map(|lap| 1.0 / lap.lap.as_secs_f64()),
                users_tok_s: figures.users_tok_s,
            },
            lap_us: lap.map(|lap| micros(lap.lap)),
            hops_us: lap.map(|lap| micros(hops(lap))),
            nodes: view.nodes(),
            events: view.events(&record.events()),
        }
    }
}

/// What a status is made of.
struct View<'a> {
    watched: &'a WatchedRing,
    heard: &'a Heard,
    plan: RemotePlan,
    figures: &'a RingFigures,
}

impl View<'_> {
    fn n_layers(&self) -> usize {
        let last = self.plan.stages.last();
        last.map_or(self.plan.n_local, |stage| stage.layers.end)
    }

    fn nodes(&self) -> Vec<NodeStatus> {
        let stages = self.plan.stages.iter().enumerate();
        let stages = stages.map(|(i, stage)| self.node(i, stage));
        std::iter::once(self.coordinator()).chain(stages).collect()
    }

    fn coordinator(&self) -> NodeStatus {
        let watched = self.watched;
        let n_local = self.plan.n_local;
        let load = watched
            .plan
            .loads
            .iter()
            .find(|l| l.node == watched.plan.lead);
        let lap = self.figures.lap.as_ref();
        let name = &watched.coordinator.name;
        let is_closed = self.figures.health == RingHealth::Closed;
        NodeStatus {
            node: name.to_string(),
            address: None,
            state: NodeState::Coordinator,
            why: None,
            first_layer: 0,
            end_layer: n_local,
            share: self.share(n_local),
            memory_bytes: Some(watched.coordinator.ram_bytes),
            memory_held_bytes: match is_closed {
                true => Some(0),
                false => load.map(|load| load.ram_bytes),
            },
            memory_free_bytes: match is_closed {
                true => Some(watched.coordinator.ram_bytes),
                false => load.map(|load| load.ram_left_bytes),
            },
            compute_us: lap.map(|lap| micros(lap.local + lap.head)),
            layer_us: lap.and_then(|lap| per_layer(lap.local, n_local)),
            bytes_out: None,
            totals: None,
            link: self.link(name, self.next(0)),
            celsius: self.heard.celsius.map(f64::from),
            is_throttled: Some(self.heard.is_throttled),
            heard_s: Some(0),
        }
    }

    /// Stage `i` of the plan.
    fn node(&self, i: usize, stage: &StageNode) -> NodeStatus {
        let StageNode { node, layers } = stage;
        let heard = self.heard.nodes.get(&node.name);
        let card = heard.and_then(|heard| heard.card.as_ref());
        let current = card.filter(|heard| !self.is_outdated(heard));
        let lap = self.figures.lap.as_ref();
        let computed = lap.and_then(|lap| lap.stages.get(i)).copied();
        let bytes_out = lap.and_then(|lap| lap.bytes_out.get(i)).copied();
        let (state, why) = self.node_state(heard);
        NodeStatus {
            node: node.name.to_string(),
            address: Some(node.address.to_string()),
            state,
            why: why.map(|why| one_line(&why)),
            first_layer: layers.start,
            end_layer: layers.end,
            share: self.share(layers.len()),
            memory_bytes: card.map(|heard| heard.card.memory.all_bytes),
            memory_held_bytes: current.map(|heard| self.held_bytes(&heard.card)),
            memory_free_bytes: current.map(|heard| heard.card.memory.free_bytes),
            compute_us: computed.map(micros),
            layer_us: computed.and_then(|time| per_layer(time, layers.len())),
            bytes_out: bytes_out.map(|bytes| bytes as f64),
            totals: self.figures.stages.get(node.name.as_str()).map(totals),
            link: self.link(&node.name, self.next(i + 1)),
            celsius: card.and_then(|heard| heard.card.celsius).map(f64::from),
            is_throttled: card.map(|heard| heard.card.is_throttled),
            heard_s: card.map(|heard| heard.at.elapsed().as_secs()),
        }
    }

    /// The node behind place `i` of the ring, where the coordinator has place 0.
    fn next(&self, i: usize) -> &NodeName {
        let next = self.plan.stages.get(i);
        next.map_or(&self.watched.coordinator.name, |stage| &stage.node.name)
    }

    fn share(&self, n: usize) -> f64 {
        n as f64 / self.n_layers().max(1) as f64
    }

    /// What a node does, and why if it does not what it should.
    fn node_state(&self, heard: Option<&HeardNode>) -> (NodeState, Option<String>) {
        let Some(HeardNode { card, silence }) = heard else {
            return (NodeState::Idle, None);
        };
        if let Some(why) = silence {
            return (NodeState::Silent, Some(why.clone()));
        }
        let Some(heard) = card else {
            return (NodeState::Idle, None);
        };
        match &heard.card.held {
            Some(held) if !self.is_ours(&held.coordinator) => {
                let why = format!("it belongs to a ring of {}", held.coordinator);
                (NodeState::Idle, Some(why))
            }
            Some(held) if held.is_ready => (NodeState::Ready, None),
            Some(_) => (NodeState::Loading, None),
            // A ring opens when all its stages are ready.
            None if self.is_outdated(heard) => (NodeState::Ready, None),
            None => (NodeState::Idle, None),
        }
    }

    /// Whether a card is from before the ring was opened.
    fn is_outdated(&self, heard: &HeardCard) -> bool {
        let opened = self.figures.opened;
        let is_open = self.figures.health != RingHealth::Closed;
        is_open && opened.is_some_and(|opened| heard.at < opened)
    }

    fn is_ours(&self, coordinator: &NodeName) -> bool {
        *coordinator == self.watched.coordinator.name
    }

    fn held_bytes(&self, card: &Card) -> u64 {
        let held = card.held.as_ref();
        let held = held.filter(|held| self.is_ours(&held.coordinator));
        held.map_or(0, |held| held.bytes)
    }

    /// The link between two machines, if the survey has measured it.
    fn link(&self, from: &NodeName, to: &NodeName) -> Option<LinkStatus> {
        let measures = &self.watched.survey.measures;
        let place = |name: &NodeName| {
            let mut nodes = measures.nodes.iter();
            nodes.position(|node| node.name == name.as_str())
        };
        let (a, b) = place(from).zip(place(to))?;
        let link: &LinkMeasure = measures.links.get(&(a.min(b), a.max(b)))?;
        Some(LinkStatus {
            to: to.to_string(),
            rtt_p50_us: micros(link.rtt_p50),
            rtt_p90_us: micros(link.rtt_p90),
            bytes_per_s: link.bytes_per_s,
        })
    }

    /// The events of the ring and of its nodes, the newest first.
    fn events(&self, own: &[atta_cluster::RingEvent]) -> Vec<ClusterEvent> {
        let name = self.watched.coordinator.name.as_str();
        let own = own.iter().map(|event| ClusterEvent {
            node: name.to_owned(),
            ago_s: event.at.elapsed().as_secs(),
            event: one_line(&event.text),
        });
        let names = self.plan.stages.iter().map(|stage| &stage.node.name);
        let cards = names.filter_map(|name| self.heard.nodes.get(name)?.card.as_ref());
        let theirs = cards.flat_map(|HeardCard { card, at }| {
            let since = at.elapsed().as_secs();
            card.events.iter().map(move |event| ClusterEvent {
                node: card.name.to_string(),
                ago_s: event.ago_s.saturating_add(since),
                event: one_line(&event.text),
            })
        });
        // Later events of one machine are newer.
        let mut events: Vec<ClusterEvent> = own.chain(theirs).collect();
        events.reverse();
        events.sort_by_key(|event| event.ago_s);
        events.truncate(MAX_EVENTS);
        events
    }
}

fn state(health: RingHealth) -> RingState {
    match health {
        RingHealth::Closed => RingState::Closed,
        RingHealth::Open => RingState::Open,
        RingHealth::Repairing => RingState::Repairing,
        RingHealth::Failed => RingState::Failed,
    }
}

/// What audits have done, if there are any.
fn audit(counts: AuditCounts) -> Option<AuditStatus> {
    (counts != AuditCounts::default()).then_some(AuditStatus {
        n_texts: counts.n_texts,
        n_drawn: counts.n_drawn,
        n_rows: counts.n_rows,
        n_faults: counts.n_faults,
    })
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

fn per_layer(time: Duration, n: usize) -> Option<f64> {
    (n > 0).then(|| micros(time) / n as f64)
}

/// The part of a lap in which no machine computed.
fn hops(lap: &MeanLap) -> Duration {
    let stages: Duration = lap.stages.iter().sum();
    lap.lap.saturating_sub(lap.local + lap.head + stages)
}

fn totals(stage: &StageTotals) -> NodeTotals {
    NodeTotals {
        n_batches: stage.n_batches,
        n_rows: stage.n_rows,
        compute_s: stage.computed.as_secs_f64(),
        bytes_out: stage.bytes_out,
    }
}
