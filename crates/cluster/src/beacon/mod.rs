//! Beacons: datagrams by which the processes of a cluster find each other on a local network.
//!
//! A beacon carries no trust. It tells an address at which a node may be, and TLS says who answers
//! there. [`Beacon`] and [`BeaconKey`] are bytes, `limits` bounds the work, `sockets` sends and
//! hears; the thread here brings them together. It knows no questions and no members, and connects
//! to nothing: [`Beacons::take`] gives addresses to connect to.

mod datagram;
mod limits;
mod sockets;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use ring::rand::{SecureRandom, SystemRandom};

use crate::lane::tcp::IsAllowed;
use limits::{Heard, Pace};
use sockets::Receivers;

pub use datagram::{BEACON_BYTES, Beacon, BeaconKey};
pub use sockets::{BEACON_GROUP_V4, BEACON_GROUP_V6, BEACON_PORT, BeaconInterface};

/// Longest time without a look at the end and at new interfaces.
const POLL: Duration = Duration::from_millis(100);
/// Most sightings that wait to be taken.
const MAX_WAITING: usize = 16;

/// The addresses at which this process can be reached or may ask; asked again before each beacon,
/// since networks come and go.
pub type OwnInterfaces = Arc<dyn Fn() -> Vec<BeaconInterface> + Send + Sync>;

/// How beacons are sent and heard.
#[derive(Clone)]
pub struct BeaconOptions {
    /// The group.
    pub key: BeaconKey,
    /// The port on which this process takes connections; 0: it only asks, three times.
    pub port: u16,
    /// Where to send and to hear.
    pub interfaces: OwnInterfaces,
    /// Whose beacons count.
    pub is_allowed: IsAllowed,
}

impl std::fmt::Debug for BeaconOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BeaconOptions")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// A process that was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The random number of the process.
    pub sender: [u8; 16],
    /// Where it takes connections, as its beacon came from there.
    pub address: SocketAddr,
}

/// Sends and hears beacons until it is dropped.
#[derive(Debug)]
pub struct Beacons {
    shared: Arc<HeardBeacons>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct HeardBeacons {
    is_over: AtomicBool,
    /// Those that nothing has taken yet.
    waiting: Mutex<Vec<Sighting>>,
}

impl HeardBeacons {
    fn waiting(&self) -> MutexGuard<'_, Vec<Sighting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Beacons {
    /// Starts.
    ///
    /// # Errors
    /// The system gives no socket, no thread or no random bytes.
    pub fn start(options: BeaconOptions) -> io::Result<Self> {
        let mut sender = [0; 16];
        let filled = SystemRandom::new().fill(&mut sender);
        filled.map_err(|_| io::Error::other("the system gives no random bytes"))?;
        let shared = Arc::<HeardBeacons>::default();
        let speaker = Speaker {
            pace: match options.port {
                0 => Pace::of_asker(),
                _ => Pace::of_node(sender[0]),
            },
            receivers: Receivers::open()?,
            began: Instant::now(),
            heard: Heard::default(),
            count: 0,
            sender,
            options,
            shared: Arc::clone(&shared),
        };
        let thread = std::thread::Builder::new().name("beacons".to_owned());
        let thread = thread.spawn(move || speaker.run())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Processes that take connections and were heard since the last call, each at each of its
    /// addresses at most once in 10 seconds.
    pub fn take(&self) -> Vec<Sighting> {
        std::mem::take(&mut *self.shared.waiting())
    }
}

impl Drop for Beacons {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}

/// The thread.
struct Speaker {
    options: BeaconOptions,
    receivers: Receivers,
    began: Instant,
    pace: Pace,
    heard: Heard,
    sender: [u8; 16],
    count: u32,
    shared: Arc<HeardBeacons>,
}

impl Speaker {
    fn run(mut self) {
        while !self.shared.is_over.load(Ordering::Acquire) {
            let now = self.began.elapsed();
            let left = self.pace.left(now);
            if left == Some(Duration::ZERO) {
                self.speak(now);
            } else {
                self.listen(left.unwrap_or(POLL).min(POLL));
            }
        }
    }

