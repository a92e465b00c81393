//! Machines of a cluster on loopback, with their doors, and a coordinator that uses them.

pub(crate) mod wire;

use std::{
    net::SocketAddr,
    ops::{ControlFlow, Range},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Instant,
};

use atta_cluster::{
    HashedModel, Links, PartLinks, RemotePlan, RemoteRing, RemoteRingOptions, SharedStates,
    StageNode, StatesFolder,
    control::{Control, FixedControl},
    core::Timing,
    key::ClusterKey,
    lane::tcp::{Doors, DoorsOptions, Security},
    node::{NodeOptions, NodeService, NodeTiming, part_server},
    part::{Library, LibraryOptions},
    wire::{
        Dtype,
        message::{LaneName, NodeAddress},
    },
};
use atta_engine::Engine;
use atta_kernels::Kernels;
use atta_store::{Budget, ModelFiles};

use crate::stories::{
    self, PATIENCE, directory, engine, models, n_layers, name, path, pool, session, text, together,
    wait_for,
};

pub(crate) fn key(i: u8) -> ClusterKey {
    ClusterKey::from_bytes([i; 32])
}

pub(crate) fn tls(node: &str) -> Security {
    Security::Tls(Arc::new(key(1).identity(node).unwrap()))
}

pub(crate) fn doors(security: Security) -> Arc<Doors> {
    doors_at("127.0.0.1:0".parse().unwrap(), security)
}

fn doors_at(address: SocketAddr, security: Security) -> Arc<Doors> {
    let options = DoorsOptions {
        address,
        security,
        is_allowed: Arc::new(|_| true),
    };
    Arc::new(Doors::open(options).unwrap())
}

/// Machines of stages, by their places, and their layers.
pub(crate) type On = (usize, Range<usize>);

/// Puts something in front of the links of a machine.
pub(crate) type Wrap = dyn Fn(Arc<Doors>) -> Arc<dyn Links>;

fn as_it_is(doors: Arc<Doors>) -> Arc<dyn Links> {
    doors
}

/// A machine of a ring.
pub(crate) struct Machine {
    pub(crate) address: NodeAddress,
    pub(crate) service: Option<NodeService>,
    pub(crate) doors: Option<Arc<Doors>>,
    control: Option<FixedControl>,
}

impl Machine {
    /// A node that knows these peers.
    fn start(node: &str, security: Security, peers: Vec<SocketAddr>, wrap: &Wrap) -> Self {
        let any = "127.0.0.1:0".parse().unwrap();
        Self::start_at(any, node, security, peers, wrap)
    }

    fn start_at(
        address: SocketAddr,
        node: &str,
        security: Security,
        peers: Vec<SocketAddr>,
        wrap: &Wrap,
    ) -> Self {
        let doors = doors_at(address, security);
        let address = doors.address();
        let options = NodeOptions {
            name: name(node),
            addresses: vec![address],
            kernels: Kernels::detect(),
            pool: pool(),
            budget: Budget::limited(1 << 30),
            models: models(directory(), doors.clone()),
            states: Some(SharedStates {
                folder: states_folder(&doors),
                links: doors.clone(),
            }),
            measure: None,
            celsius: || None,
            measure_link: None,
            timing: NodeTiming::default(),
        };
        serve_states(&doors);
        let service = NodeService::start(options, wrap(doors.clone())).unwrap();
        let control = FixedControl::open(doors.clone(), name(node), Some(address), peers).unwrap();
        control.answer(service.answerer()).unwrap();
        control.announce().unwrap();
        Self {
            address: NodeAddress {
                name: name(node),
                address,
            },
            service: Some(service),
            doors: Some(doors),
            control: Some(control),
        }
    }

    /// Ends it as a process that is killed: its connections end, and its port is closed.
    pub(crate) fn kill(&mut self) {
        drop(self.control.take());
        drop(self.service.take());
        drop(self.doors.take());
    }

    /// Begins anew at the same address, without what it held.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let NodeAddress { name, address } = self.address.clone();
        let peers = Vec::new();
        *self = Self::start_at(address, name.as_str(), tls(name.as_str()), peers, &as_it_is);
    }
}

/// Where the machine at an address keeps states.
pub(crate) fn states_of(address: SocketAddr) -> PathBuf {
    let name = format!("atta-test-states-{}-{}", std::process::id(), address.port());
    std::env::temp_dir().join(name)
}

fn states_folder(doors: &Doors) -> StatesFolder {
    StatesFolder {
        directory: states_of(doors.address()),
        budget_bytes: 1 << 30,
    }
}

/// Lets other machines have the states of one.
fn serve_states(doors: &Doors) {
    let folder = states_folder(doors);
    let library = Library::new(LibraryOptions {
        models: Vec::new(),
        parts: None,
        hashes: folder.directory.join("hashes"),
    });
    let server = part_server(Arc::new(library), Some(folder));
    doors.serve(server).unwrap();
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
        // It keeps states in tests of saved states only.
        let _ = std::fs::remove_dir_all(states_of(self.address.address));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(states_of(self.doors.address()));
    }
}

/// Machines with stages, and what a coordinator needs to use them.
pub(crate) struct Cluster {
    pub(crate) machines: Vec<Machine>,
    pub(crate) control: Arc<FixedControl>,
    doors: Arc<Doors>,
    lane: LaneName,
    /// What the doors of all machines have told.
    notes: Arc<Mutex<Vec<String>>>,
}

