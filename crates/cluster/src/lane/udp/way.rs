//! Ways past the network stack, by AF_XDP: one for each of our addresses that was asked for.
//!
//! The socket of the port stays open beside them, and carries what they cannot. Only on Linux.

#[cfg(target_os = "linux")]
pub(in crate::lane) use linux::bypass_bytes;
#[cfg(target_os = "linux")]
pub(super) use linux::{Batch, Ways};
#[cfg(not(target_os = "linux"))]
pub(super) use none::Ways;
#[cfg(not(target_os = "linux"))]
pub(in crate::lane) use none::bypass_bytes;

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4},
        ops::Range,
        sync::{Arc, PoisonError, RwLock},
        thread::JoinHandle,
    };

    use atta_afxdp::{Arrived, Bypass};
    use quinn_proto::{EcnCodepoint, Transmit};

    use crate::lane::udp::{driver, port::Shared, socket::Arrival};

    /// Memory of the way of an address, bytes.
    pub(in crate::lane) fn bypass_bytes(own: Ipv4Addr) -> u64 {
        Bypass::bytes_at(own)
    }

    /// The ways that are open.
    #[derive(Default)]
    pub(in crate::lane::udp) struct Ways(RwLock<Vec<Arc<Bypass>>>);

    impl Ways {
        /// Opens the way of an address, unless it is open, and starts its threads.
        pub(in crate::lane::udp) fn open(
            &self,
            own: Ipv4Addr,
            shared: &Arc<Shared>,
        ) -> Result<Vec<JoinHandle<()>>, String> {
            let mut ways = self.0.write().unwrap_or_else(PoisonError::into_inner);
            if ways.iter().any(|way| *way.address().ip() == own) {
                return Ok(Vec::new());
            }
            let own = SocketAddrV4::new(own, shared.socket.port());
            let way = Arc::new(Bypass::open(own).map_err(|error| error.to_string())?);
            let threads = driver::start_bypass(shared, &way).map_err(|error| error.to_string())?;
            ways.push(way);
            Ok(threads)
        }

        /// Sends datagrams by a way. `false`: there is none for all of them.
        pub(in crate::lane::udp) fn send(&self, transmit: &Transmit, contents: &[u8]) -> bool {
            let SocketAddr::V4(to) = transmit.destination else {
                return false;
            };
            let ways = self.0.read().unwrap_or_else(PoisonError::into_inner);
            let bytes = &contents[..transmit.size];
            let segment = transmit.segment_size.unwrap_or(transmit.size);
            let ecn = transmit.ecn.map_or(0, |ecn| ecn as u8);
            let is_ours = |way: &Bypass| {
                let own = IpAddr::V4(*way.address().ip());
                transmit.src_ip.is_none_or(|from| from == own)
            };
            let mut ways = ways.iter().filter(|way| is_ours(way));
            ways.any(|way| way.send(to, ecn, bytes, segment))
        }
    }

    /// Datagrams that have arrived by one call.
    #[derive(Default)]
    pub(in crate::lane::udp) struct Batch {
        bytes: Vec<u8>,
        heads: Vec<BatchHead>,
    }

    struct BatchHead {
        from: SocketAddrV4,
        ecn: u8,
        range: Range<usize>,
    }

    impl Batch {
        pub(in crate::lane::udp) fn push(&mut self, arrived: &Arrived<'_>) {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(arrived.bytes);
            self.heads.push(BatchHead {
                from: arrived.from,
                ecn: arrived.ecn,
                range: start..self.bytes.len(),
            });
        }

        pub(in crate::lane::udp) fn is_empty(&self) -> bool {
            self.heads.is_empty()
        }

        pub(in crate::lane::udp) fn clear(&mut self) {
            self.bytes.clear();
            self.heads.clear();
        }

        /// The datagrams, which were sent to this address.
        pub(in crate::lane::udp) fn arrivals(&self, own: SocketAddrV4) -> Vec<Arrival<'_>> {
            let arrival = |head: &BatchHead| Arrival {
                from: SocketAddr::V4(head.from),
                to: Some(IpAddr::V4(*own.ip())),
                ecn: EcnCodepoint::from_bits(head.ecn),
                bytes: &self.bytes[head.range.clone()],
                stride: head.range.len().max(1),
            };
            self.heads.iter().map(arrival).collect()
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod none {
    use std::{net::Ipv4Addr, sync::Arc, thread::JoinHandle};

    use quinn_proto::Transmit;

    use crate::lane::udp::port::Shared;

    /// Memory of the way of an address, bytes.
    pub(in crate::lane) fn bypass_bytes(_: Ipv4Addr) -> u64 {
        0
    }

    /// No ways.
    #[derive(Default)]
    pub(in crate::lane::udp) struct Ways;

    impl Ways {
        #[allow(clippy::unused_self, reason = "as on Linux")]
        pub(in crate::lane::udp) fn open(
            &self,
            _: Ipv4Addr,
            _: &Arc<Shared>,
        ) -> Result<Vec<JoinHandle<()>>, String> {
            Err("AF_XDP is a part of Linux".to_owned())
        }

        #[allow(clippy::unused_self, reason = "as on Linux")]
        pub(in crate::lane::udp) fn send(&self, _: &Transmit, _: &[u8]) -> bool {
            false
        }
    }
}
