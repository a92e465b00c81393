//! `atta cluster rekey`: another key in the place of one that is lost, or that a machine which
//! left still has.
//!
//! The new key is kept here before the first node gets it, and counts as handed over where a node
//! answers by it. Who can read and change what passes on the network, and has the old key, can
//! have the new one: after a theft the tokens are typed by hand.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use atta_cluster::{
    control::{Control, NodeName},
    key::{ClusterKey, JoinToken},
    wire::message::{Answer, Question},
};
use clap::Args;

use super::{DEADLINE, ask_known, key::print, name};
use crate::{
    args::ring::MembershipFlags,
    cluster::{Membership, Places, Role},
    failure::{Failure, one_line},
    output::Stdout,
    ring::say,
};

/// Time to keep a key, on slow disks too.
const KEEP: Duration = Duration::from_secs(10);
/// Time for nodes to begin anew with the key that they took.
const RESTART: Duration = Duration::from_secs(20);
/// Time between two looks at them.
const LOOK: Duration = Duration::from_millis(300);

#[derive(Debug, Args)]
pub(super) struct RekeyArgs {
    /// Nodes that get no new key, and so are out of the cluster
    #[arg(long, value_name = "NODE,…", value_delimiter = ',')]
    without: Vec<String>,
    /// Hand nothing over by the network: each node joins again with the new token, typed there
    #[arg(long, conflicts_with = "without")]
    by_hand: bool,
    #[command(flatten)]
    membership: MembershipFlags,
}

pub(super) fn run(args: &RekeyArgs) -> Result<(), Failure> {
    let places = Places::new(args.membership.key.as_deref())?;
    let Some(old) = places.read_key()? else {
        return Err(Failure::Failed(format!(
            "there is no key to replace: {} is not there",
            places.key().display()
        )));
    };
    let new = ClusterKey::random().map_err(|error| Failure::Failed(error.to_string()))?;
    match args.by_hand {
        true => by_hand(&places, &old, new),
        false => by_network(args, &places, &old, &new),
    }
}

fn by_hand(places: &Places, old: &ClusterKey, new: ClusterKey) -> Result<(), Failure> {
    let peers = places.read_peers(old);
    places.write_key(&new)?;
    say(
        "restart the node of this machine; on every other one remove its key, then join again with:",
    );
    print(&JoinToken {
        key: new,
        address: peers.first().copied(),
    })
}

fn by_network(
    args: &RekeyArgs,
    places: &Places,
    old: &ClusterKey,
    new: &ClusterKey,
) -> Result<(), Failure> {
    let membership = Membership::open(&args.membership, &Role::Asker)?;
    let nodes = staying(&membership, &args.without)?;
    refuse_busy(&membership, &nodes)?;
    places.write_next_key(new)?;
    let handed = hand_over(&membership, &nodes, new);
    if !handed
        .iter()
        .any(|node| matches!(node.answer, Handing::Took))
    {
        return Err(none_took(places, &handed));
    }
    places.use_next_key(old, &membership.met())?;
    drop(membership);
    report(args, &handed)
}

/// The old key stays. The new one is kept where a node may have it all the same.
fn none_took(places: &Places, handed: &[Handed]) -> Failure {
    let reasons = handed.iter().filter_map(|node| match &node.answer {
        Handing::Took => None,
        Handing::Refused(why) | Handing::Unknown(why) => Some(format!("{}: {why}", node.node)),
    });
    let reasons = reasons.collect::<Vec<_>>().join("; ");
    let is_certain = |node: &Handed| matches!(node.answer, Handing::Refused(_));
    if handed.iter().all(is_certain) {
        places.drop_next_key();
        return Failure::Failed(format!(
            "no node took the new key, and the old one stays: {reasons}"
        ));
    }
    Failure::Failed(format!(
        "no node says that it took the new key, and the old one stays: {reasons}; in case one has \
         it, it is kept in {}",
        places.next_key().display()
    ))
}

