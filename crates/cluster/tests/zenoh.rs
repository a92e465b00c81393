//! The contract of `Control`, by Zenoh on loopback: what the ring relies on when the version of
//! Zenoh changes.

use std::{
    net::SocketAddr,
    sync::mpsc,
    time::{Duration, Instant},
};

use atta_cluster::{
    control::{Change, Control, ControlError, Network, NodeName, ZenohControl},
    key::ClusterKey,
};

const PATIENCE: Duration = Duration::from_secs(10);

/// A node of the cluster with this key.
fn network(key: u8, name: &str, peers: &[SocketAddr]) -> Network {
    let key = ClusterKey::from_bytes([key; 32]);
    Network {
        identity: key.identity(name).unwrap(),
        listen: vec![SocketAddr::from(([127, 0, 0, 1], free_port()))],
        peers: peers.to_vec(),
        discovers: false,
        lease: Duration::from_secs(1),
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_there() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn names(control: &ZenohControl) -> Vec<String> {
    let members = control.members().unwrap();
    members.iter().map(ToString::to_string).collect()
}

#[test]
fn nodes_find_ask_and_miss_each_other() {
    let first = network(1, "first", &[]);
    let second = network(1, "second", &first.listen);
    let [a, b] = [&first, &second].map(|network| ZenohControl::open(network).unwrap());
    let (changes, seen) = mpsc::channel();
    a.watch(Box::new(move |change| changes.send(change).unwrap()))
        .unwrap();
    a.answer(Box::new(|q| [b"first: ", q].concat())).unwrap();
    a.announce().unwrap();
    b.announce().unwrap();
    wait_for("both are members", || names(&b) == ["first", "second"]);
    wait_for("of both views", || names(&a) == ["first", "second"]);

    let to = NodeName::new("first").unwrap();
    assert_eq!(b.ask(&to, b"how?", PATIENCE).unwrap(), b"first: how?");
    let long = vec![7; 60_000];
    assert_eq!(b.ask(&to, &long, PATIENCE).unwrap().len(), 60_007);
    let too_long = b.ask(&to, &vec![7; 70_000], PATIENCE);
    assert!(matches!(too_long, Err(ControlError::TooLong { n: 70_000 })));

    let start = Instant::now();
    let nobody = NodeName::new("third").unwrap();
    let silence = b.ask(&nobody, b"?", Duration::from_millis(300));
    assert!(
        matches!(silence, Err(ControlError::Silent { .. })),
        "{silence:?}"
    );
    assert!(start.elapsed() < Duration::from_secs(2));

    b.close();
    wait_for("the other has left", || names(&a) == ["first"]);
    let changes: Vec<_> = seen.try_iter().collect();
    let other = NodeName::new("second").unwrap();
    assert!(
        changes.contains(&Change::Joined(other.clone())),
        "{changes:?}"
    );
    assert!(changes.contains(&Change::Left(other)), "{changes:?}");
    a.close();
}

#[test]
fn a_name_is_given_once() {
    let first = network(1, "pi", &[]);
    let a = ZenohControl::open(&first).unwrap();
    a.announce().unwrap();
    let b = ZenohControl::open(&network(1, "pi", &first.listen)).unwrap();
    wait_for("the second sees the first", || names(&b) == ["pi"]);
    assert!(matches!(b.announce(), Err(ControlError::Taken(_))));
}

#[test]
fn a_stranger_is_not_let_in() {
    let first = network(2, "first", &[]);
    let a = ZenohControl::open(&first).unwrap();
    a.answer(Box::new(<[u8]>::to_vec)).unwrap();
    a.announce().unwrap();
    let stranger = ZenohControl::open(&network(3, "other", &first.listen)).unwrap();
    stranger.announce().unwrap();
    let to = NodeName::new("first").unwrap();
    let answer = stranger.ask(&to, b"?", Duration::from_secs(2));
    assert!(
        matches!(answer, Err(ControlError::Silent { .. })),
        "{answer:?}"
    );
    assert_eq!(names(&a), ["first"]);
    assert_eq!(names(&stranger), ["other"]);
}

#[test]
fn names_are_those_of_nodes() {
    for name in ["a", "pi1", "old-pc-2"] {
        assert_eq!(NodeName::new(name).unwrap().as_str(), name);
    }
    for name in ["", "-a", "Pi", "a/b", "a*", "pi 1"] {
        assert!(NodeName::new(name).is_err(), "{name}");
    }
}
