//! The one listener of a process, and all connections that come in by it.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    ops::ControlFlow,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use super::{
    hello::{FrameClass, Hello, MemberHello, ROWS_ACCEPTED, RowsHello},
    members::{Inbox, MemberLanes},
    parts, questions,
    questions::KeptConnections,
    ring::NetLane,
    stage::StageHost,
    stream::{Protection, Security, Stream, StreamEnd, read_frame},
};
use crate::{
    Lane, Stage,
    control::{Answerer, NodeName, Switchboard},
    links::{
        GroupLinks, GroupWiring, Links, PartLinks, PartServer, RingLinks, RunningStage, StageLinks,
    },
    wire::{
        Frame, Limits,
        message::{LaneName, NodeAddress, PartRequest, RingSecret},
    },
};

/// Handshakes at once, half of them from one address; further connections are closed.
const MAX_HANDSHAKES: usize = 8;
/// Connections for questions at once.
const MAX_QUESTIONERS: usize = 64;
/// Nodes that are sent parts at once.
const MAX_SERVED: usize = 4;
/// Wait after a connection that could not be accepted.
const RETRY: Duration = Duration::from_millis(50);
/// Time to connect to the own listener, which wakes it.
const WAKE: Duration = Duration::from_secs(1);

/// Whether connections from an address are taken.
pub type IsAllowed = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// Tells of something that a user may want to know.
pub type OnNote = Box<dyn Fn(&str) + Send + Sync>;

/// What a process listens with.
#[derive(Clone)]
pub struct DoorsOptions {
    /// Where to listen; port 0: any.
    pub address: SocketAddr,
    /// How connections are protected.
    pub security: Security,
    /// Whose connections are taken; others are closed at once.
    pub is_allowed: IsAllowed,
}

impl std::fmt::Debug for DoorsOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DoorsOptions")
            .field("address", &self.address)
            .field("security", &self.security)
            .finish_non_exhaustive()
    }
}

/// The listener of a process: rows, questions and parts come in by it. Dropping it ends all of
/// them.
pub struct Doors {
    pub(super) inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Doors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Doors")
            .field("address", &self.inner.address)
            .finish_non_exhaustive()
    }
}

/// What all connections share.
pub(super) struct Inner {
    pub(super) address: SocketAddr,
    pub(super) protection: Protection,
    pub(super) is_allowed: IsAllowed,
    is_over: AtomicBool,
    /// Connections that have not said yet what they are for.
    pub(super) handshakes: Handshakes,
    /// Sides of rings that take rows: ring and stage.
    sides: Mutex<HashMap<(u64, u16), Side>>,
    /// Members of groups that take messages: ring and member.
    groups: Mutex<HashMap<(u64, u16), Arc<Inbox>>>,
    answerer: OnceLock<Answerer>,
    n_questioners: AtomicUsize,
    part_server: OnceLock<PartServer>,
    n_served: AtomicUsize,
    kept: KeptConnections,
    connections: Mutex<Connections>,
    pub(super) udp_opening: Mutex<()>,
    pub(super) notes: Arc<Notes>,
}

/// Those who hear notes.
#[derive(Default)]
pub(super) struct Notes(Mutex<Vec<OnNote>>);

impl Notes {
    /// Tells a note to all who hear them.
    pub(super) fn tell(&self, note: &str) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().for_each(|on_note| on_note(note));
    }
}

/// Connections that others have opened.
#[derive(Default)]
struct Connections {
    open: HashMap<u64, StreamEnd>,
    n_opened: u64,
}

/// Takes the frames of one connection, which is read no further while it waits.
pub(super) trait FrameSink: Send {
    /// Takes a frame. `false`: no more is read, and the connection ends.
    fn frame(&mut self, frame: Frame) -> bool;

    /// The connection has ended: it was closed, or bytes came that are no frame of the ring.
    fn ended(&mut self, why: &io::Error);
}

/// Gives the sink for the frames of a stage; `None`: that stage sends nothing to this side.
pub(super) type SinkOf = Box<dyn Fn(u16) -> Option<Box<dyn FrameSink>> + Send + Sync>;

/// One side of a ring.
struct Side {
    limits: Limits,
    secret: RingSecret,
    sink_of: SinkOf,
    /// The newest connection of each sender and class.
    open: HashMap<(u16, FrameClass), OpenRows>,
}

/// A connection that carries rows.
struct OpenRows {
    /// Its number among all connections of the doors.
    id: u64,
    end: StreamEnd,
}

impl Drop for Side {
    fn drop(&mut self) {
        self.open.values().for_each(|open| open.end.shut());
    }
}

