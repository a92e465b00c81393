//! Connections over UDP: QUIC (RFC 9000) with the certificates of the cluster, each one stream of
//! bytes.
//!
//! Retransmission, encryption and congestion control are those of `quinn-proto`, which does no
//! input or output; `quinn-udp` sends and receives many datagrams at once. This module moves bytes
//! between the two and the threads that read and write: a writer sends its datagrams itself; for
//! each port one thread receives, and one looks after timers. Datagrams may also go past the
//! network stack (`way`). Knows neither frames nor messages.

mod driver;
mod port;
mod socket;
mod stream;
mod way;

use std::{io, sync::Arc, time::Duration};

use quinn_proto::{
    AckFrequencyConfig, ClientConfig, EndpointConfig, IdleTimeout, MtuDiscoveryConfig,
    ServerConfig, TransportConfig, VarInt,
    congestion::CubicConfig,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};

pub(in crate::lane) use port::{QuicPort, Reserved};
pub(in crate::lane) use stream::{QuicEnd, QuicStream};
pub(in crate::lane) use way::bypass_bytes;

use crate::key::Identity;

/// Silence after which a connection is over.
const IDLE: Duration = Duration::from_secs(5);
/// Time between packets that show that this side is there.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Longest wait of the other side before it acknowledges a packet, by which losses are found.
const ACK_DELAY: Duration = Duration::from_millis(2);
/// Round trip that is assumed before one is measured: a first packet that is lost is sent again
/// after three of them.
const FIRST_ROUND_TRIP: Duration = Duration::from_millis(30);
/// Bytes that may be on their way before the network is known: some rows.
const FIRST_WINDOW: u64 = 64 << 10;
/// Bytes that may be on their way in a connection, not yet read or not yet acknowledged.
const WINDOW: u32 = 4 << 20;
/// Bytes that the connections with a neighbour hold at most: one in each direction carries rows.
pub(in crate::lane) const NEIGHBOUR_BYTES: u64 = 2 * WINDOW as u64;
/// Largest datagram that is tried, for networks with jumbo frames and loopback.
const MAX_DATAGRAM: u16 = 8952;
/// The protocol inside of TLS.
const ALPN: &[u8] = b"atta-lane";

/// How connections are made.
struct Configs {
    endpoint: Arc<EndpointConfig>,
    client: ClientConfig,
    server: Arc<ServerConfig>,
}

impl Configs {
    fn new(identity: &Identity) -> io::Result<Self> {
        let transport = Arc::new(transport()?);
        let mut client = identity.client_config().map_err(io::Error::other)?;
        client.alpn_protocols = vec![ALPN.to_vec()];
        let client = QuicClientConfig::try_from(client).map_err(io::Error::other)?;
        let mut client = ClientConfig::new(Arc::new(client));
        client.transport_config(Arc::clone(&transport));
        let mut server = identity.server_config().map_err(io::Error::other)?;
        server.alpn_protocols = vec![ALPN.to_vec()];
        server.send_tls13_tickets = 0;
        let server = QuicServerConfig::try_from(server).map_err(io::Error::other)?;
        let mut server = ServerConfig::with_crypto(Arc::new(server));
        server.transport_config(transport).migration(false);
        Ok(Self {
            endpoint: Arc::new(EndpointConfig::default()),
            client,
            server: Arc::new(server),
        })
    }
}

/// One stream from the side that has connected, and nothing else.
fn transport() -> io::Result<TransportConfig> {
    let idle = IdleTimeout::try_from(IDLE).map_err(io::Error::other)?;
    let mut mtu = MtuDiscoveryConfig::default();
    mtu.upper_bound(MAX_DATAGRAM);
    let mut acks = AckFrequencyConfig::default();
    acks.max_ack_delay(Some(ACK_DELAY));
    let mut congestion = CubicConfig::default();
    congestion.initial_window(FIRST_WINDOW);
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(Some(KEEP_ALIVE))
        .initial_rtt(FIRST_ROUND_TRIP)
        .congestion_controller_factory(Arc::new(congestion))
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(WINDOW.into())
        .ack_frequency_config(Some(acks))
        .mtu_discovery_config(Some(mtu));
    Ok(transport)
}
