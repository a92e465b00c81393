//! A UDP port and all connections that go out and come in by it.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Instant,
};

use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, Dir, Endpoint, Event, StreamEvent, StreamId,
    Transmit, VarInt,
};

use super::{Configs, QuicStream, driver, socket::Socket, way::Ways};
use crate::key::Identity;

/// Holds the place of a connection that has not said what it is for, and takes its stream in the
/// end. It is called and dropped by the threads of the port, so it must not own the port.
pub(in crate::lane) type Reserved = Box<dyn FnOnce(QuicStream) + Send>;
/// Gives a place for a connection from an address, or refuses it.
pub(super) type Admission = Box<dyn Fn(IpAddr) -> Option<Reserved> + Send + Sync>;

/// A UDP port. Dropping it ends all connections.
pub(in crate::lane) struct QuicPort {
    shared: Arc<Shared>,
    client: ClientConfig,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What the port and its streams share.
pub(super) struct Shared {
    pub(super) socket: Socket,
    pub(super) is_over: AtomicBool,
    core: Mutex<Core>,
    /// Told of timers that are due before [`Core::sleeps_until`], and of the end.
    pub(super) timers: Condvar,
    pub(super) admission: Admission,
    ways: Ways,
}

/// The protocol.
pub(super) struct Core {
    pub(super) endpoint: Endpoint,
    pub(super) lines: HashMap<ConnectionHandle, Line>,
    /// Connections so far.
    n_lines: u64,
    /// When timers are looked at; `None`: when told to.
    pub(super) sleeps_until: Option<Instant>,
    out: Vec<u8>,
}

/// A connection. The endpoint uses its numbers again, so a second number is beside it.
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
    is_connected: bool,
    pub(super) is_lost: bool,
    /// The other side has all bytes of a stream that was finished.
    pub(super) is_delivered: bool,
    /// A stream that the other side has opened, until it is taken.
    opened: Option<StreamId>,
    /// What takes the stream of the other side, and until when.
    place: Option<(Reserved, Instant)>,
}

impl Line {
    fn new(connection: Connection, serial: u64, place: Option<(Reserved, Instant)>) -> Self {
        Self {
            serial,
            connection,
            changed: Arc::default(),
            is_connected: false,
            is_lost: false,
            is_delivered: false,
            opened: None,
            place,
        }
    }

    pub(super) fn id(&self, handle: ConnectionHandle) -> LineId {
        let serial = self.serial;
        LineId { handle, serial }
    }

    /// When something is to be done, though nothing arrives.
    pub(super) fn timeout(&mut self) -> Option<Instant> {
        let timers = self.connection.poll_timeout();
        [timers, self.place_until()].into_iter().flatten().min()
    }

    /// When the other side must have opened its stream.
    pub(super) fn place_until(&self) -> Option<Instant> {
        let place = self.place.as_ref().filter(|_| !self.is_lost);
        place.map(|(_, until)| *until)
    }

    /// The stream that the other side has opened, once, with what takes it.
    pub(super) fn take_opened(&mut self) -> Option<(StreamId, Reserved)> {
        let stream = self.opened.take()?;
        let (place, _) = self.place.take()?;
        Some((stream, place))
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Connected => self.is_connected = true,
            Event::ConnectionLost { .. } => self.lose(),
            Event::Stream(StreamEvent::Finished { .. }) => self.is_delivered = true,
            Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) => {
                self.opened = self.connection.streams().accept(Dir::Bi);
            }
            _ => {}
        }
        self.changed.notify_all();
    }

    fn lose(&mut self) {
        self.is_lost = true;
        self.place = None;
        self.changed.notify_all();
    }
}

impl QuicPort {
    /// Listens for UDP at an address.
    ///
    /// # Errors
    /// The address is in use; the identity makes no TLS.
    pub(in crate::lane) fn open(
        address: SocketAddr,
        identity: &Identity,
        admission: Admission,
    ) -> io::Result<Self> {
        let Configs {
            endpoint,
            client,
            server,
        } = Configs::new(identity)?;
        let socket = Socket::bind(address)?;
        let endpoint = Endpoint::new(endpoint, Some(server), !socket.may_fragment(), None);
        let shared = Arc::new(Shared {
            socket,
            is_over: AtomicBool::new(false),
            core: Mutex::new(Core {
                endpoint,
                lines: HashMap::new(),
                n_lines: 0,
                sleeps_until: None,
                out: Vec::new(),
            }),
            timers: Condvar::new(),
            admission,
            ways: Ways::default(),
        });
        Ok(Self {
            threads: Mutex::new(driver::start(&shared)?),
            shared,
            client,
        })
    }

