//! Joins a cluster: opens this process's doors, and finds the others.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use atta_cluster::{
    beacon::{self, BeaconKey, BeaconOptions, Beacons},
    control::{Control, ControlError, FixedControl, NodeName},
    invite::JoinCode,
    key::{ClusterKey, JoinToken, KeyError},
    lane::tcp::{Doors, DoorsOptions, IsAllowed, Security},
    node::KeepKey,
};

use super::{
    Places,
    address::{self, Listen, N_PORTS, PORT, beacon_interfaces, is_private, own_ips},
    code::by_code,
};
use crate::{args::ring::MembershipFlags, failure::Failure, ring::say};

/// Time for which a program that uses nodes searches the local network.
const SEARCH: Duration = Duration::from_millis(500);

/// This process in a cluster.
pub(crate) struct Membership {
    pub(crate) places: Places,
    pub(crate) key: ClusterKey,
    pub(crate) name: NodeName,
    pub(crate) doors: Arc<Doors>,
    pub(crate) control: Arc<FixedControl>,
    /// Where others reach it, the best address first.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Where it works for others, if it does.
    announced: Option<SocketAddr>,
    /// Tells others on the local network where this node is, and hears of them.
    beacons: Option<Beacons>,
}

/// What a process is in its cluster.
#[derive(Clone, Debug)]
pub(crate) enum Role {
    /// It works for others.
    Node(NodeRole),
    /// It uses nodes, or only asks them.
    Asker,
}

/// A node, as others see it.
#[derive(Clone, Debug)]
pub(crate) struct NodeRole {
    pub(crate) name: NodeName,
    /// Where it listens.
    pub(crate) listen: Listen,
    /// Whether addresses outside of private networks may connect.
    pub(crate) is_public: bool,
    /// An address that came with the key.
    pub(crate) joined: Option<SocketAddr>,
}

impl Membership {
    /// Opens it, with the key that is there.
    pub(crate) fn open(flags: &MembershipFlags, role: &Role) -> Result<Self, Failure> {
        let places = Places::new(flags.key.as_deref())?;
        let key = places.read_key()?.ok_or_else(|| no_key(&places.key()))?;
        let mut peers = Vec::new();
        for text in &flags.peers {
            peers.extend(address::peer(text)?);
        }
        peers.extend(places.read_peers(&key));
        let Entrance {
            name,
            doors,
            beacons,
        } = match role {
            Role::Node(node) => {
                peers.extend(node.joined);
                node_entrance(flags, &key, node)?
            }
            Role::Asker => {
                if !flags.no_discovery {
                    peers.extend(search(&key));
                }
                asker_entrance(&key, peers.first())?
            }
        };
        let doors = Arc::new(doors);
        doors.on_note(Box::new(say));
        let at = atta_cluster::Links::address(doors.as_ref());
        let addresses = reached_at(at);
        let announced = match role {
            Role::Node(_) => addresses.first().copied(),
            Role::Asker => None,
        };
        peers.sort_unstable();
        peers.dedup();
        peers.retain(|peer| !addresses.contains(peer));
        let control = FixedControl::open(doors.clone(), name.clone(), announced, peers);
        Ok(Self {
            places,
            key,
            name,
            doors,
            control: Arc::new(control.map_err(|error| failed(&error))?),
            addresses,
            announced,
            beacons,
        })
    }

    /// Asks nodes that beacons have told of, if there are any that are not known yet. Whether it
    /// did.
    pub(crate) fn meet(&self) -> bool {
        let heard = self.beacons.as_ref().map_or_else(Vec::new, Beacons::take);
        let heard: Vec<SocketAddr> = heard.iter().map(|heard| heard.address).collect();
        let is_new = self.control.hear_of(&heard);
        if is_new {
            // Nodes that do not answer may be heard of again.
            let _ = self.control.members();
        }
        is_new
    }

    /// Addresses of the nodes that were met, and that of this one.
    pub(crate) fn met(&self) -> Vec<SocketAddr> {
        met(&self.control, self.announced)
    }

    /// Keeps new keys of the cluster for the next start, with the addresses of the nodes.
    pub(crate) fn key_keeper(&self) -> KeepKey {
        let places = self.places.clone();
        let control = Arc::clone(&self.control);
        let announced = self.announced;
        Box::new(move |key| {
            places.write_key(key).map_err(|failure| match failure {
                Failure::Usage(why) | Failure::Failed(why) => why,
                Failure::Interrupted | Failure::ClosedPipe => "the key cannot be kept".to_owned(),
            })?;
            // Without them, nodes are found by other means.
            let _ = places.write_peers(key, &met(&control, announced));
            Ok(())
        })
    }

