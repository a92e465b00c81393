//! The sockets of beacons: multicast on each of some interfaces, IPv4 and IPv6.
//!
//! Knows no key and no layout. A datagram is sent from the address at which its sender is reached,
//! by the interface of that address; so an address is heard where it leads somewhere. Nothing
//! passes a router.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket},
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, Type};

use super::BEACON_BYTES;

/// The UDP port of beacons.
pub const BEACON_PORT: u16 = 9989;
/// The group of IPv4: of the range for local use (RFC 2365).
pub const BEACON_GROUP_V4: Ipv4Addr = Ipv4Addr::new(239, 255, 97, 116);
/// The group of IPv6: transient, of one link (RFC 4291).
pub const BEACON_GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff12, 0, 0, 0, 0, 0, 0x6174, 0x7461);

/// An address of this machine and its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeaconInterface {
    /// The address.
    pub ip: IpAddr,
    /// Index of the interface, which IPv6 needs.
    pub index: u32,
}

/// Hears datagrams of the groups.
pub(super) struct Receivers {
    v4: io::Result<UdpSocket>,
    v6: io::Result<UdpSocket>,
}

impl Receivers {
    /// Listens to no group yet.
    ///
    /// # Errors
    /// Neither IPv4 nor IPv6 can be listened on.
    pub(super) fn open() -> io::Result<Self> {
        let v4 = receiver(Domain::IPV4);
        let v6 = receiver(Domain::IPV6);
        match (v4, v6) {
            (Err(error), Err(_)) => Err(error),
            (v4, v6) => Ok(Self { v4, v6 }),
        }
    }

    /// Joins the groups on these interfaces. Those that are joined already stay.
    pub(super) fn join(&self, interfaces: &[BeaconInterface]) {
        for interface in interfaces {
            // Joined already, or it has gone: then others remain.
            let _ = match (interface.ip, &self.v4, &self.v6) {
                (IpAddr::V4(ip), Ok(v4), _) => v4.join_multicast_v4(&BEACON_GROUP_V4, &ip),
                (IpAddr::V6(_), _, Ok(v6)) => {
                    v6.join_multicast_v6(&BEACON_GROUP_V6, interface.index)
                }
                _ => Ok(()),
            };
        }
    }

    /// Waits for datagrams, at most so long, and takes those that are there. One that is longer
    /// than a beacon has one byte more here.
    pub(super) fn receive(&self, wait: Duration, take: &mut dyn FnMut(&[u8], IpAddr)) {
        // Zero would be no limit.
        let wait = wait.max(Duration::from_millis(1));
        let first = match (&self.v4, &self.v6) {
            (Ok(v4), _) => v4,
            (_, Ok(v6)) => v6,
            _ => return,
        };
        let is_set = first.set_nonblocking(false).is_ok();
        if !is_set || first.set_read_timeout(Some(wait)).is_err() {
            return std::thread::sleep(wait);
        }
        receive_from(first, take);
        for socket in [&self.v4, &self.v6].into_iter().flatten() {
            // Bounded, so that a flood does not keep the thread here.
            if socket.set_nonblocking(true).is_ok() {
                (0..64).take_while(|_| receive_from(socket, take)).count();
            }
        }
    }
}

/// Takes one datagram. Whether there was one.
fn receive_from(socket: &UdpSocket, take: &mut dyn FnMut(&[u8], IpAddr)) -> bool {
    let mut bytes = [0; BEACON_BYTES + 1];
    match socket.recv_from(&mut bytes) {
        Ok((n, from)) => {
            take(&bytes[..n], from.ip());
            true
        }
        // Windows says so of a datagram that is too long.
        Err(_) => false,
    }
}

fn receiver(domain: Domain) -> io::Result<UdpSocket> {
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    // Several processes of a machine hear beacons.
    socket.set_reuse_address(true)?;
    #[cfg(any(
        target_vendor = "apple",
        target_os = "freebsd",
        target_os = "netbsd",
        target_os = "openbsd",
        target_os = "dragonfly"
    ))]
    socket.set_reuse_port(true)?;
    let any = match domain {
        Domain::IPV6 => {
            socket.set_only_v6(true)?;
            IpAddr::from(Ipv6Addr::UNSPECIFIED)
        }
        // Bound to the group, it hears no datagrams that are sent to this machine alone.
        _ if cfg!(unix) => BEACON_GROUP_V4.into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    };
    socket.bind(&SocketAddr::new(any, BEACON_PORT).into())?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    match domain {
        // Groups that other programs have joined are not heard.
        Domain::IPV6 => socket.set_multicast_all_v6(false)?,
        _ => socket.set_multicast_all_v4(false)?,
    }
    Ok(socket.into())
}

/// Sends a datagram to the group, from an address of this machine.
///
/// # Errors
/// Those of the system: the address has gone, the interface is down.
pub(super) fn send(from: BeaconInterface, bytes: &[u8]) -> io::Result<()> {
    let domain = match from.ip {
        IpAddr::V4(_) => Domain::IPV4,
        IpAddr::V6(_) => Domain::IPV6,
    };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    let group: SocketAddr = match from.ip {
        IpAddr::V4(ip) => {
            socket.set_multicast_if_v4(&ip)?;
            socket.set_multicast_ttl_v4(1)?;
            socket.set_multicast_loop_v4(true)?;
            (BEACON_GROUP_V4, BEACON_PORT).into()
        }
        IpAddr::V6(_) => {
            socket.set_multicast_if_v6(from.index)?;
            socket.set_multicast_hops_v6(1)?;
            socket.set_multicast_loop_v6(true)?;
            SocketAddrV6::new(BEACON_GROUP_V6, BEACON_PORT, 0, from.index).into()
        }
    };
    socket.bind(&SocketAddr::new(from.ip, 0).into())?;
    socket.send_to(bytes, &group.into())?;
    Ok(())
}