    /// Connects to the node of this name.
    ///
    /// # Errors
    /// No connection until then.
    pub(in crate::lane) fn connect(
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
        let id = core.insert(handle, connection, None);
        let changed = Arc::clone(&core.line(id)?.changed);
        core.drive(handle, shared);
        loop {
            let line = core.line(id)?;
            if line.is_connected
                && let Some(stream) = line.connection.streams().open(Dir::Bi)
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

    /// Takes and sends the datagrams of one of our addresses past the network stack, from now on.
    ///
    /// # Errors
    /// Why not; they go by the socket.
    pub(in crate::lane) fn bypass(&self, own: Ipv4Addr) -> Result<(), String> {
        let started = self.shared.ways.open(own, &self.shared)?;
        let threads = self.threads.lock();
        threads
            .unwrap_or_else(PoisonError::into_inner)
            .extend(started);
        Ok(())
    }

    /// Ends all connections, and takes no others.
    pub(in crate::lane) fn end(&self) {
        let mut core = self.shared.core();
        self.shared.is_over.store(true, Ordering::Release);
        let ids = core.lines.iter().map(|(handle, line)| line.id(*handle));
        for id in ids.collect::<Vec<_>>() {
            core.close(id, &self.shared);
        }
        drop(core);
        self.shared.timers.notify_all();
        self.shared.socket.wake();
    }
}

impl Drop for QuicPort {
    fn drop(&mut self) {
        self.end();
        let threads = self
            .threads
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    pub(super) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends datagrams past the network stack where that goes, else by the socket.
    pub(super) fn send(&self, transmit: &Transmit, contents: &[u8]) {
        if !self.ways.send(transmit, contents) {
            self.socket.send(transmit, contents);
        }
    }
}

impl Core {
    pub(super) fn insert(
        &mut self,
        handle: ConnectionHandle,
        connection: Connection,
        place: Option<(Reserved, Instant)>,
    ) -> LineId {
        self.n_lines += 1;
        let line = Line::new(connection, self.n_lines, place);
        let id = line.id(handle);
        self.lines.insert(handle, line);
        id
    }

    /// A connection, though it may be over.
    pub(super) fn any_line(&mut self, id: LineId) -> io::Result<&mut Line> {
        let line = self.lines.get_mut(&id.handle);
        let line = line.filter(|line| line.serial == id.serial);
        line.ok_or_else(|| io::ErrorKind::ConnectionReset.into())
    }

    /// A connection.
    ///
    /// # Errors
    /// It is over.
    pub(super) fn line(&mut self, id: LineId) -> io::Result<&mut Line> {
        match self.any_line(id)? {
            line if line.is_lost => Err(io::ErrorKind::ConnectionReset.into()),
            line => Ok(line),
        }
    }

    /// Sends the datagrams of a connection, and handles its events.
    pub(super) fn drive(&mut self, handle: ConnectionHandle, shared: &Shared) {
        let Some(line) = self.lines.get_mut(&handle) else {
            return;
        };
        let now = Instant::now();
        let max = shared.socket.max_segments();
        let connection = &mut line.connection;
        self.out.clear();
        while let Some(transmit) = connection.poll_transmit(now, max, &mut self.out) {
            shared.send(&transmit, &self.out);
            self.out.clear();
        }
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(handle, event) {
                connection.handle_event(event);
            }
        }
        while let Some(event) = line.connection.poll() {
            line.on(event);
        }
        if line.connection.is_drained() {
            line.lose();
            self.lines.remove(&handle);
        } else if let Some(at) = line.timeout()
            && self.sleeps_until.is_none_or(|until| at < until)
        {
            self.sleeps_until = Some(at);
            shared.timers.notify_one();
        }
    }

    /// Ends a connection at once.
    pub(super) fn close(&mut self, id: LineId, shared: &Shared) {
        if let Ok(line) = self.line(id) {
            let reason = bytes::Bytes::new();
            let now = Instant::now();
            line.connection.close(now, VarInt::from_u32(0), reason);
            line.lose();
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
