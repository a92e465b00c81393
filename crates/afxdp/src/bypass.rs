//! One port at one address of this machine, and the machines that have sent to it.

use std::{
    collections::HashMap,
    fmt, fs, io,
    net::{Ipv4Addr, SocketAddrV4},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use xdp::nic::NicIndex;

use crate::{
    filter,
    frame::{Head, MAX_DATAGRAM, Mac},
    os::{Attached, QUEUE_BYTES, Queue, SocketMap},
};

/// Most queues of an interface; datagrams of others go by the system.
const MAX_QUEUES: u32 = 16;
/// Most machines whose hardware addresses are kept.
const MAX_NEIGHBOURS: usize = 256;
/// Age of a hardware address after which it is learned anew.
const FRESH: Duration = Duration::from_secs(2);
/// How often the socket of a queue is tried: that of a process that has just ended lives on for a
/// moment.
const N_BINDS: usize = 20;
/// Time between two tries.
const BIND_RETRY: Duration = Duration::from_millis(50);

/// Why there is no way past the network stack.
#[derive(Debug)]
#[non_exhaustive]
pub enum BypassError {
    /// No network interface has the address.
    NoInterface(Ipv4Addr),
    /// The rights of this process are too few.
    Rights(io::Error),
    /// Another program looks at the frames of the interface.
    InUse(String),
    /// The system refuses it.
    System {
        /// The interface.
        interface: String,
        /// Its error.
        source: io::Error,
    },
}

impl fmt::Display for BypassError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInterface(address) => write!(f, "no network interface has {address}"),
            Self::Rights(error) => write!(
                f,
                "{error}: it needs the capabilities net_raw, net_admin and bpf"
            ),
            Self::InUse(interface) => {
                write!(f, "{interface}: another program has taken it for XDP")
            }
            Self::System { interface, source } => write!(f, "{interface}: {source}"),
        }
    }
}

impl std::error::Error for BypassError {}

/// A datagram that has arrived.
#[derive(Debug)]
pub struct Arrived<'a> {
    /// Who has sent it.
    pub from: SocketAddrV4,
    /// Two bits of congestion on the way (RFC 3168).
    pub ecn: u8,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// The datagrams of a port past the network stack.
pub struct Bypass {
    own: SocketAddrV4,
    queues: Vec<Queue>,
    neighbours: Mutex<HashMap<Ipv4Addr, Neighbour>>,
    // Frames come until it is dropped; a map without sockets gives them to the system.
    _attached: Attached,
    _map: SocketMap,
}

impl fmt::Debug for Bypass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bypass")
            .field("own", &self.own)
            .field("n_queues", &self.queues.len())
            .finish_non_exhaustive()
    }
}

/// How frames reach a machine, as its last one has told.
struct Neighbour {
    mac: Mac,
    own_mac: Mac,
    heard: Instant,
}