    /// Keeps the addresses of the nodes that were met, for the next start.
    pub(crate) fn remember(&self) {
        let known = self.met();
        if !known.is_empty() {
            // Without it, the next start asks by other means.
            let _ = self.places.write_peers(&self.key, &known);
        }
    }
}

/// Programs of this machine find its node by the addresses, too.
fn met(control: &FixedControl, announced: Option<SocketAddr>) -> Vec<SocketAddr> {
    let known = control.known();
    let others = known.iter().map(|node| node.address);
    announced.into_iter().chain(others).collect()
}

/// How a process is reached by others, and how they hear of it.
struct Entrance {
    name: NodeName,
    doors: Doors,
    beacons: Option<Beacons>,
}

fn node_entrance(
    flags: &MembershipFlags,
    key: &ClusterKey,
    node: &NodeRole,
) -> Result<Entrance, Failure> {
    let doors = node_doors(key, node)?;
    let at = atta_cluster::Links::address(&doors);
    let beacons = match flags.no_discovery {
        true => None,
        false => {
            let options = beacon_options(BeaconKey::of_cluster(key), Some(at));
            searching(Beacons::start(options))
        }
    };
    Ok(Entrance {
        name: node.name.clone(),
        doors,
        beacons,
    })
}

fn asker_entrance(key: &ClusterKey, peer: Option<&SocketAddr>) -> Result<Entrance, Failure> {
    // Several programs of one machine may ask at the same time.
    let name = node_name(None)?;
    let name = format!("{:.40}-{}", name.as_str(), std::process::id());
    let name = NodeName::new(&name).map_err(|error| failed(&error))?;
    let doors = asker_doors(key, &name, peer)?;
    Ok(Entrance {
        name,
        doors,
        beacons: None,
    })
}

/// Beacons of a listener, or of a program that only asks. They stay in private networks.
pub(super) fn beacon_options(key: BeaconKey, listener: Option<SocketAddr>) -> BeaconOptions {
    let ip = listener.map(|at| at.ip());
    BeaconOptions {
        key,
        port: listener.map_or(0, |at| at.port()),
        interfaces: Arc::new(move || beacon_interfaces(ip)),
        is_allowed: Arc::new(is_private),
    }
}

/// Addresses of nodes that answer on the local network.
fn search(key: &ClusterKey) -> Vec<SocketAddr> {
    let options = beacon_options(BeaconKey::of_cluster(key), None);
    let found = searching(beacon::find(options, SEARCH)).unwrap_or_default();
    found.iter().map(|found| found.address).collect()
}

/// The result of a search; where there is none, other ways remain.
pub(super) fn searching<T>(found: io::Result<T>) -> Option<T> {
    found
        .inspect_err(|error| say(&format!("cannot search the local network: {error}")))
        .ok()
}

/// The name of this machine in a cluster: the given one, or that of the host.
pub(crate) fn node_name(given: Option<&str>) -> Result<NodeName, Failure> {
    if let Some(name) = given {
        return NodeName::new(name).map_err(|error| Failure::Usage(error.to_string()));
    }
    let host = gethostname::gethostname().to_string_lossy().to_lowercase();
    let label: String = host
        .split('.')
        .next()
        .unwrap_or_default()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(40)
        .collect();
    let label = label.trim_matches('-');
    NodeName::new(if label.is_empty() { "node" } else { label }).map_err(|error| failed(&error))
}

/// Keeps the key of a token, or of the machine that shows a code; the address that came with it, if
/// one did. `name`: what that machine calls this one.
pub(crate) fn join(
    places: &Places,
    flags: &MembershipFlags,
    text: &str,
    name: &NodeName,
) -> Result<Option<SocketAddr>, Failure> {
    let token = match JoinCode::is_meant_by(text) {
        true => by_code(flags, text, name)?,
        false => text
            .parse()
            .map_err(|error: KeyError| Failure::Usage(format!("the token: {error}")))?,
    };
    keep_token(places, token)
}

