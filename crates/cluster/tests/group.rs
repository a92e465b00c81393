//! Members on other machines, over TCP on loopback: the bits of one machine, or an error that names
//! the member that is lost.

mod members;
#[path = "../../model/tests/support/mod.rs"]
mod support;

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    num::{NonZeroU32, NonZeroUsize},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use atta_cluster::{
    HashedModel, Links,
    control::{Control, FixedControl, NodeName},
    core::Timing,
    key::ClusterKey,
    lane::tcp::{Doors, DoorsOptions, Security},
    node::{Models, NodeOptions, NodeService, NodeTiming, OnLoading, OpenModel, Wanted, share_of},
    tensor::{
        GroupChange, GroupChanges, GroupMembers, PlannedGroup, RemoteGroup, RemoteGroupOptions,
        ReplanRows,
    },
    wire::message::{Blocked, LaneName, NodeAddress},
};
use atta_kernels::{Kernels, Pool};
use atta_model::{
    Backend, Batch, Error, Executor, ExecutorSize, KvType, Output, SeqId, Share, Want,
    spec::ModelSpec,
};
use atta_store::{Budget, ModelFiles};
use members::{N_CTX, append_ragged, member_of, run, size};
use rustls::{ClientConnection, StreamOwned};
use support::{Golden, bits, cpu_with, encoders, golden, goldens, hybrid::hybrids};

/// The longest wait of a test.
const PATIENCE: Duration = Duration::from_secs(20);

/// Times of a group that is soon seen to be lost.
const SOON: Timing = Timing {
    lap: Duration::from_millis(300),
    row: Duration::from_millis(10),
    slack: Duration::from_millis(600),
    fence: Duration::from_secs(2),
    ping: None,
    orphan: Duration::from_secs(60),
};

/// A model by its spec and its files.
type Opened = (ModelSpec, Box<dyn Fn() -> ModelFiles + Send>);

/// The one model that all nodes have.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Option<Opened>>>);

impl Shelf {
    fn put(&self, g: &Arc<Golden>) {
        let spec = g.model().spec().clone();
        let g = Arc::clone(g);
        let files = Box::new(move || g.files());
        *self.0.lock().unwrap() = Some((spec, files));
    }
}

impl Models for Shelf {
    fn open(&self, wanted: Wanted<'_>, _: OnLoading<'_>) -> Result<OpenModel, Blocked> {
        let shelf = self.0.lock().unwrap();
        let (spec, files) = shelf.as_ref().unwrap();
        let index = HashedModel::of("model.gguf", &files()).unwrap().index;
        Ok(OpenModel {
            spec: spec.clone(),
            files: files(),
            share: share_of(&index, spec, wanted.share, &files()).unwrap(),
        })
    }
}

fn key(i: u8) -> ClusterKey {
    ClusterKey::from_bytes([i; 32])
}

fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn doors(node: &str) -> Arc<Doors> {
    let options = DoorsOptions {
        address: "127.0.0.1:0".parse().unwrap(),
        security: Security::Tls(Arc::new(key(1).identity(node).unwrap())),
        is_allowed: Arc::new(|_| true),
    };
    Arc::new(Doors::open(options).unwrap())
}

fn pool() -> Arc<Pool> {
    Arc::new(Pool::new(NonZeroUsize::MIN))
}

/// A node.
struct Machine {
    address: NodeAddress,
    service: Option<NodeService>,
    doors: Option<Arc<Doors>>,
    control: FixedControl,
}

impl Machine {
    fn start(node: &str, shelf: &Shelf, peers: Vec<SocketAddr>) -> Self {
        let doors = doors(node);
        let address = doors.address();
        let options = NodeOptions {
            name: name(node),
            addresses: vec![address],
            kernels: Kernels::detect(),
            pool: pool(),
            budget: Budget::limited(1 << 30),
            models: Arc::new(shelf.clone()),
            states: None,
            measure: None,
            celsius: || None,
            measure_link: None,
            timing: NodeTiming::default(),
        };
        let service = NodeService::start(options, doors.clone()).unwrap();
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
            control,
        }
    }

    fn is_held(&self) -> bool {
        self.service.as_ref().unwrap().card().held.is_some()
    }

    /// Ends it as a process that is killed.
    fn kill(&mut self) {
        self.control.close();
        // Its connections end before anything that would say good-bye.
        drop(self.doors.take());
        drop(self.service.take());
    }
}