impl Bypass {
    /// Takes the datagrams to an address and port from the system, as long as it lives.
    ///
    /// # Errors
    /// [`BypassError`].
    pub fn open(own: SocketAddrV4) -> Result<Self, BypassError> {
        let (interface, name) = interface_of(*own.ip())?;
        let explain = |error: io::Error| match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => BypassError::Rights(error),
            Some(libc::EBUSY | libc::EEXIST) => BypassError::InUse(name.clone()),
            _ => BypassError::System {
                interface: name.clone(),
                source: error,
            },
        };
        let n_queues = n_queues(interface);
        let map = SocketMap::new(n_queues).map_err(explain)?;
        let queues = (0..n_queues).map(|i| open_queue(interface, i));
        let queues = queues.collect::<io::Result<Vec<_>>>().map_err(explain)?;
        for (i, queue) in (0..).zip(&queues) {
            map.insert(i, queue).map_err(explain)?;
        }
        let program = filter::program(own, map.file());
        Ok(Self {
            own,
            queues,
            neighbours: Mutex::default(),
            _attached: Attached::new(&program, interface.0).map_err(explain)?,
            _map: map,
        })
    }

    /// Memory of the frames that [`open`](Self::open) would take for an address, bytes; 0 if no
    /// interface has it.
    pub fn bytes_at(own: Ipv4Addr) -> u64 {
        let interface = interface_of(own);
        interface.map_or(0, |(nic, _)| u64::from(n_queues(nic)) * QUEUE_BYTES)
    }

    /// The address and port.
    pub fn address(&self) -> SocketAddrV4 {
        self.own
    }

    /// Queues by which datagrams arrive.
    pub fn n_queues(&self) -> usize {
        self.queues.len()
    }

    /// Waits for datagrams of a queue, and gives them to `take`, which must not wait.
    ///
    /// # Errors
    /// Those of the system.
    pub fn receive(
        &self,
        queue: usize,
        wait: Duration,
        take: &mut dyn FnMut(Arrived<'_>),
    ) -> io::Result<()> {
        let Some(queue) = self.queues.get(queue) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if !queue.wait(wait)? {
            return Ok(());
        }
        queue.receive(&mut |frame| {
            if let Some((head, bytes)) = Head::parse(frame).filter(|(head, _)| head.to == self.own)
            {
                self.learn(&head);
                let Head { from, ecn, .. } = head;
                take(Arrived { from, ecn, bytes });
            }
        });
        Ok(())
    }

    /// Sends datagrams of `segment` bytes, the last one of the rest. `false`: not all were sent,
    /// and the socket should send them, since the machine was not heard lately, they are too
    /// large, or too many are on the way.
    pub fn send(&self, to: SocketAddrV4, ecn: u8, bytes: &[u8], segment: usize) -> bool {
        if segment == 0 || segment.min(bytes.len()) > MAX_DATAGRAM {
            return false;
        }
        let Some((to_mac, from_mac)) = self.way(*to.ip()) else {
            return false;
        };
        let head = Head {
            to_mac,
            from_mac,
            from: self.own,
            to,
            ecn,
        };
        let datagrams: Vec<&[u8]> = bytes.chunks(segment).collect();
        let heads = datagrams
            .iter()
            .map(|datagram| head.to_bytes(datagram.len()));
        let Some(heads) = heads.collect::<Option<Vec<_>>>() else {
            return false;
        };
        let mut frames = heads
            .iter()
            .zip(&datagrams)
            .map(|(head, datagram)| [&head[..], datagram]);
        self.queues[0].send(&mut frames)
    }

    fn neighbours(&self) -> MutexGuard<'_, HashMap<Ipv4Addr, Neighbour>> {
        self.neighbours
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Hardware addresses of a machine that was heard lately, and of this one.
    fn way(&self, to: Ipv4Addr) -> Option<(Mac, Mac)> {
        let neighbours = self.neighbours();
        let neighbour = neighbours.get(&to)?;
        (neighbour.heard.elapsed() < FRESH).then_some((neighbour.mac, neighbour.own_mac))
    }

    fn learn(&self, head: &Head) {
        let mut neighbours = self.neighbours();
        let is_group = |mac: &Mac| mac[0] & 1 == 1;
        if is_group(&head.from_mac) || is_group(&head.to_mac) {
            return;
        }
        if neighbours.len() >= MAX_NEIGHBOURS {
            neighbours.retain(|_, neighbour| neighbour.heard.elapsed() < FRESH);
        }
        let neighbour = Neighbour {
            mac: head.from_mac,
            own_mac: head.to_mac,
            heard: Instant::now(),
        };
        if neighbours.len() < MAX_NEIGHBOURS || neighbours.contains_key(head.from.ip()) {
            neighbours.insert(*head.from.ip(), neighbour);
        }
    }
}

/// Queues of an interface that are used.
fn n_queues(interface: NicIndex) -> u32 {
    let queues = interface.queue_counts();
    queues
        .map_or(1, |queues| queues.rx_count())
        .clamp(1, MAX_QUEUES)
}

fn open_queue(interface: NicIndex, i: u32) -> io::Result<Queue> {
    let mut tries = 1..N_BINDS;
    loop {
        match Queue::open(interface, i) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && tries.next().is_some() => {
                thread::sleep(BIND_RETRY);
            }
            opened => return opened,
        }
    }
}

/// The interface with an address, and its name.
fn interface_of(address: Ipv4Addr) -> Result<(NicIndex, String), BypassError> {
    let none = || BypassError::NoInterface(address);
    // A name stands before the colon of each line but the first two.
    let list = fs::read_to_string("/proc/net/dev").map_err(|_| none())?;
    let names = list.lines().skip(2).filter_map(|line| line.split_once(':'));
    for (name, _) in names {
        let name = name.trim();
        let c_name = std::ffi::CString::new(name).map_err(|_| none())?;
        if let Ok(Some(interface)) = NicIndex::lookup_by_name(&c_name)
            && let Ok((Some(own), _)) = interface.addresses()
            && own == address
        {
            return Ok((interface, name.to_owned()));
        }
    }
    Err(none())
}
