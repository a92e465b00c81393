//! Node services and a coordinator in one process: questions travel as bytes, stages are loaded by
//! their nodes, and frames pass between threads. What the lanes do is tested elsewhere.

#[allow(dead_code, reason = "shared with other tests")]
mod stories;

use std::{
    collections::HashMap,
    fs, io,
    net::SocketAddr,
    ops::ControlFlow,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use atta_cluster::{
    HashedModel, Lane, Links, PartLinks, PartServer, RemotePlan, RemoteRing, RemoteRingOptions,
    RingFigures, RingHealth, RingLinks, RunningStage, Stage, StageLinks, StageNode, StageProgress,
    ThreadLane,
    control::{Answerer, Control, ControlError, NodeName, Watcher},
    core::{Event, Time, Timing},
    key::ClusterKey,
    node::{NodeOptions, NodeService, NodeTiming},
    wire::{
        Dtype, Frame,
        message::{Answer, Card, Digest, LaneName, NodeAddress, PartRequest, Prepare, Question},
    },
};
use atta_engine::Engine;
use atta_kernels::Kernels;
use atta_model::Error;
use atta_store::{Budget, ModelFiles};
use stories::{
    PATIENCE, directory, engine, models, n_layers, name, path, pool, session, text, together,
    wait_for,
};

/// A node and its layers.
type On<'a> = (&'a str, std::ops::Range<usize>);

fn node_address(node: &str) -> NodeAddress {
    NodeAddress {
        name: name(node),
        address: address(),
    }
}

fn address() -> SocketAddr {
    "127.0.0.1:1".parse().unwrap()
}

/// Asks nodes of this process. A node that is away is silent.
#[derive(Default)]
struct Directly {
    nodes: Mutex<HashMap<NodeName, Answerer>>,
    questions: Mutex<Vec<(NodeName, Question)>>,
}

impl Directly {
    fn remove(&self, node: &str) {
        self.nodes.lock().unwrap().remove(&name(node));
    }

    fn put(&self, node: &str, answerer: Answerer) {
        self.nodes.lock().unwrap().insert(name(node), answerer);
    }

    fn question(&self, node: &str, question: &Question) -> Answer {
        let bytes = question.to_bytes().unwrap();
        Answer::parse(&self.ask(&name(node), &bytes, PATIENCE).unwrap()).unwrap()
    }

    fn card(&self, node: &str) -> Card {
        match self.question(node, &Question::Describe) {
            Answer::Card(card) => *card,
            other => panic!("{other:?}"),
        }
    }

    /// The first question that asked a node to prepare a stage.
    fn prepare_of(&self, node: &str) -> Prepare {
        let questions = self.questions.lock().unwrap();
        let of_node = questions.iter().filter(|(to, _)| *to == name(node));
        let mut prepares = of_node.filter_map(|(_, question)| match question {
            Question::Prepare(prepare) => Some((**prepare).clone()),
            _ => None,
        });
        prepares.next().unwrap()
    }
}

impl Control for Directly {
    fn announce(&self) -> Result<(), ControlError> {
        Ok(())
    }

    fn members(&self) -> Result<Vec<NodeName>, ControlError> {
        Ok(self.nodes.lock().unwrap().keys().cloned().collect())
    }

    fn ask(
        &self,
        node: &NodeName,
        question: &[u8],
        deadline: Duration,
    ) -> Result<Vec<u8>, ControlError> {
        let parsed = Question::parse(question).unwrap();
        let asked = (node.clone(), parsed);
        self.questions.lock().unwrap().push(asked);
        let nodes = self.nodes.lock().unwrap();
        let node = node.clone();
        let answerer = nodes.get(&node);
        let answerer = answerer.ok_or(ControlError::Silent { node, deadline })?;
        Ok(answerer(question))
    }

    fn answer(&self, _: Answerer) -> Result<(), ControlError> {
        Err(ControlError::Network("nobody asks".to_owned()))
    }

    fn watch(&self, _: Watcher) -> Result<(), ControlError> {
        Err(ControlError::Network("nothing changes".to_owned()))
    }

    fn close(&self) {}
}

/// Brings stages and coordinators of this process together.
#[derive(Clone, Default)]
struct Table(Arc<Mutex<HashMap<(u64, u16), Waiting>>>);

struct Waiting {
    stage: Stage,
    is_over: Arc<AtomicBool>,
}

struct Running {
    is_over: Arc<AtomicBool>,
    table: Table,
    key: (u64, u16),
}

