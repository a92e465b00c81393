//! A UDP port and all connections that go out and come in by it.

use std::{
    collections::HashMap,
    io::{self, IoSliceMut},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use quinn_proto::{
    ClientConfig, Connection, ConnectionEvent, ConnectionHandle, DatagramEvent, Dir, Endpoint,
    Event, StreamEvent, StreamId, Transmit, VarInt,
};
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};

use super::{Configs, QuicStream};
use crate::key::Identity;

/// Longest sleep of the thread that receives, while there are connections: timers that others have
/// set are late by no more.
const MAX_SLEEP: Duration = Duration::from_millis(50);
/// Longest sleep without connections.
const IDLE_SLEEP: Duration = Duration::from_secs(1);
/// The thread is woken for a timer that is so near: pacing has short ones, losses have long ones.
const NEAR: Duration = Duration::from_millis(10);
/// Bytes that are received at once.
const RECEIVE_BUFFER: usize = 64 << 10;
/// Bytes of the system's buffers for datagrams.
const SOCKET_BUFFER: usize = 2 << 20;

/// Takes connections that others have opened, or refuses them.
pub(in crate::lane::tcp) trait Accept: Send + Sync {
    /// Holds the place of a connection until it is taken.
    type Place: Send;

    /// A place for a connection from an address that has not said yet what it is for; `None`: it is
    /// not taken.
    fn place(&self, from: IpAddr) -> Option<Self::Place>;

    /// Takes a connection; must not wait.
    fn take(&self, stream: QuicStream, place: Self::Place);
}

/// A UDP port. Dropping it ends all connections.
pub(in crate::lane::tcp) struct QuicPort {
    shared: Arc<Shared>,
    client: ClientConfig,
    thread: Option<JoinHandle<()>>,
}

/// What the port and its streams share.
pub(super) struct Shared {
    socket: UdpSocket,
    udp: UdpSocketState,
    /// Where a datagram to this port is sent.
    own: SocketAddr,
    is_over: AtomicBool,
    core: Mutex<Core>,
}

/// The protocol.
pub(super) struct Core {
    endpoint: Endpoint,
    lines: HashMap<ConnectionHandle, Line>,
    /// Connections so far.
    n_lines: u64,
    sleeps_until: Instant,
    out: Vec<u8>,
}

/// A connection. Numbers of its endpoint are used again, so a number of ours is beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineId {
    handle: ConnectionHandle,
    serial: u64,
}

/// One connection.
pub(super) struct Line {
    serial: u64,
    pub(super) connection: Connection,
    /// Told of everything that happens.
    pub(super) changed: Arc<Condvar>,
    pub(super) is_connected: bool,
    pub(super) is_lost: bool,
    /// A stream that the other side has opened, until it is taken.
    opened: Option<StreamId>,
}

impl Line {
    fn new(connection: Connection, serial: u64) -> Self {
        Self {
            serial,
            connection,
            changed: Arc::default(),
            is_connected: false,
            is_lost: false,
            opened: None,
        }
    }

    fn id(&self, handle: ConnectionHandle) -> LineId {
        let serial = self.serial;
        LineId { handle, serial }
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Connected => self.is_connected = true,
            Event::ConnectionLost { .. } => self.is_lost = true,
            Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                self.opened = self.connection.streams().accept(Dir::Uni);
            }
            _ => {}
        }
        self.changed.notify_all();
    }
}

