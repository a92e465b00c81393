//! The key of a cluster: showing it to new machines, and taking it.

use atta_cluster::{control::Control, key::JoinToken};
use clap::Args;

use crate::{
    args::ring::MembershipFlags,
    cluster::{Membership, Places, Role, invite_by_code, join, node_name},
    commands::node::draw,
    failure::Failure,
    output::Stdout,
    ring::say,
};

#[derive(Debug, Args)]
pub(super) struct InviteArgs {
    /// Draw the token as a QR code
    #[arg(long)]
    qr: bool,
    /// Print 8 digits in place of the token, for one machine and 5 minutes, and wait for it
    #[arg(long, conflicts_with = "qr")]
    code: bool,
    #[command(flatten)]
    membership: MembershipFlags,
}

/// Prints the token or a code on standard output: the user asked for it.
pub(super) fn invite(args: &InviteArgs) -> Result<(), Failure> {
    let membership = Membership::open(&args.membership, &Role::Asker)?;
    // The node of this machine, or another one that answers now.
    let _ = membership.control.members();
    membership.remember();
    let known = membership.control.known();
    let token = JoinToken {
        key: membership.key.clone(),
        address: known.first().map(|node| node.address),
    };
    drop(membership);
    if args.code {
        return invite_by_code(&token, &args.membership);
    }
    print(&token)?;
    if known.is_empty() {
        say(
            "no node answers now, so the token has no address: the new node finds others by itself, or by --peer",
        );
    }
    if args.qr {
        draw(&token.text());
    }
    Ok(())
}

/// Keeps the key of a token, so that this machine can use the nodes.
pub(super) fn join_by(text: &str, flags: &MembershipFlags) -> Result<(), Failure> {
    let places = Places::new(flags.key.as_deref())?;
    join(&places, flags, text, &node_name(None)?)?;
    say("joined: `atta cluster ls` lists the nodes, `atta node` makes this machine one of them");
    Ok(())
}

pub(super) fn print(token: &JoinToken) -> Result<(), Failure> {
    Stdout::lock().line(&token.text())
}
