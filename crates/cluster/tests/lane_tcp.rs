//! Frames over TCP and TLS on loopback: whole and in order, or an end.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{Arc, mpsc},
    time::Duration,
};

use atta_cluster::{
    key::ClusterKey,
    lane::tcp::{Acceptor, FrameSender, FrameSink, Hello, LaneSecret, Listener, SendError},
    wire::{Dtype, Frame, FrameKind, Header, Limits, Run},
};
use rustls::{ClientConfig, ClientConnection, ServerConfig, StreamOwned, pki_types::ServerName};

const PATIENCE: Duration = Duration::from_secs(10);
const HELLO: Hello = Hello {
    ring: 7,
    from: 1,
    to: 2,
    secret: LaneSecret([9; 32]),
};
const LIMITS: Limits = Limits {
    ring: 7,
    n_stages: 3,
    n_batch: 4096,
    n_seqs: 4,
    n_ctx: 8192,
    d_row: 64,
    dtype: Dtype::F32,
};

#[derive(Debug)]
enum Came {
    Frame(Box<Frame>),
    End(io::Error),
}

struct Sink(mpsc::Sender<Came>);

impl FrameSink for Sink {
    fn limits(&self) -> Limits {
        LIMITS
    }

    fn frame(&mut self, frame: Frame) -> bool {
        self.0.send(Came::Frame(Box::new(frame))).is_ok()
    }

    fn ended(&mut self, why: io::Error) {
        // A test that has ended does not listen any more.
        let _ = self.0.send(Came::End(why));
    }
}

/// Both ends' configurations, of one cluster, and the name of the end that listens.
fn configs(key: u8) -> (Arc<ClientConfig>, ServerConfig, ServerName<'static>) {
    let key = ClusterKey::from_bytes([key; 32]);
    let sender = key.identity("sender").unwrap();
    let receiver = key.identity("receiver").unwrap();
    let name = sender.server_name("receiver").unwrap();
    let client = Arc::new(sender.client_config().unwrap());
    (client, receiver.server_config().unwrap(), name)
}

fn listener(tls: ServerConfig) -> (Listener, mpsc::Receiver<Came>) {
    let (sender, came) = mpsc::channel();
    let acceptor: Acceptor = Arc::new(move |hello: Hello| {
        let sink: Box<dyn FrameSink> = Box::new(Sink(sender.clone()));
        hello.fits(&HELLO).then_some(sink)
    });
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    (Listener::bind(address, tls, acceptor).unwrap(), came)
}

fn work(batch: u32, n: u16) -> Frame {
    let header = Header {
        ring: 7,
        epoch: 1,
        batch,
        stage: 2,
        until: 3,
        d_row: 64,
        ..Header::new(FrameKind::Work)
    };
    let run = Run {
        seq: 0,
        branch: 0,
        n,
        pos: 0,
        is_wanted: true,
        is_checkpoint: false,
    };
    Frame {
        runs: vec![run],
        data: vec![batch as u8; usize::from(n) * 256],
        times: vec![Default::default()],
        ..Frame::bare(header)
    }
}

fn next(came: &mpsc::Receiver<Came>) -> Came {
    came.recv_timeout(PATIENCE).expect("something comes")
}

#[test]
fn frames_come_whole_and_in_order_and_then_the_end() {
    let (client, server, name) = configs(1);
    let (listener, came) = listener(server);
    let ended = Box::new(|error| panic!("{error}"));
    let sender = FrameSender::dial(listener.address(), client, name, HELLO, ended).unwrap();
    for batch in 2..40 {
        sender
            .send(&mut work(batch, 1 + 97 * (batch as u16 % 3)))
            .unwrap();
    }
    drop(sender);
    for batch in 2..40 {
        match next(&came) {
            Came::Frame(frame) => {
                let mut expected = work(batch, 1 + 97 * (batch as u16 % 3));
                expected.write(&mut Vec::new());
                assert_eq!(*frame, expected);
            }
            Came::End(error) => panic!("{batch}: {error}"),
        }
    }
    assert!(matches!(next(&came), Came::End(_)));
}

#[test]
fn a_connection_that_is_cut_is_noticed_on_both_sides() {
    let (client, server, name) = configs(1);
    let (listener, came) = listener(server);
    let sender =
        FrameSender::dial(listener.address(), client, name, HELLO, Box::new(|_| {})).unwrap();
    sender.send(&mut work(2, 1)).unwrap();
    assert!(matches!(next(&came), Came::Frame(_)));
    sender.cut();
    assert!(matches!(next(&came), Came::End(_)));
    assert_eq!(sender.send(&mut work(3, 1)), Err(SendError::Ended));
}

#[test]
fn a_wrong_secret_and_a_stranger_end_without_a_frame() {
    let (client, server, name) = configs(1);
    let (stranger, _, other) = configs(2);
    let (listener, came) = listener(server);
    let wrong = Hello {
        secret: LaneSecret([8; 32]),
        ..HELLO
    };
    for (tls, name, hello) in [
        (client.clone(), name.clone(), wrong),
        (stranger, name, HELLO),
        (client, other, HELLO),
    ] {
        let (reason, ended) = mpsc::channel();
        let tell = Box::new(move |error| reason.send(error).unwrap());
        let Ok(sender) = FrameSender::dial(listener.address(), tls, name, hello, tell) else {
            continue;
        };
        let start = std::time::Instant::now();
        while ended.try_recv().is_err() {
            assert!(start.elapsed() < PATIENCE);
            // Full or ended: either way nothing came through.
            let _ = sender.send(&mut work(2, 64));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert!(came.try_recv().is_err());
}

#[test]
fn bytes_that_are_no_frame_end_the_connection_before_anything_is_allocated() {
    let (client, server, name) = configs(1);
    let (listener, came) = listener(server);
    let huge = {
        let mut bytes = Vec::new();
        work(2, 4000).write(&mut bytes);
        let header = Header {
            data_bytes: 0xffff_ff00,
            n_rows: 0xffff_ffff,
            ..Header::parse(bytes.first_chunk().unwrap()).unwrap()
        };
        let mut bytes = Vec::new();
        header.write(&mut bytes);
        bytes
    };
    for bytes in [vec![0xa5; 64], huge] {
        let conn = ClientConnection::new(Arc::clone(&client), name.clone()).unwrap();
        let socket = TcpStream::connect(listener.address()).unwrap();
        let mut stream = StreamOwned::new(conn, socket);
        stream.write_all(&HELLO.to_bytes()).unwrap();
        stream.write_all(&bytes).unwrap();
        match next(&came) {
            Came::End(error) => assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}"),
            Came::Frame(frame) => panic!("{frame:?}"),
        }
        let mut rest = Vec::new();
        assert!(stream.read_to_end(&mut rest).is_err() || rest.is_empty());
    }
}

#[test]
fn silent_connections_do_not_keep_others_out_for_long() {
    let (client, server, name) = configs(1);
    let (listener, came) = listener(server);
    let silent: Vec<_> = (0..8)
        .map(|_| TcpStream::connect(listener.address()).unwrap())
        .collect();
    let start = std::time::Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE, "nothing gets in");
        let ended = Box::new(|_| {});
        let tls = Arc::clone(&client);
        if let Ok(sender) = FrameSender::dial(listener.address(), tls, name.clone(), HELLO, ended) {
            let _ = sender.send(&mut work(2, 1));
            if let Ok(Came::Frame(_)) = came.recv_timeout(Duration::from_millis(200)) {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(silent);
}
