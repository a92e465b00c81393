//! Messages between the members of a group: a connection for each direction between two.
//!
//! The thread that computes reads and writes itself, since a message is on the way between two
//! products and every change of threads would be added to the time of a token. Only long messages
//! go by a thread of their own, so that two members that send to each other never both wait for
//! room. A connection is opened with the first message, and once: if it ends, the link is gone.

use std::{
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Sender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::{
    doors::{Connection, GroupRegistration, Inner},
    fallback::Dial,
    hello::{Hello, MemberHello},
    stream::{Protection, Stream, StreamEnd},
};
use crate::{
    links::{GroupLinks, GroupWiring},
    tensor::Message,
    wire::{
        MESSAGE_HEAD_BYTES, MemberLimits, MessageHead,
        message::{LaneName, NodeAddress, RingSecret},
        write_message,
    },
};

/// Longest message that the computing thread writes itself. A member is at most two units ahead of
/// another, so these fit in the buffers of a connection.
const MAX_INLINE: usize = 64 << 10;

/// Further tries to open a connection, and the wait before each.
const MAX_DIALS: usize = 5;
const RETRY: Duration = Duration::from_millis(100);

/// The links of one member.
pub(super) struct MemberLanes {
    limits: MemberLimits,
    /// To each member; `None`: this one.
    to: Vec<Option<Outlet>>,
    /// From each member.
    from: Vec<Mutex<Inlet>>,
    inbox: Arc<Inbox>,
    _registration: GroupRegistration,
}

impl MemberLanes {
    /// Takes messages from now on; members are dialled with the first message to them.
    pub(super) fn open(inner: &Arc<Inner>, plan: GroupWiring) -> io::Result<Self> {
        let n = plan.members.len();
        let number = |i: usize| u16::try_from(i).map_err(|_| io::ErrorKind::InvalidInput);
        let index = number(plan.index)?;
        let inbox = Arc::new(Inbox::new(plan.secret.clone(), n));
        let registration = inner.register_member(plan.ring, index, &inbox)?;
        let outlet = |(to, node): (usize, &NodeAddress)| {
            let hello = Hello::Member(MemberHello {
                ring: plan.ring,
                from: index,
                to: number(to)?,
                secret: plan.secret.clone(),
            });
            let wire = Wire {
                protection: inner.protection.clone(),
                lane: plan.lane,
                node: node.clone(),
                hello,
                state: WireState::Closed,
                inbox: Arc::clone(&inbox),
            };
            let outlet = (to != plan.index).then(|| Outlet::start(wire));
            outlet.transpose()
        };
        let to = plan.members.iter().enumerate().map(outlet);
        Ok(Self {
            limits: plan.limits,
            to: to.collect::<io::Result<_>>()?,
            from: (0..n).map(|_| Mutex::new(Inlet::Awaited)).collect(),
            inbox,
            _registration: registration,
        })
    }
}

impl GroupLinks for MemberLanes {
    fn send(&self, to: usize, message: &Message) {
        if let Some(Some(outlet)) = self.to.get(to) {
            match write_message(message) {
                Ok(bytes) => outlet.send(bytes),
                Err(_) => outlet.wire().end(),
            }
        }
    }

    fn recv(&self, from: usize, until: Option<Instant>) -> Option<Message> {
        let inlet = self.from.get(from)?;
        let mut inlet = inlet.lock().unwrap_or_else(PoisonError::into_inner);
        if let Inlet::Awaited = *inlet {
            *inlet = self
                .inbox
                .take(from, until)
                .map_or(Inlet::Gone, Inlet::Open);
        }
        let Inlet::Open(arrived) = &mut *inlet else {
            return None;
        };
        arrived.stream.set_deadline(until);
        let read = read_message(arrived.stream.as_mut(), &self.limits);
        if read.is_err() {
            *inlet = Inlet::Gone;
        }
        read.ok()
    }

    fn close(&self) {
        self.inbox.close();
    }
}

impl Drop for MemberLanes {
    fn drop(&mut self) {
        self.inbox.close();
    }
}

fn read_message(stream: &mut dyn Stream, limits: &MemberLimits) -> io::Result<Message> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let mut head = [0; MESSAGE_HEAD_BYTES];
    stream.read_exact(&mut head)?;
    let head = MessageHead::parse(&head, limits).map_err(invalid)?;
    let mut body = vec![0; head.body_bytes()];
    stream.read_exact(&mut body)?;
    head.message(&body, limits).map_err(invalid)
}

/// The connection from a member.
enum Inlet {
    /// Its connection has not been taken yet.
    Awaited,
    Open(Arrived),
    Gone,
}

/// A connection that a member has opened.
struct Arrived {
    stream: Box<dyn Stream>,
    /// It ends with the doors.
    _connection: Connection,
}

/// Connections from the members of a group, until they are taken; and the ends of all connections.
pub(super) struct Inbox {
    secret: RingSecret,
    state: Mutex<InboxState>,
    changed: Condvar,
}

struct InboxState {
    /// Of each member; a second one is refused.
    slots: Vec<Arrival>,
    ends: Vec<StreamEnd>,
    is_closed: bool,
}

enum Arrival {
    Empty,
    Full(Arrived),
    Taken,
}

