//! Links between machines over TCP, by TLS 1.3 with the certificates of the cluster.
//!
//! ```text
//! rows       sender ── Hello, frame, frame … ──▶ receiver          one connection per direction
//! columns    member ── Hello, message, message … ──▶ member        one connection per direction
//! questions  ── Hello ──▶   length, question ⇄ length, answer      several in turn
//! parts      ── Hello, length, request ──▶   ◀── frames, end
//! ```
//! Rows and columns may go over UDP instead, by QUIC (`lane::udp`): the same bytes in a stream.
//! They go by TCP all the same where UDP does not get through (`fallback`).
//! [`Doors`] is the one listener of a process. The first bytes of a connection say what it is for;
//! those for rows name the ring and the two stages, with the secret that the ring's plan brought to
//! both ends, and without it nothing is read further. Waiting has a deadline, a length has a
//! limit that is checked before anything is allocated, and a connection that has failed is never
//! resumed: the protocol begins another epoch.

mod doors;
mod fallback;
mod hello;
mod members;
mod parts;
mod questions;
mod quic;
mod ring;
mod sender;
mod stage;
mod stream;

pub use doors::{Doors, DoorsOptions, IsAllowed, OnNote};
pub use stream::Security;
pub(crate) use stream::TimedSocket;

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, mpsc},
        thread,
        time::{Duration, Instant},
    };

    use super::{
        Doors, DoorsOptions, Security,
        doors::{FrameSink, SinkOf},
        fallback::Dial,
        hello::{self, FrameClass, Hello, RowsHello},
        sender::{FrameSender, Route},
        stream::Stream,
    };
    use crate::{
        control::{NodeName, Switchboard},
        key::ClusterKey,
        wire::{
            Dtype, Frame, FrameKind, Header, Limits, Run,
            message::{LaneName, NodeAddress, RingSecret},
        },
    };

    const LIMITS: Limits = Limits {
        ring: 7,
        n_stages: 1,
        n_batch: 4096,
        n_seqs: 1,
        n_ctx: 8192,
        d_row: 1024,
        dtype: Dtype::F32,
    };

    /// Looks at rows for a long time, as a slow link would.
    struct Slow(mpsc::Sender<FrameKind>);

    impl FrameSink for Slow {
        fn frame(&mut self, frame: Frame) -> bool {
            if frame.header.kind == FrameKind::Work {
                thread::sleep(Duration::from_millis(300));
            }
            self.0.send(frame.header.kind).is_ok()
        }

        fn ended(&mut self, _: &io::Error) {}
    }

    /// A frame of rows of 4 KiB.
    fn work(batch: u32, n: u16) -> Frame {
        let header = Header {
            ring: 7,
            batch,
            stage: 1,
            until: 1,
            d_row: 1024,
            ..Header::new(FrameKind::Work)
        };
        let run = Run {
            seq: 0,
            branch: 0,
            n,
            pos: 0,
            is_wanted: true,
            is_checkpoint: false,
            is_audited: false,
        };
        Frame {
            runs: vec![run],
            data: vec![0; usize::from(n) * 4096],
            ..Frame::bare(header)
        }
    }

    const PATIENCE: Duration = Duration::from_secs(10);

    fn doors() -> Doors {
        let doors = Doors::open(DoorsOptions {
            address: "127.0.0.1:0".parse().unwrap(),
            security: Security::Plain,
            is_allowed: Arc::new(|_| true),
        });
        doors.unwrap()
    }

    /// The way of the coordinator to stage 1, which is behind these doors.
    fn route(doors: &Doors) -> Route {
        Route {
            protection: doors.inner.protection.clone(),
            lane: LaneName::Tcp,
            node: NodeAddress {
                name: NodeName::new("pi1").unwrap(),
                address: crate::Links::address(doors),
            },
            ring: 7,
            from: 0,
            to: 1,
            secret: RingSecret([3; 32]),
        }
    }

    fn ping() -> Frame {
        Frame::bare(Header {
            ring: 7,
            stage: 1,
            ..Header::new(FrameKind::Ping)
        })
    }

    /// Tells that frames come, and that a connection has ended.
    struct Ends {
        came: mpsc::Sender<()>,
        ended: mpsc::Sender<()>,
    }

    impl FrameSink for Ends {
        fn frame(&mut self, _: Frame) -> bool {
            self.came.send(()).is_ok()
        }

        fn ended(&mut self, _: &io::Error) {
            let _ = self.ended.send(());
        }
    }

    #[test]
    fn frames_for_a_stage_that_is_not_here_are_lost_with_a_word() {
        let doors = doors();
        let (lost, told) = mpsc::channel();
        let sender = FrameSender::start(&route(&doors), move || lost.send(()).unwrap()).unwrap();
        sender.send(ping());
        told.recv_timeout(PATIENCE).unwrap();
    }

    #[test]
    fn the_end_of_a_connection_that_was_replaced_is_not_told() {
        let doors = doors();
        let (came, comes) = mpsc::channel();
        let (ended, ends) = mpsc::channel();
        let sink_of: SinkOf = Box::new(move |_| {
            Some(Box::new(Ends {
                came: came.clone(),
                ended: ended.clone(),
            }))
        });
        let route = route(&doors);
        let _side = doors
            .inner
            .register(1, LIMITS, route.secret.clone(), sink_of);
        let mut senders = Vec::new();
        for _ in 0..2 {
            let sender = FrameSender::start(&route, || {}).unwrap();
            sender.send(ping());
            comes.recv_timeout(PATIENCE).unwrap();
            senders.push(sender);
        }
        // The first connection has ended by itself.
        let until = Instant::now() + PATIENCE;
        while doors.inner.n_connections() > 1 {
            assert!(Instant::now() < until);
            thread::yield_now();
        }
        assert!(ends.try_recv().is_err());
        drop(senders);
        ends.recv_timeout(PATIENCE).unwrap();
    }

    #[test]
    fn a_ping_does_not_wait_behind_megabytes_of_rows() {
        let doors = doors();
        let (kinds, came) = mpsc::channel();
        let sink_of: SinkOf = Box::new(move |_| Some(Box::new(Slow(kinds.clone()))));
        let route = route(&doors);
        let _side = doors
            .inner
            .register(1, LIMITS, route.secret.clone(), sink_of);
        let sender = FrameSender::start(&route, || panic!("frames are lost")).unwrap();
        for batch in 2..5 {
            // More than 10 MB in all.
            sender.send(work(batch, 1024));
        }
        sender.send(ping());
        let all: Vec<FrameKind> = (0..4)
            .map(|_| came.recv_timeout(PATIENCE).unwrap())
            .collect();
        use FrameKind::{Ping, Work};
        assert_eq!(all, [Ping, Work, Work, Work]);
    }

    fn node(name: &str) -> (Doors, NodeAddress) {
        let identity = ClusterKey::from_bytes([7; 32]).identity(name).unwrap();
        let doors = Doors::open(DoorsOptions {
            address: "127.0.0.1:0".parse().unwrap(),
            security: Security::Tls(Arc::new(identity)),
            is_allowed: Arc::new(|_| true),
        });
        let doors = doors.unwrap();
        let address = NodeAddress {
            name: NodeName::new(name).unwrap(),
            address: crate::Links::address(&doors),
        };
        (doors, address)
    }

    /// A connection over UDP to these doors, after its hello.
    fn dial_udp(doors: &Doors, from: &Doors, node: &NodeAddress, hello: &Hello) -> Box<dyn Stream> {
        doors.inner.listen(LaneName::Udp, [].into_iter()).unwrap();
        from.inner.listen(LaneName::Udp, [].into_iter()).unwrap();
        let call = Dial {
            node,
            hello,
            is_taken: |_| Ok(()),
        };
        let protection = &from.inner.protection;
        protection.dial_lane(LaneName::Udp, &call).unwrap()
    }

    fn rows_hello(secret: u8) -> Hello {
        Hello::Rows(RowsHello {
            ring: 7,
            from: 0,
            to: 1,
            class: FrameClass::Long,
            secret: RingSecret([secret; 32]),
        })
    }

    #[test]
    fn lengths_that_lie_and_other_hellos_end_a_connection_over_udp() {
        let (pi, pi_at) = node("pi1");
        let (lap, _) = node("lap");
        let (kinds, _came) = mpsc::channel();
        let sink_of: SinkOf = Box::new(move |_| Some(Box::new(Slow(kinds.clone()))));
        let secret = RingSecret([3; 32]);
        let _side = pi.inner.register(1, LIMITS, secret, sink_of);
        pi.answer(Box::new(<[u8]>::to_vec)).unwrap();
        let mut answer = [0];
        for hello in [rows_hello(4), Hello::Questions, Hello::Parts] {
            let mut stream = dial_udp(&pi, &lap, &pi_at, &hello);
            // It may have ended already.
            let _ = stream.write_all(&[3, 0, 0, 0, 1, 2, 3]);
            assert!(stream.read_exact(&mut answer).is_err(), "{hello:?}");
        }
        let mut stream = dial_udp(&pi, &lap, &pi_at, &rows_hello(3));
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [hello::ROWS_ACCEPTED]);
        // Rows of 4 GB, with checksums that are right.
        let mut frame = work(2, 1);
        frame.header.n_rows = u32::MAX;
        let mut bytes = Vec::new();
        frame.header.write(&mut bytes);
        stream.write_all(&bytes).unwrap();
        assert!(stream.read_exact(&mut answer).is_err());
    }

    #[test]
    fn the_last_frame_over_udp_arrives_before_the_end_of_the_connection() {
        let (pi, pi_at) = node("pi1");
        let (lap, _) = node("lap");
        let (came, comes) = mpsc::channel();
        let (ended, ends) = mpsc::channel();
        let sink_of: SinkOf = Box::new(move |_| {
            Some(Box::new(Ends {
                came: came.clone(),
                ended: ended.clone(),
            }))
        });
        let secret = RingSecret([3; 32]);
        let _side = pi.inner.register(1, LIMITS, secret.clone(), sink_of);
        for doors in [&pi, &lap] {
            doors.inner.listen(LaneName::Udp, [].into_iter()).unwrap();
        }
        let route = Route {
            protection: lap.inner.protection.clone(),
            lane: LaneName::Udp,
            node: pi_at,
            ring: 7,
            from: 0,
            to: 1,
            secret,
        };
        let sender = FrameSender::start(&route, || panic!("frames are lost")).unwrap();
        // A sender that ends opens no connection.
        sender.send(work(2, 1));
        comes.recv_timeout(PATIENCE).unwrap();
        sender.send(work(3, 1024));
        drop(sender);
        drop(lap);
        comes.recv_timeout(PATIENCE).unwrap();
        ends.recv_timeout(PATIENCE).unwrap();
    }
}
