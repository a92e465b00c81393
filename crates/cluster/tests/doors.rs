//! Nodes and coordinators that talk over TCP on loopback: texts are those of one machine, and
//! strangers get nowhere.

mod stories;

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    ops::{ControlFlow, Range},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use atta_cluster::{
    HashedModel, Links, PartLinks, RemotePlan, RemoteRing, RemoteRingOptions, RingLinks, StageNode,
    control::{Control, FixedControl, MAX_MESSAGE, Switchboard},
    core::{Event, Timing},
    key::ClusterKey,
    lane::tcp::{Doors, DoorsOptions, Security},
    node::{NodeOptions, NodeService, NodeTiming},
    part::{FileRange, PartWish},
    wire::{
        Dtype, Frame, FrameKind, Header, Limits,
        message::{Digest, LaneName, NodeAddress, PartRequest, RingSecret},
    },
};
use atta_engine::Engine;
use atta_kernels::Kernels;
use atta_store::{Budget, ModelFiles};
use rustls::{ClientConnection, StreamOwned};
use stories::{
    PATIENCE, directory, engine, models, n_layers, name, path, pool, session, text, together,
    wait_for,
};

/// A second, for what must not take long.
const SOON: Duration = Duration::from_secs(1);

fn key(i: u8) -> ClusterKey {
    ClusterKey::from_bytes([i; 32])
}

fn tls(node: &str) -> Security {
    Security::Tls(Arc::new(key(1).identity(node).unwrap()))
}

fn doors(security: Security) -> Arc<Doors> {
    let options = DoorsOptions {
        address: "127.0.0.1:0".parse().unwrap(),
        security,
        is_allowed: Arc::new(|_| true),
    };
    Arc::new(Doors::open(options).unwrap())
}

/// Machines of stages, by their places, and their layers.
type On = (usize, Range<usize>);

/// A machine of a ring.
struct Machine {
    address: NodeAddress,
    service: Option<NodeService>,
    doors: Option<Arc<Doors>>,
    control: FixedControl,
}