    /// Sends a beacon on all interfaces.
    fn speak(&mut self, now: Duration) {
        let interfaces = (self.options.interfaces)();
        self.receivers.join(&interfaces);
        let beacon = Beacon {
            sender: self.sender,
            port: self.options.port,
            is_question: self.pace.is_asking(),
            count: self.count,
        };
        self.count = self.count.wrapping_add(1);
        for interface in interfaces {
            let bytes = self.options.key.seal(&beacon, interface.ip);
            // An interface that is down may be up for the next one.
            let _ = sockets::send(interface, &bytes);
        }
        self.pace.sent(now);
    }

    fn listen(&mut self, wait: Duration) {
        let Self {
            options,
            receivers,
            began,
            pace,
            heard,
            sender,
            shared,
            ..
        } = self;
        receivers.receive(wait, &mut |bytes: &[u8], from: IpAddr| {
            let now = began.elapsed();
            let is_ours = options.key.has_tag(bytes) && (options.is_allowed)(from);
            if !is_ours || !heard.may_look(now) {
                return;
            }
            let beacon = options.key.open(bytes, from);
            let Some(beacon) = beacon.filter(|beacon| beacon.sender != *sender) else {
                return;
            };
            if beacon.is_question && options.port != 0 {
                pace.asked(now);
            }
            let address = SocketAddr::new(from.to_canonical(), beacon.port);
            let is_new = beacon.port != 0 && heard.note(now, beacon.sender, address);
            let mut waiting = shared.waiting();
            if is_new && waiting.len() < MAX_WAITING {
                let sender = beacon.sender;
                waiting.push(Sighting { sender, address });
            }
        });
    }
}

/// Asks who is there, and listens for a time.
///
/// # Errors
/// Those of [`Beacons::start`].
pub fn find(options: BeaconOptions, time: Duration) -> io::Result<Vec<Sighting>> {
    let beacons = Beacons::start(BeaconOptions { port: 0, ..options })?;
    std::thread::sleep(time);
    Ok(beacons.take())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::key::ClusterKey;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Beacons of a process on loopback, which no program uses otherwise.
    fn options(key: u8, port: u16) -> BeaconOptions {
        let loopback = BeaconInterface {
            ip: [127, 0, 0, 1].into(),
            index: 1,
        };
        BeaconOptions {
            key: BeaconKey::of_cluster(&ClusterKey::from_bytes([key; 32])),
            port,
            interfaces: Arc::new(move || vec![loopback]),
            is_allowed: Arc::new(|ip| ip.is_loopback()),
        }
    }

    fn ports(found: &[Sighting]) -> Vec<u16> {
        let mut ports: Vec<u16> = found.iter().map(|found| found.address.port()).collect();
        ports.sort_unstable();
        ports
    }

    /// Hears so many.
    fn hear(beacons: &Beacons, n: usize) -> Vec<Sighting> {
        let end = Instant::now() + PATIENCE;
        let mut heard = Vec::new();
        while heard.len() < n && Instant::now() < end {
            heard.extend(beacons.take());
            std::thread::sleep(Duration::from_millis(10));
        }
        heard
    }

    #[test]
    fn processes_with_the_same_key_hear_each_other() {
        let first = Beacons::start(options(1, 11)).unwrap();
        let stranger = Beacons::start(options(2, 12)).unwrap();
        let second = Beacons::start(options(1, 13)).unwrap();
        assert_eq!(ports(&hear(&first, 1)), [13]);
        let heard = hear(&second, 1);
        assert_eq!(ports(&heard), [11]);
        assert!(heard[0].address.ip().is_loopback());
        assert!(stranger.take().is_empty());

        let mut found = Vec::new();
        let end = Instant::now() + PATIENCE;
        while found.len() < 2 && Instant::now() < end {
            found = find(options(1, 99), Duration::from_millis(500)).unwrap();
        }
        assert_eq!(ports(&found), [11, 13]);
        // One that only asks takes no connections.
        assert!(ports(&first.take()).iter().all(|port| *port == 13));
    }

    #[test]
    fn addresses_that_are_not_allowed_are_not_heard() {
        let _node = Beacons::start(options(3, 21)).unwrap();
        let deaf = BeaconOptions {
            is_allowed: Arc::new(|_| false),
            ..options(3, 0)
        };
        assert!(find(deaf, Duration::from_millis(700)).unwrap().is_empty());
        let hears = Beacons::start(options(3, 0)).unwrap();
        assert_eq!(ports(&hear(&hears, 1)), [21]);
    }
}
