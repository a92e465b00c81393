//! Sends and receives the UDP datagrams of one port past the network stack of Linux, by AF_XDP.
//!
//! ```text
//! network card ──▶ program of XDP ── UDP to our address and port? ──▶ ring of frames ──▶ receive
//!                                 └─ all else ──▶ the system, as before
//! ```
//! It refuses to know what datagrams say, and needs a UDP socket beside it: the first datagram to
//! another machine goes by the socket, and the answer tells the hardware address. So there is no
//! table of neighbours to read, and what this way cannot carry, the socket carries: IPv6, jumbo
//! frames, machines that were silent. The program ends with the process. Rights that it needs:
//! CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF.

#![deny(unsafe_code)]

#[cfg(target_os = "linux")]
mod bypass;
#[cfg(target_os = "linux")]
mod filter;
#[cfg(target_os = "linux")]
mod frame;
#[cfg(target_os = "linux")]
mod os;

#[cfg(target_os = "linux")]
pub use bypass::{Arrived, Bypass, BypassError};