fn keep_token(places: &Places, token: JoinToken) -> Result<Option<SocketAddr>, Failure> {
    match places.read_key()? {
        Some(old) if old != token.key => {
            return Err(Failure::Failed(format!(
                "this machine is in another cluster already: remove {} to leave that",
                places.key().display()
            )));
        }
        Some(_) => {}
        None => places.write_key(&token.key)?,
    }
    if let Some(address) = token.address {
        let mut peers = places.read_peers(&token.key);
        peers.retain(|peer| *peer != address);
        peers.insert(0, address);
        // Without it, the next start needs --peer.
        let _ = places.write_peers(&token.key, &peers);
    }
    Ok(token.address)
}

/// Makes a key if there is none. Whether it did.
pub(crate) fn begin(places: &Places) -> Result<bool, Failure> {
    if places.read_key()?.is_some() {
        return Ok(false);
    }
    let key = ClusterKey::random().map_err(|error| Failure::Failed(error.to_string()))?;
    places.write_key(&key)?;
    Ok(true)
}

fn no_key(path: &std::path::Path) -> Failure {
    Failure::Failed(format!(
        "no cluster is known here ({} is not there): start one by `atta node`, or join one by \
         `atta cluster join TOKEN` or `atta node --join TOKEN`",
        path.display()
    ))
}

fn failed(error: &ControlError) -> Failure {
    Failure::Failed(error.to_string())
}

fn options(
    key: &ClusterKey,
    name: &NodeName,
    address: SocketAddr,
    is_public: bool,
) -> Result<DoorsOptions, Failure> {
    let identity = key.identity(name.as_str());
    let identity = identity.map_err(|error| Failure::Failed(error.to_string()))?;
    let is_allowed: IsAllowed = Arc::new(move |ip: IpAddr| is_public || is_private(ip));
    Ok(DoorsOptions {
        address,
        security: Security::Tls(Arc::new(identity)),
        is_allowed,
    })
}

/// The doors of a node, at its port or at the first free one of some.
fn node_doors(key: &ClusterKey, node: &NodeRole) -> Result<Doors, Failure> {
    let NodeRole {
        name,
        listen,
        is_public,
        ..
    } = node;
    let ports: Vec<u16> = match listen.port {
        Some(port) => vec![port],
        None => (PORT..PORT + N_PORTS).collect(),
    };
    for port in &ports {
        let address = SocketAddr::new(listen.ip, *port);
        match Doors::open(options(key, name, address, *is_public)?) {
            Ok(doors) => return Ok(doors),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && ports.len() > 1 => {}
            Err(error) => {
                return Err(Failure::Failed(format!(
                    "cannot listen on {address}: {error}"
                )));
            }
        }
    }
    Err(Failure::Failed(format!(
        "ports {PORT} to {} of {} are in use: name another by --listen",
        PORT + N_PORTS - 1,
        listen.ip
    )))
}

/// The doors of a process that uses nodes: results come in by them. On a machine with a public
/// address only the interface towards the nodes listens.
fn asker_doors(
    key: &ClusterKey,
    name: &NodeName,
    peer: Option<&SocketAddr>,
) -> Result<Doors, Failure> {
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    let is_everywhere = own_ips().into_iter().all(is_private);
    let address = match peer {
        Some(peer) if !is_everywhere || peer.is_ipv6() => {
            let any = SocketAddr::new(
                match peer {
                    SocketAddr::V4(_) => any.ip(),
                    SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
                },
                0,
            );
            let own = atta_cluster::own_address(any, *peer);
            own.map_err(|error| Failure::Failed(error.to_string()))?
        }
        _ => any,
    };
    Doors::open(options(key, name, address, false)?)
        .map_err(|error| Failure::Failed(format!("cannot listen on {address}: {error}")))
}

/// The addresses at which others reach a listener.
pub(crate) fn reached_at(listener: SocketAddr) -> Vec<SocketAddr> {
    if !listener.ip().is_unspecified() {
        return vec![listener];
    }
    let ips = own_ips()
        .into_iter()
        .filter(|ip| ip.is_ipv4() == listener.is_ipv4());
    let mut all: Vec<SocketAddr> = ips.map(|ip| SocketAddr::new(ip, listener.port())).collect();
    if all.is_empty() {
        // Without a network there are only programs of this machine.
        all.push(SocketAddr::new([127, 0, 0, 1].into(), listener.port()));
    }
    all
}

/// The directories in which this machine's models are looked for.
pub(crate) fn model_directories(given: &[PathBuf]) -> Vec<PathBuf> {
    match given.is_empty() {
        true => vec![PathBuf::from(".")],
        false => given.to_vec(),
    }
}
