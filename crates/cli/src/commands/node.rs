//! `atta node`: this machine works for rings of other machines.

mod unit;

use std::{
    net::SocketAddr,
    ops::ControlFlow,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use atta::{Budget, KvType, LoadOptions, return_large_buffers};
use atta_cluster::{
    PartLinks, SharedStates, StatesFolder,
    control::{Control, ControlError, Switchboard},
    key::JoinToken,
    measure::{celsius, measure_link_to, memory_for_models},
    node::{LibraryModels, MeasureLink, NodeOptions, NodeService, NodeTiming, part_server},
    part::{Library, LibraryOptions, PartsDirectory},
};
use clap::Args;

use crate::{
    args::{ModelFlags, ring::MembershipFlags, value},
    cluster::{
        Membership, NodeRole, Places, Role, begin, join, listen, model_directories, node_name,
    },
    failure::Failure,
    report,
    ring::{rates, say},
    signals::{self, Requests},
};

/// The part of the disk budget that states of texts may take.
const STATES_PART: u64 = 8;
/// Time between two looks at signals.
const POLL: Duration = Duration::from_millis(100);
/// Time to send the answer to a question that ends all connections.
const LAST_ANSWER: Duration = Duration::from_millis(500);
/// Time for the end of all that the port is needed for.
const REOPEN: Duration = Duration::from_secs(10);
/// Time between two looks at who is there.
const REMEMBER: Duration = Duration::from_secs(10);

/// Works for rings: other machines of the cluster may run layers of their models here.
///
/// The first node of a cluster makes its key and prints a token, with which others join. A
/// machine with the key can use all nodes and read what they compute; no other can connect. No
/// model is loaded before a ring needs it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atta node                                    the first one prints a token
  atta node --join atta1-…                     on another machine, once; then `atta node`
  atta node --models ~/models --ram-budget 2G  models from there, in 2 GB
  atta cluster ls                              who is there
  atta run --ring model.gguf -p \"Hello\"        run a model on them")]
pub(crate) struct NodeArgs {
    /// Join the cluster of this token, or of the machine that shows this code; it is remembered
    #[arg(long, value_name = "TOKEN|CODE")]
    join: Option<String>,
    /// Name in the cluster [default: the name of the machine]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Directory with models; may be repeated [default: the current directory]
    #[arg(long, value_name = "DIR")]
    models: Vec<PathBuf>,
    /// Directory for layers that are fetched from other machines of a ring [default: parts in
    /// ~/.cache/atta/cluster]
    #[arg(long, value_name = "DIR")]
    parts: Option<PathBuf>,
    /// Disk for them, and an eighth of it for states of texts; the oldest go when it is full. 0:
    /// nothing is fetched or kept, and models must be here
    #[arg(long, value_name = "SIZE", value_parser = value::size_or_0, default_value = "16G")]
    disk_budget: u64,
    /// Interface or address to listen on, and the port [default: all, and the first free port from
    /// 9990 on]
    #[arg(long, value_name = "IF[:PORT]")]
    listen: Option<String>,
    /// Listen on public addresses too, and take connections from any
    #[arg(long)]
    public: bool,
    /// Draw the token as a QR code
    #[arg(long)]
    qr: bool,
    /// Memory for layers, such as 2G [default: four fifths of the available memory]
    #[arg(long, value_name = "SIZE", value_parser = value::size)]
    ram_budget: Option<u64>,
    /// Number of threads [default: the physical cores that this process may use]
    #[arg(short = 'j', value_name = "THREADS", value_parser = value::threads)]
    threads: Option<usize>,
    /// Write a systemd unit that starts a node with these options, and print how to start it
    #[arg(long, conflicts_with = "uninstall")]
    install: bool,
    /// Remove the systemd unit, and print how to stop the node
    #[arg(long)]
    uninstall: bool,
    #[command(flatten)]
    membership: MembershipFlags,
}

impl NodeArgs {
    /// `--disk-budget` where it is not given.
    const DISK_BUDGET: u64 = 16 << 30;
}

