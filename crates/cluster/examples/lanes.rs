//! Measures the lanes beside each other: the round trip of 16 KiB, and MB/s of messages of 4 MiB.
//!
//! ```text
//! lanes                                         # both ends in this process, on loopback
//! lanes serve 10.1.2.4:9100 10.1.2.3:9100       # one end: own address, the other's
//! lanes 10.1.2.3:9100 10.1.2.4:9100             # the other end, which measures
//! ```
//! The key is in the program: for a network of one's own, and for minutes.

use std::{
    error::Error,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use atta_cluster::{
    GroupLinks, GroupWiring, Links,
    control::NodeName,
    key::ClusterKey,
    lane::tcp::{Doors, DoorsOptions, Security},
    tensor::Message,
    wire::{
        MemberLimits,
        message::{LaneName, NodeAddress, RingSecret},
    },
};

const LANES: [LaneName; 3] = [LaneName::Tcp, LaneName::Udp, LaneName::AfXdp];
const N_ROUND_TRIPS: u32 = 400;
/// Round trips that are not counted: they open connections.
const N_FIRST: usize = 20;
const N_LONG: u32 = 24;
/// Longest wait for a message.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time until the other end listens for the next lane.
const BETWEEN: Duration = Duration::from_millis(500);

type Failed = Box<dyn Error + Send + Sync>;

/// The names of both ends: the one that measures, and the one that answers.
const NAMES: [&str; 2] = ["asks", "answers"];

fn doors(end: usize, address: SocketAddr) -> Result<Doors, Failed> {
    let identity = ClusterKey::from_bytes([7; 32]).identity(NAMES[end])?;
    let doors = Doors::open(DoorsOptions {
        address,
        security: Security::Tls(Arc::new(identity)),
        is_allowed: Arc::new(|_| true),
    })?;
    doors.on_note(Box::new(|note| eprintln!("{note}")));
    Ok(doors)
}

/// The links of an end over a lane.
fn links(
    doors: &Doors,
    end: usize,
    addresses: [SocketAddr; 2],
    lane: LaneName,
) -> Result<Arc<dyn GroupLinks>, Failed> {
    let member = |(name, address): (&&str, SocketAddr)| {
        let name = NodeName::new(name)?;
        Ok::<_, Failed>(NodeAddress { name, address })
    };
    let members = NAMES.iter().zip(addresses).map(member);
    let links = doors.open_group(GroupWiring {
        ring: lane as u64,
        lane,
        secret: RingSecret([3; 32]),
        index: end,
        members: members.collect::<Result<_, Failed>>()?,
        limits: MemberLimits {
            n_members: 2,
            n_numbers: 1 << 20,
            n_batch: 64,
            d_model: 64,
        },
    });
    Ok(links?)
}

fn columns(i: u32, n: usize) -> Message {
    Message::Columns {
        batch: i.into(),
        unit: 0,
        numbers: vec![1.0; n].into(),
    }
}

/// Sends messages back until the links end; for a long one a short one.
fn answer(links: &dyn GroupLinks) {
    while let Some(message) = links.recv(0, Some(Instant::now() + PATIENCE)) {
        let is_long = matches!(&message, Message::Columns { numbers, .. } if numbers.len() > 4096);
        match is_long {
            true => links.send(0, &columns(0, 1)),
            false => links.send(0, &message),
        }
    }
}

fn wait(links: &dyn GroupLinks) -> Result<(), Failed> {
    let came = links.recv(1, Some(Instant::now() + PATIENCE));
    came.map(drop).ok_or_else(|| "no answer".into())
}

/// Sorted times of round trips.
fn round_trips(links: &dyn GroupLinks) -> Result<Vec<Duration>, Failed> {
    let mut times = Vec::new();
    for i in 0..N_ROUND_TRIPS {
        let start = Instant::now();
        links.send(1, &columns(i, 4096));
        wait(links)?;
        times.push(start.elapsed());
    }
    let mut times = times.split_off(N_FIRST);
    times.sort_unstable();
    Ok(times)
}

/// Bytes/s of long messages, two of them on the way.
fn rate(links: &dyn GroupLinks) -> Result<f64, Failed> {
    let start = Instant::now();
    for i in 0..N_LONG {
        links.send(1, &columns(i, 1 << 20));
        if i > 1 {
            wait(links)?;
        }
    }
    wait(links)?;
    wait(links)?;
    Ok(f64::from(N_LONG << 22) / start.elapsed().as_secs_f64())
}

fn measure(lane: LaneName, links: &dyn GroupLinks) -> Result<(), Failed> {
    let times = round_trips(links)?;
    let at = |percent: usize| times[times.len() * percent / 100].as_secs_f64() * 1e6;
    let half = at(50);
    let most = at(99);
    let rate = rate(links)? / 1e6;
    println!("{lane}: 16 KiB {half:.0} us (99 %: {most:.0}), 4 MiB {rate:.0} MB/s");
    Ok(())
}

/// Both ends in one process.
fn on_loopback() -> Result<(), Failed> {
    let local = "127.0.0.1:0".parse()?;
    let asks = doors(0, local)?;
    let answers = doors(1, local)?;
    let addresses = [asks.address(), answers.address()];
    for lane in [LaneName::Tcp, LaneName::Udp] {
        let there = links(&answers, 1, addresses, lane)?;
        let answering = std::thread::spawn(move || answer(there.as_ref()));
        let here = links(&asks, 0, addresses, lane)?;
        measure(lane, here.as_ref())?;
        here.close();
        // A panic of the thread was printed.
        let _ = answering.join();
    }
    Ok(())
}

fn main() -> Result<(), Failed> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args[..] {
        [serve, own, other] if serve == "serve" => {
            let addresses = [other.parse()?, own.parse()?];
            let doors = doors(1, addresses[1])?;
            for lane in LANES {
                answer(links(&doors, 1, addresses, lane)?.as_ref());
            }
            Ok(())
        }
        [own, other] => {
            let addresses = [own.parse()?, other.parse()?];
            let doors = doors(0, addresses[0])?;
            for lane in LANES {
                measure(lane, links(&doors, 0, addresses, lane)?.as_ref())?;
                std::thread::sleep(BETWEEN);
            }
            Ok(())
        }
        _ => on_loopback(),
    }
}