/// The members that get the key.
fn staying(membership: &Membership, without: &[String]) -> Result<Vec<NodeName>, Failure> {
    let without: Vec<NodeName> = without
        .iter()
        .map(|text| name(text))
        .collect::<Result<_, _>>()?;
    let members = membership.control.members();
    let members = members.map_err(|error| Failure::Failed(error.to_string()))?;
    if let Some(absent) = without.iter().find(|node| !members.contains(node)) {
        return Err(Failure::Failed(format!(
            "--without {absent}: it does not answer, and gets no key in any case; leave it out"
        )));
    }
    let staying: Vec<NodeName> = members
        .into_iter()
        .filter(|node| !without.contains(node))
        .collect();
    match staying.is_empty() {
        true => Err(Failure::Failed(
            "no node answers that could take a key: `atta cluster rekey --by-hand` makes one here"
                .to_owned(),
        )),
        false => Ok(staying),
    }
}

/// Nothing is handed over while a node works, since it would be cut off from its ring.
fn refuse_busy(membership: &Membership, nodes: &[NodeName]) -> Result<(), Failure> {
    for node in nodes {
        let Answer::Card(card) = ask_known(membership, node, &Question::Describe, DEADLINE)? else {
            continue;
        };
        if let Some(held) = &card.held {
            return Err(Failure::Failed(format!(
                "{node} works for a ring of {}: wait for its end, or leave the node out by --without",
                held.coordinator
            )));
        }
    }
    Ok(())
}

/// A node and its answer.
struct Handed {
    node: NodeName,
    answer: Handing,
}

/// What a node did with the key.
enum Handing {
    Took,
    Refused(String),
    /// No answer: it may have the key.
    Unknown(String),
}

fn hand_over(membership: &Membership, nodes: &[NodeName], new: &ClusterKey) -> Vec<Handed> {
    let question = Question::Rekey { key: new.clone() };
    let hand = |node: &NodeName| Handed {
        node: node.clone(),
        answer: match ask_known(membership, node, &question, KEEP) {
            Ok(Answer::Rekeyed) => Handing::Took,
            Ok(Answer::Refused { why }) => Handing::Refused(why),
            Ok(_) => Handing::Refused("it answers something else".to_owned()),
            Err(_) => Handing::Unknown("it does not answer".to_owned()),
        },
    };
    nodes.iter().map(hand).collect()
}

/// Tells which nodes answer by the new key.
fn report(args: &RekeyArgs, handed: &[Handed]) -> Result<(), Failure> {
    let membership = Membership::open(&args.membership, &Role::Asker)?;
    let here = answering(&membership, handed)?;
    membership.remember();
    let mut out = Stdout::lock();
    for Handed { node, answer } in handed {
        let line = match answer {
            // A node whose answer was lost may have the key all the same.
            _ if here.contains(node) => format!("{node}  has the new key"),
            Handing::Took => format!("{node}  took it, and does not answer yet"),
            Handing::Refused(why) | Handing::Unknown(why) => format!("{node}  has not: {why}"),
        };
        out.line(&one_line(&line))?;
    }
    say(
        "machines that only use nodes, and nodes that were away, join again: `atta cluster invite` \
         prints the token",
    );
    let missing = handed.iter().filter(|handed| !here.contains(&handed.node));
    match missing.count() {
        0 => Ok(()),
        n => Err(Failure::Failed(format!(
            "{n} of {} nodes do not answer by the new key: remove the old key there, and join again",
            handed.len()
        ))),
    }
}

/// The nodes that answer by the new key, when all that may have it do or the time is over.
fn answering(membership: &Membership, handed: &[Handed]) -> Result<BTreeSet<NodeName>, Failure> {
    let end = Instant::now() + RESTART;
    loop {
        let here = membership.control.members();
        let here: BTreeSet<NodeName> = here
            .map_err(|error| Failure::Failed(error.to_string()))?
            .into_iter()
            .collect();
        let may_have = |node: &&Handed| !matches!(node.answer, Handing::Refused(_));
        let mut awaited = handed.iter().filter(may_have);
        if awaited.all(|node| here.contains(&node.node)) || Instant::now() >= end {
            return Ok(here);
        }
        thread::sleep(LOOK);
    }
}