/// The place of a side among those that take rows, until it is dropped.
pub(super) struct Registration {
    inner: Arc<Inner>,
    key: (u64, u16),
}

impl Drop for Registration {
    fn drop(&mut self) {
        let side = self.inner.sides().remove(&self.key);
        // Its connections end without the lock, since their threads may wait for it.
        drop(side);
    }
}

/// The place of a member among those that take messages, until it is dropped.
pub(super) struct GroupRegistration {
    inner: Arc<Inner>,
    key: (u64, u16),
}

impl Drop for GroupRegistration {
    fn drop(&mut self) {
        self.inner.groups().remove(&self.key);
    }
}

impl Doors {
    /// Listens.
    ///
    /// # Errors
    /// The address cannot be listened on; the identity makes no TLS.
    pub fn open(options: DoorsOptions) -> io::Result<Self> {
        let listener = TcpListener::bind(options.address)?;
        let notes = Arc::<Notes>::default();
        let inner = Arc::new(Inner {
            address: listener.local_addr()?,
            protection: Protection::new(options.security, &notes)?,
            is_allowed: options.is_allowed,
            is_over: AtomicBool::new(false),
            handshakes: Handshakes::default(),
            sides: Mutex::default(),
            groups: Mutex::default(),
            answerer: OnceLock::new(),
            n_questioners: AtomicUsize::new(0),
            part_server: OnceLock::new(),
            n_served: AtomicUsize::new(0),
            kept: KeptConnections::default(),
            connections: Mutex::default(),
            udp_opening: Mutex::default(),
            notes,
        });
        let thread = std::thread::Builder::new().name("doors".to_owned());
        let thread = thread.spawn({
            let inner = Arc::clone(&inner);
            move || accept_all(&listener, &inner)
        })?;
        Ok(Self {
            inner,
            thread: Some(thread),
        })
    }

    /// Calls this, too, with every note from now on, such as why a lane is not the one that was
    /// wanted. It must not call the doors.
    pub fn on_note(&self, on_note: OnNote) {
        let all = self.inner.notes.0.lock();
        all.unwrap_or_else(PoisonError::into_inner).push(on_note);
    }
}

