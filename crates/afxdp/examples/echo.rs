//! Sends datagrams back past the network stack, and counts those that came this way.
//!
//! ```text
//! echo 10.1.2.3:9000 10        # for ten seconds, on the interface that has the address
//! ```

#[cfg(target_os = "linux")]
fn main() {
    use std::{
        net::{SocketAddrV4, UdpSocket},
        time::{Duration, Instant},
    };

    use atta_afxdp::Bypass;

    let mut args = std::env::args().skip(1);
    let own: SocketAddrV4 = args
        .next()
        .and_then(|own| own.parse().ok())
        .expect("IP:PORT");
    let seconds = args.next().and_then(|seconds| seconds.parse().ok());
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(10));
    // The port is that of this process, also for the system.
    let _socket = UdpSocket::bind(own).expect("the port is free");
    let bypass = Bypass::open(own).unwrap_or_else(|error| panic!("{error}"));
    let mut n_arrived = 0;
    let mut n_sent = 0;
    while Instant::now() < until {
        let mut arrived = Vec::new();
        let received = bypass.receive(0, Duration::from_millis(100), &mut |datagram| {
            arrived.push((datagram.from, datagram.bytes.to_vec()));
        });
        received.expect("frames");
        n_arrived += arrived.len();
        for (from, bytes) in arrived {
            n_sent += usize::from(bypass.send(from, 0, &bytes, bytes.len().max(1)));
        }
    }
    println!("{n_arrived} datagrams arrived, {n_sent} were sent back");
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("AF_XDP is a part of Linux");
}
