//! The key of a cluster: showing it to new machines, and making another one.

use atta_cluster::{
    control::Control,
    key::{ClusterKey, JoinToken},
};
use clap::Args;

use crate::{
    args::ring::MembershipFlags,
    cluster::{Membership, Places, Role, join},
    commands::node::draw,
    failure::Failure,
    output::Stdout,
    ring::say,
};

#[derive(Debug, Args)]
pub(super) struct RekeyArgs {
    /// Each node joins again with the new token, typed there; nothing is handed over by the network
    #[arg(long)]
    by_hand: bool,
    #[command(flatten)]
    membership: MembershipFlags,
}

/// Prints the token on standard output: the user asked for it.
pub(super) fn invite(flags: &MembershipFlags, is_drawn: bool) -> Result<(), Failure> {
    let membership = Membership::open(flags, &Role::Asker)?;
    // The node of this machine, or another one that answers now.
    let _ = membership.control.members();
    membership.remember();
    let known = membership.control.known();
    let token = JoinToken {
        key: membership.key,
        address: known.first().map(|node| node.address),
    };
    print(&token)?;
    if known.is_empty() {
        say("no node answers now, so the token has no address: the new node needs --peer");
    }
    if is_drawn {
        draw(&token.text());
    }
    Ok(())
}

/// Keeps the key of a token, so that this machine can use the nodes.
pub(super) fn join_by(token: &str, flags: &MembershipFlags) -> Result<(), Failure> {
    let places = Places::new(flags.key.as_deref())?;
    join(&places, token)?;
    say("joined: `atta cluster ls` lists the nodes, `atta node` makes this machine one of them");
    Ok(())
}

/// Makes a new key.
pub(super) fn rekey(args: &RekeyArgs) -> Result<(), Failure> {
    if !args.by_hand {
        return Err(Failure::Usage(
            "handing a new key over by the network is not built yet: give --by-hand, then run \
             `atta node --join` with the new token on every machine"
                .to_owned(),
        ));
    }
    let places = Places::new(args.membership.key.as_deref())?;
    let Some(old) = places.read_key()? else {
        return Err(Failure::Failed(format!(
            "there is no key to replace: {} is not there",
            places.key().display()
        )));
    };
    let key = ClusterKey::random().map_err(|error| Failure::Failed(error.to_string()))?;
    let peers = places.read_peers(&old);
    places.write_key(&key)?;
    say(
        "restart the node of this machine; on every other one remove its key, then join again with:",
    );
    print(&JoinToken {
        key,
        address: peers.first().copied(),
    })
}

fn print(token: &JoinToken) -> Result<(), Failure> {
    Stdout::lock().line(&token.text())
}
