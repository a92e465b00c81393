//! Texts that are computed twice: a machine that flips one bit is found, named and left out, and
//! the text stays that of one machine.

#[allow(dead_code, reason = "shared with other tests")]
mod disturbed;
#[allow(dead_code, reason = "shared with other tests")]
mod machines;
#[allow(dead_code, reason = "shared with other tests")]
mod stories;

use std::{
    io,
    net::SocketAddr,
    ops::ControlFlow,
    sync::{Arc, Mutex},
};

use atta_cluster::{
    AuditCounts, AuditOptions, GroupLinks, GroupWiring, Lane, Links, PlannedRing, RemotePlan,
    RemoteRing, Replan, RingChange, RingChanges, RingLinks, RunningStage, Stage, StageLinks,
    StageNode, control::NodeName, core::Timing, lane::tcp::Doors, wire::message::NodeAddress,
};
use atta_engine::{Engine, Event, LoadOptions};
use atta_store::ModelFiles;
use disturbed::{Flip, FlipAt};
use machines::{Cluster, On, tls};
use stories::{PATIENCE, n_layers, name, path, session, text, together};

/// Links whose stage flips a bit.
struct FlippingLinks {
    doors: Arc<Doors>,
    flip: Arc<FlipAt>,
}

impl Links for FlippingLinks {
    fn address(&self) -> SocketAddr {
        self.doors.address()
    }

    fn start_stage(&self, links: StageLinks, stage: Stage) -> io::Result<Box<dyn RunningStage>> {
        let flip = Arc::clone(&self.flip);
        let stage = stage.map_executor(|inner| Box::new(Flip { inner, flip }));
        self.doors.start_stage(links, stage)
    }

    fn open_ring(&self, links: RingLinks) -> io::Result<Box<dyn Lane>> {
        self.doors.open_ring(links)
    }

    fn open_group(&self, plan: GroupWiring) -> io::Result<Arc<dyn GroupLinks>> {
        self.doors.open_group(plan)
    }
}

/// Machines, one with such links.
fn cluster(victim: usize, flip: &Arc<FlipAt>) -> Cluster {
    Cluster::with_links(3, tls, |i| {
        let flip = Arc::clone(flip);
        Box::new(move |doors| match i == victim {
            true => Arc::new(FlippingLinks {
                doors,
                flip: Arc::clone(&flip),
            }),
            false => doors,
        })
    })
}

/// Divides the layers evenly among the nodes that are left.
struct Even(Vec<NodeAddress>);

impl Replan for Even {
    fn without(&self, gone: &[NodeName]) -> Result<PlannedRing, String> {
        let nodes = self.0.iter().filter(|node| !gone.contains(&node.name));
        let nodes: Vec<_> = nodes.cloned().collect();
        let n = nodes.len();
        let end = |i: usize| n_layers() * i / n.max(1);
        let stages = nodes.into_iter().enumerate().map(|(i, node)| StageNode {
            node,
            layers: end(i)..end(i + 1),
        });
        let stages: Vec<_> = stages.collect();
        let n_local = if stages.is_empty() { n_layers() } else { 0 };
        Ok(PlannedRing {
            plan: RemotePlan { n_local, stages },
            timing: Timing::default(),
            deadline: PATIENCE,
            expected: None,
        })
    }
}

/// A ring that is audited.
struct Audited {
    engine: Engine,
    ring: Arc<RemoteRing>,
    told: Arc<Mutex<Vec<RingChange>>>,
}

impl Audited {
    fn new(cluster: &Cluster, n_local: usize, stages: &[On], probability: f64) -> Self {
        let told = Arc::<Mutex<Vec<RingChange>>>::default();
        let nodes = cluster.machines.iter().map(|m| m.address.clone());
        let changes = RingChanges {
            replan: Arc::new(Even(nodes.collect())),
            files: Arc::new(|| ModelFiles::open(&path())),
            on_change: Arc::new({
                let told = Arc::clone(&told);
                move |change| told.lock().unwrap().push(change.clone())
            }),
            audit: Some(AuditOptions {
                probability,
                seed: 1,
                weights_bytes: 0,
            }),
        };
        let ring = RemoteRing::with_changes(cluster.options(n_local, stages), changes);
        let ring = Arc::new(ring);
        let options = LoadOptions {
            backend: Some(ring.clone()),
            session: session(),
            ..LoadOptions::default()
        };
        let engine = Engine::open(&path(), &options).unwrap();
        Self { engine, ring, told }
    }

