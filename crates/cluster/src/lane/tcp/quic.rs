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
    lane::udp::{QuicPort, QuicStream, Reserved},
    own_address,
    wire::message::LaneName,
};

impl Inner {
    /// Takes connections of a lane from other machines.
    ///
    /// # Errors
    /// The UDP port cannot be opened, or there are no certificates.
    pub(super) fn listen(
        self: &Arc<Self>,
        lane: LaneName,
        others: impl Iterator<Item = SocketAddr>,
    ) -> io::Result<()> {
        match lane {
            LaneName::Tcp => {}
            LaneName::Udp => drop(self.quic_port()?),
            LaneName::AfXdp => self.pass_by(self.quic_port()?, others),
        }
        Ok(())
    }

    /// The UDP port, which has the number of the TCP port.
    fn quic_port(self: &Arc<Self>) -> io::Result<&QuicPort> {
        let Protection::Tls { identity, udp, .. } = &self.protection else {
            let why = "QUIC needs the certificates of a cluster";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        };
        let opening = self.udp_opening.lock();
        let _opening = opening.unwrap_or_else(PoisonError::into_inner);
        if let Some(port) = udp.get() {
            return Ok(port);
        }
        let port = QuicPort::open(self.address, identity, self.admission());
        let port = port.map_err(|error| {
            let why = format!("UDP port {}: {error}", self.address.port());
            io::Error::new(error.kind(), why)
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
        let own = others.filter_map(|other| own_address(self.address, other).ok());
        let own: HashSet<Ipv4Addr> = own
            .filter_map(|own| match own.ip() {
                IpAddr::V4(ip) if self.address.is_ipv4() && !ip.is_loopback() => Some(ip),
                _ => None,
            })
            .collect();
        if own.is_empty() {
            self.note("lane afxdp: no other machine has an address of IPv4; going by udp");
        }
        for ip in own {
            if let Err(why) = port.bypass(ip) {
                self.note(&format!("lane afxdp: {why}; going by udp"));
            }
        }
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
