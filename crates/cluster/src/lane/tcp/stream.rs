//! Bytes over TCP, with TLS or without.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    ops::DerefMut,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, ServerConfig, ServerConnection, SideData,
    StreamOwned,
};
use socket2::{SockRef, TcpKeepalive};

use super::{doors::Notes, fallback::Unreached, hello::Hello};
use crate::{
    control::NodeName,
    key::Identity,
    lane::udp::{QuicEnd, QuicPort, QuicStream},
    wire::{Frame, HEADER_BYTES, Header, Limits},
};

/// Time to connect.
const CONNECT: Duration = Duration::from_millis(1500);
/// Time for a handshake and the hello.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(3);
/// How long sent bytes may stay unacknowledged before the connection is over.
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);
/// Bytes in the kernel's buffer, so that short frames never wait behind seconds of data.
const SEND_BUFFER: usize = 256 << 10;

/// How often a thread that reads without a deadline looks whether another one has shut its socket:
/// Windows does not wake it.
const LOOK: Option<Duration> = if cfg!(windows) {
    Some(Duration::from_millis(250))
} else {
    None
};

/// How connections are protected.
#[derive(Clone, Debug)]
pub enum Security {
    /// TLS 1.3, both ends with certificates of the cluster.
    Tls(Arc<Identity>),
    /// Nothing: all that reach the port can ask and answer, and all on the way can read. The
    /// secret of a ring keeps other programs' rows out, and no more.
    Plain,
}

/// What connections are made with.
#[derive(Clone)]
pub(super) enum Protection {
    Tls(Box<TlsMeans>),
    Plain,
}

/// Certificates, and the ways that have them.
#[derive(Clone)]
pub(super) struct TlsMeans {
    pub(super) identity: Arc<Identity>,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    /// The UDP port, once it is open.
    pub(super) udp: Arc<OnceLock<QuicPort>>,
    pub(super) unreached: Arc<Unreached>,
    pub(super) notes: Arc<Notes>,
}

/// A connection whose handshake is done.
pub(super) trait Stream: Read + Write + Send {
    /// What ends the connection from elsewhere.
    fn end(&self) -> io::Result<StreamEnd>;

    /// Whether the other side, which sends nothing, has ended the connection.
    fn is_ended(&self) -> bool;

    /// Ends the connection when sent bytes stay unacknowledged for so long.
    fn set_patience(&self, time: Duration) -> io::Result<()>;

    /// Sets when all reading and writing from now on must be done; `None`: it has time.
    fn set_deadline(&mut self, until: Option<Instant>);

    /// Says that no more comes.
    fn close(&mut self) -> io::Result<()>;
}

/// Ends a connection.
pub(super) enum StreamEnd {
    Tcp(TcpStream),
    Quic(QuicEnd),
}

impl StreamEnd {
    /// Ends it at once, in both directions; it may have ended already.
    pub(super) fn shut(&self) {
        match self {
            Self::Tcp(socket) => {
                let _ = socket.shutdown(Shutdown::Both);
            }
            Self::Quic(end) => end.close(),
        }
    }
}

/// A socket with a deadline for all that it reads and writes, however little comes at a time.
pub(crate) struct TimedSocket {
    tcp: TcpStream,
    until: Option<Instant>,
}

impl TimedSocket {
    /// All reading and writing must be done until then.
    pub(crate) fn new(tcp: TcpStream, until: Instant) -> Self {
        Self {
            tcp,
            until: Some(until),
        }
    }

    /// Fails behind the deadline.
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self
            .until
            .map(|until| until.saturating_duration_since(Instant::now()));
        match left {
            Some(Duration::ZERO) => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }

    /// Waits for bytes or the end of the connection, and takes no bytes, so that none are lost when
    /// a wait is over.
    fn wait_for_bytes(&self, look: Duration) -> io::Result<()> {
        use io::ErrorKind::{TimedOut, WouldBlock};
        self.tcp.set_read_timeout(Some(look))?;
        loop {
            match self.tcp.peek(&mut [0]) {
                Err(error) if matches!(error.kind(), TimedOut | WouldBlock) => {}
                other => return other.map(|_| ()),
            }
        }
    }
}

impl Read for TimedSocket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match (self.left()?, LOOK) {
            (Some(left), _) => self.tcp.set_read_timeout(Some(left))?,
            (None, Some(look)) => self.wait_for_bytes(look)?,
            (None, None) => {}
        }
        self.tcp.read(bytes)
    }
}

impl Write for TimedSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left()?;
        self.tcp.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tcp.flush()
    }
}

impl Stream for TimedSocket {
    fn end(&self) -> io::Result<StreamEnd> {
        self.tcp.try_clone().map(StreamEnd::Tcp)
    }

