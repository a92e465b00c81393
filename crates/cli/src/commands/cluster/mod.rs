//! `atta cluster`: who is there, what a ring would do, and the key.

mod key;
mod list;
mod rekey;

use std::{path::PathBuf, time::Duration};

use atta::KvType;
use atta_cluster::{
    Who,
    control::{Control, NodeName},
    wire::message::{Answer, Question},
};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::{
    args::{
        ModelFlags,
        ring::{MembershipFlags, RingAim},
    },
    cluster::{
        Membership, Role,
        events::{self, KeptEvent},
    },
    failure::{Failure, one_line},
    load,
    output::Stdout,
    ring::{Asker, objective, say},
};

/// Time for the answer to a question.
const DEADLINE: Duration = Duration::from_secs(3);

/// Looks after a cluster: its nodes, plans and key.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// Lists the nodes: memory, speed, disk, link, temperature, what they do
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        membership: MembershipFlags,
    },
    /// Says who would run which layers of a model, and how fast, without loading it
    Plan(Box<PlanArgs>),
    /// Joins a cluster by a token or a code, to use its nodes; `atta node --join` works for others
    /// as well
    Join {
        /// What `atta cluster invite` printed on another machine
        token: String,
        #[command(flatten)]
        membership: MembershipFlags,
    },
    /// Prints the token with which other machines join, or a short code
    Invite(key::InviteArgs),
    /// Asks a node to leave the cluster: it releases what it holds, and ends
    Leave {
        /// Its name
        node: String,
        #[command(flatten)]
        membership: MembershipFlags,
    },
    /// Makes a new key and hands it to the nodes that answer; others join again
    Rekey(rekey::RekeyArgs),
    /// Prints the recent events of all nodes and of this machine's rings, or those of one node
    Log {
        /// Its name
        node: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        membership: MembershipFlags,
    },
}

#[derive(Debug, Args)]
struct PlanArgs {
    /// GGUF file (any file of a split model), or ORG/REPO[:QUANT] that was pulled
    model: PathBuf,
    /// Say what each node that is not used would cost
    #[arg(long)]
    why: bool,
    /// What the ring shall be good at
    #[arg(
        long = "for",
        value_name = "AIM",
        value_enum,
        default_value = "latency"
    )]
    aim: RingAim,
    /// Plan with these nodes only, all of them
    #[arg(long, value_name = "NODE,…", value_delimiter = ',')]
    nodes: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model_flags: ModelFlags,
    #[command(flatten)]
    membership: MembershipFlags,
}

pub(super) fn run(args: ClusterArgs) -> Result<(), Failure> {
    match args.command {
        ClusterCommand::Ls { json, membership } => list::run(&asker(&membership)?, json),
        ClusterCommand::Plan(args) => plan(&args),
        ClusterCommand::Join { token, membership } => key::join_by(&token, &membership),
        ClusterCommand::Invite(args) => key::invite(&args),
        ClusterCommand::Leave { node, membership } => leave(&node, &membership),
        ClusterCommand::Rekey(args) => rekey::run(&args),
        ClusterCommand::Log {
            node,
            json,
            membership,
        } => log(node.as_deref(), json, &membership),
    }
}

/// This machine, with its own speed, which a list and a plan show too.
fn asker(flags: &MembershipFlags) -> Result<Asker, Failure> {
    let model = ModelFlags::default();
    let options = model.load_options(model.session_options(KvType::default()));
    Asker::new(Membership::open(flags, &Role::Asker)?, &options)
}