impl Drop for Doors {
    fn drop(&mut self) {
        self.inner.is_over.store(true, Ordering::Release);
        self.inner.sides().clear();
        let connections = std::mem::take(&mut self.inner.connections().open);
        connections.values().for_each(StreamEnd::shut);
        self.inner.protection.end_udp();
        // Wakes the thread; where that fails, the next connection does.
        let mut address = self.inner.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => [127, 0, 0, 1].into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        if TcpStream::connect_timeout(&address, WAKE).is_ok()
            && let Some(thread) = self.thread.take()
        {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}

impl Links for Doors {
    fn address(&self) -> SocketAddr {
        self.inner.address
    }

    fn lane_bytes(&self, lane: LaneName, others: &[SocketAddr]) -> u64 {
        self.inner.lane_bytes(lane, others)
    }

    fn start_stage(&self, links: StageLinks, stage: Stage) -> io::Result<Box<dyn RunningStage>> {
        let neighbours = [&links.previous, &links.next].into_iter().flatten();
        let others = neighbours.chain([&links.coordinator]);
        self.inner
            .listen(links.lane, others.map(|node| node.address))?;
        Ok(Box::new(StageHost::start(&self.inner, links, stage)?))
    }

    fn open_ring(&self, links: RingLinks) -> io::Result<Box<dyn Lane>> {
        let stages = links.stages.iter();
        self.inner
            .listen(links.lane, stages.map(|node| node.address))?;
        Ok(Box::new(NetLane::open(&self.inner, links)?))
    }

    fn open_group(&self, plan: GroupWiring) -> io::Result<Arc<dyn GroupLinks>> {
        let members = (0..).zip(&plan.members);
        let others = members.filter(|(i, _)| *i != plan.index);
        let others = others.map(|(_, node)| node.address);
        self.inner.listen(plan.lane, others)?;
        Ok(Arc::new(MemberLanes::open(&self.inner, plan)?))
    }
}

impl Switchboard for Doors {
    fn ask(
        &self,
        address: SocketAddr,
        node: Option<&NodeName>,
        question: &[u8],
        deadline: Duration,
    ) -> io::Result<Vec<u8>> {
        let Inner {
            kept, protection, ..
        } = &*self.inner;
        kept.ask(protection, (address, node.cloned()), question, deadline)
    }

    fn answer(&self, answerer: Answerer) -> io::Result<()> {
        let set = self.inner.answerer.set(answerer);
        set.map_err(|_| io::Error::other("questions are answered already"))
    }

    fn reached_from(&self, address: SocketAddr) -> Option<SocketAddr> {
        crate::own_address(self.inner.address, address).ok()
    }
}

impl PartLinks for Doors {
    fn pull(
        &self,
        from: &NodeAddress,
        request: &PartRequest,
        take: &mut dyn FnMut(Frame) -> ControlFlow<()>,
    ) -> io::Result<()> {
        parts::pull(&self.inner.protection, from, request, take)
    }

    fn serve(&self, server: PartServer) -> io::Result<()> {
        let set = self.inner.part_server.set(server);
        set.map_err(|_| io::Error::other("parts are served already"))
    }
}

impl Inner {
    fn sides(&self) -> MutexGuard<'_, HashMap<(u64, u16), Side>> {
        self.sides.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn groups(&self) -> MutexGuard<'_, HashMap<(u64, u16), Arc<Inbox>>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes messages for a member of a group from now on.
    ///
    /// # Errors
    /// The process has this member already.
    pub(super) fn register_member(
        self: &Arc<Self>,
        ring: u64,
        member: u16,
        inbox: &Arc<Inbox>,
    ) -> io::Result<GroupRegistration> {
        let key = (ring, member);
        let mut groups = self.groups();
        if groups.contains_key(&key) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        groups.insert(key, Arc::clone(inbox));
        Ok(GroupRegistration {
            inner: Arc::clone(self),
            key,
        })
    }

    /// The inbox that a member's connection is for; `None`: it is refused.
    fn inbox(&self, hello: &MemberHello) -> Option<Arc<Inbox>> {
        let groups = self.groups();
        let inbox = groups.get(&(hello.ring, hello.to))?;
        inbox
            .secret()
            .is_same(&hello.secret)
            .then(|| Arc::clone(inbox))
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections that are open.
    #[cfg(test)]
    pub(super) fn n_connections(&self) -> usize {
        self.connections().open.len()
    }

    /// Ends this connection with the doors.
    pub(super) fn enter(self: &Arc<Self>, end: StreamEnd) -> io::Result<Connection> {
        let mut connections = self.connections();
        if self.is_over.load(Ordering::Acquire) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        connections.n_opened += 1;
        let id = connections.n_opened;
        connections.open.insert(id, end);
        Ok(Connection {
            inner: Arc::clone(self),
            id,
        })
    }

    /// Takes rows for a side of a ring from now on.
    ///
    /// # Errors
    /// The process has this side already.
    pub(super) fn register(
        self: &Arc<Self>,
        to: u16,
        limits: Limits,
        secret: RingSecret,
        sink_of: SinkOf,
    ) -> io::Result<Registration> {
        let key = (limits.ring, to);
        let mut sides = self.sides();
        if sides.contains_key(&key) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let side = Side {
            limits,
            secret,
            sink_of,
            open: HashMap::new(),
        };
        sides.insert(key, side);
        Ok(Registration {
            inner: Arc::clone(self),
            key,
        })
    }

    /// What takes the rows of a connection, which replaces an earlier one of the same sender.
    /// `None`: it is refused.
    fn sink(
        &self,
        hello: &RowsHello,
        id: u64,
        end: StreamEnd,
    ) -> Option<(Limits, Box<dyn FrameSink>)> {
        let mut sides = self.sides();
        let side = sides.get_mut(&(hello.ring, hello.to))?;
        if !side.secret.is_same(&hello.secret) {
            return None;
        }
        let sink = (side.sink_of)(hello.from)?;
        let open = OpenRows { id, end };
        if let Some(old) = side.open.insert((hello.from, hello.class), open) {
            old.end.shut();
        }
        Some((side.limits, sink))
    }

    /// Whether a connection has not been replaced by a later one of the same sender.
    fn is_newest(&self, hello: &RowsHello, id: u64) -> bool {
        let sides = self.sides();
        let side = sides.get(&(hello.ring, hello.to));
        let newest = side.and_then(|side| side.open.get(&(hello.from, hello.class)));
        newest.is_some_and(|newest| newest.id == id)
    }
}

/// Connections that have not said yet what they are for, by their addresses.
#[derive(Clone, Default)]
pub(super) struct Handshakes(Arc<Mutex<Vec<IpAddr>>>);

impl Handshakes {
    fn busy(&self) -> MutexGuard<'_, Vec<IpAddr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more, unless there are too many, or too many from the same address.
    pub(super) fn enter(&self, peer: IpAddr) -> Option<Handshake> {
        let mut busy = self.busy();
        let n_same = busy.iter().filter(|ip| **ip == peer).count();
        // Several stages may run on one machine, and on loopback all do.
        let is_greedy = n_same >= MAX_HANDSHAKES / 2 && !peer.is_loopback();
        if busy.len() >= MAX_HANDSHAKES || is_greedy {
            return None;
        }
        busy.push(peer);
        drop(busy);
        let all = self.clone();
        Some(Handshake { all, peer })
    }
}

/// The place of a connection that has not said yet what it is for.
pub(super) struct Handshake {
    all: Handshakes,
    peer: IpAddr,
}

impl Drop for Handshake {
    fn drop(&mut self) {
        let mut busy = self.all.busy();
        if let Some(i) = busy.iter().position(|ip| *ip == self.peer) {
            busy.swap_remove(i);
        }
    }
}

/// The place of a connection among those that end with the doors.
pub(super) struct Connection {
    inner: Arc<Inner>,
    id: u64,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.inner.connections().open.remove(&self.id);
    }
}

/// One of a limited number of connections of a kind.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn enter(count: &'a AtomicUsize, max: usize) -> Option<Self> {
        let counted = Self(count);
        (count.fetch_add(1, Ordering::AcqRel) < max).then_some(counted)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn accept_all(listener: &TcpListener, inner: &Arc<Inner>) {
    for socket in listener.incoming() {
        if inner.is_over.load(Ordering::Acquire) {
            return;
        }
        match socket {
            Ok(socket) => admit(socket, inner),
            // No descriptors are left, perhaps, and the next try would fail at once.
            Err(_) => std::thread::sleep(RETRY),
        }
    }
}

/// Hands a connection to a thread of its own.
fn admit(socket: TcpStream, inner: &Arc<Inner>) {
    let Ok(peer) = socket.peer_addr() else { return };
    // An IPv4 address as IPv6 sockets write it is that address.
    let peer = peer.ip().to_canonical();
    if !(inner.is_allowed)(peer) {
        return;
    }
    let Some(handshake) = inner.handshakes.enter(peer) else {
        return;
    };
    let inner = Arc::clone(inner);
    // Without a thread the connection is dropped, which the other side sees.
    let _ = std::thread::Builder::new()
        .name("from a node".to_owned())
        .spawn(move || receive(socket, &inner, handshake));
}

/// Serves one connection to its end; its errors are the other side's.
fn receive(socket: TcpStream, inner: &Arc<Inner>, handshake: Handshake) {
    let end = socket.try_clone().map(StreamEnd::Tcp);
    let Ok(connection) = end.and_then(|end| inner.enter(end)) else {
        return;
    };
    let Ok((stream, hello)) = inner.protection.accept(socket) else {
        return;
    };
    drop(handshake);
    serve(stream, inner, &hello, connection);
}

/// Serves one connection to its end; its errors are the other side's.
pub(super) fn serve(
    mut stream: Box<dyn Stream>,
    inner: &Arc<Inner>,
    hello: &Hello,
    connection: Connection,
) {
    if let Hello::Member(member) = hello {
        if let Some(inbox) = inner.inbox(member) {
            inbox.put(member.from, stream, connection);
        }
        return;
    }
    let stream = stream.as_mut();
    match hello {
        Hello::Rows(rows) => receive_rows(stream, &connection, rows),
        // It was taken above.
        Hello::Member(_) => {}
        Hello::Questions => {
            let counted = Counted::enter(&inner.n_questioners, MAX_QUESTIONERS);
            if let Some((answerer, _counted)) = inner.answerer.get().zip(counted) {
                let _ = questions::answer_all(stream, answerer);
            }
        }
        Hello::Parts => {
            let counted = Counted::enter(&inner.n_served, MAX_SERVED);
            if let Some((server, _counted)) = inner.part_server.get().zip(counted) {
                let _ = parts::serve(stream, server);
            }
        }
    }
}

fn receive_rows(mut stream: &mut dyn Stream, connection: &Connection, hello: &RowsHello) {
    let Connection { inner, id } = connection;
    let end = stream.end().ok();
    let Some((limits, mut sink)) = end.and_then(|end| inner.sink(hello, *id, end)) else {
        return;
    };
    let accepted = stream.write_all(&[ROWS_ACCEPTED]);
    let error = match accepted.and_then(|()| stream.flush()) {
        Ok(()) => loop {
            let frame = match read_frame(&mut stream, &limits) {
                Ok(frame) => frame,
                Err(error) => break error,
            };
            if !sink.frame(frame) {
                break io::Error::other("the receiver has ended the connection");
            }
        },
        Err(error) => error,
    };
    // The end of a connection that the sender has replaced tells nothing.
    if inner.is_newest(hello, *id) {
        sink.ended(&error);
    }
}
