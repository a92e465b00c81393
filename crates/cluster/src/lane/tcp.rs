//! Frames over TCP and TLS 1.3, one connection per direction.
//!
//! ```text
//! sender, TLS client                      receiver, TLS server
//! queues ── thread ──▶ Hello, frame, frame … ──▶ thread ──▶ FrameSink
//! ```
//! The sender dials. Its first bytes name the ring and the stages of the connection, with the
//! secret that the ring's plan brought to both ends; without them nothing is read further. A sender
//! never waits for the network: frames go to a queue of bounded length, those of a header alone
//! before those with rows, and a thread writes them. After a failed write, a torn frame or silence
//! the connection is over; it is never resumed.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use rustls::{
    ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned,
    pki_types::ServerName,
};
use socket2::{SockRef, TcpKeepalive};

use crate::wire::{Frame, HEADER_BYTES, Header, Limits};

/// Time to connect.
const CONNECT: Duration = Duration::from_millis(1500);
/// Time for a handshake and the hello.
const HANDSHAKE: Duration = Duration::from_secs(3);
/// How long sent bytes may stay unacknowledged before the connection is over.
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);
/// Handshakes at once, half of them from one address; further connections are closed.
const MAX_HANDSHAKES: usize = 8;
/// Bytes of frames that wait in a sender's queue, besides one frame of any length.
const MAX_QUEUED: usize = 4 << 20;
/// Bytes in the kernel's buffer, so that short frames never wait behind seconds of data.
const SEND_BUFFER: usize = 256 << 10;

/// Wait after a connection that could not be accepted.
const RETRY: Duration = Duration::from_millis(50);

const MAGIC: [u8; 4] = *b"ATL1";
const HELLO_BYTES: usize = 48;

/// The secret of a connection, drawn by the coordinator for each plan.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LaneSecret(pub [u8; 32]);

impl std::fmt::Debug for LaneSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LaneSecret(..)")
    }
}

impl LaneSecret {
    /// Whether both are the same, in a time that does not depend on where they differ.
    fn is_same(&self, other: &Self) -> bool {
        let differences = self.0.iter().zip(other.0).map(|(a, b)| a ^ b);
        std::hint::black_box(differences.fold(0, |all, d| all | d)) == 0
    }
}

/// What a connection is for.
///
/// ```text
///  0  "ATL1"    4  u64 ring    12  u16 from    14  u16 to    16  secret, 32 bytes
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Number of the ring.
    pub ring: u64,
    /// Stage that sends; 0: the coordinator.
    pub from: u16,
    /// Stage that receives; 0: the coordinator.
    pub to: u16,
    /// The ring's secret.
    pub secret: LaneSecret,
}

impl Hello {
    /// Its bytes.
    pub fn to_bytes(self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..12].copy_from_slice(&self.ring.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.from.to_le_bytes());
        bytes[14..16].copy_from_slice(&self.to.to_le_bytes());
        bytes[16..].copy_from_slice(&self.secret.0);
        bytes
    }

    /// Reads it. `None`: other bytes.
    pub fn parse(bytes: &[u8; HELLO_BYTES]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (ring, rest) = rest.split_first_chunk::<8>()?;
        let (from, rest) = rest.split_first_chunk::<2>()?;
        let (to, secret) = rest.split_first_chunk::<2>()?;
        (*magic == MAGIC).then_some(Self {
            ring: u64::from_le_bytes(*ring),
            from: u16::from_le_bytes(*from),
            to: u16::from_le_bytes(*to),
            secret: LaneSecret(secret.try_into().ok()?),
        })
    }

    /// Whether a connection that says `self` is one that `expected` describes.
    pub fn fits(&self, expected: &Self) -> bool {
        let places = |hello: &Self| (hello.ring, hello.from, hello.to);
        places(self) == places(expected) && self.secret.is_same(&expected.secret)
    }
}

/// Why a frame is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The connection is over.
    #[error("the connection has ended")]
    Ended,
    /// The other side takes frames more slowly than they come.
    #[error("frames are queued faster than they are sent")]
    Full,
}

/// Sends frames to one stage. Dropping it ends the connection behind all queued frames.
#[derive(Debug)]
pub struct FrameSender {
    queues: Arc<Queues>,
    socket: TcpStream,
    thread: Option<JoinHandle<()>>,
}

