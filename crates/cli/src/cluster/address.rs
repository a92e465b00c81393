//! Addresses that people type, and those of this machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

use atta_cluster::beacon::BeaconInterface;

use crate::failure::Failure;

/// The port of a node, if it is free.
pub(crate) const PORT: u16 = 9990;
/// Ports behind it that are tried.
pub(crate) const N_PORTS: u16 = 16;

/// Where to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listen {
    /// The address; unspecified: all of this machine.
    pub(crate) ip: IpAddr,
    /// The port; `None`: the first free one of some.
    pub(crate) port: Option<u16>,
}

/// Where to listen, from `--listen IF[:PORT]` or without it. `is_public`: the user allows public
/// addresses.
pub(crate) fn listen(text: Option<&str>, is_public: bool) -> Result<Listen, Failure> {
    let listen = match text {
        None => Listen {
            ip: Ipv4Addr::UNSPECIFIED.into(),
            port: None,
        },
        Some(text) => of_text(text)?,
    };
    let reached: Vec<IpAddr> = match listen.ip.is_unspecified() {
        true => own_ips(),
        false => vec![listen.ip],
    };
    match reached.into_iter().find(|ip| !is_private(*ip)) {
        Some(ip) if !is_public => Err(Failure::Failed(format!(
            "{ip} is a public address: name an interface of your network by --listen, or allow \
             the whole internet to knock by --public"
        ))),
        _ => Ok(listen),
    }
}

/// Reads an address of this machine, or the name of an interface, with or without a port.
fn of_text(text: &str) -> Result<Listen, Failure> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Listen {
            ip: address.ip(),
            port: Some(address.port()),
        });
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(Listen { ip, port: None });
    }
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (text, None),
    };
    let port = port.map(str::parse).transpose();
    let port = port.map_err(|_| Failure::Usage(format!("--listen {text}: no port")))?;
    if let Ok(ip) = name.parse() {
        return Ok(Listen { ip, port });
    }
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let mut found = interfaces.iter().filter(|found| found.name == name);
    // IPv4 first: it needs no zone.
    let ip = found.clone().map(|i| i.ip()).find(IpAddr::is_ipv4);
    let ip = ip.or_else(|| found.next().map(if_addrs::Interface::ip));
    let ip = ip.ok_or_else(|| {
        let mut names: Vec<&str> = interfaces.iter().map(|i| i.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        Failure::Failed(format!(
            "--listen {name}: neither an address nor an interface of this machine ({})",
            names.join(", ")
        ))
    })?;
    Ok(Listen { ip, port })
}

/// Addresses of this machine other than loopback, the private ones first.
pub(crate) fn own_ips() -> Vec<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let ips = interfaces.iter().map(if_addrs::Interface::ip);
    let is_usable = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback(),
        // Without a zone a link-local address leads nowhere.
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    let mut ips: Vec<IpAddr> = ips.filter(is_usable).collect();
    ips.sort_by_key(|ip| (!is_private(*ip), ip.is_ipv6(), *ip));
    ips.dedup();
    ips
}

/// Addresses of this machine by which beacons are sent and heard, with their interfaces: private
/// ones at which others can reach it. `listener`: only those at which this listener is reached.
pub(crate) fn beacon_interfaces(listener: Option<IpAddr>) -> Vec<BeaconInterface> {
    let is_listening = |ip: IpAddr| match listener {
        None => true,
        Some(at) if at.is_unspecified() => at.is_ipv4() == ip.is_ipv4(),
        Some(at) => at == ip,
    };
    let own = own_ips();
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let found = interfaces.iter().map(|interface| BeaconInterface {
        ip: interface.ip(),
        index: interface.index.unwrap_or(0),
    });
    let is_usable = |i: &BeaconInterface| own.contains(&i.ip) && is_private(i.ip);
    found
        .filter(|i| is_usable(i) && is_listening(i.ip))
        .collect()
}

