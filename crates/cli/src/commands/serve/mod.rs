//! `atta serve`: loads a model, and serves it and others until Ctrl-C or SIGTERM. The address is
//! the only line on standard output.

mod args;
mod disk_cache;

use std::{
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
};

use atta::{Explain, LoadOptions, MemoryPlan, Speculation};
use atta_server::{ClusterMonitor, ModelSource, ServeError, Server, ServerOptions};

use crate::{
    args::{RingFlags, flag, ring::RingAim},
    conversation,
    failure::Failure,
    gpu::GpuPlanner,
    load, ring,
    speculation::OpenDrafts,
};

pub(crate) use args::ServeArgs;

pub(super) fn run(args: Box<ServeArgs>) -> Result<(), Failure> {
    let args = args.with_named_models();
    args.model_flags.refuse_fit("serve")?;
    // Until the first model is loaded, Ctrl-C ends the program at once; then the server handles it.
    let Served {
        sources,
        cluster,
        speculation,
    } = served(&args)?;
    let mut options = ServerOptions {
        cluster,
        ..args.server_options()?
    };
    options.defaults.speculation = speculation;
    let server = Server::bind(sources, options).map_err(|error| match error {
        ServeError::Open(_) | ServeError::SameName(_) => Failure::Usage(error.explain(flag)),
        error => Failure::Failed(error.explain(flag)),
    })?;
    let mut out = io::stdout();
    // A closed standard output does not stop the server.
    let _ = writeln!(out, "{}", server.url()).and_then(|()| out.flush());
    server
        .run_until_signal()
        .map_err(|error| Failure::Failed(error.explain(flag)))
}

/// Conversation tokens in a prompt of the built-in model: with more, it calls wrong tools after
/// about 15 messages (docs/server.md).
const TALK_WINDOW: usize = 320;

/// What the server serves.
struct Served {
    sources: Vec<ModelSource>,
    /// Watches the ring, if one runs the model.
    cluster: Option<Arc<dyn ClusterMonitor>>,
    /// Where drafts come from by default.
    speculation: Option<Speculation>,
}

/// The models. Files that are loaded later are checked now, so that a bad file is an error at
/// start.
fn served(args: &ServeArgs) -> Result<Served, Failure> {
    let models: Vec<Option<PathBuf>> = match args.models.is_empty() {
        true => vec![None],
        false => args.models.iter().cloned().map(Some).collect(),
    };
    if models.len() > 1 && args.chat_template.is_some() {
        return Err(Failure::Usage(
            "--chat-template applies to a server of one model".to_owned(),
        ));
    }
    if models.len() > 1 && args.ring != RingFlags::default() {
        return Err(Failure::Usage(
            "--ring applies to a server of one model".to_owned(),
        ));
    }
    if models.len() > 1 && args.model_flags.has_adapters() {
        return Err(Failure::Usage(
            "--lora applies to a server of one model".to_owned(),
        ));
    }
    let drafts = drafts(args)?;
    let template = conversation::choice(args.chat_template.as_ref())?;
    let gpus = GpuPlanner::new(models.len());
    let mut sources = Vec::new();
    let mut cluster = None;
    for (model, names) in models.into_iter().zip(args.names()?) {
        let options = load::options(model.as_deref(), &args.model_flags, args.session())?;
        let options = LoadOptions {
            constrained: true,
            // One with a name waits for requests that ask for it.
            adapters: args.model_flags.adapter_files(0.0),
            ..options
        };
        let options = drafts.beside(model.as_deref(), options)?;
        let (options, ring) = ring::plan(model.as_deref(), &args.ring, RingAim::Users, options)?;
        let options = gpus.plan(model.as_deref(), &args.gpu, options)?;
        cluster = cluster.or(ring.monitor()?);
        let path = model.as_deref().map(load::locate).transpose()?;
        if let Some(path) = path.as_deref().filter(|_| !sources.is_empty()) {
            MemoryPlan::of(path, &options)?;
        }
        let talk_window = model.is_none().then_some(TALK_WINDOW);
        let open = opener(path, options, &drafts);
        sources.push(ModelSource {
            names,
            template: template.clone(),
            talk_window,
            open,
        });
    }
    Ok(Served {
        sources,
        cluster,
        speculation: drafts.speculation,
    })
}

/// Opens the source of drafts.
///
/// # Errors
/// A draft model, or a head in a file of its own, of several models.
fn drafts(args: &ServeArgs) -> Result<OpenDrafts, Failure> {
    let is_file = args.speculation.file().is_some();
    if is_file && args.models.len() > 1 {
        return Err(Failure::Usage(
            "--speculate draft and eagle apply to a server of one model".to_owned(),
        ));
    }
    OpenDrafts::open(&args.speculation, &args.model_flags)
}

/// Loads a model with these options, beside others.
fn opener(
    path: Option<PathBuf>,
    options: LoadOptions,
    drafts: &OpenDrafts,
) -> Box<atta_server::Open> {
    let drafts = drafts.clone();
    Box::new(move |others| {
        let options = LoadOptions {
            beside: options.beside.saturating_add(others),
            ..options.clone()
        };
        let engine = load::engine_at(path.as_deref(), &options)?;
        drafts.check(&engine)?;
        Ok(engine)
    })
}
