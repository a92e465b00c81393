//! A worker of a chain: a node whose layers and neighbour stand on its command line.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use atta::{Budget, KvType, ModelFiles};
use atta_cluster::{
    PartLinks,
    chain::answerer,
    control::Control,
    measure::{celsius, memory_for_models},
    node::{LibraryModels, NodeOptions, NodeService, NodeTiming, part_server},
    part::{Library, LibraryOptions, PartsDirectory},
    wire::message::ChainLink,
};

use super::{args::LeapArgs, model, model_flags, network::Network};
use crate::{
    commands::node::{signals, wait_for},
    failure::Failure,
    report,
    ring::say,
};

/// Disk for layers that are fetched from the master.
const PARTS_BYTES: u64 = 16 << 30;

pub(super) fn run(args: &LeapArgs) -> Result<(), Failure> {
    let end = signals()?;
    let gguf = args.model.as_deref();
    let gguf = gguf.map(|model| model::gguf(model, args.tokenizer.as_deref()));
    let gguf = gguf.transpose()?;
    if let Some(path) = &gguf {
        check_layers(args, path)?;
    }
    let network = Network::open(args)?;
    let next = network.next(&args.chain)?;
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let link = ChainLink {
        name: network.name.clone(),
        start: number(args.chain.start()),
        end: args.chain.end_layer().map(number),
        next,
        lane: args.chain.lane(),
    };
    let service = service(args, &network, gguf.as_deref())?;
    network.doors.on_note(service.noter());
    let control = &network.control;
    let announced = control
        .answer(answerer(link, service.answerer()))
        .and_then(|()| control.announce());
    announced.map_err(|error| Failure::Failed(error.to_string()))?;
    greet(args, &network, &service);
    wait_for(&service, &end, || ControlFlow::Continue(()));
    control.close();
    drop(service);
    Ok(())
}

/// Refuses layers that the model has not.
fn check_layers(args: &LeapArgs, path: &Path) -> Result<(), Failure> {
    let n_layers = n_layers(path)?;
    let start = args.chain.start();
    let end = args.chain.end_layer().unwrap_or(n_layers);
    match start < end && end <= n_layers {
        true => Ok(()),
        false => Err(Failure::at(
            path,
            format!("layers {start} to {end} of a model of {n_layers}: see --split and --end"),
        )),
    }
}

/// Layers of a model.
pub(super) fn n_layers(path: &Path) -> Result<usize, Failure> {
    let files = ModelFiles::open(path).map_err(atta::Error::from)?;
    let spec = atta::arch::lower(files.directory().metadata()).map_err(atta::Error::from)?;
    Ok(spec.layers.len())
}

fn service(
    args: &LeapArgs,
    network: &Network,
    gguf: Option<&Path>,
) -> Result<NodeService, Failure> {
    let flags = model_flags(args);
    let load = flags.load_options(flags.session_options(KvType::default()));
    let bytes = memory_for_models(None).ok_or_else(|| {
        Failure::Failed("this system does not say how much memory is available".to_owned())
    })?;
    let directory = gguf.map(directory_of).transpose()?;
    let library = Arc::new(Library::new(LibraryOptions {
        models: directory.into_iter().collect(),
        parts: Some(PartsDirectory {
            path: network.places.parts(),
            budget_bytes: PARTS_BYTES,
        }),
        hashes: network.places.hashes(),
    }));
    let served = network.doors.serve(part_server(Arc::clone(&library), None));
    served.map_err(|error| Failure::Failed(error.to_string()))?;
    let options = NodeOptions {
        name: network.name.clone(),
        addresses: network.addresses.clone(),
        kernels: load.kernels()?,
        pool: load.open_pool()?,
        budget: Budget::limited(bytes),
        models: Arc::new(LibraryModels::new(library, network.doors.clone())),
        states: None,
        measure: None,
        celsius,
        measure_link: None,
        timing: NodeTiming::default(),
    };
    let service = NodeService::start(options, network.doors.clone());
    service.map_err(|error| Failure::Failed(format!("cannot start the worker: {error}")))
}

/// The directory of a file.
fn directory_of(path: &Path) -> Result<PathBuf, Failure> {
    let path = path
        .canonicalize()
        .map_err(|error| Failure::at(path, error))?;
    Ok(path.parent().unwrap_or(&path).to_owned())
}

/// This worker, in two lines.
fn greet(args: &LeapArgs, network: &Network, service: &NodeService) {
    let end = match args.chain.end_layer() {
        Some(end) => end.to_string(),
        None => "the last one".to_owned(),
    };
    let card = service.card();
    say(&format!(
        "worker {}: layers {} to {end}, {} for them, {} threads ({})",
        network.name,
        args.chain.start(),
        report::bytes(card.memory.all_bytes),
        card.n_threads,
        card.isa
    ));
    let addresses = network.addresses.iter().map(ToString::to_string);
    let addresses: Vec<String> = addresses.collect();
    say(&format!("listening on {}", addresses.join(", ")));
}
