//! The UDP port of a process, and the connections that come in by it. It is opened for the first
//! ring that wants it; questions and parts go over TCP in any case.

use std::{
    collections::HashSet,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, PoisonError, Weak},
    time::Instant,
};

use super::{
    doors::{Handshake, Inner, serve},
    hello::Hello,
    stream::{HANDSHAKE, Protection, StreamEnd},
};
use crate::{
    lane::udp::{NEIGHBOUR_BYTES, QuicPort, QuicStream, Reserved, bypass_bytes},
    own_address,
    wire::message::LaneName,
};

impl Inner {
    /// Takes connections of a lane from other machines, besides those by TCP.
    ///
    /// # Errors
    /// There are no certificates.
    pub(super) fn listen(
        self: &Arc<Self>,
        lane: LaneName,
        others: impl Iterator<Item = SocketAddr>,
    ) -> io::Result<()> {
        if lane == LaneName::Tcp {
            return Ok(());
        }
        match self.quic_port() {
            Ok(port) if lane == LaneName::AfXdp => self.pass_by(port, others),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return Err(error),
            // Others find that nothing answers, and go by TCP, too.
            Err(error) => self
                .notes
                .tell(&format!("lane {lane}: {error}; going by tcp")),
        }
        Ok(())
    }

    /// The UDP port, which has the number of the TCP port.
    fn quic_port(self: &Arc<Self>) -> io::Result<&QuicPort> {
        let Protection::Tls(tls) = &self.protection else {
            let why = "QUIC needs the certificates of a cluster";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        };
        let udp = &tls.udp;
        let opening = self.udp_opening.lock();
        let _opening = opening.unwrap_or_else(PoisonError::into_inner);
        if let Some(port) = udp.get() {
            return Ok(port);
        }
        let port = QuicPort::open(self.address, &tls.identity, self.admission());
        let port = port.map_err(|error| {
            let why = format!("UDP port {}: {error}", self.address.port());
            io::Error::other(why)
        })?;
        Ok(udp.get_or_init(|| port))
    }

    /// Gives places to connections. The threads of the port have it, so it must not own the doors,
    /// which own the port.
    fn admission(self: &Arc<Self>) -> Box<dyn Fn(IpAddr) -> Option<Reserved> + Send + Sync> {
        let inner = Arc::downgrade(self);
        let handshakes = self.handshakes.clone();
        let is_allowed = Arc::clone(&self.is_allowed);
        Box::new(move |peer| {
            let handshake = is_allowed(peer).then(|| handshakes.enter(peer));
            handshake
                .flatten()
                .map(|place| place_of(inner.clone(), place))
        })
    }

    /// Lets datagrams to and from other machines pass by the network stack where that goes, and
    /// notes where not: they go through it.
    fn pass_by(&self, port: &QuicPort, others: impl Iterator<Item = SocketAddr>) {
        let own = self.own_ips(others);
        if own.is_empty() {
            self.notes
                .tell("lane afxdp: no other machine has an address of IPv4; going by udp");
        }
        for ip in own {
            if let Err(why) = port.bypass(ip) {
                self.notes.tell(&format!("lane afxdp: {why}; going by udp"));
            }
        }
    }
}

impl Inner {
    /// Addresses of IPv4 by which this machine reaches others.
    fn own_ips(&self, others: impl Iterator<Item = SocketAddr>) -> HashSet<Ipv4Addr> {
        let own = others.filter_map(|other| own_address(self.address, other).ok());
        own.filter_map(|own| match own.ip() {
            IpAddr::V4(ip) if self.address.is_ipv4() && !ip.is_loopback() => Some(ip),
            _ => None,
        })
        .collect()
    }

    /// Memory of the windows of QUIC, and of frames past the network stack.
    pub(super) fn lane_bytes(&self, lane: LaneName, others: &[SocketAddr]) -> u64 {
        if !lane.is_quic() {
            return 0;
        }
        let windows = NEIGHBOUR_BYTES * others.len() as u64;
        let own = match lane {
            LaneName::AfXdp => self.own_ips(others.iter().copied()),
            _ => HashSet::new(),
        };
        windows + own.into_iter().map(bypass_bytes).sum::<u64>()
    }
}

/// The place of a connection from another machine, whose stream gets a thread of its own.
fn place_of(inner: Weak<Inner>, handshake: Handshake) -> Reserved {
    Box::new(move |stream| {
        // Without a thread the connection is dropped, which the other side sees.
        let _ = std::thread::Builder::new()
            .name("from a node".to_owned())
            .spawn(move || {
                if let Some(inner) = inner.upgrade() {
                    receive(stream, &inner, handshake);
                }
            });
    })
}

/// Reads the hello of a connection and serves it to its end.
fn receive(mut stream: QuicStream, inner: &Arc<Inner>, handshake: Handshake) {
    let Ok(connection) = inner.enter(StreamEnd::Quic(stream.end())) else {
        return;
    };
    stream.set_deadline(Some(Instant::now() + HANDSHAKE));
    let Ok(hello) = Hello::read(&mut stream) else {
        return;
    };
    stream.set_deadline(None);
    drop(handshake);
    if let Hello::Rows(_) | Hello::Member(_) = hello {
        serve(Box::new(stream), inner, &hello, connection);
    }
}