impl QuicPort {
    /// Listens for UDP at an address.
    ///
    /// # Errors
    /// The address is in use; the identity makes no TLS.
    pub(in crate::lane::tcp) fn open<A: Accept + 'static>(
        address: SocketAddr,
        identity: &Identity,
        accept: A,
    ) -> io::Result<Self> {
        let Configs {
            endpoint,
            client,
            server,
        } = Configs::new(identity)?;
        let socket = UdpSocket::bind(address)?;
        let udp = UdpSocketState::new(UdpSockRef::from(&socket))?;
        // Without large buffers it works, but loses datagrams earlier.
        let _ = udp.set_send_buffer_size(UdpSockRef::from(&socket), SOCKET_BUFFER);
        let _ = udp.set_recv_buffer_size(UdpSockRef::from(&socket), SOCKET_BUFFER);
        // One thread receives, and waits in the system.
        socket.set_nonblocking(false)?;
        let own = reached_at(socket.local_addr()?);
        let endpoint = Endpoint::new(endpoint, Some(server), !udp.may_fragment(), None);
        let shared = Arc::new(Shared {
            socket,
            udp,
            own,
            is_over: AtomicBool::new(false),
            core: Mutex::new(Core {
                endpoint,
                lines: HashMap::new(),
                n_lines: 0,
                sleeps_until: Instant::now(),
                out: Vec::new(),
            }),
        });
        let thread = std::thread::Builder::new().name("udp".to_owned());
        let thread = thread.spawn({
            let shared = Arc::clone(&shared);
            move || Driver::new(shared, accept).run()
        })?;
        Ok(Self {
            shared,
            client,
            thread: Some(thread),
        })
    }

    /// Connects to the node of this name.
    ///
    /// # Errors
    /// No connection until then.
    pub(in crate::lane::tcp) fn connect(
        &self,
        to: SocketAddr,
        server_name: &str,
        until: Instant,
    ) -> io::Result<QuicStream> {
        let shared = &self.shared;
        let mut core = shared.core();
        let now = Instant::now();
        let config = self.client.clone();
        let connected = core.endpoint.connect(now, config, to, server_name);
        let (handle, connection) = connected.map_err(io::Error::other)?;
        let id = core.insert(handle, connection);
        let changed = Arc::clone(&core.line(id)?.changed);
        core.drive(handle, shared);
        loop {
            let line = core.line(id)?;
            if line.is_connected
                && let Some(stream) = line.connection.streams().open(Dir::Uni)
            {
                drop(core);
                return Ok(QuicStream::new(Arc::clone(shared), id, stream, changed));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                core.close(id, shared);
                return Err(io::ErrorKind::TimedOut.into());
            }
            let waited = changed.wait_timeout(core, left);
            core = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl QuicPort {
    /// Ends all connections, and takes no others.
    pub(in crate::lane::tcp) fn end(&self) {
        self.shared.is_over.store(true, Ordering::Release);
        let mut core = self.shared.core();
        let ids = core.lines.iter().map(|(handle, line)| line.id(*handle));
        for id in ids.collect::<Vec<_>>() {
            core.close(id, &self.shared);
        }
        drop(core);
        self.shared.wake();
    }
}

impl Drop for QuicPort {
    fn drop(&mut self) {
        let is_here = |thread: &JoinHandle<()>| thread.thread().id() == thread::current().id();
        if self.thread.as_ref().is_some_and(is_here) {
            // The last user of the port is its own thread, which ends, since all else is gone.
            self.shared.is_over.store(true, Ordering::Release);
            return;
        }
        self.end();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}

/// The address at which this process reaches a port of its own.
fn reached_at(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

impl Shared {
    pub(super) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what a connection has made. A datagram that cannot be sent is as one that was lost.
    fn send(&self, transmit: &Transmit, contents: &[u8]) {
        let transmit = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.and_then(|ecn| {
                let bits = ecn as u8;
                quinn_udp::EcnCodepoint::from_bits(bits)
            }),
            contents: &contents[..transmit.size],
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        let _ = self.udp.try_send(UdpSockRef::from(&self.socket), &transmit);
    }

    /// Ends the sleep of the thread that receives, by a datagram that is none of the protocol.
    fn wake(&self) {
        let _ = self.socket.send_to(&[0], self.own);
    }
}

impl Core {
    fn insert(&mut self, handle: ConnectionHandle, connection: Connection) -> LineId {
        self.n_lines += 1;
        let line = Line::new(connection, self.n_lines);
        let id = line.id(handle);
        self.lines.insert(handle, line);
        id
    }

    /// A connection.
    ///
    /// # Errors
    /// It is over.
    pub(super) fn line(&mut self, id: LineId) -> io::Result<&mut Line> {
        let line = self.lines.get_mut(&id.handle);
        let line = line.filter(|line| line.serial == id.serial && !line.is_lost);
        line.ok_or_else(|| io::ErrorKind::ConnectionReset.into())
    }

    /// Sends the datagrams of a connection, and handles its events.
    fn drive(&mut self, handle: ConnectionHandle, shared: &Shared) {
        let Self {
            endpoint,
            lines,
            sleeps_until,
            out,
            ..
        } = self;
        let Some(line) = lines.get_mut(&handle) else {
            return;
        };
        let now = Instant::now();
        let max_datagrams = shared.udp.max_gso_segments();
        out.clear();
        while let Some(transmit) = line.connection.poll_transmit(now, max_datagrams, out) {
            shared.send(&transmit, out);
            out.clear();
        }
        while let Some(event) = line.connection.poll_endpoint_events() {
            if let Some(event) = endpoint.handle_event(handle, event) {
                line.connection.handle_event(event);
            }
        }
        while let Some(event) = line.connection.poll() {
            line.on(event);
        }
        let timeout = line.connection.poll_timeout();
        if timeout.is_some_and(|at| at < *sleeps_until && at < now + NEAR) {
            shared.wake();
        }
        if line.connection.is_drained() {
            line.changed.notify_all();
            lines.remove(&handle);
        }
    }

    /// Ends a connection at once.
    pub(super) fn close(&mut self, id: LineId, shared: &Shared) {
        if let Ok(line) = self.line(id) {
            let reason = bytes::Bytes::new();
            line.connection
                .close(Instant::now(), VarInt::from_u32(0), reason);
            line.is_lost = true;
            line.changed.notify_all();
            self.drive(id.handle, shared);
        }
    }

    /// Sends what a connection has to send.
    pub(super) fn drive_line(&mut self, id: LineId, shared: &Shared) {
        if self.line(id).is_ok() {
            self.drive(id.handle, shared);
        }
    }
}

/// The thread that receives.
struct Driver<A: Accept> {
    shared: Arc<Shared>,
    accept: A,
    /// Places of connections that have not opened a stream.
    places: HashMap<ConnectionHandle, A::Place>,
    buffer: Vec<u8>,
}

impl<A: Accept> Driver<A> {
    fn new(shared: Arc<Shared>, accept: A) -> Self {
        Self {
            shared,
            accept,
            places: HashMap::new(),
            buffer: vec![0; RECEIVE_BUFFER],
        }
    }

    fn run(mut self) {
        while !self.shared.is_over.load(Ordering::Acquire) {
            let sleep = self.tick();
            // Where that fails, the last one holds.
            let _ = self.shared.socket.set_read_timeout(Some(sleep));
            self.receive();
        }
    }

    /// Serves timers that are due; how long to sleep.
    fn tick(&mut self) -> Duration {
        let shared = Arc::clone(&self.shared);
        let mut core = shared.core();
        let now = Instant::now();
        let mut due = Vec::new();
        let mut next = None;
        for (handle, line) in &mut core.lines {
            match line.connection.poll_timeout() {
                Some(at) if at <= now => due.push(*handle),
                Some(at) => next = Some(next.map_or(at, |next: Instant| next.min(at))),
                None => {}
            }
        }
        let is_due = !due.is_empty();
        for handle in due {
            if let Some(line) = core.lines.get_mut(&handle) {
                line.connection.handle_timeout(now);
            }
            core.drive(handle, &shared);
        }
        let longest = match core.lines.is_empty() {
            true => IDLE_SLEEP,
            false => MAX_SLEEP,
        };
        let sleep = next.map_or(longest, |at| at.saturating_duration_since(now).min(longest));
        // Timers that were served have set others.
        let sleep = if is_due { Duration::ZERO } else { sleep };
        let sleep = sleep.max(Duration::from_micros(100));
        core.sleeps_until = now + sleep;
        let is_gone = |handle: &ConnectionHandle| !core.lines.contains_key(handle);
        let gone: Vec<ConnectionHandle> = self.places.keys().copied().filter(is_gone).collect();
        drop(core);
        for handle in gone {
            self.places.remove(&handle);
        }
        sleep
    }

    /// Receives once.
    fn receive(&mut self) {
        let mut meta = [RecvMeta::default()];
        let shared = Arc::clone(&self.shared);
        let mut buffer = std::mem::take(&mut self.buffer);
        let socket = UdpSockRef::from(&shared.socket);
        // With one buffer the system returns after the first datagrams.
        let received = shared
            .udp
            .recv(socket, &mut [IoSliceMut::new(&mut buffer)], &mut meta);
        if let Ok(1..) = received {
            let [meta] = &meta;
            let datagrams = buffer[..meta.len].chunks(meta.stride.max(1));
            let mut core = shared.core();
            let mut touched = Vec::new();
            for datagram in datagrams {
                self.handle(&mut core, meta, datagram, &mut touched);
            }
            let mut opened = Vec::new();
            for handle in touched {
                core.drive(handle, &shared);
                opened.extend(self.opened(&mut core, handle));
            }
            // What takes a connection may end it, which needs the lock.
            drop(core);
            for (stream, place) in opened {
                self.accept.take(stream, place);
            }
        }
        self.buffer = buffer;
    }

    fn handle(
        &mut self,
        core: &mut Core,
        meta: &RecvMeta,
        datagram: &[u8],
        touched: &mut Vec<ConnectionHandle>,
    ) {
        let ecn = meta
            .ecn
            .and_then(|ecn| quinn_proto::EcnCodepoint::from_bits(ecn as u8));
        let mut answer = Vec::new();
        let event = core.endpoint.handle(
            Instant::now(),
            meta.addr,
            meta.dst_ip,
            ecn,
            datagram.into(),
            &mut answer,
        );
        match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                pass_on(core, handle, event);
                if touched.last() != Some(&handle) {
                    touched.push(handle);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                let from = incoming.remote_address().ip().to_canonical();
                let Some(place) = self.accept.place(from) else {
                    core.endpoint.ignore(incoming);
                    return;
                };
                let now = Instant::now();
                match core.endpoint.accept(incoming, now, &mut answer, None) {
                    Ok((handle, connection)) => {
                        core.insert(handle, connection);
                        self.places.insert(handle, place);
                        touched.push(handle);
                    }
                    Err(error) => {
                        let response = error.response.iter();
                        response.for_each(|transmit| self.shared.send(transmit, &answer));
                    }
                }
            }
            Some(DatagramEvent::Response(transmit)) => self.shared.send(&transmit, &answer),
            None => {}
        }
    }

    /// A connection that has opened its stream.
    fn opened(
        &mut self,
        core: &mut Core,
        handle: ConnectionHandle,
    ) -> Option<(QuicStream, A::Place)> {
        let line = core.lines.get_mut(&handle)?;
        let opened = line.opened.take()?;
        let changed = Arc::clone(&line.changed);
        let id = line.id(handle);
        let place = self.places.remove(&handle)?;
        let stream = QuicStream::new(Arc::clone(&self.shared), id, opened, changed);
        Some((stream, place))
    }
}

fn pass_on(core: &mut Core, handle: ConnectionHandle, event: ConnectionEvent) {
    if let Some(line) = core.lines.get_mut(&handle) {
        line.connection.handle_event(event);
    }
}