impl Drop for Running {
    fn drop(&mut self) {
        self.table.0.lock().unwrap().remove(&self.key);
    }
}

impl RunningStage for Running {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn n_computed(&self) -> u64 {
        0
    }

    fn silence(&self) -> Duration {
        Duration::MAX
    }
}

/// Tells the stages when it ends.
struct Told {
    lane: ThreadLane,
    ends: Vec<Arc<AtomicBool>>,
}

impl Lane for Told {
    fn now(&self) -> Time {
        self.lane.now()
    }

    fn send(&mut self, stage: u16, frame: Frame) {
        self.lane.send(stage, frame);
    }

    fn fence(&mut self, stage: u16, epoch: u32) {
        self.lane.fence(stage, epoch);
    }

    fn recv(&mut self, until: Option<Time>) -> Option<Event> {
        self.lane.recv(until)
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let ends = self.ends.iter();
        ends.for_each(|end| end.store(true, Ordering::Release));
    }
}

impl Links for Table {
    fn address(&self) -> SocketAddr {
        address()
    }

    fn start_stage(&self, links: StageLinks, stage: Stage) -> io::Result<Box<dyn RunningStage>> {
        let is_over = Arc::<AtomicBool>::default();
        let waiting = Waiting {
            stage,
            is_over: Arc::clone(&is_over),
        };
        let key = (links.limits.ring, links.stage);
        self.0.lock().unwrap().insert(key, waiting);
        Ok(Box::new(Running {
            is_over,
            table: self.clone(),
            key,
        }))
    }

    fn open_ring(&self, links: RingLinks) -> io::Result<Box<dyn Lane>> {
        let mut table = self.0.lock().unwrap();
        let numbers = 1..=links.limits.n_stages;
        let waiting = numbers.map(|i| table.remove(&(links.limits.ring, i)).unwrap());
        let (stages, ends) = waiting.map(|w| (w.stage, w.is_over)).unzip();
        let lane = ThreadLane::start(links.limits, links.timing, stages)?;
        Ok(Box::new(Told { lane, ends }))
    }
}

impl PartLinks for Table {
    fn pull(
        &self,
        _: &NodeAddress,
        _: &PartRequest,
        _: &mut dyn FnMut(Frame) -> ControlFlow<()>,
    ) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn serve(&self, _: PartServer) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Some nodes, and what a coordinator needs to use them.
struct Cluster {
    control: Arc<Directly>,
    table: Table,
    nodes: Vec<(NodeService, Budget)>,
}

const FAST: NodeTiming = NodeTiming {
    prepared: Duration::from_secs(30),
    silence: Duration::from_secs(15),
    left: Duration::from_secs(1),
    orphan: Duration::from_secs(60),
    warm: Duration::from_secs(60),
};

impl Cluster {
    fn new(names: &[&str]) -> Self {
        let mut cluster = Self {
            control: Arc::default(),
            table: Table::default(),
            nodes: Vec::new(),
        };
        for node in names {
            cluster.add(node, directory(), Budget::limited(1 << 30), FAST);
        }
        cluster
    }

    fn add(&mut self, node: &str, directory: PathBuf, budget: Budget, timing: NodeTiming) {
        let options = NodeOptions {
            name: name(node),
            addresses: vec![address()],
            kernels: Kernels::detect(),
            pool: pool(),
            budget: budget.clone(),
            models: models(directory, Arc::new(self.table.clone())),
            states: None,
            measure: None,
            celsius: || None,
            measure_link: None,
            timing,
        };
        let service = NodeService::start(options, Arc::new(self.table.clone())).unwrap();
        self.control.put(node, service.answerer());
        self.nodes.push((service, budget));
    }

    fn options(&self, n_local: usize, stages: &[On]) -> RemoteRingOptions {
        let stages = stages.iter().map(|(node, layers)| StageNode {
            node: node_address(node),
            layers: layers.clone(),
        });
        let plan = RemotePlan {
            n_local,
            stages: stages.collect(),
        };
        let files = ModelFiles::open(&path()).unwrap();
        RemoteRingOptions {
            control: Arc::clone(&self.control) as Arc<dyn Control>,
            links: Arc::new(self.table.clone()),
            lane: LaneName::Tcp,
            name: name("lap"),
            plan,
            model: HashedModel::of("stories.gguf", &files).unwrap(),
            sources: Vec::new(),
            kernels: Kernels::detect(),
            pool: pool(),
            timing: Timing {
                ping: None,
                ..Timing::default()
            },
            wire: Dtype::F32,
            deadline: PATIENCE,
            n_chunk: None,
            expected: None,
            on_stage: Arc::new(|_, _| {}),
        }
    }