impl FrameSender {
    /// Connects to the node of this name, and starts the thread that writes. `ended` is called
    /// once, with the reason, when the connection ends by itself.
    ///
    /// # Errors
    /// No connection, or no handshake, in time.
    pub fn dial(
        address: SocketAddr,
        tls: Arc<ClientConfig>,
        peer: ServerName<'static>,
        hello: Hello,
        ended: Box<dyn FnOnce(io::Error) + Send>,
    ) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&address, CONNECT)?;
        set_options(&socket)?;
        socket.set_read_timeout(Some(HANDSHAKE))?;
        let client = ClientConnection::new(tls, peer).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(client, socket.try_clone()?);
        stream.write_all(&hello.to_bytes())?;
        stream.flush()?;
        let queues = Arc::<Queues>::default();
        let thread = std::thread::Builder::new().name(format!("to stage {}", hello.to));
        let thread = thread.spawn({
            let queues = Arc::clone(&queues);
            move || {
                if let Err(error) = write_queued(&queues, &mut stream) {
                    queues.end();
                    ended(error);
                }
            }
        })?;
        Ok(Self {
            queues,
            socket,
            thread: Some(thread),
        })
    }

    /// Queues a frame.
    ///
    /// # Errors
    /// [`SendError`]; the frame is not sent, and the ring must begin another epoch.
    pub fn send(&self, frame: &mut Frame) -> Result<(), SendError> {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        self.queues.push(bytes, frame.header.kind.is_bare())
    }

    /// Ends the connection at once; queued frames are lost.
    pub fn cut(&self) {
        self.queues.end();
        // It may have ended already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl Drop for FrameSender {
    fn drop(&mut self) {
        self.queues.finish();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed, and ended the connection.
            let _ = thread.join();
        }
    }
}

/// Frames that wait to be written.
#[derive(Debug, Default)]
struct Queues {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Frames of a header alone, which go first.
    short: VecDeque<Vec<u8>>,
    long: VecDeque<Vec<u8>>,
    n_bytes: usize,
    /// Nothing comes any more; queued frames are still written.
    is_finished: bool,
    /// Nothing is written any more.
    is_ended: bool,
}