impl Inbox {
    fn new(secret: RingSecret, n_members: usize) -> Self {
        Self {
            secret,
            state: Mutex::new(InboxState {
                slots: (0..n_members).map(|_| Arrival::Empty).collect(),
                ends: Vec::new(),
                is_closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// What connections for it begin with.
    pub(super) fn secret(&self) -> &RingSecret {
        &self.secret
    }

    fn state(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a connection of a member, unless there was one.
    pub(super) fn put(&self, from: u16, stream: Box<dyn Stream>, connection: Connection) {
        let mut state = self.state();
        if !state.enter(stream.as_ref()) {
            return;
        }
        if let Some(slot @ Arrival::Empty) = state.slots.get_mut(usize::from(from)) {
            *slot = Arrival::Full(Arrived {
                stream,
                _connection: connection,
            });
            self.changed.notify_all();
        }
    }

    /// Waits for the connection of a member.
    fn take(&self, from: usize, until: Option<Instant>) -> Option<Arrived> {
        let mut state = self.state();
        loop {
            let slot = state.slots.get_mut(from)?;
            match std::mem::replace(slot, Arrival::Taken) {
                Arrival::Full(arrived) => return Some(arrived),
                Arrival::Taken => return None,
                Arrival::Empty => *slot = Arrival::Empty,
            }
            let left = until.map_or(Duration::MAX, |until| {
                until.saturating_duration_since(Instant::now())
            });
            if state.is_closed || left.is_zero() {
                return None;
            }
            let waited = self.changed.wait_timeout(state, left.min(FOREVER));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let ends = std::mem::take(&mut state.ends);
        ends.iter().for_each(StreamEnd::shut);
        self.changed.notify_all();
    }
}

/// Longest wait without a deadline.
const FOREVER: Duration = Duration::from_secs(3600);

impl InboxState {
    /// Ends a connection with the group. `false`: the group has ended.
    fn enter(&mut self, stream: &dyn Stream) -> bool {
        match (self.is_closed, stream.end()) {
            (false, Ok(end)) => {
                self.ends.push(end);
                true
            }
            _ => false,
        }
    }
}

/// The connection to a member.
struct Wire {
    protection: Protection,
    lane: LaneName,
    node: NodeAddress,
    hello: Hello,
    state: WireState,
    inbox: Arc<Inbox>,
}

enum WireState {
    /// Not opened yet.
    Closed,
    Open(Box<dyn Stream>),
    Gone,
}

impl Wire {
    fn write(&mut self, bytes: &[u8]) {
        if let WireState::Closed = self.state {
            self.state = self.dial().map_or(WireState::Gone, WireState::Open);
        }
        let WireState::Open(stream) = &mut self.state else {
            return;
        };
        if stream
            .write_all(bytes)
            .and_then(|()| stream.flush())
            .is_err()
        {
            self.end();
        }
    }

    /// Opens the connection. A member that many others dial at once refuses some of them.
    fn dial(&self) -> io::Result<Box<dyn Stream>> {
        let mut tries = 0..MAX_DIALS;
        let call = Dial {
            node: &self.node,
            hello: &self.hello,
            is_taken: |_| Ok(()),
        };
        let stream = loop {
            match self.protection.dial_lane(self.lane, &call) {
                Ok(stream) => break stream,
                Err(error) if tries.next().is_none() => return Err(error),
                Err(_) => std::thread::sleep(RETRY),
            }
        };
        match self.inbox.state().enter(stream.as_ref()) {
            true => Ok(stream),
            false => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    /// Sends nothing any more.
    fn end(&mut self) {
        if let WireState::Open(stream) = std::mem::replace(&mut self.state, WireState::Gone) {
            // It may have ended already.
            let _ = stream.end().map(|end| end.shut());
        }
    }
}

/// Sends to a member.
struct Outlet {
    wire: Arc<Mutex<Wire>>,
    /// Long messages; `None` only while it is dropped.
    long: Option<Sender<Vec<u8>>>,
    n_long: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Outlet {
    fn start(wire: Wire) -> io::Result<Self> {
        let wire = Arc::new(Mutex::new(wire));
        let n_long = Arc::<AtomicUsize>::default();
        let (long, waiting) = mpsc::channel::<Vec<u8>>();
        let thread = std::thread::Builder::new().name("to a member".to_owned());
        let thread = thread.spawn({
            let wire = Arc::clone(&wire);
            let n_long = Arc::clone(&n_long);
            move || {
                while let Ok(bytes) = waiting.recv() {
                    let mut wire = wire.lock().unwrap_or_else(PoisonError::into_inner);
                    wire.write(&bytes);
                    n_long.fetch_sub(1, Ordering::AcqRel);
                }
            }
        })?;
        Ok(Self {
            wire,
            long: Some(long),
            n_long,
            thread: Some(thread),
        })
    }

    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, bytes: Vec<u8>) {
        // The order of messages is that of one sender: nothing overtakes the queue.
        if bytes.len() <= MAX_INLINE && self.n_long.load(Ordering::Acquire) == 0 {
            return self.wire().write(&bytes);
        }
        self.n_long.fetch_add(1, Ordering::AcqRel);
        if let Some(long) = &self.long {
            // A thread that has ended sends nothing either.
            let _ = long.send(bytes);
        }
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.long = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}