fn plan(args: &PlanArgs) -> Result<(), Failure> {
    let flags = &args.model_flags;
    flags.refuse_reduction("cluster plan")?;
    let options = load::options(
        Some(&args.model),
        flags,
        flags.session_options(KvType::default()),
    )?;
    let path = load::locate(&args.model)?;
    let asker = Asker::new(Membership::open(&args.membership, &Role::Asker)?, &options)?;
    let survey = asker.survey()?;
    let sizes = asker.sizes(&path, &options)?;
    let who = match args.nodes.is_empty() {
        true => Who::Auto,
        false => Who::Nodes(
            args.nodes
                .iter()
                .map(|n| name(n))
                .collect::<Result<_, _>>()?,
        ),
    };
    let plan = asker.plan(&survey, &sizes, &who, objective(args.aim))?;
    asker.membership.remember();
    let mut out = Stdout::lock();
    if args.json {
        return out.line(&list::plan_json(&plan).to_string());
    }
    out.line(&plan.to_string())?;
    for line in list::plan_lines(&plan, args.why) {
        out.line(&line)?;
    }
    Ok(())
}

fn leave(node: &str, flags: &MembershipFlags) -> Result<(), Failure> {
    let node = name(node)?;
    let membership = Membership::open(flags, &Role::Asker)?;
    match ask(&membership, &node, &Question::Leave)? {
        Answer::Released => Stdout::lock().line(&format!("{node} leaves")),
        other => Err(unexpected(&node, &other)),
    }
}

fn log(node: Option<&str>, is_json: bool, flags: &MembershipFlags) -> Result<(), Failure> {
    let membership = Membership::open(flags, &Role::Asker)?;
    let members = membership.control.members();
    let members = members.map_err(|error| Failure::Failed(error.to_string()))?;
    let nodes = match node {
        Some(node) => vec![name(node)?],
        None => members,
    };
    let mut all = match node {
        Some(_) => Vec::new(),
        None => events::read(&membership.places.events()),
    };
    for name in &nodes {
        match node_log(&membership, name) {
            Ok(events) => all.extend(events),
            // The events of the others are worth having.
            Err(Failure::Failed(why)) if node.is_none() => say(&why),
            Err(failure) => return Err(failure),
        }
    }
    let mut out = Stdout::lock();
    all.iter()
        .try_for_each(|event| out.line(&log_line(event, is_json)))
}

fn node_log(membership: &Membership, node: &NodeName) -> Result<Vec<KeptEvent>, Failure> {
    let events = match ask(membership, node, &Question::Log)? {
        Answer::Log(events) => events,
        other => return Err(unexpected(node, &other)),
    };
    let events = events.into_iter().map(|event| KeptEvent {
        node: node.to_string(),
        ago: Duration::from_secs(event.ago_s),
        text: event.text,
    });
    Ok(events.collect())
}

fn log_line(event: &KeptEvent, is_json: bool) -> String {
    let node = one_line(&event.node);
    let text = one_line(&event.text);
    let ago_s = event.ago.as_secs();
    match is_json {
        true => json!({ "node": node, "ago_s": ago_s, "event": text }).to_string(),
        false => format!("{node}  {ago_s:>6} s ago  {text}"),
    }
}

fn name(text: &str) -> Result<NodeName, Failure> {
    NodeName::new(text).map_err(|error| Failure::Usage(error.to_string()))
}

/// Asks a node, after the members were looked up, so that its address is known.
fn ask(membership: &Membership, node: &NodeName, question: &Question) -> Result<Answer, Failure> {
    // A node that is not there is named by the question itself.
    let _ = membership.control.members();
    ask_known(membership, node, question, DEADLINE)
}

/// Asks a node whose address is known.
fn ask_known(
    membership: &Membership,
    node: &NodeName,
    question: &Question,
    deadline: Duration,
) -> Result<Answer, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(format!("{node}: {error}"));
    let question = question.to_bytes().map_err(|error| failed(&error))?;
    let answer = membership.control.ask(node, &question, deadline);
    Answer::parse(&answer.map_err(|error| failed(&error))?).map_err(|error| failed(&error))
}

fn unexpected(node: &NodeName, answer: &Answer) -> Failure {
    match answer {
        Answer::Refused { why } => Failure::Failed(format!("{node}: {why}")),
        other => Failure::Failed(format!("{node} answers {other:?}")),
    }
}
