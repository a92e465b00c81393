//! Sends frames to one place, and dials again when a connection has ended.
//!
//! A sender never waits for the network: frames go to queues of bounded length, and threads dial
//! and write. When a connection fails, all that waits for it is lost, and the owner is told; the
//! next frame opens another connection.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use super::{
    fallback::Dial,
    hello::{FrameClass, Hello, ROWS_ACCEPTED, RowsHello},
    stream::{Protection, Stream},
};
use crate::wire::{
    Frame, FrameKind,
    message::{LaneName, NodeAddress, RingSecret},
};

/// Frames of a header alone that wait in a queue.
const MAX_BARE: usize = 1024;
/// Other frames that wait; the credit of an edge allows fewer.
const MAX_LONG: usize = 8;
/// Pieces of states that wait; they go when no other frame waits.
const MAX_PIECES: usize = 256;
/// Wait after a connection that could not be opened.
const RETRY: Duration = Duration::from_millis(100);

/// Where frames go.
#[derive(Clone)]
pub(super) struct Route {
    pub(super) protection: Protection,
    pub(super) lane: LaneName,
    pub(super) node: NodeAddress,
    pub(super) ring: u64,
    pub(super) from: u16,
    pub(super) to: u16,
    pub(super) secret: RingSecret,
}

/// Sends frames to one node, those of a header alone by a connection of their own. Dropping it ends
/// the connections behind all queued frames.
pub(super) struct FrameSender {
    bare: Wire,
    long: Wire,
}

impl FrameSender {
    /// Starts the threads; nothing is dialled before the first frame. `on_down` is called whenever
    /// frames are lost; it must not wait.
    pub(super) fn start(
        route: &Route,
        on_down: impl Fn() + Clone + Send + 'static,
    ) -> io::Result<Self> {
        Ok(Self {
            bare: Wire::start(route, FrameClass::Bare, on_down.clone())?,
            long: Wire::start(route, FrameClass::Long, on_down)?,
        })
    }

    /// Opens the connections before there are frames.
    pub(super) fn open(&self) {
        // Nothing is written of nothing.
        self.bare.queue.push(Vec::new(), MAX_BARE);
        self.long.queue.push(Vec::new(), MAX_LONG);
    }

    /// Queues a frame. It is lost if the queue is full: a piece of a state alone, of others all
    /// that wait.
    pub(super) fn send(&self, mut frame: Frame) {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        match frame.header.kind {
            FrameKind::Journal => self.long.queue.push_piece(bytes),
            kind if kind.is_bare() => self.bare.queue.push(bytes, MAX_BARE),
            _ => self.long.queue.push(bytes, MAX_LONG),
        }
    }
}

/// One connection, its queue and its thread.
struct Wire {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

impl Wire {
    fn start(
        route: &Route,
        class: FrameClass,
        on_down: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let queue = Arc::<Queue>::default();
        let route = route.clone();
        let thread = std::thread::Builder::new().name(format!("to {}", route.to));
        let thread = thread.spawn({
            let queue = Arc::clone(&queue);
            move || write_queued(&route, class, &queue, &on_down)
        })?;
        Ok(Self {
            queue,
            thread: Some(thread),
        })
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.queue.finish();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}

/// Frames that wait to be written.
#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    frames: VecDeque<Vec<u8>>,
    /// Pieces of states, behind all other frames.
    pieces: VecDeque<Vec<u8>>,
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

impl Queue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, bytes: Vec<u8>, max: usize) {
        let mut state = self.state();
        match state.frames.len() < max {
            true => state.frames.push_back(bytes),
            false => state.is_full = true,
        }
        self.changed.notify_one();
    }

    fn push_piece(&self, bytes: Vec<u8>) {
        let mut state = self.state();
        if state.pieces.len() < MAX_PIECES {
            state.pieces.push_back(bytes);
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
            let next = state.frames.pop_front();
            if let Some(bytes) = next.or_else(|| state.pieces.pop_front()) {
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
        self.frames.clear();
        self.pieces.clear();
        self.is_full = false;
    }
}

/// Writes frames until none comes any more, then says so to the other side.
fn write_queued(route: &Route, class: FrameClass, queue: &Queue, on_down: &dyn Fn()) {
    let mut stream: Option<Box<dyn Stream>> = None;
    loop {
        let bytes = match queue.pop() {
            Next::Frame(bytes) => bytes,
            Next::Lost => {
                stream = None;
                on_down();
                continue;
            }
            Next::Finished => break,
        };
        // The other side may have ended the connection since the last frame.
        let open = stream.take().filter(|stream| !stream.is_ended());
        let is_new = open.is_none();
        if is_new && queue.is_finished() {
            return;
        }
        let written = open
            .map_or_else(|| dial(route, class), Ok)
            .and_then(|mut stream| {
                stream.write_all(&bytes)?;
                stream.flush()?;
                Ok(stream)
            });
        match written {
            Ok(open) => stream = Some(open),
            Err(_) => {
                queue.clear();
                if is_new && !queue.pause() {
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

fn dial(route: &Route, class: FrameClass) -> io::Result<Box<dyn Stream>> {
    let hello = Hello::Rows(RowsHello {
        ring: route.ring,
        from: route.from,
        to: route.to,
        class,
        secret: route.secret.clone(),
    });
    let call = Dial {
        node: &route.node,
        hello: &hello,
        is_taken,
    };
    route.protection.dial_lane(route.lane, &call)
}

/// A connection that is refused ends here: frames would be lost without a word.
fn is_taken(stream: &mut dyn Stream) -> io::Result<()> {
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    match answer == [ROWS_ACCEPTED] {
        true => Ok(()),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}