impl Machine {
    /// A node that knows these peers.
    fn start(node: &str, security: Security, peers: Vec<SocketAddr>) -> Self {
        let doors = doors(security);
        let address = doors.address();
        let options = NodeOptions {
            name: name(node),
            addresses: vec![address],
            kernels: Kernels::detect(),
            pool: pool(),
            budget: Budget::limited(1 << 30),
            models: models(directory(), doors.clone()),
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

    /// Ends it as a process that is killed: its connections end, and its port is closed.
    fn kill(&mut self) {
        self.control.close();
        drop(self.service.take());
        drop(self.doors.take());
    }
}

/// Machines with stages, and what a coordinator needs to use them.
struct Cluster {
    machines: Vec<Machine>,
    control: Arc<FixedControl>,
    doors: Arc<Doors>,
    lane: LaneName,
}

impl Cluster {
    fn new(n: usize, security: fn(&str) -> Security) -> Self {
        let mut machines: Vec<Machine> = Vec::new();
        for i in 1..=n {
            let node = format!("pi{i}");
            let peers = machines.iter().map(|m| m.address.address).collect();
            machines.push(Machine::start(&node, security(&node), peers));
        }
        let doors = doors(security("lap"));
        let first = vec![machines[0].address.address];
        let control = FixedControl::open(doors.clone(), name("lap"), None, first).unwrap();
        Self {
            machines,
            control: Arc::new(control),
            doors,
            lane: LaneName::Tcp,
        }
    }

    /// Its rows go over another lane.
    fn over(self, lane: LaneName) -> Self {
        Self { lane, ..self }
    }

    fn engine(&self, n_local: usize, stages: &[On]) -> Engine {
        let stages = stages.iter().map(|(i, layers)| StageNode {
            node: self.machines[*i].address.clone(),
            layers: layers.clone(),
        });
        let files = ModelFiles::open(&path()).unwrap();
        engine(Some(RemoteRing::new(RemoteRingOptions {
            control: self.control.clone(),
            links: self.doors.clone(),
            lane: self.lane,
            name: name("lap"),
            plan: RemotePlan {
                n_local,
                stages: stages.collect(),
            },
            model: HashedModel::of("stories.gguf", &files).unwrap(),
            sources: Vec::new(),
            kernels: Kernels::detect(),
            pool: pool(),
            timing: Timing::default(),
            deadline: PATIENCE,
            on_stage: Arc::new(|_, _| {}),
        })))
    }
}

#[test]
fn texts_over_the_network_are_those_of_one_machine() {
    let here = engine(None);
    let expected: Vec<String> = (0..4).map(|i| text(&here, i)).collect();
    let n = here.spec().layers.len();
    let ways: [(fn(&str) -> Security, LaneName); 3] = [
        (tls, LaneName::Tcp),
        (|_: &str| Security::Plain, LaneName::Tcp),
        (tls, LaneName::Udp),
    ];
    for (security, lane) in ways {
        let cluster = Cluster::new(3, security).over(lane);
        let members = cluster.control.members().unwrap();
        assert_eq!(members, ["pi1", "pi2", "pi3"].map(name));
        let cuts: [(usize, Vec<On>); 3] = [
            (0, vec![(0, 0..n)]),
            (1, vec![(1, 1..2), (0, 2..n)]),
            (0, vec![(2, 0..1), (0, 1..3), (1, 3..n)]),
        ];
        for (n_local, stages) in cuts {
            let ring = cluster.engine(n_local, &stages);
            // Rings one after another on the same machines.
            for (i, expected) in expected.iter().enumerate().take(2) {
                assert_eq!(&text(&ring, i), expected, "{stages:?}");
            }
            assert_eq!(together(&ring), expected, "{stages:?}");
        }
        for machine in &cluster.machines {
            let held = || machine.service.as_ref().unwrap().card().held;
            wait_for("stages are released", || held().is_none());
        }
    }
}

#[test]
fn a_machine_that_ends_is_an_error_and_no_hang() {
    let n = n_layers();
    for lane in [LaneName::Tcp, LaneName::Udp] {
        let mut cluster = Cluster::new(2, tls).over(lane);
        let ring = cluster.engine(0, &[(0, 0..1), (1, 1..n)]);
        let mut open = ring.session(&session()).unwrap();
        let prompt = ring.prompt_ids(b"Once upon a time");
        open.generate(&prompt, &stories::options(0))
            .unwrap()
            .run(|_| ControlFlow::Continue(()))
            .unwrap();
        cluster.machines[1].kill();
        let start = Instant::now();
        let more = open.generate(&prompt, &stories::options(0));
        let error = match more {
            Ok(more) => more.run(|_| ControlFlow::Continue(())).unwrap_err(),
            Err(error) => error,
        };
        assert!(error.to_string().contains("pi2"), "{error}");
        assert!(start.elapsed() < PATIENCE / 2);
    }
}

/// A way for datagrams that loses every `n`th one in each direction.
fn lossy_wire(target: SocketAddr, n: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let front = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = front.local_addr().unwrap();
    let n_lost = Arc::<AtomicUsize>::default();
    let carried = Arc::<AtomicUsize>::default();
    let is_lost = {
        let n_lost = n_lost.clone();
        move || {
            let is_lost = carried.fetch_add(1, Ordering::AcqRel) % n == n - 1;
            n_lost.fetch_add(usize::from(is_lost), Ordering::AcqRel);
            is_lost
        }
    };
    thread::spawn(move || {
        let mut backs: HashMap<SocketAddr, UdpSocket> = HashMap::new();
        let mut bytes = vec![0; 1 << 16];
        while let Ok((n, from)) = front.recv_from(&mut bytes) {
            let back = backs.entry(from).or_insert_with(|| {
                let back = UdpSocket::bind("127.0.0.1:0").unwrap();
                let (there, here) = (back.try_clone().unwrap(), front.try_clone().unwrap());
                let is_lost = is_lost.clone();
                thread::spawn(move || {
                    let mut bytes = vec![0; 1 << 16];
                    while let Ok((n, _)) = there.recv_from(&mut bytes) {
                        if !is_lost() {
                            let _ = here.send_to(&bytes[..n], from);
                        }
                    }
                });
                back
            });
            if !is_lost() {
                let _ = back.send_to(&bytes[..n], target);
            }
        }
    });
    (address, n_lost)
}

#[test]
fn datagrams_that_are_lost_change_no_letter() {
    let n = n_layers();
    let expected = text(&engine(None), 2);
    let mut cluster = Cluster::new(2, tls).over(LaneName::Udp);
    let (address, n_lost) = lossy_wire(cluster.machines[1].address.address, 10);
    cluster.machines[1].address.address = address;
    let ring = cluster.engine(0, &[(0, 0..1), (1, 1..n)]);
    assert_eq!(text(&ring, 2), expected);
    assert!(n_lost.load(Ordering::Acquire) > 4);
}

#[test]
fn strangers_send_no_frames_over_udp() {
    let n = n_layers();
    let expected = text(&engine(None), 1);
    let cluster = Cluster::new(1, tls).over(LaneName::Udp);
    let ring = cluster.engine(0, &[(0, 0..n)]);
    let held = ring.session(&session()).unwrap();
    let node = cluster.machines[0].address.clone();
    let card = cluster.machines[0].service.as_ref().unwrap().card();
    let stranger = Security::Tls(Arc::new(key(2).identity("lap").unwrap()));
    for security in [stranger, tls("mallory")] {
        let doors = doors(security);
        let limits = Limits {
            ring: card.held.as_ref().unwrap().ring,
            n_stages: 1,
            n_batch: 64,
            n_seqs: 1,
            n_ctx: 128,
            d_row: 64,
            dtype: Dtype::F32,
        };
        let links = RingLinks {
            limits,
            timing: Timing::default(),
            lane: LaneName::Udp,
            secret: RingSecret([9; 32]),
            stages: vec![node.clone()],
        };
        let mut lane = doors.open_ring(links).unwrap();
        lane.fence(1, 7);
        let heard = lane.recv(Some(lane.now() + SOON));
        assert!(!matches!(heard, Some(Event::Fenced { .. })), "{heard:?}");
    }
    // Bytes that are no datagrams of the protocol.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for n in [1, 20, 1200] {
        socket.send_to(&vec![0xff; n], node.address).unwrap();
    }
    drop(held);
    assert_eq!(text(&ring, 1), expected);
}

#[test]
fn rows_over_udp_want_certificates() {
    let doors = doors(Security::Plain);
    let cluster = Cluster::new(1, tls);
    let links = RingLinks {
        limits: Limits {
            ring: 1,
            n_stages: 1,
            n_batch: 64,
            n_seqs: 1,
            n_ctx: 128,
            d_row: 64,
            dtype: Dtype::F32,
        },
        timing: Timing::default(),
        lane: LaneName::Udp,
        secret: RingSecret([9; 32]),
        stages: vec![cluster.machines[0].address.clone()],
    };
    let error = doors.open_ring(links).err().unwrap();
    assert!(error.to_string().contains("certificates"), "{error}");
}

/// A way to a machine that can be cut.
struct Wire {
    address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
    n_opened: Arc<AtomicUsize>,
}

impl Wire {
    fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let wire = Self {
            address: listener.local_addr().unwrap(),
            open: Arc::default(),
            n_opened: Arc::default(),
        };
        let (open, n_opened) = (wire.open.clone(), wire.n_opened.clone());
        thread::spawn(move || {
            for here in listener.incoming().flatten() {
                let Ok(there) = TcpStream::connect(target) else {
                    continue;
                };
                n_opened.fetch_add(1, Ordering::AcqRel);
                for (from, to) in [(&here, &there), (&there, &here)] {
                    let mut from = from.try_clone().unwrap();
                    let mut to = to.try_clone().unwrap();
                    open.lock().unwrap().push(from.try_clone().unwrap());
                    thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        wire
    }

    fn cut(&self) {
        for socket in self.open.lock().unwrap().drain(..) {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

#[test]
fn connections_that_are_cut_in_the_middle_of_a_text_change_no_letter() {
    let n = n_layers();
    let expected = text(&engine(None), 2);
    let mut cluster = Cluster::new(2, tls);
    // Rows and acknowledgements to the second machine go by a way that breaks.
    let wire = Wire::to(cluster.machines[1].address.address);
    cluster.machines[1].address.address = wire.address;
    let ring = cluster.engine(0, &[(0, 0..1), (1, 1..n)]);
    let mut open = ring.session(&session()).unwrap();
    let prompt = ring.prompt_ids(b"Once upon a time");
    let mut written = String::new();
    let mut n_tokens = 0;
    let generation = open.generate(&prompt, &stories::options(2)).unwrap();
    generation
        .run(|event| {
            if let atta_engine::Event::Text(piece) = event {
                written.push_str(&piece);
            }
            n_tokens += 1;
            if n_tokens % 6 == 0 {
                wire.cut();
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(written, expected);
    assert!(wire.n_opened.load(Ordering::Acquire) > 4);
}

#[test]
fn questions_have_answers_and_strangers_have_none() {
    let asked = doors(tls("pi1"));
    asked
        .answer(Box::new(|question: &[u8]| {
            question.iter().rev().copied().collect()
        }))
        .unwrap();
    assert!(asked.answer(Box::new(<[u8]>::to_vec)).is_err());
    let gone = asked.address();
    let lap = doors(tls("lap"));
    let ask = |from: &Doors, node: Option<&str>, question: &[u8]| {
        let node = node.map(name);
        from.ask(gone, node.as_ref(), question, SOON)
    };
    for node in [Some("pi1"), None, Some("pi1")] {
        assert_eq!(ask(&lap, node, b"abc").unwrap(), b"cba");
    }
    let long = vec![7; MAX_MESSAGE];
    assert_eq!(ask(&lap, None, &long).unwrap(), long);
    assert!(ask(&lap, Some("pi2"), b"abc").is_err(), "another node");
    let stranger = Security::Tls(Arc::new(key(2).identity("lap").unwrap()));
    assert!(ask(&doors(stranger), None, b"abc").is_err(), "another key");
    assert!(ask(&doors(Security::Plain), None, b"abc").is_err());
    // A node without the key gets no question either.
    let plain = doors(Security::Plain);
    plain.answer(Box::new(<[u8]>::to_vec)).unwrap();
    assert!(lap.ask(plain.address(), None, b"abc", SOON).is_err());
    // A port at which all is silent.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let start = Instant::now();
    let address = silent.local_addr().unwrap();
    assert!(lap.ask(address, None, b"abc", SOON / 4).is_err());
    assert!(start.elapsed() < SOON);
    // A connection that is kept for the next question ends with the node.
    drop(asked);
    assert!(lap.ask(gone, Some(&name("pi1")), b"abc", SOON).is_err());
}

/// A connection of a member to these doors, after its hello.
fn member(to: &Doors, hello: &[u8]) -> StreamOwned<ClientConnection, TcpStream> {
    let identity = key(1).identity("mallory").unwrap();
    let client = Arc::new(identity.client_config().unwrap());
    let name = identity.any_server_name().unwrap();
    let client = ClientConnection::new(client, name).unwrap();
    let socket = TcpStream::connect(to.address()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = StreamOwned::new(client, socket);
    stream.write_all(hello).unwrap();
    stream.flush().unwrap();
    stream
}

/// Whether the other side ends a connection after these bytes, and sends nothing.
fn is_ended_after(to: &Doors, bytes: &[&[u8]]) -> bool {
    let mut stream = member(to, bytes[0]);
    for bytes in &bytes[1..] {
        // It may have ended already.
        let _ = stream.write_all(bytes).and_then(|()| stream.flush());
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer.is_empty()
}

#[test]
fn bytes_of_other_protocols_and_lengths_that_lie_end_the_connection() {
    let n = n_layers();
    let cluster = Cluster::new(1, tls);
    let ring = cluster.engine(0, &[(0, 0..n)]);
    let _held = ring.session(&session()).unwrap();
    let at = cluster.machines[0].doors.as_deref().unwrap();
    let start = Instant::now();
    assert!(is_ended_after(at, &[b"GET / HTTP/1.1\r\n\r\n"]));
    assert!(is_ended_after(at, &[b"ATQ1", &[0xff; 4]]), "4 GiB");
    assert!(is_ended_after(at, &[b"ATP1", &[0xff; 4]]));
    assert!(is_ended_after(at, &[b"ATP1", &[2, 0, 0, 0], b"{}"]));
    // A member that knows no secret of a ring.
    let mut hello = b"ATL1".to_vec();
    hello.resize(49, 0);
    assert!(is_ended_after(at, &[&hello]));
    assert!(start.elapsed() < SOON, "without waiting for anything");
    // Without TLS, and without a certificate's worth of bytes.
    let mut plain = TcpStream::connect(at.address()).unwrap();
    plain.write_all(&hello).unwrap();
    assert!(plain.read(&mut [0; 64]).map_or(0, |n| n) < 64);
}

#[test]
fn slow_connections_do_not_keep_others_out_for_long() {
    let asked = doors(tls("pi1"));
    asked.answer(Box::new(<[u8]>::to_vec)).unwrap();
    let mut slow: Vec<TcpStream> = (0..20)
        .map(|_| TcpStream::connect(asked.address()).unwrap())
        .collect();
    // A handshake of a kilobyte, a byte at a time.
    let writing = thread::spawn(move || {
        for _ in 0..40 {
            for socket in &mut slow {
                // It may have been ended.
                let _ = socket.write_all(&[22]);
            }
            thread::sleep(SOON / 5);
        }
    });
    let lap = doors(tls("lap"));
    wait_for("a place is free again", || {
        lap.ask(asked.address(), None, b"abc", SOON).is_ok()
    });
    assert!(!writing.is_finished(), "they are still there");
}

#[test]
fn parts_come_until_their_end_and_at_most_four_at_once() {
    let source = doors(tls("pi1"));
    let n_open = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (open, top) = (n_open.clone(), most.clone());
    source
        .serve(Box::new(move |request, send| {
            top.fetch_max(open.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
            let PartWish::Ranges(ranges) = &request.wish else {
                open.fetch_sub(1, Ordering::AcqRel);
                return Err(io::Error::other("no beginning"));
            };
            for range in ranges {
                let header = Header {
                    stage: 1,
                    ..Header::new(FrameKind::Part)
                };
                let mut frame = Frame::bare(header);
                frame.piece = Some(atta_cluster::wire::Piece {
                    id: range.file.into(),
                    offset: range.start,
                    len: (range.end - range.start) as u32,
                    seq: 0,
                    first: 0,
                    n: 0,
                });
                frame.data = vec![range.file as u8; (range.end - range.start) as usize];
                send(frame)?;
            }
            thread::sleep(SOON / 5);
            open.fetch_sub(1, Ordering::AcqRel);
            Ok(())
        }))
        .unwrap();
    let from = NodeAddress {
        name: name("pi1"),
        address: source.address(),
    };
    let lap = doors(tls("lap"));
    let range = |file| FileRange {
        file,
        start: 10,
        end: 60_000,
    };
    let request = |wish| PartRequest {
        model: Digest([1; 32]),
        wish,
    };
    let many = request(PartWish::Ranges((0..40).map(range).collect()));
    let pull = |request: &PartRequest| {
        let mut n = 0;
        let pulled = lap.pull(&from, request, &mut |frame| {
            assert_eq!(frame.data.len(), 59_990);
            n += 1;
            ControlFlow::Continue(())
        });
        pulled.map(|()| n)
    };
    assert_eq!(pull(&many).unwrap(), 40);
    assert!(pull(&request(PartWish::Beginning)).is_err(), "no end came");
    let came = thread::scope(|scope| {
        let pulls: Vec<_> = (0..10)
            .map(|_| scope.spawn(|| pull(&many).is_ok()))
            .collect();
        let came = pulls
            .into_iter()
            .filter(|_| true)
            .map(|p| p.join().unwrap());
        came.filter(|came| *came).count()
    });
    assert!((1..=10).contains(&came));
    assert!(most.load(Ordering::Acquire) <= 4);
}
