//! The commands, one file each: from what was typed to results on standard output.

mod bench;
#[cfg(feature = "cache")]
mod cache;
#[cfg(feature = "chat")]
mod call;
#[cfg(feature = "chat")]
mod chat;
#[cfg(feature = "convert")]
mod convert;
#[cfg(feature = "convert")]
mod imatrix;
mod inspect;
mod logits;
#[cfg(feature = "perplexity")]
mod perplexity;
mod picolm;
#[cfg(feature = "pull")]
mod pull;
mod run;
#[cfg(feature = "server")]
mod serve;
mod tokenize;

use crate::{args::Command, failure::Failure};

/// Does what was asked for.
pub(crate) fn dispatch(command: Command) -> Result<(), Failure> {
    match command {
        #[cfg(feature = "chat")]
        Command::Run(args) if args.tools.tools.is_some() => call::run(*args),
        #[cfg(not(feature = "chat"))]
        Command::Run(args) if args.tools.tools.is_some() => Err(lacks("run --tools", "chat")),
        Command::Run(args) => run::run(*args),
        #[cfg(feature = "chat")]
        Command::Chat(args) => chat::run(&args),
        #[cfg(not(feature = "chat"))]
        Command::Chat(_) => Err(lacks("chat", "chat")),
        #[cfg(feature = "server")]
        Command::Serve(args) => serve::run(&args),
        #[cfg(not(feature = "server"))]
        Command::Serve(_) => Err(lacks("serve", "server")),
        #[cfg(feature = "cache")]
        Command::Cache(args) => cache::run(&args),
        #[cfg(not(feature = "cache"))]
        Command::Cache(_) => Err(lacks("cache", "cache")),
        #[cfg(feature = "pull")]
        Command::Pull(args) => pull::run(args),
        #[cfg(not(feature = "pull"))]
        Command::Pull(_) => Err(lacks("pull", "pull")),
        Command::Picolm(args) => picolm::run(args),
        Command::Bench(args) => bench::run(&args),
        #[cfg(feature = "perplexity")]
        Command::Perplexity(args) => perplexity::run(&args),
        #[cfg(not(feature = "perplexity"))]
        Command::Perplexity(_) => Err(lacks("perplexity", "perplexity")),
        Command::Tokenize(args) => tokenize::run(args),
        Command::Logits(args) => logits::run(args),
        Command::Inspect(args) => inspect::run(&args),
        #[cfg(feature = "convert")]
        Command::Convert(args) => convert::run(&args),
        #[cfg(not(feature = "convert"))]
        Command::Convert(_) => Err(lacks("convert", "convert")),
        #[cfg(feature = "convert")]
        Command::Imatrix(args) => imatrix::run(&args),
        #[cfg(not(feature = "convert"))]
        Command::Imatrix(_) => Err(lacks("imatrix", "convert")),
    }
}

/// A command that needs a feature.
#[cfg(not(all(
    feature = "cache",
    feature = "chat",
    feature = "convert",
    feature = "perplexity",
    feature = "pull",
    feature = "server"
)))]
fn lacks(command: &str, feature: &str) -> Failure {
    Failure::Usage(format!(
        "this build has no `atta {command}`: it was made without the feature `{feature}`"
    ))
}