impl Queues {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, bytes: Vec<u8>, is_short: bool) -> Result<(), SendError> {
        let mut state = self.state();
        if state.is_ended || state.is_finished {
            return Err(SendError::Ended);
        }
        if state.n_bytes > 0 && state.n_bytes + bytes.len() > MAX_QUEUED {
            return Err(SendError::Full);
        }
        state.n_bytes += bytes.len();
        match is_short {
            true => state.short.push_back(bytes),
            false => state.long.push_back(bytes),
        }
        self.changed.notify_one();
        Ok(())
    }

    /// The next frame to write; `None`: no more.
    fn pop(&self) -> Option<Vec<u8>> {
        let mut state = self.state();
        loop {
            if state.is_ended {
                return None;
            }
            let short = state.short.pop_front();
            if let Some(bytes) = short.or_else(|| state.long.pop_front()) {
                state.n_bytes -= bytes.len();
                return Some(bytes);
            }
            if state.is_finished {
                return None;
            }
            let waiting = self.changed.wait(state);
            state = waiting.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn finish(&self) {
        self.state().is_finished = true;
        self.changed.notify_all();
    }

    fn end(&self) {
        self.state().is_ended = true;
        self.changed.notify_all();
    }
}

/// Writes frames until none comes any more, then says so to the other side.
fn write_queued(queues: &Queues, stream: &mut impl WriteFrames) -> io::Result<()> {
    while let Some(bytes) = queues.pop() {
        stream.write_all(&bytes)?;
        stream.flush()?;
    }
    stream.close()
}

/// A stream that can say that no more comes.
trait WriteFrames: Write {
    fn close(&mut self) -> io::Result<()>;
}

impl WriteFrames for StreamOwned<ClientConnection, TcpStream> {
    fn close(&mut self) -> io::Result<()> {
        self.conn.send_close_notify();
        self.flush()
    }
}

/// Takes the frames of one connection. Its methods are called by one thread and must not wait.
pub trait FrameSink: Send {
    /// What the ring's plan allows in frames.
    fn limits(&self) -> Limits;

    /// Takes a frame. `false`: no more is read, and the connection ends.
    fn frame(&mut self, frame: Frame) -> bool;

    /// The connection has ended: it was closed, or bytes came that are no frame of the ring.
    fn ended(&mut self, why: io::Error);
}

/// Decides about a connection by its hello. `None`: it is refused.
pub type Acceptor = Arc<dyn Fn(Hello) -> Option<Box<dyn FrameSink>> + Send + Sync>;

/// Accepts connections until it is dropped.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens; port 0: any.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn bind(
        address: SocketAddr,
        mut tls: ServerConfig,
        acceptor: Acceptor,
    ) -> io::Result<Self> {
        // Nothing is sent to a sender, which does not read.
        tls.send_tls13_tickets = 0;
        let tls = Arc::new(tls);
        let socket = TcpListener::bind(address)?;
        let address = socket.local_addr()?;
        let is_over = Arc::<AtomicBool>::default();
        let thread = std::thread::Builder::new().name("lane".to_owned()).spawn({
            let is_over = Arc::clone(&is_over);
            let doors = Arc::<Mutex<Vec<IpAddr>>>::default();
            move || {
                for stream in socket.incoming() {
                    if is_over.load(Ordering::Acquire) {
                        return;
                    }
                    match stream {
                        Ok(stream) => admit(stream, &tls, &acceptor, &doors),
                        // No descriptors are left, perhaps, and the next try would fail at once.
                        Err(_) => std::thread::sleep(RETRY),
                    }
                }
            }
        })?;
        Ok(Self {
            address,
            is_over,
            thread: Some(thread),
        })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // Wakes the thread; where that fails, the next connection does.
        if TcpStream::connect_timeout(&self.address, CONNECT).is_ok()
            && let Some(thread) = self.thread.take()
        {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}

/// Hands a connection to a thread of its own, unless too many have not said yet what they are for,
/// or one from the same address.
fn admit(
    stream: TcpStream,
    tls: &Arc<ServerConfig>,
    acceptor: &Acceptor,
    doors: &Arc<Mutex<Vec<IpAddr>>>,
) {
    let Ok(peer) = stream.peer_addr() else { return };
    let door = {
        let mut busy = doors.lock().unwrap_or_else(PoisonError::into_inner);
        let n_same = busy.iter().filter(|ip| **ip == peer.ip()).count();
        // Several stages may run on one machine, and on loopback all do.
        if busy.len() >= MAX_HANDSHAKES || n_same >= MAX_HANDSHAKES / 2 && !peer.ip().is_loopback()
        {
            return;
        }
        busy.push(peer.ip());
        Door {
            doors: Arc::clone(doors),
            ip: peer.ip(),
        }
    };
    let tls = Arc::clone(tls);
    let acceptor = Arc::clone(acceptor);
    // Without a thread the connection is dropped, which the other side sees.
    let _ = std::thread::Builder::new()
        .name("from a stage".to_owned())
        .spawn(move || receive(stream, tls, &acceptor, door));
}

/// The place of a connection among those that have not said yet what they are for.
struct Door {
    doors: Arc<Mutex<Vec<IpAddr>>>,
    ip: IpAddr,
}

impl Drop for Door {
    fn drop(&mut self) {
        let mut busy = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(i) = busy.iter().position(|ip| *ip == self.ip) {
            busy.swap_remove(i);
        }
    }
}

/// Reads one connection to its end.
fn receive(socket: TcpStream, tls: Arc<ServerConfig>, acceptor: &Acceptor, door: Door) {
    let Ok((mut stream, hello)) = greet(socket, tls) else {
        return;
    };
    drop(door);
    let Some(mut sink) = acceptor(hello) else {
        return;
    };
    let limits = sink.limits();
    let error = loop {
        let frame = match read_frame(&mut stream, &limits) {
            Ok(frame) => frame,
            Err(error) => break error,
        };
        if !sink.frame(frame) {
            break io::Error::other("the receiver has ended the connection");
        }
    };
    sink.ended(error);
}

type ServerStream = StreamOwned<ServerConnection, TcpStream>;

/// The handshake and the hello.
fn greet(socket: TcpStream, tls: Arc<ServerConfig>) -> io::Result<(ServerStream, Hello)> {
    set_options(&socket)?;
    socket.set_read_timeout(Some(HANDSHAKE))?;
    let server = ServerConnection::new(tls).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(server, socket);
    let mut hello = [0; HELLO_BYTES];
    stream.read_exact(&mut hello)?;
    let hello = Hello::parse(&hello).ok_or(io::ErrorKind::InvalidData)?;
    stream.sock.set_read_timeout(None)?;
    Ok((stream, hello))
}

/// Reads one frame; its length is checked before its body is allocated.
fn read_frame(stream: &mut impl Read, limits: &Limits) -> io::Result<Frame> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head)?;
    let header = Header::parse(&head).map_err(invalid)?;
    let n = limits.body_bytes(&header).map_err(invalid)?;
    let mut bytes = vec![0; HEADER_BYTES + n];
    bytes[..HEADER_BYTES].copy_from_slice(&head);
    stream.read_exact(&mut bytes[HEADER_BYTES..])?;
    Frame::parse(&bytes, limits).map_err(invalid)
}

/// No delay, small buffers, and an end where the other side is silent.
fn set_options(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_write_timeout(Some(UNACKNOWLEDGED))?;
    let socket = SockRef::from(socket);
    socket.set_send_buffer_size(SEND_BUFFER)?;
    let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(1));
    #[cfg(not(any(target_os = "openbsd", target_os = "windows")))]
    let keepalive = keepalive
        .with_interval(Duration::from_secs(1))
        .with_retries(4);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    Ok(())
}
