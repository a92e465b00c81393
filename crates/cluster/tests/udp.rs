//! Rings whose rows travel by QUIC over UDP: the same texts as on one machine, also where datagrams
//! are lost or overtake each other, and nothing for strangers.

#[allow(dead_code, reason = "shared with other tests")]
mod changing;
#[allow(dead_code, reason = "shared with other tests")]
mod machines;
#[allow(dead_code, reason = "shared with other tests")]
mod stories;

use std::{
    collections::HashMap,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use atta_cluster::{
    Links, RingChange, RingLinks,
    core::{Event, Timing},
    lane::tcp::Security,
    wire::{
        Dtype, Limits,
        message::{LaneName, NodeAddress, RingSecret},
    },
};
use changing::{Changing, even};
use machines::{Cluster, doors, key, tls, wire::Wire};
use stories::{engine, n_layers, session, text};

fn cluster(n: usize) -> Cluster {
    Cluster::new(n, tls).over(LaneName::Udp)
}

#[test]
fn texts_over_udp_are_those_of_one_machine() {
    let cluster = cluster(3);
    cluster.writes_the_texts_of_one_machine();
    assert_eq!(cluster.notes(), [""; 0], "nothing went by tcp");
}

#[test]
fn a_machine_that_ends_is_an_error_and_no_hang() {
    cluster(2).ends_with_a_machine();
}

#[test]
fn machines_that_udp_does_not_reach_are_met_by_tcp() {
    let n = n_layers();
    let mut cluster = cluster(3);
    // TCP passes by this way, and UDP finds nothing.
    let wire = Wire::to(cluster.machines[1].address.address);
    cluster.machines[1].address.address = wire.address;
    // A machine whose UDP port another program has.
    let _taken = UdpSocket::bind(cluster.machines[2].address.address).unwrap();
    let ring = cluster.engine(0, &[(0, 0..1), (1, 1..2), (2, 2..n)]);
    assert_eq!(text(&ring, 2), stories::text(&engine(None), 2));
    let notes = cluster.notes();
    let count = |line: &str| notes.iter().filter(|note| note.contains(line)).count();
    // The coordinator and the machine before dial each of the two.
    for name in ["pi2", "pi3"] {
        let line = format!("lane udp: {name} does not answer by UDP; going by tcp");
        assert_eq!(count(&line), 2, "{notes:?}");
    }
    assert_eq!(count("lane udp: UDP port"), 1, "{notes:?}");
}

/// What a relay does to the datagrams of both directions together.
#[derive(Clone, Copy)]
enum Fault {
    /// Loses each `n`th one.
    Lose(usize),
    /// Lets each `n`th one be overtaken by the next one of its direction.
    Swap(usize),
    /// Loses those that come in the first part of each tenth of a second.
    Outage(Duration),
    /// Loses all behind the first `n`.
    Cut(usize),
}

/// A way for datagrams with a fault.
struct Relay {
    front: SocketAddr,
    n_harmed: Arc<AtomicUsize>,
}

/// One direction of a relay.
struct Direction {
    fault: Fault,
    start: Instant,
    n_carried: Arc<AtomicUsize>,
    n_harmed: Arc<AtomicUsize>,
    held: Mutex<Option<Vec<u8>>>,
}

impl Direction {
    fn carry(&self, datagram: &[u8], send: impl Fn(&[u8])) {
        let i = self.n_carried.fetch_add(1, Ordering::AcqRel) + 1;
        let is_out = |part: Duration| self.start.elapsed().as_millis() % 100 < part.as_millis();
        let is_harmed = match self.fault {
            Fault::Lose(n) | Fault::Swap(n) => i.is_multiple_of(n),
            Fault::Outage(part) => is_out(part),
            Fault::Cut(n) => i > n,
        };
        let mut held = self.held.lock().unwrap();
        let before = held.take();
        match (is_harmed, self.fault) {
            (true, Fault::Swap(_)) => *held = Some(datagram.to_vec()),
            (true, _) => {}
            (false, _) => send(datagram),
        }
        self.n_harmed
            .fetch_add(usize::from(is_harmed), Ordering::AcqRel);
        if let Some(before) = before {
            send(&before);
        }
    }
}

impl Relay {
    fn to(target: SocketAddr, fault: Fault) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), target, fault)
    }

    fn at(front: SocketAddr, target: SocketAddr, fault: Fault) -> Self {
        let front = UdpSocket::bind(front).unwrap();
        let relay = Self {
            front: front.local_addr().unwrap(),
            n_harmed: Arc::default(),
        };
        let n_carried = Arc::<AtomicUsize>::default();
        let n_harmed = relay.n_harmed.clone();
        let start = Instant::now();
        let direction = move || Direction {
            fault,
            start,
            n_carried: n_carried.clone(),
            n_harmed: n_harmed.clone(),
            held: Mutex::default(),
        };
        thread::spawn(move || carry_all(&front, target, &direction));
        relay
    }

    fn n_harmed(&self) -> usize {
        self.n_harmed.load(Ordering::Acquire)
    }
}