pub(super) fn run(args: Box<NodeArgs>) -> Result<(), Failure> {
    if args.uninstall {
        return unit::uninstall();
    }
    let end = signals()?;
    let places = Places::new(args.membership.key.as_deref())?;
    if args.install {
        // Before a key is made or taken.
        unit::check()?;
    }
    let name = node_name(args.name.as_deref())?;
    let address = match &args.join {
        Some(text) => join(&places, &args.membership, text, &name)?,
        None => None,
    };
    let is_first = begin(&places)?;
    if args.install {
        return unit::install(&args, is_first);
    }
    // Rings come and go for weeks, on boards with little memory.
    return_large_buffers();
    let listen = listen(args.listen.as_deref(), args.public)?;
    let mut role = NodeRole {
        name,
        listen,
        is_public: args.public,
        joined: address,
    };
    let mut membership = Membership::open(&args.membership, &Role::Node(role.clone()))?;
    // With another key it is at the same place.
    role.listen.port = membership.addresses.first().map(SocketAddr::port);
    let mut token = (is_first || args.qr).then_some(args.qr);
    while work(&args, membership, token.take(), &end)? == Ended::Rekeyed {
        say("took a new key of the cluster");
        membership = open_again(&args, &role)?;
    }
    Ok(())
}

/// Why a node does not work any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// By a signal, or a member has asked it to leave.
    Left,
    /// It has another key, by which it begins anew.
    Rekeyed,
}

/// Works for rings as long as the key is the same. `token`: show it, drawn or not.
fn work(
    args: &NodeArgs,
    membership: Membership,
    token: Option<bool>,
    end: &AtomicBool,
) -> Result<Ended, Failure> {
    let service = service(args, &membership)?;
    service.keep_keys(membership.key_keeper());
    membership.doors.on_note(service.noter());
    let control = &membership.control;
    let announced = control
        .answer(service.answerer())
        .and_then(|()| control.announce());
    announced.map_err(|error| match error {
        ControlError::Taken(_) => Failure::Failed(format!("{error}: choose another by --name")),
        error => Failure::Failed(error.to_string()),
    })?;
    greet(&membership, &service);
    if let Some(is_drawn) = token {
        show_token(&membership, is_drawn);
    }
    let ended = wait(&membership, &service, end);
    control.close();
    drop(service);
    Ok(ended)
}

/// The same node with the new key of its file. Threads that end may hold its port for a moment.
fn open_again(args: &NodeArgs, role: &NodeRole) -> Result<Membership, Failure> {
    let begin = Instant::now();
    loop {
        match Membership::open(&args.membership, &Role::Node(role.clone())) {
            Err(_) if begin.elapsed() < REOPEN => thread::sleep(POLL),
            opened => return opened,
        }
    }
}

/// Whether a signal asks the program to end. A second one ends it at once.
pub(super) fn signals() -> Result<Arc<AtomicBool>, Failure> {
    let end = Arc::<AtomicBool>::default();
    signals::listen(Requests::End, 0, &end)
        .map_err(|error| Failure::Failed(format!("signals: {error}")))?;
    Ok(end)
}

fn service(args: &NodeArgs, membership: &Membership) -> Result<NodeService, Failure> {
    let flags = args.threads.map_or_else(ModelFlags::default, |n| {
        ModelFlags::default().with_threads(n)
    });
    let load: LoadOptions = flags.load_options(flags.session_options(KvType::default()));
    let pool = load.open_pool()?;
    let kernels = load.kernels()?;
    let bytes = memory_for_models(args.ram_budget).ok_or_else(|| {
        Failure::Failed(
            "this system does not say how much memory is available: give --ram-budget".to_owned(),
        )
    })?;
    let rates = rates(
        &membership.places.node_rates(),
        kernels,
        &pool,
        &args.models,
    )?;
    let doors = Arc::clone(&membership.doors);
    let measure: MeasureLink = Arc::new(move |to| {
        measure_link_to(&to.name, |question, deadline| {
            let answer = doors.ask(to.address, Some(&to.name), question, deadline);
            answer.map_err(|error| error.to_string())
        })
    });
    let library = Arc::new(library(args, &membership.places));
    let states = states(args, &membership.places);
    let server = part_server(Arc::clone(&library), states.clone());
    let served = membership.doors.serve(server);
    served.map_err(|error| Failure::Failed(error.to_string()))?;
    let options = NodeOptions {
        name: membership.name.clone(),
        addresses: membership.addresses.clone(),
        kernels,
        pool,
        budget: Budget::limited(bytes),
        models: Arc::new(LibraryModels::new(library, membership.doors.clone())),
        states: states.map(|folder| SharedStates {
            folder,
            links: membership.doors.clone(),
        }),
        measure: Some(rates.numbers()),
        celsius,
        measure_link: Some(measure),
        timing: NodeTiming::default(),
    };
    let service = NodeService::start(options, membership.doors.clone());
    service.map_err(|error| Failure::Failed(format!("cannot start the node: {error}")))
}

