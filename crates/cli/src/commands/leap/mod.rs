//! `atta leap`, and the program called `inference`: text and chat with LEAP's options, on one
//! machine or on a chain of machines.
//!
//! Knows no discovery and no planner: who runs which layers stands on the command lines. LEAP's
//! packets are not spoken; the machines of a chain are nodes and a coordinator as any other.

mod args;
mod chat;
mod master;
mod model;
mod network;
mod tools;
mod worker;

use atta::{Explain, GenerateOptions, KvType};

use super::{
    picolm::nucleus,
    run::{EmptyPrompt, Machines, ResolvedRun},
};
use crate::{
    args::{CacheFlags, ContextFlags, ModelFlags, ReportFlags, RingFlags, flag},
    failure::Failure,
    input::TextSource,
    inputs::InputFiles,
};

pub(crate) use args::LeapArgs;
pub(in crate::commands) use master::Master;
pub(crate) use tools::{LeapExportArgs, LeapTokenizerArgs, export, tokenizer};

use args::LeapRole;

/// How a user gives a prompt.
const PROMPT_HINT: &str = "give it with -p TEXT, or pipe it in; -c is a conversation";

pub(super) fn run(args: Box<LeapArgs>) -> Result<(), Failure> {
    let args = *args;
    args.check()?;
    let options = generate_options(&args)?;
    match args.role {
        LeapRole::Worker => worker::run(&args),
        LeapRole::Single => write(&args, &options, |_| Ok(Machines::Flags(RingFlags::default()))),
        LeapRole::Master => write(&args, &options, |path| {
            Ok(Machines::Chain(Box::new(Master::open(&args, path)?)))
        }),
    }
}

/// Continues a text or chats.
fn write(
    args: &LeapArgs,
    options: &GenerateOptions,
    machines: impl FnOnce(&std::path::Path) -> Result<Machines, Failure>,
) -> Result<(), Failure> {
    let path = model::gguf(args.model()?, args.tokenizer.as_deref())?;
    let flags = model_flags(args);
    let run = ResolvedRun {
        options: options.clone(),
        empty_prompt: EmptyPrompt::Allowed,
        model_flags: flags,
        context: ContextFlags::default(),
        cache: CacheFlags::default(),
        report: ReportFlags::default(),
        inputs: InputFiles::default(),
        machines: machines(&path)?,
        model: Some(path),
    };
    if args.chat {
        return chat::run(args, run);
    }
    run.execute(TextSource::given_or_piped(args.prompt.as_deref(), PROMPT_HINT)?)
}
