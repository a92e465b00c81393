//! Nodes and coordinators that talk over TCP on loopback: texts are those of one machine, and
//! strangers get nowhere.

#[allow(dead_code, reason = "shared with other tests")]
mod machines;
#[allow(dead_code, reason = "shared with other tests")]
mod stories;

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use atta_cluster::{
    Links, PartLinks, RemoteRing, RemoteRingOptions,
    control::{Control, MAX_MESSAGE, Switchboard},
    lane::tcp::{Doors, Security},
    part::{FileRange, PartWish},
    wire::{
        Dtype, Frame, FrameKind, Header,
        message::{Digest, NodeAddress, PartRequest},
    },
};
use atta_engine::Engine;
use machines::{Cluster, doors, key, tls, wire::Wire};
use rustls::{ClientConnection, StreamOwned};
use stories::{PATIENCE, engine, n_layers, name, session, text, wait_for};

/// A second, for what must not take long.
const SOON: Duration = Duration::from_secs(1);

#[test]
fn texts_over_the_network_are_those_of_one_machine() {
    for security in [tls, |_: &str| Security::Plain] {
        let cluster = Cluster::new(3, security);
        let members = cluster.control.members().unwrap();
        assert_eq!(members, ["pi1", "pi2", "pi3"].map(name));
        cluster.writes_the_texts_of_one_machine();
    }
}

/// Logits behind a prompt, which comes in pieces of these sizes.
fn logits(engine: &Engine, pieces: &[usize]) -> Vec<f32> {
    let mut session = engine.session(&session()).unwrap();
    let prompt =
        engine.prompt_ids(b"Once upon a time there was a little boat that lived by the sea.");
    let mut rest = prompt.as_slice();
    for n in pieces {
        let (piece, behind) = rest.split_at(*n.min(&rest.len()));
        session.append(piece).unwrap();
        rest = behind;
    }
    session.append(rest).unwrap();
    session.logits().unwrap().to_vec()
}

/// The difference relative to the size of the logits: root of the mean squares.
fn relative_error(logits: &[f32], expected: &[f32]) -> f32 {
    let square = |x: f32| x * x;
    let error: f32 = logits
        .iter()
        .zip(expected)
        .map(|(a, b)| square(a - b))
        .sum();
    let all: f32 = expected.iter().copied().map(square).sum();
    (error / all).sqrt()
}

#[test]
fn rows_of_fewer_bits_are_near_and_the_same_in_any_pieces() {
    let expected = logits(&engine(None), &[]);
    let n = n_layers();
    let cluster = Cluster::new(2, tls);
    let stages = [(0, 1..2), (1, 2..n)];
    for (wire, smallest, largest) in [
        (Dtype::F32, 0.0, 0.0),
        (Dtype::F16, 1e-6, 1e-2),
        (Dtype::Int8, 1e-5, 5e-2),
    ] {
        let options = RemoteRingOptions {
            wire,
            ..cluster.options(1, &stages)
        };
        let ring = engine(Some(RemoteRing::new(options)));
        let whole = logits(&ring, &[]);
        assert_eq!(logits(&ring, &[3, 1, 5]), whole, "{wire:?}");
        let error = relative_error(&whole, &expected);
        assert!((smallest..=largest).contains(&error), "{wire:?}: {error}");
    }
}

#[test]
fn a_machine_that_ends_is_an_error_and_no_hang() {
    Cluster::new(2, tls).ends_with_a_machine();
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
