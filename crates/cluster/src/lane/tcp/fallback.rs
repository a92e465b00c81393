//! Connections of a lane to nodes, by TCP where UDP does not get through.
//!
//! Knows neither frames nor messages. The one idea: a lane over UDP is a wish. A node that answers
//! by TCP and not by UDP is met by TCP from then on, and UDP is tried again after some minutes;
//! listeners take rows and columns by both in any case.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    hello::Hello,
    stream::{HANDSHAKE, Protection, Stream, TlsMeans},
};
use crate::wire::message::{LaneName, NodeAddress};

/// Time for a connection over UDP, in which its first packets are sent four times. Beginnings of
/// rings are fenced after two seconds, and must not fail by it.
const BY_UDP: Duration = Duration::from_millis(1500);
/// Time after which UDP is tried again.
const AGAIN: Duration = Duration::from_secs(600);

/// Nodes that UDP did not reach, and when.
#[derive(Default)]
pub(super) struct Unreached(Mutex<HashMap<SocketAddr, Instant>>);

impl Unreached {
    fn nodes(&self) -> MutexGuard<'_, HashMap<SocketAddr, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn contains(&self, node: SocketAddr, now: Instant) -> bool {
        let since = self.nodes().get(&node).copied();
        since.is_some_and(|since| now.saturating_duration_since(since) < AGAIN)
    }

    /// Adds a node. Whether it is new: several connections to a node are opened at once.
    fn add(&self, node: SocketAddr, now: Instant) -> bool {
        let mut nodes = self.nodes();
        nodes.retain(|_, since| now.saturating_duration_since(*since) < AGAIN);
        nodes.insert(node, now).is_none()
    }
}

/// A connection to a node for a purpose.
pub(super) struct Dial<'a> {
    pub(super) node: &'a NodeAddress,
    pub(super) hello: &'a Hello,
    /// Hears whether the node takes it. Only then it counts that TCP has reached the node.
    pub(super) is_taken: fn(&mut dyn Stream) -> io::Result<()>,
}

impl Protection {
    /// Connects to a node as [`dial`](Self::dial) does, over a lane, within some seconds. There is
    /// no deadline afterwards.
    pub(super) fn dial_lane(&self, lane: LaneName, call: &Dial<'_>) -> io::Result<Box<dyn Stream>> {
        let tls = match (lane, self) {
            (LaneName::Tcp, _) => return self.by_tcp(call),
            (_, Self::Tls(tls)) => tls,
            (_, Self::Plain) => return Err(io::ErrorKind::Unsupported.into()),
        };
        let address = call.node.address;
        if tls.udp.get().is_none() || tls.unreached.contains(address, Instant::now()) {
            return self.by_tcp(call);
        }
        let error = match by_udp(tls, call) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => error,
            dialled => return dialled,
        };
        // A node that is gone is not reached by TCP either.
        let stream = self.by_tcp(call).map_err(|_| error)?;
        if tls.unreached.add(address, Instant::now()) {
            let name = &call.node.name;
            let line = format!("lane {lane}: {name} does not answer by UDP; going by tcp");
            tls.notes.tell(&line);
        }
        Ok(stream)
    }

    fn by_tcp(&self, call: &Dial<'_>) -> io::Result<Box<dyn Stream>> {
        let NodeAddress { name, address } = call.node;
        let mut stream = self.dial(*address, Some(name), call.hello, HANDSHAKE)?;
        (call.is_taken)(stream.as_mut())?;
        stream.set_deadline(None);
        Ok(stream)
    }
}

fn by_udp(tls: &TlsMeans, call: &Dial<'_>) -> io::Result<Box<dyn Stream>> {
    let port = tls.udp.get().ok_or(io::ErrorKind::NotConnected)?;
    let NodeAddress { name, address } = call.node;
    let server = tls.identity.server_name(name.as_str());
    let server = server.map_err(io::Error::other)?;
    let mut stream = port.connect(*address, &server.to_str(), Instant::now() + BY_UDP)?;
    stream.set_deadline(Some(Instant::now() + HANDSHAKE));
    io::Write::write_all(&mut stream, &call.hello.to_bytes())?;
    (call.is_taken)(&mut stream)?;
    stream.set_deadline(None);
    Ok(Box::new(stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_udp_did_not_reach_is_new_once_and_forgotten_after_a_while() {
        let unreached = Unreached::default();
        let node = "10.0.0.7:9990".parse().unwrap();
        let now = Instant::now();
        assert!(!unreached.contains(node, now));
        assert!(unreached.add(node, now));
        assert!(!unreached.add(node, now));
        assert!(unreached.contains(node, now + AGAIN / 2));
        assert!(!unreached.contains(node, now + AGAIN));
        assert!(unreached.add(node, now + AGAIN));
    }
}