    fn is_ended(&self) -> bool {
        let peek = || {
            self.tcp.set_nonblocking(true)?;
            let peeked = self.tcp.peek(&mut [0]);
            self.tcp.set_nonblocking(false)?;
            peeked
        };
        !matches!(peek(), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    fn set_patience(&self, time: Duration) -> io::Result<()> {
        set_patience(&self.tcp, time)
    }

    fn set_deadline(&mut self, until: Option<Instant>) {
        self.until = until;
        if until.is_none() {
            // Where that fails, reading ends too early, which is as a connection that was cut.
            let _ = self.tcp.set_read_timeout(None);
        }
    }

    fn close(&mut self) -> io::Result<()> {
        self.tcp.shutdown(std::net::Shutdown::Write)
    }
}

/// TLS of either side.
impl<C, S> Stream for StreamOwned<C, TimedSocket>
where
    C: DerefMut<Target = ConnectionCommon<S>> + Send,
    S: SideData,
{
    fn end(&self) -> io::Result<StreamEnd> {
        self.sock.end()
    }

    fn is_ended(&self) -> bool {
        self.sock.is_ended()
    }

    fn set_patience(&self, time: Duration) -> io::Result<()> {
        self.sock.set_patience(time)
    }

    fn set_deadline(&mut self, until: Option<Instant>) {
        self.sock.set_deadline(until);
    }

    fn close(&mut self) -> io::Result<()> {
        self.conn.send_close_notify();
        self.flush()
    }
}

impl Stream for QuicStream {
    fn end(&self) -> io::Result<StreamEnd> {
        Ok(StreamEnd::Quic(Self::end(self)))
    }

    fn is_ended(&self) -> bool {
        Self::is_ended(self)
    }

    /// Its connection has a patience of its own.
    fn set_patience(&self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn set_deadline(&mut self, until: Option<Instant>) {
        Self::set_deadline(self, until);
    }

    fn close(&mut self) -> io::Result<()> {
        self.finish()
    }
}

impl Protection {
    /// `notes` hears of nodes that UDP does not reach.
    pub(super) fn new(security: Security, notes: &Arc<Notes>) -> io::Result<Self> {
        let Security::Tls(identity) = security else {
            return Ok(Self::Plain);
        };
        let mut server = identity.server_config().map_err(io::Error::other)?;
        // A sender of rows does not read; nothing is sent to it.
        server.send_tls13_tickets = 0;
        Ok(Self::Tls(Box::new(TlsMeans {
            client: Arc::new(identity.client_config().map_err(io::Error::other)?),
            server: Arc::new(server),
            identity,
            udp: Arc::default(),
            unreached: Arc::default(),
            notes: Arc::clone(notes),
        })))
    }

    /// Connects to a node and says what for; with a name, only the node of this name is taken.
    /// It takes `time` at most, and the deadline stays until another one is set.
    pub(super) fn dial(
        &self,
        address: SocketAddr,
        node: Option<&NodeName>,
        hello: &Hello,
        time: Duration,
    ) -> io::Result<Box<dyn Stream>> {
        let until = Some(Instant::now() + time);
        let tcp = TcpStream::connect_timeout(&address, time.min(CONNECT))?;
        set_options(&tcp)?;
        let socket = TimedSocket { tcp, until };
        let mut stream: Box<dyn Stream> = match self {
            Self::Plain => Box::new(socket),
            Self::Tls(tls) => {
                let name = match node {
                    Some(node) => tls.identity.server_name(node.as_str()),
                    None => tls.identity.any_server_name(),
                };
                let name = name.map_err(io::Error::other)?;
                let client = ClientConnection::new(Arc::clone(&tls.client), name);
                let client = client.map_err(io::Error::other)?;
                Box::new(StreamOwned::new(client, socket))
            }
        };
        stream.write_all(&hello.to_bytes())?;
        stream.flush()?;
        Ok(stream)
    }

    /// Ends all connections over UDP, and takes no others.
    pub(super) fn end_udp(&self) {
        if let Self::Tls(tls) = self
            && let Some(port) = tls.udp.get()
        {
            port.end();
        }
    }

    /// The other side of [`dial`](Self::dial). There is no deadline afterwards.
    pub(super) fn accept(&self, tcp: TcpStream) -> io::Result<(Box<dyn Stream>, Hello)> {
        set_options(&tcp)?;
        let until = Some(Instant::now() + HANDSHAKE);
        let socket = TimedSocket { tcp, until };
        let mut stream: Box<dyn Stream> = match self {
            Self::Plain => Box::new(socket),
            Self::Tls(tls) => {
                let server =
                    ServerConnection::new(Arc::clone(&tls.server)).map_err(io::Error::other)?;
                Box::new(StreamOwned::new(server, socket))
            }
        };
        let hello = Hello::read(&mut stream)?;
        stream.set_deadline(None);
        Ok((stream, hello))
    }
}

/// Reads one frame; its length is checked before its body is allocated.
pub(super) fn read_frame(stream: &mut dyn Read, limits: &Limits) -> io::Result<Frame> {
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

/// Writes a length and so many bytes.
pub(super) fn write_message(stream: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    let n = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut message = n.to_le_bytes().to_vec();
    message.extend_from_slice(bytes);
    stream.write_all(&message)?;
    stream.flush()
}

/// Reads a length, at most `max`, and so many bytes.
pub(super) fn read_message(stream: &mut dyn Read, max: usize) -> io::Result<Vec<u8>> {
    let mut n = [0; 4];
    stream.read_exact(&mut n)?;
    let n = u32::from_le_bytes(n) as usize;
    if n > max {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a message of {n} bytes, {max} at most"),
        ));
    }
    let mut bytes = vec![0; n];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Ends the connection when sent bytes stay unacknowledged for so long.
fn set_patience(socket: &TcpStream, time: Duration) -> io::Result<()> {
    socket.set_write_timeout(Some(time))?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    SockRef::from(socket).set_tcp_user_timeout(Some(time))?;
    Ok(())
}

/// No delay, small buffers, and an end where the other side is silent.
fn set_options(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    set_patience(socket, UNACKNOWLEDGED)?;
    let socket = SockRef::from(socket);
    socket.set_send_buffer_size(SEND_BUFFER)?;
    let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(1));
    #[cfg(not(any(target_os = "openbsd", target_os = "windows")))]
    let keepalive = keepalive
        .with_interval(Duration::from_secs(1))
        .with_retries(4);
    socket.set_tcp_keepalive(&keepalive)
}
