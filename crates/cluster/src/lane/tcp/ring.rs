//! The coordinator's side of all links of a ring.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{self, Receiver, SyncSender},
    },
    time::{Duration, Instant},
};

use super::{
    doors::{FrameSink, Inner, Registration, SinkOf},
    sender::{FrameSender, Route},
};
use crate::{
    Lane,
    core::{Event, FenceAnswer, Time},
    links::RingLinks,
    wire::{Frame, FrameKind, Header, Limits},
};

/// Events that wait; behind them, connections are read no further.
const MAX_EVENTS: usize = 1024;
/// Longest wait without a deadline.
const FOREVER: Duration = Duration::from_secs(3600);

/// Connections to and from every stage.
pub(super) struct NetLane {
    start: Instant,
    limits: Limits,
    senders: Vec<FrameSender>,
    inbox: Receiver<Event>,
    _registration: Registration,
}

impl NetLane {
    /// Takes results from now on; stages are dialled with their first frames.
    pub(super) fn open(inner: &Arc<Inner>, links: RingLinks) -> io::Result<Self> {
        let RingLinks {
            limits,
            timing: _,
            lane,
            secret,
            stages,
        } = links;
        let (events, inbox) = mpsc::sync_channel(MAX_EVENTS);
        let n_stages = limits.n_stages;
        let sink_of: SinkOf = Box::new({
            let events = events.clone();
            move |stage| {
                let sink = FromStage {
                    stage,
                    events: events.clone(),
                };
                (1..=n_stages)
                    .contains(&stage)
                    .then(|| Box::new(sink) as Box<dyn FrameSink>)
            }
        });
        let registration = inner.register(0, limits, secret.clone(), sink_of)?;
        let mut senders = Vec::with_capacity(stages.len());
        for (node, stage) in stages.into_iter().zip(1..) {
            let route = Route {
                protection: inner.protection.clone(),
                lane,
                node,
                ring: limits.ring,
                from: 0,
                to: stage,
                secret: secret.clone(),
            };
            let events = events.clone();
            // An owner that has so many events to look at needs no other.
            let on_down = move || drop(events.try_send(Event::Down { stage }));
            senders.push(FrameSender::start(&route, on_down)?);
        }
        Ok(Self {
            start: Instant::now(),
            limits,
            senders,
            inbox,
            _registration: registration,
        })
    }
}

impl Lane for NetLane {
    fn now(&self) -> Time {
        self.start.elapsed()
    }

    fn send(&mut self, stage: u16, frame: Frame) {
        self.senders[usize::from(stage) - 1].send(frame);
    }

    fn fence(&mut self, stage: u16, epoch: u32) {
        let header = Header {
            ring: self.limits.ring,
            dtype: self.limits.dtype,
            epoch,
            stage,
            ..Header::new(FrameKind::Fence)
        };
        self.send(stage, Frame::bare(header));
    }

    fn recv(&mut self, until: Option<Time>) -> Option<Event> {
        let wait = until.map_or(FOREVER, |until| until.saturating_sub(self.now()));
        self.inbox.recv_timeout(wait).ok()
    }
}

/// Takes the frames of one stage.
struct FromStage {
    stage: u16,
    events: SyncSender<Event>,
}

impl FrameSink for FromStage {
    fn frame(&mut self, frame: Frame) -> bool {
        let stage = self.stage;
        let h = &frame.header;
        let event = match h.kind {
            // A stage speaks for itself.
            _ if h.stage != stage => Event::Garbage { stage },
            FrameKind::Fenced => Event::Fenced {
                stage,
                answer: FenceAnswer {
                    epoch: h.epoch,
                    served: (h.acked > 0).then_some((h.acked, h.batch)),
                },
            },
            _ => Event::Frame(frame),
        };
        self.events.send(event).is_ok()
    }

    fn ended(&mut self, why: &io::Error) {
        let stage = self.stage;
        let event = match why.kind() {
            io::ErrorKind::InvalidData => Event::Garbage { stage },
            _ => Event::Down { stage },
        };
        // A lane that is closed does not listen any more.
        let _ = self.events.send(event);
    }
}