impl Cluster {
    pub(crate) fn new(n: usize, security: fn(&str) -> Security) -> Self {
        Self::with_links(n, security, |_| Box::new(as_it_is))
    }

    /// Machines with something in front of the links of each.
    pub(crate) fn with_links(
        n: usize,
        security: fn(&str) -> Security,
        wrap: impl Fn(usize) -> Box<Wrap>,
    ) -> Self {
        let mut machines: Vec<Machine> = Vec::new();
        for i in 1..=n {
            let node = format!("pi{i}");
            let peers = machines.iter().map(|m| m.address.address).collect();
            machines.push(Machine::start(&node, security(&node), peers, &wrap(i - 1)));
        }
        let doors = doors(security("lap"));
        serve_states(&doors);
        let first = vec![machines[0].address.address];
        let control = FixedControl::open(doors.clone(), name("lap"), None, first).unwrap();
        let notes = Arc::<Mutex<Vec<String>>>::default();
        let all = machines.iter().filter_map(|machine| machine.doors.as_ref());
        for doors in all.chain([&doors]) {
            let notes = Arc::clone(&notes);
            doors.on_note(Box::new(move |note| {
                notes.lock().unwrap().push(note.to_owned());
            }));
        }
        Self {
            machines,
            control: Arc::new(control),
            doors,
            lane: LaneName::Tcp,
            notes,
        }
    }

    /// Rings whose coordinator keeps states, too.
    pub(crate) fn keeping(&self, n_local: usize, stages: &[On]) -> RemoteRing {
        let ring = RemoteRing::new(self.options(n_local, stages));
        ring.keep_states_in(SharedStates {
            folder: states_folder(&self.doors),
            links: self.doors.clone(),
        });
        ring
    }

    /// Notes on lanes.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap().clone()
    }

    /// Writes texts by three machines in several cuts, which must be those of one machine, and
    /// waits until the stages are released.
    pub(crate) fn writes_the_texts_of_one_machine(&self) {
        let here = engine(None);
        let expected: Vec<String> = (0..4).map(|i| text(&here, i)).collect();
        let n = n_layers();
        let cuts: [(usize, Vec<On>); 3] = [
            (0, vec![(0, 0..n)]),
            (1, vec![(1, 1..2), (0, 2..n)]),
            (0, vec![(2, 0..1), (0, 1..3), (1, 3..n)]),
        ];
        for (n_local, stages) in cuts {
            let ring = self.engine(n_local, &stages);
            // Rings one after another on the same machines.
            for (i, expected) in expected.iter().enumerate().take(2) {
                assert_eq!(&text(&ring, i), expected, "{stages:?}");
            }
            assert_eq!(together(&ring), expected, "{stages:?}");
        }
        for machine in &self.machines {
            let held = || machine.service.as_ref().unwrap().card().held;
            wait_for("stages are released", || held().is_none());
        }
    }

    /// Writes a text by two machines and ends the second one: the next text must be an error with
    /// its name, before long.
    pub(crate) fn ends_with_a_machine(mut self) {
        let ring = self.engine(0, &[(0, 0..1), (1, 1..n_layers())]);
        let mut open = ring.session(&session()).unwrap();
        let prompt = ring.prompt_ids(b"Once upon a time");
        let first = open.generate(&prompt, &stories::options(0)).unwrap();
        first.run(|_| ControlFlow::Continue(())).unwrap();
        self.machines[1].kill();
        let start = Instant::now();
        let error = match open.generate(&prompt, &stories::options(0)) {
            Ok(more) => more.run(|_| ControlFlow::Continue(())).unwrap_err(),
            Err(error) => error,
        };
        assert!(error.to_string().contains("pi2"), "{error}");
        assert!(start.elapsed() < PATIENCE / 2);
    }

    /// Its rows travel over another lane.
    pub(crate) fn over(mut self, lane: LaneName) -> Self {
        self.lane = lane;
        self
    }

    pub(crate) fn engine(&self, n_local: usize, stages: &[On]) -> Engine {
        engine(Some(RemoteRing::new(self.options(n_local, stages))))
    }

    /// A ring of these stages.
    pub(crate) fn options(&self, n_local: usize, stages: &[On]) -> RemoteRingOptions {
        let files = ModelFiles::open(&path()).unwrap();
        RemoteRingOptions {
            control: self.control.clone(),
            links: self.doors.clone(),
            lane: self.lane,
            name: name("lap"),
            plan: self.plan(n_local, stages),
            model: HashedModel::of("stories.gguf", &files).unwrap(),
            sources: Vec::new(),
            kernels: Kernels::detect(),
            pool: pool(),
            timing: Timing::default(),
            wire: Dtype::F32,
            deadline: PATIENCE,
            n_chunk: None,
            expected: None,
            on_stage: Arc::new(|_, _| {}),
        }
    }

    /// Who runs what.
    pub(crate) fn plan(&self, n_local: usize, stages: &[On]) -> RemotePlan {
        let stages = stages.iter().map(|(i, layers)| StageNode {
            node: self.machines[*i].address.clone(),
            layers: layers.clone(),
        });
        RemotePlan {
            n_local,
            stages: stages.collect(),
        }
    }
}