    fn engine(&self, n_local: usize, stages: &[On]) -> Engine {
        engine(Some(RemoteRing::new(self.options(n_local, stages))))
    }

    /// The error of a session.
    fn refusal(&self, stages: &[On]) -> String {
        let engine = self.engine(0, stages);
        engine.session(&session()).unwrap_err().to_string()
    }
}

#[test]
fn texts_on_nodes_are_those_of_one_machine() {
    let here = engine(None);
    let expected: Vec<String> = (0..4).map(|i| text(&here, i)).collect();
    let n = here.spec().layers.len();
    let cluster = Cluster::new(&["pi1", "pi2", "pi3"]);
    let cuts: [(usize, Vec<On>); 3] = [
        (0, vec![("pi1", 0..n)]),
        (1, vec![("pi2", 1..2), ("pi1", 2..n)]),
        (0, vec![("pi3", 0..1), ("pi1", 1..3), ("pi2", 3..n)]),
    ];
    for (n_local, stages) in cuts {
        let ring = cluster.engine(n_local, &stages);
        assert_eq!(ring.model().share().layers, 0..n_local);
        // Sessions one after another, with a ring each.
        for (i, expected) in expected.iter().enumerate().take(2) {
            assert_eq!(&text(&ring, i), expected, "{stages:?}");
        }
        assert_eq!(together(&ring), expected, "{stages:?}");
    }
}

#[test]
fn one_ring_at_a_time_and_nodes_tell_what_they_hold() {
    let n = n_layers();
    let cluster = Cluster::new(&["pi1"]);
    let seen = Arc::<Mutex<Vec<StageProgress>>>::default();
    let mut options = cluster.options(0, &[("pi1", 0..n)]);
    let all = Arc::clone(&seen);
    options.on_stage = Arc::new(move |_, progress| all.lock().unwrap().push(progress.clone()));
    let ring = engine(Some(RemoteRing::new(options)));
    let first = ring.session(&session()).unwrap();
    let held = cluster.control.card("pi1").held.unwrap();
    assert_eq!((held.layers(), held.is_ready), (0..n, true));
    assert_eq!(held.coordinator, name("lap"));
    let last = seen.lock().unwrap().last().cloned();
    assert!(matches!(last, Some(StageProgress::Ready(ready)) if ready.bytes > 0));
    let second = ring.session(&session()).unwrap_err().to_string();
    assert!(second.contains("another session"), "{second}");
    drop(first);
    assert!(cluster.control.card("pi1").held.is_none());
    assert!(ring.session(&session()).is_ok());
}

#[test]
fn a_record_has_the_laps_of_a_text_and_what_each_stage_has_done() {
    let n = n_layers();
    let cluster = Cluster::new(&["pi1", "pi2"]);
    let ring = RemoteRing::new(cluster.options(1, &[("pi1", 1..2), ("pi2", 2..n)]));
    let record = ring.record();
    assert_eq!(record.figures(), RingFigures::default());
    let engine = engine(Some(ring));
    let open = engine.session(&session()).unwrap();
    assert_eq!(record.figures().health, RingHealth::Open);
    drop(open);
    assert_eq!(record.figures().health, RingHealth::Closed);
    text(&engine, 0);
    let figures = record.figures();
    let lap = figures.lap.unwrap();
    assert_eq!((lap.stages.len(), lap.bytes_out.len()), (2, 2));
    // A stage may begin before this machine has gone on, so the sum of all can be more than a lap.
    for part in [lap.local, lap.head, lap.stages[0], lap.stages[1]] {
        assert!(part < lap.lap, "{lap:?}");
    }
    assert!(lap.local > Duration::ZERO && lap.head > Duration::ZERO);
    assert!(lap.bytes_out.iter().all(|bytes| *bytes > 0));
    assert!(figures.users_tok_s > Some(0.0));
    // The prompt in a batch, and then token by token; the last one is not evaluated.
    let [pi1, pi2] = ["pi1", "pi2"].map(|node| figures.stages[node]);
    assert_eq!(
        (pi1.n_batches, pi1.n_rows),
        (figures.n_batches, figures.n_rows)
    );
    assert_eq!(
        (pi2.n_batches, pi2.n_rows),
        (figures.n_batches, figures.n_rows)
    );
    assert!(figures.n_batches > 10 && figures.n_rows > figures.n_batches);
    let events = record.events();
    let texts: Vec<&str> = events.iter().map(|event| event.text.as_str()).collect();
    let pair = ["the ring opens: pi1, pi2", "the ring closes"];
    assert_eq!(texts, [pair, pair].concat());
}

#[test]
fn another_coordinator_is_told_who_has_the_node() {
    let n = n_layers();
    let cluster = Cluster::new(&["pi1"]);
    let ring = cluster.engine(0, &[("pi1", 0..n)]);
    let session_of_lap = ring.session(&session()).unwrap();
    let mut other = cluster.options(0, &[("pi1", 0..n)]);
    other.name = name("desk");
    let other = engine(Some(RemoteRing::new(other)));
    let error = other.session(&session()).unwrap_err().to_string();
    assert!(error.contains("pi1 belongs to a ring of lap"), "{error}");
    assert!(session_of_lap.logits().is_none());
    drop(session_of_lap);
    assert!(other.session(&session()).is_ok());
}

#[test]
fn a_new_key_waits_for_the_end_of_a_ring_and_begins_none() {
    let n = n_layers();
    let cluster = Cluster::new(&["pi1"]);
    let service = &cluster.nodes[0].0;
    let ring = cluster.engine(0, &[("pi1", 0..n)]);
    let held = ring.session(&session()).unwrap();
    let new = ClusterKey::from_bytes([5; 32]);
    let rekey = || {
        let key = new.clone();
        cluster.control.question("pi1", &Question::Rekey { key })
    };
    let why = |answer: Answer| match answer {
        Answer::Refused { why } => why,
        other => panic!("{other:?}"),
    };
    assert!(why(rekey()).contains("takes no key"));
    let kept = Arc::<Mutex<Vec<ClusterKey>>>::default();
    let keys = Arc::clone(&kept);
    service.keep_keys(Box::new(move |key| {
        let mut keys = keys.lock().unwrap();
        keys.push(key.clone());
        match keys.len() {
            1 => Err("the disk is full".to_owned()),
            _ => Ok(()),
        }
    }));
    assert!(why(rekey()).contains("a ring of lap"));
    assert!(kept.lock().unwrap().is_empty());
    drop(held);
    // What cannot be kept is not taken, and rings begin as before.
    assert!(why(rekey()).contains("the disk is full") && !service.is_rekeyed());
    drop(ring.session(&session()).unwrap());
    assert_eq!(rekey(), Answer::Rekeyed);
    assert!(service.is_rekeyed());
    assert_eq!(*kept.lock().unwrap(), [new.clone(), new.clone()]);
    let refused = ring.session(&session()).unwrap_err().to_string();
    assert!(refused.contains("takes a new key"), "{refused}");
    assert!(why(rekey()).contains("already"));
}

#[test]
fn memory_that_is_missing_is_told_and_nothing_stays_held() {
    let n = n_layers();
    let mut cluster = Cluster::new(&["pi1"]);
    cluster.add("tiny", directory(), Budget::limited(64 << 10), FAST);
    let error = cluster.refusal(&[("pi1", 0..1), ("tiny", 1..n)]);
    assert!(error.contains("no ring: tiny: "), "{error}");
    assert!(
        error.contains("layers need") && error.contains("it would take"),
        "{error}"
    );
    for node in ["pi1", "tiny"] {
        assert!(cluster.control.card(node).held.is_none(), "{node}");
    }
}

#[test]
fn a_node_without_the_model_or_with_another_one_refuses() {
    let n = n_layers();
    let empty = std::env::temp_dir().join(format!("atta-nodes-{}", std::process::id()));
    fs::create_dir_all(&empty).unwrap();
    let mut cluster = Cluster::new(&[]);
    cluster.add("bare", empty.clone(), Budget::limited(1 << 30), FAST);
    let error = cluster.refusal(&[("bare", 0..n)]);
    assert!(error.contains("stories.gguf is not here"), "{error}");
    // The same length, another weight.
    let mut bytes = fs::read(path()).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(empty.join("stories.gguf"), bytes).unwrap();
    let error = cluster.refusal(&[("bare", 0..n)]);
    assert!(error.contains("it is another model"), "{error}");
    fs::remove_dir_all(empty).unwrap();
}

#[test]
fn a_node_that_is_away_is_named() {
    let n = n_layers();
    let cluster = Cluster::new(&["pi1", "pi2"]);
    cluster.control.remove("pi2");
    let error = cluster.refusal(&[("pi1", 0..1), ("pi2", 1..n)]);
    assert!(error.contains("pi2: it does not answer"), "{error}");
    assert!(cluster.control.card("pi1").held.is_none());
}

#[test]
fn plans_of_other_versions_or_with_the_number_of_another_plan_are_refused() {
    let n = n_layers();
    let cluster = Cluster::new(&["pi1"]);
    let ring = cluster.engine(0, &[("pi1", 0..n)]);
    let held = ring.session(&session()).unwrap();
    let prepare = cluster.control.prepare_of("pi1");
    let ask = |edit: &dyn Fn(&mut Prepare)| {
        let mut prepare = prepare.clone();
        edit(&mut prepare);
        cluster
            .control
            .question("pi1", &Question::Prepare(Box::new(prepare)))
    };
    let why = |answer: Answer| match answer {
        Answer::Blocked(blocked) => blocked.why,
        other => panic!("{other:?}"),
    };
    assert!(matches!(ask(&|_| {}), Answer::Ready(_)));
    assert!(why(ask(&|p| p.size.n_ctx += 1)).contains("the same number"));
    assert!(why(ask(&|p| p.epoch = 0)).contains("older plan"));
    let other = why(ask(&|p| p.program = "0.0.1".to_owned()));
    assert!(other.contains("version 0.0.1") && other.contains(env!("CARGO_PKG_VERSION")));
    assert!(matches!(ask(&|p| p.epoch = 2), Answer::Loading(_)));
    drop(held);
}

#[test]
fn weights_are_fetched_beside_the_ring_that_a_node_belongs_to() {
    let n = n_layers();
    let cluster = Cluster::new(&["pi1"]);
    let ring = cluster.engine(0, &[("pi1", 0..n)]);
    let held = ring.session(&session()).unwrap();
    let prepare = cluster.control.prepare_of("pi1");
    let fetch = |edit: &dyn Fn(&mut Prepare)| {
        let mut prepare = prepare.clone();
        prepare.ring ^= 1;
        edit(&mut prepare);
        let question = Question::Fetch(Box::new(prepare));
        let ask = || cluster.control.question("pi1", &question);
        wait_for("it is done", || !matches!(ask(), Answer::Loading(_)));
        ask()
    };
    let why = |answer: Answer| match answer {
        Answer::Blocked(blocked) => blocked.why,
        other => panic!("{other:?}"),
    };
    assert_eq!(fetch(&|_| {}), Answer::Fetched);
    assert!(why(fetch(&|p| p.model.share = Digest([0; 32]))).contains("other weights"));
    assert!(why(fetch(&|p| p.model.id = Digest([0; 32]))).contains("is not here"));
    let card = cluster.control.card("pi1");
    assert_eq!(card.held.unwrap().ring, prepare.ring);
    let mut events = card.events.iter().map(|event| &event.text[..]);
    let layers = format!("layers 0 to {n} of stories.gguf are on this disk");
    assert!(events.any(|text| text == layers), "{:?}", card.events);
    drop(held);
}

#[test]
fn a_silent_coordinator_loses_its_node_and_all_memory_is_freed() {
    let timing = NodeTiming {
        prepared: Duration::from_millis(300),
        silence: Duration::from_millis(300),
        left: Duration::from_secs(1),
        orphan: Duration::from_millis(300),
        warm: Duration::from_millis(300),
    };
    let n = n_layers();
    let mut cluster = Cluster::new(&["spare"]);
    cluster.add("pi1", directory(), Budget::limited(1 << 30), FAST);
    let ring = cluster.engine(0, &[("pi1", 0..n)]);
    drop(ring.session(&session()).unwrap());
    let budget = &cluster.nodes[1].1;
    assert!(budget.used() > 0, "weights stay warm");
    cluster.nodes[1].0.release_all();
    assert_eq!(budget.used(), 0);

    let mut impatient = Cluster::new(&[]);
    impatient.add("pi1", directory(), Budget::limited(1 << 30), timing);
    let prepare = cluster.control.prepare_of("pi1");
    let answer = impatient
        .control
        .question("pi1", &Question::Prepare(Box::new(prepare)));
    assert!(matches!(answer, Answer::Loading(_)), "{answer:?}");
    let budget = &impatient.nodes[0].1;
    wait_for("it is loaded", || budget.used() > 0);
    wait_for("it is free again", || budget.used() == 0);
    let log = impatient.control.question("pi1", &Question::Log);
    let Answer::Log(events) = log else {
        panic!("{log:?}")
    };
    assert!(
        events.iter().any(|e| e.text.contains("silent")),
        "{events:?}"
    );
}

#[test]
fn a_node_says_that_it_is_free_when_another_coordinator_may_have_it() {
    let n = n_layers();
    let cluster = Cluster::new(&["spare"]);
    let ring = cluster.engine(0, &[("spare", 0..n)]);
    drop(ring.session(&session()).unwrap());
    let prepare = cluster.control.prepare_of("spare");

    let mut impatient = Cluster::new(&[]);
    let timing = NodeTiming {
        prepared: Duration::from_secs(600),
        silence: Duration::from_millis(300),
        ..FAST
    };
    impatient.add("pi1", directory(), Budget::limited(1 << 30), timing);
    let ask = |prepare: Prepare| {
        let question = Question::Prepare(Box::new(prepare));
        impatient.control.question("pi1", &question)
    };
    let mut other = prepare.clone();
    other.coordinator.name = name("desk");
    other.ring += 1;
    assert!(matches!(ask(prepare), Answer::Loading(_)));
    let card = || impatient.control.card("pi1");
    // Long before the ring is released.
    wait_for("it is loaded", || impatient.nodes[0].1.used() > 0);
    wait_for("it is free", || card().held.is_none());
    let memory = card().memory;
    assert_eq!(memory.free_bytes, memory.all_bytes);
    assert!(impatient.nodes[0].1.used() > 0, "it is not released yet");
    assert!(matches!(ask(other), Answer::Loading(_)));
    assert_eq!(card().held.unwrap().coordinator, name("desk"));
}

#[test]
fn a_node_that_was_asked_to_leave_takes_no_more_plans() {
    let n = n_layers();
    let cluster = Cluster::new(&["pi1"]);
    let answer = cluster.control.question("pi1", &Question::Leave);
    assert_eq!(answer, Answer::Released);
    assert!(cluster.nodes[0].0.is_leaving());
    assert!(cluster.refusal(&[("pi1", 0..n)]).contains("leaves"));
}

#[test]
fn weights_of_a_node_are_streamed_where_they_do_not_fit() {
    let n = n_layers();
    let here = engine(None);
    let mut cluster = Cluster::new(&[]);
    let whole = ModelFiles::open(&path()).unwrap().file_bytes();
    // Found by trying: the layers fit only in part.
    let budgets = (1..40).map(|i| whole / 2 + i * (256 << 10));
    let mut is_streamed = false;
    for (i, bytes) in budgets.enumerate() {
        let node = format!("pi{i}");
        cluster.add(&node, directory(), Budget::limited(bytes), FAST);
        let seen = Arc::<Mutex<u64>>::default();
        let mut options = cluster.options(0, &[(&node, 0..n)]);
        let streamed = Arc::clone(&seen);
        options.on_stage = Arc::new(move |_, progress| {
            if let StageProgress::Ready(ready) = progress {
                *streamed.lock().unwrap() = ready.streamed_bytes;
            }
        });
        let ring = engine(Some(RemoteRing::new(options)));
        let Ok(session) = ring.session(&session()) else {
            continue;
        };
        drop(session);
        if *seen.lock().unwrap() > 0 {
            is_streamed = true;
            assert_eq!(text(&ring, 1), text(&here, 1));
            break;
        }
    }
    assert!(is_streamed);
}

#[test]
fn plans_that_no_machines_can_run_are_refused() {
    let n = n_layers();
    let cluster = Cluster::new(&["pi1", "pi2"]);
    let twice = cluster.refusal(&[("pi1", 0..1), ("pi1", 1..n)]);
    assert!(twice.contains("pi1 has two stages"), "{twice}");
    let gap = cluster.refusal(&[("pi1", 0..1), ("pi2", 2..n)]);
    assert!(gap.contains("stages of a model"), "{gap}");
    let files = ModelFiles::open(&path()).unwrap();
    let hashed = HashedModel::of("a.gguf", &files).unwrap();
    assert_eq!(hashed.index.len(), 1);
    let error = Error::Ring("why".to_owned());
    assert_eq!(error.to_string(), "no ring: why");
}
