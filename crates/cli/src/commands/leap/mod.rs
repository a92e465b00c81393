//! `atta leap`, and the program called `inference`: text and chat with LEAP's options, on one
//! machine or on a chain of machines.
//!
//! Knows no discovery and no planner: who runs which layers stands on the command lines. LEAP's
//! packets are not spoken; the machines of a chain are nodes and a coordinator as any other.

mod args;
mod chat;
pub(super) mod export;
mod master;
mod model;
mod network;
pub(super) mod tokenizer;
mod worker;

use atta::{Explain, GenerateOptions};

use super::{
    picolm::nucleus,
    run::{EmptyPrompt, Machines, ResolvedRun},
};
use crate::{
    args::{
        CacheFlags, ContextFlags, GpuFlags, ModelFlags, ReportFlags, RingFlags, SpeculationFlags,
        flag, value::Seed,
    },
    failure::Failure,
    input::TextSource,
    inputs::InputFiles,
};

pub(crate) use args::LeapArgs;
pub(super) use master::Master;

use args::LeapRole;

/// How a user gives a prompt.
const PROMPT_HINT: &str = "give it with -p TEXT, or pipe it in; -c is a conversation";

pub(super) fn run(args: Box<LeapArgs>) -> Result<(), Failure> {
    args.check()?;
    let options = generate_options(&args)?;
    if args.role == LeapRole::Worker {
        return worker::run(&args);
    }
    let model = model::gguf(args.model()?, args.tokenizer.as_deref())?;
    let master = match args.role {
        LeapRole::Master => Some(Master::open(&args, &model)?),
        _ => None,
    };
    if args.chat {
        return chat::run(&args, &model, master, &options);
    }
    let run = ResolvedRun {
        model: Some(model),
        empty_prompt: EmptyPrompt::Allowed,
        options,
        speculation: SpeculationFlags::off(),
        model_flags: model_flags(&args),
        context: ContextFlags::default(),
        cache: CacheFlags::default(),
        machines: machines(master),
        report: ReportFlags::default(),
        inputs: InputFiles::default(),
    };
    run.execute(TextSource::given_or_piped(
        args.prompt.as_deref(),
        PROMPT_HINT,
    )?)
}

fn machines(master: Option<Master>) -> Machines {
    match master {
        Some(master) => Machines::Chain(Box::new(master)),
        None => Machines::Flags(RingFlags::default(), GpuFlags::default()),
    }
}

fn model_flags(args: &LeapArgs) -> ModelFlags {
    match args.threads {
        Some(n) => ModelFlags::default().with_threads(n),
        None => ModelFlags::default(),
    }
}

/// LEAP's defaults: temperature 1, top-p 0.9, 4096 tokens, and another text each time.
fn generate_options(args: &LeapArgs) -> Result<GenerateOptions, Failure> {
    let sampling = nucleus(
        args.temp.unwrap_or(1.0),
        args.top_p.unwrap_or(0.9),
        args.seed.unwrap_or(Seed::Random),
    );
    let checked = sampling.validate();
    checked.map_err(|error| Failure::Usage(error.explain(flag)))?;
    Ok(GenerateOptions {
        n_predict: args.n_predict.unwrap_or(4096),
        sampling,
        ..GenerateOptions::default()
    })
}
