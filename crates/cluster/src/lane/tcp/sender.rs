//! Sends frames to one place, and dials again when a connection has ended.
//!
//! A sender never waits for the network: frames go to queues of bounded length, those of a header
//! alone before those with rows, and a thread dials and writes. When a connection fails, all that
//! waits is lost, and the owner is told; the next frame opens another connection.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use super::{
    hello::{Hello, RowsHello},
    stream::{HANDSHAKE, Protection, Stream, is_ended},
};
use crate::wire::{Frame, message::NodeAddress};

/// Frames of a header alone that wait in a queue.
const MAX_SHORT: usize = 1024;
/// Other frames that wait; the credit of an edge allows fewer.
const MAX_LONG: usize = 8;
/// Wait after a connection that could not be opened.
const RETRY: Duration = Duration::from_millis(100);

/// Where frames go.
#[derive(Clone)]
pub(super) struct Route {
    pub(super) protection: Protection,
    pub(super) node: NodeAddress,
    pub(super) hello: RowsHello,
}

/// Sends frames to one node. Dropping it ends the connection behind all queued frames.
pub(super) struct FrameSender {
    queues: Arc<Queues>,
    thread: Option<JoinHandle<()>>,
}

impl FrameSender {
    /// Starts the thread; nothing is dialled before the first frame. `on_down` is called whenever
    /// frames are lost.
    pub(super) fn start(route: Route, on_down: impl Fn() + Send + 'static) -> io::Result<Self> {
        let queues = Arc::<Queues>::default();
        let thread = std::thread::Builder::new().name(format!("to {}", route.hello.to));
        let thread = thread.spawn({
            let queues = Arc::clone(&queues);
            move || write_queued(&route, &queues, &on_down)
        })?;
        Ok(Self {
            queues,
            thread: Some(thread),
        })
    }

    /// Queues a frame. It is lost if the queues are full.
    pub(super) fn send(&self, mut frame: Frame) {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        self.queues.push(bytes, frame.header.kind.is_bare());
    }
}

impl Drop for FrameSender {
    fn drop(&mut self) {
        self.queues.finish();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}

/// Frames that wait to be written.
#[derive(Default)]
struct Queues {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    /// Frames of a header alone, which go first.
    short: VecDeque<Vec<u8>>,
    long: VecDeque<Vec<u8>>,
    /// Frames came faster than they were sent.
    is_full: bool,
    /// Nothing comes any more.
    is_finished: bool,
}

/// What to write next.
enum Next {
    Frame(Vec<u8>),
    /// Frames are lost: the connection is over.
    Lost,
    Finished,
}

impl Queues {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, bytes: Vec<u8>, is_short: bool) {
        let mut state = self.state();
        let (queue, max) = match is_short {
            true => (&mut state.short, MAX_SHORT),
            false => (&mut state.long, MAX_LONG),
        };
        match queue.len() < max {
            true => queue.push_back(bytes),
            false => state.is_full = true,
        }
        self.changed.notify_one();
    }

    fn pop(&self) -> Next {
        let mut state = self.state();
        loop {
            if state.is_full {
                state.clear();
                return Next::Lost;
            }
            let short = state.short.pop_front();
            if let Some(bytes) = short.or_else(|| state.long.pop_front()) {
                return Next::Frame(bytes);
            }
            if state.is_finished {
                return Next::Finished;
            }
            let waiting = self.changed.wait(state);
            state = waiting.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn clear(&self) {
        self.state().clear();
    }

    /// Waits before another connection is opened. `false`: none is wanted any more.
    fn pause(&self) -> bool {
        let state = self.state();
        let is_open = |state: &mut QueueState| !state.is_finished;
        let waited = self.changed.wait_timeout_while(state, RETRY, is_open);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !state.is_finished
    }

    fn finish(&self) {
        self.state().is_finished = true;
        self.changed.notify_all();
    }

    fn is_finished(&self) -> bool {
        self.state().is_finished
    }
}

impl QueueState {
    fn clear(&mut self) {
        self.short.clear();
        self.long.clear();
        self.is_full = false;
    }
}

/// Writes frames until none comes any more, then says so to the other side.
fn write_queued(route: &Route, queues: &Queues, on_down: &dyn Fn()) {
    let mut stream: Option<Box<dyn Stream>> = None;
    loop {
        let bytes = match queues.pop() {
            Next::Frame(bytes) => bytes,
            Next::Lost => {
                stream = None;
                on_down();
                continue;
            }
            Next::Finished => break,
        };
        // The other side may have ended the connection since the last frame.
        let open = stream.take().filter(|stream| !is_ended(stream.socket()));
        let is_new = open.is_none();
        if is_new && queues.is_finished() {
            return;
        }
        let written = open.map_or_else(|| dial(route), Ok).and_then(|mut stream| {
            stream.write_all(&bytes)?;
            stream.flush()?;
            Ok(stream)
        });
        match written {
            Ok(open) => stream = Some(open),
            Err(_) => {
                queues.clear();
                if is_new && !queues.pause() {
                    return;
                }
                on_down();
            }
        }
    }
    if let Some(mut stream) = stream {
        // Whatever this side says, the other one sees the end.
        let _ = stream.close();
    }
}

fn dial(route: &Route) -> io::Result<Box<dyn Stream>> {
    let NodeAddress { name, address } = &route.node;
    let hello = Hello::Rows(route.hello.clone());
    route
        .protection
        .dial(*address, Some(name), &hello, HANDSHAKE)
}
