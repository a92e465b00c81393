//! Joining by a code of eight digits: the machine that shows it, and the one where it is typed.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use atta_cluster::{
    beacon::{self, BeaconKey, Beacons},
    control::NodeName,
    invite::{
        Invitation, InvitationEvent, InvitationLimits, InviteError, JoinCode, accept_invitation,
    },
    key::JoinToken,
};

use super::{
    address::{self, is_private, own_ips},
    membership::{beacon_options, searching},
};
use crate::{args::ring::MembershipFlags, failure::Failure, output::Stdout, ring::say};

/// The port of a machine that invites, if it is free.
const PORT: u16 = 9988;
/// Time for which a machine that invites is searched.
const SEARCH: Duration = Duration::from_millis(1500);

/// Shows a code on standard output, and waits for the machine where it is typed.
pub(crate) fn invite_by_code(token: &JoinToken, flags: &MembershipFlags) -> Result<(), Failure> {
    let invitation = open(token)?;
    let address = invitation
        .address()
        .map_err(|error| Failure::Failed(error.to_string()))?;
    let _beacons = match flags.no_discovery {
        true => None,
        false => {
            let options = beacon_options(BeaconKey::of_invitations(), Some(address));
            searching(Beacons::start(options))
        }
    };
    say("type `atta node --join CODE` on the new machine, within 5 minutes (one machine, 3 tries)");
    let own = own_ips().into_iter().filter(|ip| is_private(*ip));
    let own: Vec<String> = own
        .map(|ip| SocketAddr::new(ip, address.port()).to_string())
        .collect();
    if !own.is_empty() {
        say(&format!(
            "if it does not find this machine by itself: --peer {}",
            own.join(" or ")
        ));
    }
    let mut out = Stdout::lock();
    out.line(&invitation.code().text())?;
    out.flush()?;
    match invitation.wait(&mut on_wrong) {
        InvitationEvent::Joined(name) => {
            say(&format!("{name} has the key"));
            Ok(())
        }
        InvitationEvent::TooMany => Err(Failure::Failed(
            "three wrong codes were typed, and this one is over: invite again for another"
                .to_owned(),
        )),
        InvitationEvent::Expired | InvitationEvent::WrongCode { .. } => Err(Failure::Failed(
            "no machine has joined, and the code is over: invite again for another".to_owned(),
        )),
    }
}

fn on_wrong(event: InvitationEvent) {
    if let InvitationEvent::WrongCode { left } = event {
        say(&format!("a wrong code was typed; tries left: {left}"));
    }
}

/// A listener in private networks.
fn open(token: &JoinToken) -> Result<Invitation, Failure> {
    let ip = place(&own_ips()).ok_or_else(|| {
        Failure::Failed(
            "this machine is in no private network, from which it could be joined".into(),
        )
    })?;
    let at = |port| {
        let limits = InvitationLimits::default();
        let address = SocketAddr::new(ip, port);
        Invitation::open(address, token.clone(), Arc::new(is_private), limits)
    };
    let opened = match at(PORT) {
        Err(InviteError::Io { source, .. }) if source.kind() == io::ErrorKind::AddrInUse => at(0),
        opened => opened,
    };
    opened.map_err(|error| failed(&error))
}

/// Where to listen: everywhere, or, if the internet reaches this machine, in a private network.
fn place(own: &[IpAddr]) -> Option<IpAddr> {
    match own.iter().all(|ip| is_private(*ip)) {
        true => Some(Ipv4Addr::UNSPECIFIED.into()),
        false => own.iter().copied().find(|ip| is_private(*ip)),
    }
}

/// The token of the machine that shows a code.
pub(super) fn by_code(
    flags: &MembershipFlags,
    text: &str,
    name: &NodeName,
) -> Result<JoinToken, Failure> {
    let code: JoinCode = text
        .parse()
        .map_err(|error: InviteError| Failure::Usage(error.to_string()))?;
    let mut unreachable = None;
    for address in inviting(flags)? {
        match accept_invitation(address, &code, name) {
            // The same machine may be reached at another of its addresses.
            Err(error @ InviteError::Io { .. }) => unreachable = Some(error),
            answered => return answered.map_err(|error| failed(&error)),
        }
    }
    Err(unreachable.map_or_else(nothing_found, |error| failed(&error)))
}

/// Addresses of the machine that invites.
fn inviting(flags: &MembershipFlags) -> Result<Vec<SocketAddr>, Failure> {
    let mut given = Vec::new();
    for text in &flags.peers {
        given.extend(address::peer_at(text, PORT)?);
    }
    if !given.is_empty() || flags.no_discovery {
        return Ok(given);
    }
    let options = beacon_options(BeaconKey::of_invitations(), None);
    let found = searching(beacon::find(options, SEARCH)).unwrap_or_default();
    let first = found.first().map(|found| found.sender);
    let addresses: Vec<SocketAddr> = found.iter().map(|found| found.address).collect();
    match found.iter().all(|found| Some(found.sender) == first) {
        true => Ok(addresses),
        // A guess at the wrong one would cost it a try.
        false => Err(Failure::Failed(format!(
            "several machines invite: name the right one by --peer ({})",
            addresses
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        ))),
    }
}

fn nothing_found() -> Failure {
    Failure::Failed(
        "no machine that invites is found: `atta cluster invite --code` must run there; where it \
         is not found by itself, name it by --peer HOST:PORT"
            .to_owned(),
    )
}

fn failed(error: &InviteError) -> Failure {
    Failure::Failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invitation_listens_in_private_networks_only() {
        let ips = |texts: &[&str]| -> Vec<IpAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let any = IpAddr::from(Ipv4Addr::UNSPECIFIED);
        assert_eq!(place(&ips(&["10.0.0.1", "fd00::1"])), Some(any));
        assert_eq!(place(&[]), Some(any));
        let private = ips(&["10.0.0.1"])[0];
        assert_eq!(place(&ips(&["10.0.0.1", "8.8.8.8"])), Some(private));
        assert_eq!(place(&ips(&["8.8.8.8"])), None);
    }
}