    fn counts(&self) -> AuditCounts {
        self.ring.record().figures().audit
    }

    fn told(&self) -> Vec<RingChange> {
        self.told.lock().unwrap().clone()
    }
}

/// Three stages of the model.
fn thirds() -> Vec<On> {
    vec![(0, 0..1), (1, 1..2), (2, 2..n_layers())]
}

#[test]
fn a_machine_that_flips_one_bit_is_named_and_left_out_and_the_text_is_right() {
    let expected = text(&stories::engine(None), 3);
    for victim in 0..3 {
        for flip in [FlipAt::once(4), FlipAt::always_from(0)] {
            let cluster = cluster(victim, &flip);
            let ring = Audited::new(&cluster, 0, &thirds(), 1.0);
            assert_eq!(text(&ring.engine, 3), expected, "without {victim}");
            let told = ring.told();
            assert_eq!(told.len(), 1, "{told:?}");
            let guilty = format!("pi{}", victim + 1);
            assert_eq!(told[0].left_out, [name(&guilty)]);
            assert_eq!((told[0].gone.len(), told[0].after.stages.len()), (0, 2));
            assert_eq!(ring.counts().n_faults, 1);
            let events = ring.ring.record().events();
            let named = format!("audit: {guilty} computed other rows than this machine");
            assert!(
                events.iter().any(|e| e.text.starts_with(&named)),
                "{events:?}"
            );
        }
    }
}

#[test]
fn a_machine_that_was_left_out_does_not_come_back_with_the_next_loss() {
    let expected = text(&stories::engine(None), 3);
    let flip = FlipAt::always_from(0);
    let mut cluster = cluster(1, &flip);
    let ring = Audited::new(&cluster, 0, &thirds(), 1.0);
    let mut open = ring.engine.session(&session()).unwrap();
    let prompt = ring.engine.prompt_ids(b"Once upon a time");
    let mut written = String::new();
    let mut n = 0;
    let generation = open.generate(&prompt, &stories::options(3)).unwrap();
    let done = generation.run(|event| {
        if let Event::Text(piece) = event {
            written.push_str(&piece);
            n += 1;
            if n == 6 {
                cluster.machines[0].kill();
            }
        }
        ControlFlow::Continue(())
    });
    done.unwrap();
    assert_eq!(written, expected);
    let told = ring.told();
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told[0].left_out, [name("pi2")]);
    assert_eq!(
        (&told[1].gone[..], &told[1].left_out[..]),
        (&[name("pi1")][..], &[][..])
    );
    let stages = ring.ring.plan().stages;
    assert_eq!(stages.len(), 1);
    assert_eq!(stages[0].node.name, name("pi3"));
}

#[test]
fn an_audit_has_nothing_to_say_against_honest_machines() {
    let here = stories::engine(None);
    let n = n_layers();
    let cluster = Cluster::new(3, tls);
    let ring = Audited::new(&cluster, 1, &[(0, 1..2), (1, 2..n)], 1.0);
    assert_eq!(text(&ring.engine, 3), text(&here, 3));
    let alone = ring.counts();
    assert!(alone.n_rows > 20, "{alone:?}");
    assert_eq!(together(&ring.engine), together(&here));
    let counts = ring.counts();
    assert!(counts.n_rows > alone.n_rows && counts.n_drawn == counts.n_texts);
    assert_eq!(counts.n_faults, 0);
    assert_eq!(ring.told(), []);
}

#[test]
fn texts_are_drawn_whole() {
    let n = n_layers();
    let cluster = Cluster::new(1, tls);
    let ring = Audited::new(&cluster, 1, &[(0, 1..n)], 0.5);
    let mut rows = Vec::new();
    let mut before = 0;
    let mut open = ring.engine.session(&session()).unwrap();
    for _ in 0..8 {
        open.truncate(0).unwrap();
        let prompt = ring.engine.prompt_ids(b"Once upon a time");
        let generation = open.generate(&prompt, &stories::options(0)).unwrap();
        generation.run(|_| ControlFlow::Continue(())).unwrap();
        let counts = ring.counts();
        rows.push(counts.n_rows - before);
        before = counts.n_rows;
    }
    let all = *rows.iter().max().unwrap();
    assert!(rows.iter().all(|n| [0, all].contains(n)), "{rows:?}");
    assert!(rows.contains(&0) && all > 10, "{rows:?}");
}
