//! The key of a cluster: showing it to new machines, and taking it.

use atta_cluster::{control::Control, key::JoinToken};

use crate::{
    args::ring::MembershipFlags,
    cluster::{Membership, Places, Role, join},
    commands::node::draw,
    failure::Failure,
    output::Stdout,
    ring::say,
};

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

pub(super) fn print(token: &JoinToken) -> Result<(), Failure> {
    Stdout::lock().line(&token.text())
}
