//! The connections of a machine in a chain: where it listens, and what protects them.
//!
//! Knows no layers. Listening is for private networks only, whatever protects the connections.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs},
    path::Path,
    sync::Arc,
};

use atta_cluster::{
    Links,
    control::{FixedControl, NodeName},
    key::ClusterKey,
    lane::tcp::{Doors, DoorsOptions, Security},
};

use super::args::{ChainFlags, LeapArgs, LeapRole};
use crate::{
    cluster::{Places, is_private, node_name, own_ips, reached_at},
    failure::Failure,
    load::warn,
    ring::say,
};

/// The connections of this process.
pub(super) struct Network {
    pub(super) name: NodeName,
    pub(super) doors: Arc<Doors>,
    pub(super) control: Arc<FixedControl>,
    pub(super) places: Places,
    /// Where others reach it, the best address first.
    pub(super) addresses: Vec<SocketAddr>,
}

impl Network {
    /// Listens.
    pub(super) fn open(args: &LeapArgs) -> Result<Self, Failure> {
        let flags = &args.chain;
        let places = Places::new(flags.key.as_deref())?;
        let name = unique_name()?;
        let security = match &flags.key {
            Some(path) => {
                let identity = key(&places, path, args.role)?.identity(name.as_str());
                Security::Tls(Arc::new(identity.map_err(failed)?))
            }
            None => Security::Plain,
        };
        let doors = Arc::new(doors(flags, args.role, &security)?);
        doors.on_note(Box::new(say));
        if flags.insecure_lan {
            warn(
                "--insecure-lan: every machine of a private network may use this one, and read \
                 all that passes",
            );
        }
        let addresses = reached_at(doors.address());
        let announced = match args.role {
            LeapRole::Worker => addresses.first().copied(),
            _ => None,
        };
        let control = FixedControl::open(doors.clone(), name.clone(), announced, Vec::new());
        Ok(Self {
            name,
            doors,
            control: Arc::new(control.map_err(failed)?),
            places,
            addresses,
        })
    }

    /// The address of the next machine, as this one finds it.
    pub(super) fn next(&self, flags: &ChainFlags) -> Result<Option<SocketAddr>, Failure> {
        let Some((host, port)) = flags.next() else {
            return Ok(None);
        };
        let at = || format!("--next-host {host}");
        let found = (host, port).to_socket_addrs();
        let found: Vec<SocketAddr> = found
            .map_err(|error| Failure::Failed(format!("{}: {error}", at())))?
            .collect();
        // The doors may be those of one family only.
        let is_v4 = self.doors.address().is_ipv4();
        let fitting = found.iter().find(|address| address.is_ipv4() == is_v4);
        match fitting.or(found.first()) {
            Some(address) => Ok(Some(*address)),
            None => Err(Failure::Failed(format!(
                "{}: no address has this name",
                at()
            ))),
        }
    }
}

/// The key in a file. A master makes it where there is none.
fn key(places: &Places, path: &Path, role: LeapRole) -> Result<ClusterKey, Failure> {
    if let Some(key) = places.read_key()? {
        return Ok(key);
    }
    if role != LeapRole::Master {
        return Err(Failure::at(
            path,
            "is not there: copy it from the master, which makes it when it is started",
        ));
    }
    let key = ClusterKey::random().map_err(failed)?;
    places.write_key(&key)?;
    say(&format!(
        "made a key in {}: copy this file to all workers, by a way that others do not read",
        path.display()
    ));
    Ok(key)
}

/// The name of this process in its chain. Machines from one image have one host name, so it has
/// some random letters.
fn unique_name() -> Result<NodeName, Failure> {
    let host = node_name(None)?;
    let number = crate::args::value::Seed::Random.now() & 0xffff;
    NodeName::new(&format!("{:.40}-{number:04x}", host.as_str())).map_err(failed)
}

/// Listens on the first port that is free.
fn doors(flags: &ChainFlags, role: LeapRole, security: &Security) -> Result<Doors, Failure> {
    let ip = address(flags.host.unwrap_or(Ipv4Addr::UNSPECIFIED.into()))?;
    let ports = flags.ports(role);
    let mut last = None;
    for port in ports {
        let address = SocketAddr::new(ip, port);
        let opened = Doors::open(DoorsOptions {
            address,
            security: security.clone(),
            is_allowed: Arc::new(is_private),
        });
        match opened {
            Ok(doors) => return Ok(doors),
            Err(error) => {
                let is_taken = error.kind() == io::ErrorKind::AddrInUse;
                last = Some(format!("cannot listen on {address}: {error}"));
                if !is_taken {
                    break;
                }
            }
        }
    }
    let why = last.unwrap_or_default();
    Err(Failure::Failed(format!("{why}; --port names another port")))
}

/// The address to listen on: none that the internet reaches.
fn address(host: IpAddr) -> Result<IpAddr, Failure> {
    if !host.is_unspecified() {
        return match is_private(host) {
            true => Ok(host),
            false => Err(Failure::Failed(format!(
                "--host {host} is a public address, and a chain is for private networks"
            ))),
        };
    }
    let own = own_ips();
    if own.iter().all(|ip| is_private(*ip)) {
        return Ok(host);
    }
    let mut private = own.iter().filter(|ip| is_private(**ip));
    match (private.next(), private.next()) {
        (Some(ip), None) => Ok(*ip),
        _ => Err(Failure::Failed(
            "this machine has a public address: name a private one of it by --host".to_owned(),
        )),
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}
