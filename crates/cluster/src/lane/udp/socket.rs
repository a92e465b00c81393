//! The datagrams of a port: sent and received many at once. Knows nothing of their bytes.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use quinn_proto::{EcnCodepoint, Transmit};
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use socket2::SockRef;

/// Bytes that are received at once: 64 KiB is the most that the system joins.
pub(super) const RECEIVE_BYTES: usize = 64 << 10;
/// Bytes of the system's buffers for datagrams.
const SOCKET_BUFFER: usize = 2 << 20;
/// Longest wait for datagrams, where the thread that waits cannot be woken.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// A UDP socket.
pub(super) struct Socket {
    socket: UdpSocket,
    /// `None`: the system lacks an option that this wants, as wine does. Datagrams are then sent
    /// and received one by one, without marks of congestion, and are no longer than any network
    /// takes.
    joined: Option<UdpSocketState>,
    /// Where a datagram to this socket is sent.
    own: SocketAddr,
}

/// Datagrams that have arrived together, from one sender.
pub(super) struct Arrival<'a> {
    pub(super) from: SocketAddr,
    /// Our address to which they were sent, if the system says so.
    pub(super) to: Option<IpAddr>,
    /// Congestion on the way, as the network has marked it.
    pub(super) ecn: Option<EcnCodepoint>,
    /// Datagrams of equal length, the last one of the rest.
    pub(super) bytes: &'a [u8],
    pub(super) stride: usize,
}

impl Socket {
    /// Binds it.
    ///
    /// # Errors
    /// The address is in use.
    pub(super) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        let joined = UdpSocketState::new(UdpSockRef::from(&socket)).ok();
        // Without large buffers it works, but loses datagrams earlier.
        let _ = SockRef::from(&socket).set_send_buffer_size(SOCKET_BUFFER);
        let _ = SockRef::from(&socket).set_recv_buffer_size(SOCKET_BUFFER);
        // One thread receives, and waits in the system.
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(LONGEST_WAIT))?;
        let own = reached_at(socket.local_addr()?);
        Ok(Self {
            socket,
            joined,
            own,
        })
    }

    /// Its port.
    #[cfg(target_os = "linux")]
    pub(super) fn port(&self) -> u16 {
        self.own.port()
    }

    /// Whether the system may cut datagrams into fragments, which forbids tries of larger ones.
    pub(super) fn may_fragment(&self) -> bool {
        let joined = self.joined.as_ref();
        joined.is_none_or(UdpSocketState::may_fragment)
    }

    /// Most datagrams of one [`Transmit`].
    pub(super) fn max_segments(&self) -> usize {
        let joined = self.joined.as_ref();
        joined.map_or(1, UdpSocketState::max_gso_segments)
    }

    /// Sends datagrams. One that cannot be sent is as one that was lost.
    pub(super) fn send(&self, transmit: &Transmit, contents: &[u8]) {
        let contents = &contents[..transmit.size];
        let Some(joined) = &self.joined else {
            let _ = self.socket.send_to(contents, transmit.destination);
            return;
        };
        let ecn = transmit.ecn;
        let transmit = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents,
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        let _ = joined.try_send(UdpSockRef::from(&self.socket), &transmit);
    }

    /// Waits for datagrams; `None`: there are none yet.
    ///
    /// # Errors
    /// That of the system.
    pub(super) fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<Arrival<'a>>> {
        match self.receive_meta(buffer) {
            Ok(meta) => Ok(Some(Arrival {
                from: meta.addr,
                to: meta.dst_ip,
                ecn: meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8)),
                bytes: &buffer[..meta.len],
                stride: meta.stride.max(1),
            })),
            Err(error) if is_nothing(error.kind()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Receives datagrams, and says where they came from and how long they are.
    fn receive_meta(&self, buffer: &mut [u8]) -> io::Result<RecvMeta> {
        let mut meta = [RecvMeta::default()];
        let Some(joined) = &self.joined else {
            let [meta] = &mut meta;
            (meta.len, meta.addr) = self.socket.recv_from(buffer)?;
            meta.stride = meta.len;
            return Ok(*meta);
        };
        // With one buffer the system returns after the first datagrams.
        let buffers = &mut [IoSliceMut::new(buffer)];
        match joined.recv(UdpSockRef::from(&self.socket), buffers, &mut meta)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(meta[0]),
        }
    }

    /// Ends a wait, by a datagram that is none of the protocol.
    pub(super) fn wake(&self) {
        // Where that fails, the wait ends by itself.
        let _ = self.socket.send_to(&[0], self.own);
    }
}

/// A wait that has ended without datagrams; on Windows also the answer of a machine that has no
/// such port, to a datagram sent earlier.
fn is_nothing(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{ConnectionReset, Interrupted, TimedOut, WouldBlock};
    matches!(kind, ConnectionReset | Interrupted | TimedOut | WouldBlock)
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