/// Nodes, and what a coordinator needs to use them.
struct Cluster {
    shelf: Shelf,
    machines: Vec<Machine>,
    control: Arc<FixedControl>,
    doors: Arc<Doors>,
    lane: LaneName,
}

impl Cluster {
    fn new(n: usize) -> Self {
        let shelf = Shelf::default();
        let mut machines: Vec<Machine> = Vec::new();
        for i in 1..=n {
            let peers = machines.iter().map(|m| m.address.address).collect();
            machines.push(Machine::start(&format!("pi{i}"), &shelf, peers));
        }
        let doors = doors("lap");
        let first = vec![machines[0].address.address];
        let control = FixedControl::open(doors.clone(), name("lap"), None, first).unwrap();
        control.members().unwrap();
        Self {
            shelf,
            machines,
            control: Arc::new(control),
            doors,
            lane: LaneName::Tcp,
        }
    }

    /// The executor of a model on this machine and the first nodes, with rows in proportion to
    /// these speeds.
    fn open(
        &self,
        g: &Golden,
        speeds: &[u32],
        size: &ExecutorSize,
        timing: Timing,
    ) -> Result<Box<dyn Executor>, Error> {
        self.open_with(g, speeds, size, timing, None)
    }

    /// The same, with changes that come in its place.
    fn open_with(
        &self,
        g: &Golden,
        speeds: &[u32],
        size: &ExecutorSize,
        timing: Timing,
        changes: Option<GroupChanges>,
    ) -> Result<Box<dyn Executor>, Error> {
        let mut speeds = speeds.iter().map(|&n| NonZeroU32::new(n).unwrap());
        let lead_speed = speeds.next().unwrap();
        let nodes = self.machines.iter().map(|machine| machine.address.clone());
        let members = GroupMembers {
            lead_speed,
            others: nodes.zip(speeds).collect(),
        };
        let model = g.model();
        let split = members.split()?;
        let share = Share::whole(model.spec());
        let lead = member_of(&model, g.files(), share, &split, 0)?;
        let options = RemoteGroupOptions {
            control: self.control.clone(),
            links: self.doors.clone(),
            lane: self.lane,
            name: name("lap"),
            members,
            model: HashedModel::of("model.gguf", &g.files()).unwrap(),
            sources: Vec::new(),
            kernels: Kernels::detect(),
            pool: pool(),
            timing,
            deadline: PATIENCE,
            on_stage: Arc::new(|_, _| {}),
        };
        let group = match changes {
            Some(changes) => RemoteGroup::with_changes(options, changes)?,
            None => RemoteGroup::new(options)?,
        };
        group.open(lead, size, &Budget::unlimited())
    }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn every_model_on_two_to_four_machines_has_the_bits_of_one() {
    let cluster = Cluster::new(3);
    let size = size(KvType::F32, 32);
    // Each model by one of them: tests/tensor.rs has all, without links.
    let divisions = [&[1, 1][..], &[1, 2, 1], &[1; 4]].into_iter().cycle();
    let models = goldens().into_iter().chain(hybrids()).map(Arc::new);
    for (g, speeds) in models.zip(divisions) {
        let expected = run(&mut cpu_with(&g.model(), 1, size.clone()), &g.tokens, 5);
        cluster.shelf.put(&g);
        let mut group = match cluster.open(&g, speeds, &size, Timing::default()) {
            Ok(group) => group,
            Err(error) => panic!("{} {speeds:?}: {error}", g.name),
        };
        let got = run(group.as_mut(), &g.tokens, 5);
        assert!(got == expected, "{} {speeds:?}", g.name);
    }
    let machines = &cluster.machines;
    wait_for("members are released", || {
        machines.iter().all(|m| !m.is_held())
    });
}

#[test]
fn columns_over_udp_have_the_same_bits_and_a_member_that_ends_is_named() {
    let mut cluster = Cluster::new(2);
    cluster.lane = LaneName::Udp;
    let size = size(KvType::F32, 32);
    for name in ["qwen3", "gpt-oss", "qwen35"] {
        let g = Arc::new(golden(name));
        let expected = run(&mut cpu_with(&g.model(), 1, size.clone()), &g.tokens, 5);
        cluster.shelf.put(&g);
        let mut group = cluster.open(&g, &[1; 3], &size, Timing::default()).unwrap();
        assert!(run(group.as_mut(), &g.tokens, 5) == expected, "{name}");
    }
    let g = Arc::new(golden("qwen3"));
    cluster.shelf.put(&g);
    let mut group = cluster.open(&g, &[1; 3], &size, Timing::default()).unwrap();
    let seq = group.new_seq().unwrap();
    one_token(group.as_mut(), seq).unwrap();
    cluster.machines[1].kill();
    let error = one_token(group.as_mut(), seq).unwrap_err();
    assert!(matches!(error, Error::Lost(_)), "{error}");
    assert!(error.to_string().contains("pi2"), "{error}");
}

#[test]
fn encoders_have_the_bits_of_one_machine() {
    let cluster = Cluster::new(1);
    for g in encoders().into_iter().map(Arc::new) {
        let model = g.model();
        let size = size(KvType::F32, N_CTX);
        let hidden = |executor: &mut dyn Executor| {
            let mut batch = Batch::default();
            let mut out = Output::default();
            let seq = executor.new_seq().unwrap();
            g.push_rows(&mut batch, seq);
            executor.step(&batch, &mut out).unwrap();
            let rows = (0..g.tokens.len()).flat_map(|i| out.hidden(i).to_vec());
            bits(&rows.collect::<Vec<_>>())
        };
        let expected = hidden(&mut cpu_with(&model, 1, size.clone()));
        cluster.shelf.put(&g);
        let mut group = cluster.open(&g, &[1, 1], &size, Timing::default()).unwrap();
        assert!(hidden(group.as_mut()) == expected, "{}", g.name);
    }
}

#[test]
fn shifts_and_filled_positions_are_those_of_one_machine_and_states_are_refused() {
    let cluster = Cluster::new(1);
    let g = Arc::new(golden("llama3-rope"));
    let size = ExecutorSize {
        n_recent: Some(32),
        n_ctx: 96,
        ..size(KvType::F16, 32)
    };
    let tokens: Vec<u32> = g.tokens.iter().cycle().take(120).copied().collect();
    let run = |executor: &mut dyn Executor| {
        let seq = executor.new_seq().unwrap();
        let mut logits = append_ragged(executor, seq, &tokens[..90], 5);
        executor.shift(seq, 4..36).unwrap();
        logits.extend(append_ragged(executor, seq, &tokens[90..], 3));
        let filled = executor.new_seq().unwrap();
        executor.fill(filled, 40).unwrap();
        logits.extend(append_ragged(executor, filled, &tokens[..8], 3));
        bits(&logits)
    };
    let expected = run(&mut cpu_with(&g.model(), 1, size.clone()));
    cluster.shelf.put(&g);
    let mut group = cluster.open(&g, &[1, 1], &size, Timing::default()).unwrap();
    assert!(run(group.as_mut()) == expected);
    let seq = group.new_seq().unwrap();
    assert!(group.append_state(seq, &[0; 64], 1).is_err());
    assert!(group.export(seq, 0..0, &mut Vec::new()).is_err());
    assert!(append_ragged(group.as_mut(), seq, &tokens[..4], 2).len() > 4);
}

fn one_token(executor: &mut dyn Executor, seq: SeqId) -> Result<(), Error> {
    let mut batch = Batch::default();
    let pos = executor.seqs().len(seq).unwrap();
    batch.push_token(seq, pos, 1, Want::Logits);
    executor.step(&batch, &mut Output::default())
}

#[test]
fn a_member_that_ends_is_named_and_the_others_are_released() {
    let mut cluster = Cluster::new(2);
    let g = Arc::new(golden("qwen3"));
    cluster.shelf.put(&g);
    let size = size(KvType::F32, 32);
    let mut group = cluster.open(&g, &[1; 3], &size, Timing::default()).unwrap();
    let seq = group.new_seq().unwrap();
    one_token(group.as_mut(), seq).unwrap();
    cluster.machines[1].kill();
    let start = Instant::now();
    for _ in 0..2 {
        let error = one_token(group.as_mut(), seq).unwrap_err();
        assert!(matches!(error, Error::Lost(_)), "{error}");
        assert!(error.to_string().contains("pi2"), "{error}");
    }
    assert!(start.elapsed() < PATIENCE / 2);
    assert_eq!(group.seqs().len(seq).unwrap(), 1);
    wait_for("the other one is released", || {
        !cluster.machines[0].is_held()
    });
    drop(group);
    let mut group = cluster.open(&g, &[1; 2], &size, Timing::default()).unwrap();
    let seq = group.new_seq().unwrap();
    one_token(group.as_mut(), seq).unwrap();
}

/// A way to a machine that stops to carry anything, as if the machine were frozen.
fn wire_to(target: SocketAddr, is_frozen: Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let carry = move |mut from: TcpStream, mut to: TcpStream, is_frozen: Arc<AtomicBool>| {
        let mut bytes = [0; 4096];
        while let Ok(n @ 1..) = from.read(&mut bytes) {
            while is_frozen.load(Ordering::Acquire) {
                thread::sleep(Duration::from_millis(10));
            }
            if to.write_all(&bytes[..n]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    };
    thread::spawn(move || {
        for here in listener.incoming().flatten() {
            let Ok(there) = TcpStream::connect(target) else {
                continue;
            };
            let ends = [&here, &there].map(|end: &TcpStream| end.try_clone().unwrap());
            let [here_again, there_again] = ends;
            let (a, b) = (is_frozen.clone(), is_frozen.clone());
            thread::spawn(move || carry(here, there_again, a));
            thread::spawn(move || carry(there, here_again, b));
        }
    });
    address
}

#[test]
fn a_member_that_freezes_is_lost_in_time_and_no_member_waits_for_ever() {
    let mut cluster = Cluster::new(2);
    let is_frozen = Arc::<AtomicBool>::default();
    let address = cluster.machines[1].address.address;
    cluster.machines[1].address.address = wire_to(address, is_frozen.clone());
    let g = Arc::new(golden("qwen3"));
    cluster.shelf.put(&g);
    let size = size(KvType::F32, 32);
    let mut group = cluster.open(&g, &[1; 3], &size, SOON).unwrap();
    let seq = group.new_seq().unwrap();
    one_token(group.as_mut(), seq).unwrap();
    // What others send to the second node stays on the way.
    is_frozen.store(true, Ordering::Release);
    let start = Instant::now();
    let error = one_token(group.as_mut(), seq).unwrap_err();
    assert!(matches!(error, Error::Lost(_)), "{error}");
    assert!(error.to_string().contains("pi2"), "{error}");
    assert!(start.elapsed() < PATIENCE / 2);
    // The first node waits for columns of the second one, and is released all the same.
    wait_for("the other one is released", || {
        !cluster.machines[0].is_held()
    });
    is_frozen.store(false, Ordering::Release);
}

#[test]
fn strangers_and_second_connections_send_nothing_to_a_member() {
    let cluster = Cluster::new(1);
    let g = Arc::new(golden("qwen3"));
    cluster.shelf.put(&g);
    let size = size(KvType::F32, 32);
    let mut group = cluster.open(&g, &[1, 1], &size, Timing::default()).unwrap();
    let seq = group.new_seq().unwrap();
    let at = cluster.machines[0].address.address;
    // A member of the cluster, which does not know the secret of the ring.
    let identity = key(1).identity("mallory").unwrap();
    let client = Arc::new(identity.client_config().unwrap());
    let client = ClientConnection::new(client, identity.any_server_name().unwrap()).unwrap();
    let socket = TcpStream::connect(at).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = StreamOwned::new(client, socket);
    let held = cluster.machines[0].service.as_ref().unwrap().card().held;
    let mut hello = b"ATM1".to_vec();
    hello.extend(held.unwrap().ring.to_le_bytes());
    hello.extend([0, 0, 1, 0]);
    hello.extend([0; 32]);
    stream.write_all(&hello).unwrap();
    stream.flush().unwrap();
    let mut answer = Vec::new();
    let ended = stream.read_to_end(&mut answer);
    let is_ended = |error: io::Error| error.kind() != io::ErrorKind::WouldBlock;
    assert!(
        ended.map_or_else(is_ended, |n| n == 0),
        "the connection ends"
    );
    one_token(group.as_mut(), seq).unwrap();
}

#[test]
fn divisions_that_cannot_be_are_refused() {
    let cluster = Cluster::new(1);
    let g = Arc::new(golden("qwen3"));
    let size = size(KvType::F32, 32);
    let open = |speeds: &[u32]| {
        let opened = cluster.open(&g, speeds, &size, Timing::default());
        opened.err().unwrap().to_string()
    };
    assert!(open(&[1]).contains("no other members"));
    assert!(open(&[1000, 1]).contains("too few rows"));
    let pi1 = cluster.machines[0].address.clone();
    let one = NonZeroU32::MIN;
    let twice = GroupMembers {
        lead_speed: one,
        others: vec![(pi1.clone(), one), (pi1, one)],
    };
    assert!(
        twice
            .split()
            .unwrap_err()
            .to_string()
            .contains("pi1 is two")
    );
}

/// Divides rows evenly among this machine and the nodes that are left.
struct EvenRows(Vec<NodeAddress>);

impl ReplanRows for EvenRows {
    fn without(&self, gone: &[NodeName]) -> Result<PlannedGroup, String> {
        let nodes = self.0.iter().filter(|node| !gone.contains(&node.name));
        Ok(PlannedGroup {
            members: GroupMembers {
                lead_speed: NonZeroU32::MIN,
                others: nodes.map(|n| (n.clone(), NonZeroU32::MIN)).collect(),
            },
            timing: Timing::default(),
            deadline: PATIENCE,
        })
    }
}

type ToldGroups = Arc<Mutex<Vec<GroupChange>>>;

fn changes(cluster: &Cluster, g: &Golden) -> (GroupChanges, ToldGroups) {
    let told = ToldGroups::default();
    let nodes = cluster.machines.iter().map(|m| m.address.clone());
    let bytes: &'static [u8] = g.bytes().leak();
    let changes = GroupChanges {
        replan: Arc::new(EvenRows(nodes.collect())),
        files: Arc::new(move || ModelFiles::from_static("model.gguf", bytes)),
        on_change: Arc::new({
            let told = Arc::clone(&told);
            move |change| told.lock().unwrap().push(change.clone())
        }),
    };
    (changes, told)
}

/// Logits of a text, a fork of its half, and a text beside it, with a call before each token.
fn texts(executor: &mut dyn Executor, tokens: &[u32], on: &mut dyn FnMut(usize)) -> Vec<u32> {
    let mut n = 0;
    let mut all = Vec::new();
    let mut append = |executor: &mut dyn Executor, seq: SeqId, tokens: &[u32]| {
        for id in tokens {
            n += 1;
            on(n);
            let mut batch = Batch::default();
            let mut out = Output::default();
            let pos = executor.seqs().len(seq).unwrap();
            batch.push_token(seq, pos, *id, Want::Logits);
            executor.step(&batch, &mut out).unwrap();
            all.extend(bits(out.logits(0)));
        }
    };
    let seq = executor.new_seq().unwrap();
    let dropped = executor.new_seq().unwrap();
    append(executor, seq, &tokens[..6]);
    let fork = executor.fork(seq).unwrap();
    executor.drop_seq(dropped).unwrap();
    assert_eq!(executor.truncate(fork, 3).unwrap(), 3);
    let beside = executor.new_seq().unwrap();
    append(executor, fork, &tokens[..4]);
    append(executor, beside, &tokens[2..6]);
    append(executor, seq, &tokens[6..10]);
    append(executor, fork, &tokens[4..6]);
    all
}

// The deaths are awaited side by side: what takes time is to find out that a member is silent.
#[test]
fn a_group_goes_on_without_members_and_at_last_alone_with_the_bits_of_one() {
    let g = Arc::new(golden("qwen3"));
    let size = size(KvType::F16, 32);
    let tokens: Vec<u32> = g.tokens.iter().cycle().take(12).copied().collect();
    let mut cpu = cpu_with(&g.model(), 1, size.clone());
    let expected = texts(&mut cpu, &tokens, &mut |_| {});
    std::thread::scope(|scope| {
        for deaths in [[1, 8], [5, 15], [9, 10], [12, 20]] {
            let (g, size, tokens, expected) = (&g, &size, &tokens, &expected);
            scope.spawn(move || {
                let got = text_with_deaths(g, size, tokens, deaths);
                assert!(got == *expected, "deaths at {deaths:?}");
            });
        }
    });
}

/// What a group of three writes whose members are killed at these tokens, one after the other.
fn text_with_deaths(
    g: &Arc<Golden>,
    size: &ExecutorSize,
    tokens: &[u32],
    [first, second]: [usize; 2],
) -> Vec<u32> {
    let mut cluster = Cluster::new(2);
    cluster.shelf.put(g);
    let (changes, told) = changes(&cluster, g);
    let timing = Timing::default();
    let group = cluster.open_with(g, &[1, 2, 1], size, timing, Some(changes));
    let mut group = group.unwrap();
    let got = texts(group.as_mut(), tokens, &mut |n| {
        if n == first {
            cluster.machines[1].kill();
        }
        if n == second {
            cluster.machines[0].kill();
        }
    });
    let told = told.lock().unwrap();
    let [one, two] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(
        (&one.gone[..], one.members.others.len()),
        (&[name("pi2")][..], 1)
    );
    assert!(two.gone.contains(&name("pi1")) && two.members.others.is_empty());
    assert!(two.to_string().contains("this machine computes all rows"));
    got
}

#[test]
fn a_shifted_text_ends_with_the_member_and_others_go_on() {
    let g = Arc::new(golden("llama3-rope"));
    let size = ExecutorSize {
        n_recent: Some(32),
        n_ctx: 96,
        ..size(KvType::F16, 32)
    };
    let tokens: Vec<u32> = g.tokens.iter().cycle().take(90).copied().collect();
    let mut cluster = Cluster::new(1);
    cluster.shelf.put(&g);
    let (changes, _) = changes(&cluster, &g);
    let group = cluster.open_with(&g, &[1, 1], &size, Timing::default(), Some(changes));
    let mut group = group.unwrap();
    let shifted = group.new_seq().unwrap();
    append_ragged(group.as_mut(), shifted, &tokens, 5);
    group.shift(shifted, 4..36).unwrap();
    let other = group.new_seq().unwrap();
    append_ragged(group.as_mut(), other, &tokens[..8], 5);
    cluster.machines[0].kill();
    let error = one_token(group.as_mut(), shifted).unwrap_err();
    assert!(matches!(error, Error::Lost(_)), "{error}");
    let mut cpu = cpu_with(&g.model(), 1, size);
    let seq = cpu.new_seq().unwrap();
    append_ragged(&mut cpu, seq, &tokens[..8], 5);
    let expected = append_ragged(&mut cpu, seq, &tokens[8..12], 2);
    let got = append_ragged(group.as_mut(), other, &tokens[8..12], 2);
    assert!(bits(&got) == bits(&expected));
    assert_eq!(group.truncate(shifted, 0).unwrap(), 0);
    one_token(group.as_mut(), shifted).unwrap();
}