/// Where states of texts are kept: beside parts, within the same budget.
fn states(args: &NodeArgs, places: &Places) -> Option<StatesFolder> {
    let parts = args.parts.clone().unwrap_or_else(|| places.parts());
    (args.disk_budget > 0).then(|| StatesFolder {
        directory: parts.join("states"),
        budget_bytes: args.disk_budget / STATES_PART,
    })
}

/// Models and parts of this machine.
fn library(args: &NodeArgs, places: &Places) -> Library {
    let parts = PartsDirectory {
        path: args.parts.clone().unwrap_or_else(|| places.parts()),
        budget_bytes: args.disk_budget - args.disk_budget / STATES_PART,
    };
    Library::new(LibraryOptions {
        models: model_directories(&args.models),
        parts: (args.disk_budget > 0).then_some(parts),
        hashes: places.hashes(),
    })
}

/// This node, in two lines.
fn greet(membership: &Membership, service: &NodeService) {
    let card = service.card();
    let speed = card.measure.map_or_else(String::new, |numbers| {
        format!(", reads {:.1} GB/s", numbers.read_bytes_per_s / 1e9)
    });
    say(&format!(
        "node {}: {} for layers{speed}, {} threads ({})",
        membership.name,
        report::bytes(card.memory.all_bytes),
        card.n_threads,
        card.isa
    ));
    let addresses: Vec<String> = membership
        .addresses
        .iter()
        .map(ToString::to_string)
        .collect();
    say(&format!("listening on {}", addresses.join(", ")));
}

/// Prints what others join with.
pub(super) fn show_token(membership: &Membership, is_drawn: bool) {
    let token = JoinToken {
        key: membership.key.clone(),
        address: membership.addresses.first().copied(),
    };
    say("others join with (whoever has this can use all nodes: keep it secret):");
    eprintln!("  atta node --join {}", token.text());
    if is_drawn {
        draw(&token.text());
    }
}

/// Draws a text as a QR code on standard error.
pub(super) fn draw(text: &str) {
    use qrcode::{QrCode, render::unicode::Dense1x2};
    if let Ok(code) = QrCode::new(text.as_bytes()) {
        let image = code.render::<Dense1x2>().quiet_zone(true).build();
        eprintln!("{image}");
    }
}

/// Waits for a signal, or until a member asks this node to leave or hands it another key.
fn wait(membership: &Membership, service: &NodeService, end: &AtomicBool) -> Ended {
    let mut remembered: Option<Instant> = None;
    wait_for(service, end, || {
        let is_due = remembered.is_none_or(|at| at.elapsed() > REMEMBER);
        if is_due {
            // Others are met by asking; who is not there now may be later.
            let _ = membership.control.members();
        }
        if membership.meet() || is_due {
            membership.remember();
            remembered = Some(Instant::now());
        }
        match service.is_rekeyed() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    if !service.is_rekeyed() {
        return Ended::Left;
    }
    thread::sleep(LAST_ANSWER);
    Ended::Rekeyed
}

/// Waits for a signal, until a member asks the node to leave, or until a function, called from time
/// to time, ends it.
pub(super) fn wait_for(
    service: &NodeService,
    end: &AtomicBool,
    mut meanwhile: impl FnMut() -> ControlFlow<()>,
) {
    while !end.load(Ordering::Acquire) && !service.is_leaving() && meanwhile().is_continue() {
        thread::sleep(POLL);
    }
}
