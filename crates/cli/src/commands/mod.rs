//! The commands, one file each: from what was typed to results on standard output.

mod bench;
#[cfg(feature = "cache")]
mod cache;
#[cfg(feature = "chat")]
mod chat;
mod inspect;
mod logits;
#[cfg(feature = "perplexity")]
mod perplexity;
mod picolm;
mod run;
mod tokenize;

use crate::{args::Command, failure::Failure};

/// Does what was asked for.
pub(crate) fn dispatch(command: Command) -> Result<(), Failure> {
    match command {
        Command::Run(args) => run::run(*args),
        #[cfg(feature = "chat")]
        Command::Chat(args) => chat::run(&args),
        #[cfg(not(feature = "chat"))]
        Command::Chat(_) => Err(lacks("chat")),
        #[cfg(feature = "cache")]
        Command::Cache(args) => cache::run(&args),
        #[cfg(not(feature = "cache"))]
        Command::Cache(_) => Err(lacks("cache")),
        Command::Picolm(args) => picolm::run(args),
        Command::Bench(args) => bench::run(&args),
        #[cfg(feature = "perplexity")]
        Command::Perplexity(args) => perplexity::run(&args),
        #[cfg(not(feature = "perplexity"))]
        Command::Perplexity(_) => Err(lacks("perplexity")),
        Command::Tokenize(args) => tokenize::run(args),
        Command::Logits(args) => logits::run(args),
        Command::Inspect(args) => inspect::run(&args),
    }
}

/// A command that goes by the name of the feature that it needs.
#[cfg(not(all(feature = "cache", feature = "chat", feature = "perplexity")))]
fn lacks(feature: &str) -> Failure {
    Failure::Usage(format!("this build has no `atta {feature}`: it was made without the feature `{feature}`"))
}