/// Carries datagrams of any number of senders to a target, and the answers back.
fn carry_all(front: &UdpSocket, target: SocketAddr, direction: &dyn Fn() -> Direction) {
    let mut backs: HashMap<SocketAddr, (UdpSocket, Direction)> = HashMap::new();
    let mut bytes = vec![0; 1 << 16];
    while let Ok((n, from)) = front.recv_from(&mut bytes) {
        let (back, there) = backs.entry(from).or_insert_with(|| {
            let back = UdpSocket::bind("127.0.0.1:0").unwrap();
            let answers = back.try_clone().unwrap();
            let front = front.try_clone().unwrap();
            let here = direction();
            thread::spawn(move || {
                let mut bytes = vec![0; 1 << 16];
                while let Ok((n, _)) = answers.recv_from(&mut bytes) {
                    here.carry(&bytes[..n], |bytes| {
                        let _ = front.send_to(bytes, from);
                    });
                }
            });
            (back, direction())
        });
        there.carry(&bytes[..n], |bytes| {
            let _ = back.send_to(bytes, target);
        });
    }
}

/// A text of two machines, the second one behind a relay, and how many datagrams were harmed.
fn harmed_text(fault: Fault) -> (String, usize) {
    let n = n_layers();
    let mut cluster = cluster(2);
    let relay = Relay::to(cluster.machines[1].address.address, fault);
    cluster.machines[1].address.address = relay.front;
    let ring = cluster.engine(0, &[(0, 0..1), (1, 1..n)]);
    (text(&ring, 2), relay.n_harmed())
}

#[test]
fn datagrams_that_are_lost_change_no_letter() {
    let (text, n_harmed) = harmed_text(Fault::Lose(10));
    assert_eq!(text, stories::text(&engine(None), 2));
    assert!(n_harmed > 4);
}

#[test]
fn datagrams_that_overtake_each_other_change_no_letter() {
    let (text, n_harmed) = harmed_text(Fault::Swap(3));
    assert_eq!(text, stories::text(&engine(None), 2));
    assert!(n_harmed > 4);
}

#[test]
fn a_way_that_is_cut_again_and_again_changes_no_letter() {
    let (text, n_harmed) = harmed_text(Fault::Outage(Duration::from_millis(30)));
    assert_eq!(text, stories::text(&engine(None), 2));
    assert!(n_harmed > 0);
}

#[test]
fn a_text_whose_way_is_closed_for_udp_goes_on_by_tcp() {
    let n = n_layers();
    let mut cluster = cluster(2);
    let target = cluster.machines[1].address.address;
    let wire = Wire::to(target);
    let relay = Relay::at(wire.address, target, Fault::Cut(30));
    cluster.machines[1].address.address = wire.address;
    let stages = [(0, 0..1), (1, 1..n)];
    let changing = Changing::new(&cluster, 0, &stages, even(&cluster, 0));
    assert_eq!(text(&changing.engine, 2), stories::text(&engine(None), 2));
    assert!(relay.n_harmed() > 0);
    // Connections that are opened anew go by TCP, or the whole ring is formed over it.
    let told = changing.told();
    let is_other_way = |change: &RingChange| change.left_lane == Some(LaneName::Udp);
    assert!(told.iter().all(is_other_way), "{told:?}");
    let notes = cluster.notes();
    let is_by_tcp = notes.iter().any(|note| note.contains("going by tcp"));
    assert!(is_by_tcp || !told.is_empty(), "{notes:?}");
    assert_eq!(text(&changing.engine, 3), stories::text(&engine(None), 3));
}

fn links(ring: u64, stage: NodeAddress) -> RingLinks {
    RingLinks {
        limits: Limits {
            ring,
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
        stages: vec![stage],
    }
}

#[test]
fn strangers_and_members_without_the_secret_reach_no_stage() {
    let n = n_layers();
    let expected = text(&engine(None), 1);
    let cluster = cluster(1);
    let ring = cluster.engine(0, &[(0, 0..n)]);
    let held = ring.session(&session()).unwrap();
    let node = cluster.machines[0].address.clone();
    let card = cluster.machines[0].service.as_ref().unwrap().card();
    let number = card.held.unwrap().ring;
    let stranger = Security::Tls(Arc::new(key(2).identity("lap").unwrap()));
    for security in [stranger, tls("mallory")] {
        let doors = doors(security);
        let mut lane = doors.open_ring(links(number, node.clone())).unwrap();
        lane.fence(1, 7);
        let heard = lane.recv(Some(lane.now() + Duration::from_secs(1)));
        assert!(!matches!(heard, Some(Event::Fenced { .. })), "{heard:?}");
    }
    // Bytes that are no datagrams of the protocol.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for n in [0, 1, 20, 1200] {
        socket.send_to(&vec![0xff; n], node.address).unwrap();
    }
    drop(held);
    assert_eq!(text(&ring, 1), expected);
}

#[test]
fn rows_over_udp_want_certificates() {
    let doors = doors(Security::Plain);
    let cluster = cluster(1);
    let links = links(1, cluster.machines[0].address.clone());
    let error = doors.open_ring(links).err().unwrap();
    assert!(error.to_string().contains("certificates"), "{error}");
}