/// Whether an address is one of a home or an office: private, link-local, shared or loopback.
pub(crate) fn is_private(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            let is_shared = a == 100 && (64..128).contains(&b);
            ip.is_private() || ip.is_loopback() || ip.is_link_local() || is_shared
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local() || ip.is_unique_local(),
    }
}

/// Whether an address is one of this machine.
pub(crate) fn is_here(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    ip.is_loopback() || own_ips().contains(&ip)
}

/// The addresses of a peer that a user names, with a port or that of nodes.
pub(crate) fn peer(text: &str) -> Result<Vec<SocketAddr>, Failure> {
    peer_at(text, PORT)
}

/// The addresses of a machine that a user names, with a port or this one.
pub(super) fn peer_at(text: &str, port: u16) -> Result<Vec<SocketAddr>, Failure> {
    let refuse = |why: &dyn std::fmt::Display| Failure::Failed(format!("--peer {text}: {why}"));
    if let Ok(address) = text.parse() {
        return Ok(vec![address]);
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let has_port = text
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let found = match has_port {
        true => text.to_socket_addrs(),
        false => (text, port).to_socket_addrs(),
    };
    let found: Vec<SocketAddr> = found.map_err(|error| refuse(&error))?.collect();
    match found.is_empty() {
        true => Err(refuse(&"no address has this name")),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_private_or_public() {
        for ip in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.0.9",
            "172.31.0.1",
            "169.254.1.1",
            "100.64.0.1",
            "::1",
            "fe80::1",
            "fd00::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(is_private(ip.parse().unwrap()), "{ip}");
        }
        for ip in [
            "8.8.8.8",
            "172.32.0.1",
            "100.128.0.1",
            "2001:db8::1",
            "::ffff:8.8.8.8",
        ] {
            assert!(!is_private(ip.parse().unwrap()), "{ip}");
        }
    }

    #[test]
    fn listening_takes_addresses_interfaces_and_ports() {
        let at = |text: &str| listen(Some(text), false);
        let of = |ip: &str, port| Listen {
            ip: ip.parse().unwrap(),
            port,
        };
        assert_eq!(at("127.0.0.1").unwrap(), of("127.0.0.1", None));
        assert_eq!(at("127.0.0.1:7").unwrap(), of("127.0.0.1", Some(7)));
        assert_eq!(at("[::1]:7").unwrap(), of("::1", Some(7)));
        assert_eq!(at("::1").unwrap(), of("::1", None));
        assert!(at("127.0.0.1:x").is_err() && at("nowhere0").is_err());
        assert!(at("8.8.8.8").is_err());
        assert!(listen(Some("8.8.8.8"), true).is_ok());
    }

    #[test]
    fn beacons_go_to_private_networks_and_not_to_loopback() {
        for listener in [None, Some("0.0.0.0"), Some("::")] {
            let listener = listener.map(|ip| ip.parse().unwrap());
            for found in beacon_interfaces(listener) {
                assert!(is_private(found.ip) && !found.ip.is_loopback(), "{found:?}");
                assert!(listener.is_none_or(|at: IpAddr| at.is_ipv4() == found.ip.is_ipv4()));
            }
        }
        assert!(beacon_interfaces(Some("127.0.0.1".parse().unwrap())).is_empty());
        assert!(beacon_interfaces(Some("203.0.113.1".parse().unwrap())).is_empty());
    }

    #[test]
    fn peers_have_the_port_of_nodes_unless_they_say_another() {
        let address = |text: &str| vec![text.parse::<SocketAddr>().unwrap()];
        assert_eq!(peer("10.0.0.1").unwrap(), address("10.0.0.1:9990"));
        assert_eq!(peer("10.0.0.1:5").unwrap(), address("10.0.0.1:5"));
        assert_eq!(peer("::1").unwrap(), address("[::1]:9990"));
        assert!(peer("localhost:5").unwrap().iter().all(|a| a.port() == 5));
        assert!(peer("no such host").is_err());
    }
}
